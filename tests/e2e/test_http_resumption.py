"""Clients that do not read, and hubs that stop, in the middle of a stream over real sockets."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from tests.e2e.client import HttpClient, Hub, SseEvent, SseStream
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT, PeerClosed
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(servers_yaml({"a": argv()}), tmp_path_factory.mktemp("resumption")) as running:
        yield running


@pytest.fixture
async def client(front: Hub) -> AsyncIterator[HttpClient]:
    async with HttpClient(front.url) as client:
        await client.initialize()
        await client.request("tools/list")
        yield client


def progress(client: HttpClient, n: int, delay: float = 0.0, **fields: int) -> Message:
    params = {"name": "a_progress", "arguments": {"n": n, "delay": delay}, "_meta": {"progressToken": "t"}}
    return client.message("tools/call", params, **fields)


def part(stream: SseStream) -> list[SseEvent]:
    """What of the stream has arrived whole, without what only primes."""
    return [event for event in stream.events if event.data]


async def read(stream: SseStream, count: int) -> bool:
    """So many events; whether the stream has ended with them or before."""
    with suppress(PeerClosed):
        for _ in range(count):
            message = (await stream.next_event()).data
            if '"result"' in message:
                return True
        return False
    return True


async def test_a_client_that_does_not_read_delays_nobody(client: HttpClient, front: Hub) -> None:
    """More waits for it than the machine's own buffers hold; it may come back for all of it.

    How much of it is merged depends on when the others are served; each value is there or is counted.
    """
    message = progress(client, 3000)
    message["params"]["arguments"]["nonce"] = "x" * 2000
    head = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    head |= {"mcp-session-id": str(client.session), "mcp-protocol-version": "2025-11-25", "host": "127.0.0.1"}
    body = json.dumps(message).encode()
    lines = [f"{name}: {value}" for name, value in {**head, "content-length": str(len(body))}.items()]
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", urlsplit(front.url).port))
        stalled.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
        async with HttpClient(front.url) as other:
            await other.initialize()
            for same in (client, other):
                with anyio.fail_after(240):
                    assert (await same.post(progress(same, 2000))).last["result"]
        begun = stalled.recv(2000).decode()
        (place,) = {line[4:] for line in begun.splitlines() if line.startswith("id: ") and line.endswith(":0")}
        async with client.listen(place) as stream:
            rest = await stream.rest(30)
    count = 0
    for event in part(stream)[:-1]:
        params = event.message["params"]
        count += 1 + params.get("_meta", {}).get("dev.mcp-hub/coalesced", 0)
        assert params["progress"] == count
    assert count == 3000
    assert "result" in rest.last


async def test_a_stop_of_the_hub_ends_a_resumed_stream_with_an_answer(tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv()}), tmp_path) as running, HttpClient(running.url) as client:
        await client.initialize()
        await client.request("tools/list")
        async with client.stream(progress(client, 1000, 0.05)) as stream:
            await read(stream, 3)
        async with client.listen(stream.last_id) as resumed:
            await read(resumed, 3)
            with anyio.fail_after(WAIT):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(running.stop)
                    with suppress(httpx2.TransportError):
                        await resumed.rest()
        assert part(resumed)[-1].message["error"]["code"] == 1005
