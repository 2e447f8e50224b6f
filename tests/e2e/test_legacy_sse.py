"""Clients of the HTTP+SSE transport of 2024-11-05 at the same hub as everybody else."""

import json
import signal
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import mcp.types as types
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client

from tests.e2e.client import HttpClient, Hub
from tests.e2e.sse_client import SseClient, sse_url
from tests.interaction.fronts import http_hub
from tests.pace import paced
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, received, servers_yaml

pytestmark = pytest.mark.anyio

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
GUARD = 2.0
"""Seconds: the promise."""


def config(root: Path) -> str:
    """`h` is of the handshake era, `m` modern; `q` is there to ask."""
    servers = {name: argv(name=name, era=era, journal=root / f"{name}.journal") for name, era in ERAS.items()}
    return servers_yaml(servers)


ERAS = {"h": "handshake", "m": "modern", "q": "handshake"}


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Path]]:
    root = tmp_path_factory.mktemp("sse")
    async with http_hub(config(root), root) as hub:
        async with HttpClient(hub.url) as client:
            await client.initialize()
            await client.request("tools/list")
        yield hub, root


@pytest.fixture
def hub(running: tuple[Hub, Path]) -> Hub:
    return running[0]


@pytest.fixture
def root(running: tuple[Hub, Path]) -> Path:
    return running[1]


@pytest.fixture
async def client(hub: Hub) -> AsyncIterator[SseClient]:
    async with SseClient.connect(hub.url) as connected:
        await connected.initialize()
        yield connected


# -- on the wire


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_handshake_version_is_served(hub: Hub, version: str) -> None:
    async with SseClient.connect(hub.url) as client:
        hello = (await client.initialize(version))["result"]
        assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == (version, "mcp-hub")
        for server in "hm":
            assert (await client.call(f"{server}_echo", {"text": "✓"}))["result"]["content"][0]["text"]
        assert {"h_echo", "m_echo"} <= {
            tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]
        }


async def open_without_reading(url: str) -> tuple[anyio.abc.SocketStream, str]:
    """A stream of which only the endpoint is read, and that endpoint."""
    base = url.removesuffix("/mcp")
    host, port = base.removeprefix("http://").split(":")
    stream = await anyio.connect_tcp(host, int(port))
    await stream.send(f"GET /sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\r\n".encode())
    head = b""
    while b"sessionId=" not in head or not head.endswith(b"\n\n\r\n"):
        head += await stream.receive()
    return stream, base + head.partition(b"data: ")[2].split()[0].decode()


async def fill(client: SseClient, endpoint: str, calls: int) -> None:
    """Has results of a megabyte sent to a session whose stream nobody reads, until the hub keeps it waiting."""
    client.endpoint = endpoint
    await client.send_request("initialize", {**json.loads(HELLO)}, id="hello")
    with anyio.move_on_after(_KEPT_WAITING):
        for i in range(calls):
            await client.send_request("tools/call", {"name": "h_big", "arguments": {"bytes": 1 << 20}}, id=f"big-{i}")


_KEPT_WAITING = 3  # seconds; a request takes milliseconds where the hub takes requests of this client
HELLO = json.dumps({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}})


async def test_hub_stops_in_time_with_streams_open(tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"h": argv(name="h", journal=tmp_path / "journal")}), tmp_path) as hub:
        async with AsyncExitStack() as stack:
            idle, busy, poster = [await stack.enter_async_context(SseClient.connect(hub.url)) for _ in range(3)]
            stalled, endpoint = await open_without_reading(hub.url)
            await stack.enter_async_context(stalled)
            await fill(poster, endpoint, 8)
            await idle.initialize()
            await busy.initialize()
            id_ = await busy.send_request("tools/call", {"name": "h_wait_cancel", "arguments": {"nonce": "x"}})
            await until(lambda: "wait_cancel" in str(received(tmp_path / "journal", "tools/call")))
            async with paced(hub.pid) as pace:
                hub.send_signal(signal.SIGTERM)
                assert (await busy.response(id_))["error"]["code"] == 1005
                await idle.wait_closed()
                await busy.wait_closed()
                assert await hub.wait() == 0, hub.stderr
            assert pace.seconds < GUARD
            assert "Traceback" not in hub.stderr


# -- the Python SDK's client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_python_sdk_works_over_the_old_transport(hub: Hub, root: Path, mode: str) -> None:
    """In `auto` mode the SDK asks for the modern era first and takes the hint to fall back."""
    told: list[Any] = []

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": "sdk"})

    async def on_message(message: Any) -> None:
        told.append(message)

    async with Client(
        sse_client(sse_url(hub.url)), mode=mode, elicitation_callback=elicit, message_handler=on_message
    ) as client:
        assert client.protocol_version == "2025-11-25"
        assert {"h_echo", "m_echo", "q_ask_form"} <= {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("h_echo", {"text": "hi"})).structured_content == {"text": "hi"}
        seen: list[float] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        await client.call_tool("m_progress", {"n": 50}, progress_callback=on_progress)
        await until(lambda: len(seen) == 50)
        with pytest.raises(MCPError) as refused:
            await client.call_tool("h_error", {"code": 7, "message": "no", "data": [1]})
        assert (refused.value.error.code, refused.value.error.data) == (7, [1])
        asked = await client.call_tool("q_ask_form", {"nonce": mode})
        assert asked.structured_content is not None
        assert asked.structured_content["answers"]["form"]["result"]["content"] == {"answer": "sdk"}
        await _is_told_of_changes(client, told, mode)
        await _cancels(client, root / "h.journal", f"sdk-{mode}")


async def _is_told_of_changes(client: Client, told: list[Any], nonce: str) -> None:
    async def has(kind: type[Any]) -> None:
        await until(lambda: any(isinstance(message, kind) for message in told))

    await client.call_tool("h_add_tool", {"name": f"added_{nonce}", "inputSchema": {"type": "object"}})
    await has(types.ToolListChangedNotification)
    assert f"h_added_{nonce}" in {tool.name for tool in (await client.list_tools()).tools}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated by the newest revision, not for this transport
        await client.subscribe_resource("test://h/readme")
    await client.call_tool("h_touch", {"uri": "test://h/readme"})
    await has(types.ResourceUpdatedNotification)


async def _cancels(client: Client, journal: Path, nonce: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "h_wait_cancel", {"nonce": nonce})
        await until(lambda: nonce in str(received(journal, "tools/call")))
        tasks.cancel_scope.cancel()
    await until(lambda: [event for event in events(journal, "cancelled") if event["nonce"] == nonce])
