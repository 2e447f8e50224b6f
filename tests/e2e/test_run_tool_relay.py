"""What `run_tool` relays is what the tool that it runs would have got and given: each front, each era on both sides."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.raw_wire import Wire
from tests.interaction.fronts import ERAS, HANDSHAKE, connected, through_run_tool
from tests.upstreams.child import until
from tests.upstreams.launch import events, received
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

DATA = {"deep": [1, None, 12345678901234567890123], "s": "é"}


@pytest.fixture(scope="module", params=ERAS)
async def wire(request: pytest.FixtureRequest, wire_hub: Any) -> AsyncIterator[Wire]:
    """As for direct calls, of a client that has `run_tool` run everything."""
    running, root = wire_hub
    async with connected(running, request.param, runs_tools=True) as peer:
        await peer.names()
        yield Wire(peer, "stdio" if isinstance(running, StdioClient) else "http", root)


@pytest.mark.first(2)
async def test_the_server_gets_the_call_that_is_meant(wire: Wire, upstream: str) -> None:
    nonce = f"meant-{wire.front}-{wire.peer.era}-{upstream}"
    arguments = {"text": "x", "nonce": nonce, "n": 2**70, "f": 1.5, "u": "\u2028\x00"}
    params = {"name": f"{upstream}_echo", "arguments": arguments, "x-extra": {"a": [None]}}
    assert (await wire.peer.request("tools/call", params)).result["structuredContent"] == arguments
    arrived = wire.arrived(upstream, nonce)["params"]
    assert (arrived["name"], arrived["arguments"], arrived["x-extra"]) == ("echo", arguments, {"a": [None]})


@pytest.mark.parametrize("code", [4242, -32001, -32603])
async def test_error_answers_come_verbatim(wire: Wire, upstream: str, code: int) -> None:
    error = {"code": code, "message": f"no: {code} é", "data": DATA}
    assert (await wire.peer.call(f"{upstream}_error", error)).error == error
    del error["data"]
    assert (await wire.peer.call(f"{upstream}_error", error)).error == error


async def test_refused_arguments_come_back_with_what_the_tool_takes(wire: Wire, upstream: str) -> None:
    error = {"code": -32602, "message": "no é", "data": DATA}
    got = (await wire.peer.call(f"{upstream}_error", error)).error
    message, _, takes = got["message"].partition("\n\n")
    assert {**got, "message": message} == error
    assert list(json.loads(takes)["inputSchema"]["properties"]) == ["code", "message", "data"]
    seen = await wire.peer.call(f"{upstream}_tool_error", {"txt": 5, "text": "no"})
    said, shown = seen.result["content"]
    assert seen.result["isError"] and said == {"type": "text", "text": "no"}
    assert json.loads(shown["text"])["inputSchema"]["required"] == ["text"]
    fine = await wire.peer.call(f"{upstream}_tool_error", {"text": "no"})
    assert fine.result["isError"] and fine.text == "no"


async def test_a_cancelled_call_is_cancelled_at_its_server(wire: Wire, upstream: str) -> None:
    nonce = f"cancel-{wire.front}-{wire.peer.era}-{upstream}"
    journal, client = wire.root / f"{upstream}.journal", wire.peer.wire
    call = {"name": f"{upstream}_wait_cancel", "arguments": {"nonce": nonce}}
    params = through_run_tool(wire.peer.params(call))

    def has_come() -> bool:
        return any(one["params"]["arguments"].get("nonce") == nonce for one in received(journal, "tools/call"))

    def is_cancelled() -> bool:
        return any(event["nonce"] == nonce for event in events(journal, "cancelled"))

    async with anyio.create_task_group() as tasks:
        leg = anyio.CancelScope()

        async def run() -> None:
            with leg:
                await client.request("tools/call", params, id=nonce)

        tasks.start_soon(run)
        await until(has_come)
        assert not is_cancelled()
        if isinstance(client, HttpClient) and wire.peer.era != HANDSHAKE:
            leg.cancel()  # there a client cancels by leaving
        else:
            await client.notify("notifications/cancelled", {"requestId": nonce})
        await until(is_cancelled)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("break_", ["\n", "\r\n"], ids=["lf", "crlf"])
async def test_arguments_as_text_are_an_object_and_never_a_message_of_their_own(
    wire: Wire, upstream: str, break_: str
) -> None:
    """A line of that text would be one on the pipe to a server, too."""
    nonce = f"text-{wire.front}-{wire.peer.era}-{upstream}-{len(break_)}"
    inner = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"nonce": nonce}},
    }
    text = break_.join(['{"text":', json.dumps(inner), "}"])
    seen = await wire.peer.call("run_tool", {"name": f"{upstream}_echo", "arguments": text})
    assert seen.result["isError"], "run_tool runs itself not"
    wire.peer.runs_tools = False
    try:
        seen = await wire.peer.call("run_tool", {"name": f"{upstream}_echo", "arguments": text})
    finally:
        wire.peer.runs_tools = True
    assert seen.result["structuredContent"] == {"text": inner}
    calls = received(wire.root / f"{upstream}.journal", "tools/call")
    assert [call["params"]["arguments"] for call in calls if nonce in json.dumps(call)] == [{"text": inner}]
