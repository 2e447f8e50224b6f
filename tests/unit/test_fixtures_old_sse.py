"""The fixture server over HTTP+SSE of 2024-11-05."""

from pathlib import Path

import anyio
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from tests.e2e.client import HttpClient, until
from tests.upstreams.http_child import HttpUpstream
from tests.upstreams.launch import events

pytestmark = pytest.mark.anyio


async def test_messages_go_to_the_endpoint_and_answers_come_on_the_stream(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with HttpUpstream(journal=log) as server, HttpClient(server.old_url) as c:
        assert (await c.post(c.message("initialize"))).status == 405
        async with c.listen() as stream:
            endpoint = await stream.next_event()
            assert (endpoint.event, endpoint.id) == ("endpoint", None)
            async with HttpClient(server.old_url.removesuffix("/sse") + endpoint.data) as out:
                hello = {"protocolVersion": "2024-11-05", "capabilities": {"roots": {}}, "clientInfo": {"name": "x"}}
                assert (await out.request("initialize", hello, id=1)).status == 202
                assert (await stream.wait_for(lambda _: True))["result"]["protocolVersion"] == "2024-11-05"
                await out.request("tools/call", {"name": "ask_roots", "arguments": {}}, id=2)
                question = await stream.wait_for(lambda m: m.get("method") == "roots/list")
                await out.post({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}})
                told = (await stream.wait_for(lambda m: m.get("id") == 2))["result"]
                assert told["structuredContent"]["answers"] == {"roots": {"result": {"roots": []}}}
                await out.request("tools/call", {"name": "wait_cancel", "arguments": {"nonce": "w"}}, id=3)
        await until(lambda: events(log, "cancelled"))  # the session is gone with its stream
        async with HttpClient(server.old_url.removesuffix("/sse") + endpoint.data) as out:
            assert (await out.request("ping")).status == 404


async def test_sdk_client_accepts_the_old_transport() -> None:
    async with HttpUpstream() as server:
        with anyio.fail_after(20):
            async with sse_client(server.old_url) as streams, ClientSession(*streams) as session:
                await session.initialize()
                assert (await session.call_tool("echo", {"text": "hi"})).structured_content == {"text": "hi"}
