"""The client of a running hub, as a library: against a hub, and against what is none."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_hub.client import HubClient
from mcp_hub.errors import ConfigError, HubError, UpstreamLost
from mcp_hub.events import Completed, Failed, Progressed
from tests.e2e.client import until
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT
from tests.upstreams.launch import argv, received, servers_yaml

pytestmark = pytest.mark.anyio

TOOLS = 250
"""More than two pages of a hub."""


async def test_client_lists_all_pages_and_cancels_what_it_leaves(tmp_path: Path) -> None:
    servers = {"many": argv(tools=TOOLS), "fix": argv(journal=tmp_path / "journal")}
    config = servers_yaml(servers, hub={"first_list_wait": "20s"})
    with anyio.fail_after(6 * WAIT):
        async with http_hub(config, tmp_path) as hub, HubClient(hub.url) as client:
            names = [json.loads(bytes(raw))["name"] for raw in await client.tools()]
            assert len([name for name in names if name.startswith("many_")]) >= TOOLS
            async with client.call("fix_wait_cancel", b'{"nonce":"a"}'):
                pass  # nothing is sent before the first event is asked for
            async with client.call("fix_progress", b'{"n":100000,"delay":0.01}') as events:
                assert isinstance(await anext(events), Progressed)
            await until(lambda: received(tmp_path / "journal", "notifications/cancelled"))
            async with client.call("fix_echo", b'{"text":"still there"}') as events:
                [done] = [event async for event in events]
            assert isinstance(done, Completed)
            with pytest.raises(StopAsyncIteration):
                await anext(events)
    [asked] = received(tmp_path / "journal", "tools/call")[:-1]
    assert asked["params"]["name"] == "progress"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The URL of something that takes a request, says this and hangs up."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN: list[tuple[bytes, type[HubError], str]] = [
    (b"SSH-2.0-OpenSSH_9.9\r\n", UpstreamLost, "lost the connection"),
    (b"", UpstreamLost, "lost the connection"),
    (HEAD % b"text/event-stream" + b"5\r\n: hi\n\r\n", UpstreamLost, "lost the connection"),
    (HEAD % b"text/event-stream" + b"0\r\n\r\n", UpstreamLost, "ended its answer too early"),
    (HEAD % b"application/json" + b"9\r\n{\"result\"\r\n", UpstreamLost, "lost the connection"),
    (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", ConfigError, "HTTP 302"),
    (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", HubError, "answered with HTTP 502"),
]  # fmt: skip


async def of_list(client: HubClient) -> None:
    await client.tools()


async def of_call(client: HubClient) -> None:
    async with client.call("a") as events:
        [event] = [event async for event in events]
    assert isinstance(event, Failed)
    raise event.error


@pytest.mark.parametrize("ask", [of_list, of_call])
@pytest.mark.parametrize(("answer", "kind", "message"), BROKEN)
async def test_what_is_no_hub_or_breaks_off_is_a_clear_error(
    ask: Callable[[HubClient], Awaitable[None]], answer: bytes, kind: type[HubError], message: str
) -> None:
    with anyio.fail_after(WAIT):
        async with answering(answer) as url, HubClient(url) as client:
            with pytest.raises(kind, match=message) as found:
                await ask(client)
    assert f"{url}/mcp" in str(found.value)
