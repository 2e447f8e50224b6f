"""Connections that break in the middle of a stream, over real sockets: the client comes back and misses nothing."""

import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from tests.e2e.client import Answer, HttpClient, Hub, SseEvent, SseStream
from tests.interaction.fronts import http_hub
from tests.upstreams.child import PeerClosed
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

UNDISTURBED = 300
COALESCED = "dev.mcp-hub/coalesced"


@pytest.fixture(scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Path]]:
    root = tmp_path_factory.mktemp("resumption")
    servers = {"a": argv(journal=root / "journal"), "asks": argv(era="handshake")}
    async with http_hub(servers_yaml(servers), root) as running:
        yield running, root / "journal"


@pytest.fixture
async def client(front: tuple[Hub, Path]) -> AsyncIterator[HttpClient]:
    async with HttpClient(front[0].url) as client:
        await client.initialize(capabilities={"elicitation": {}})
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


async def disturbed(client: HttpClient, message: Message, counts: list[int]) -> tuple[list[SseEvent], int]:
    """All messages of a call whose client hangs up after so many events, and again, and then stays; and how often."""
    async with client.stream(message) as stream:
        is_over = await read(stream, 1 + counts[0])
    arrived, last = part(stream), stream.last_id
    times = 0
    for count in [*counts[1:], 1_000_000]:
        if is_over:
            break
        async with client.listen(last) as stream:
            assert stream.status == 200 and stream.is_sse
            is_over = await read(stream, 1 + count)
        arrived, last = arrived + part(stream), stream.last_id
        times += 1
    return arrived, times


def content(response: Message) -> object:
    """Of a result, without what tells one stream from another."""
    return response["result"]["content"]


def check_whole(arrived: list[SseEvent], n: int, answered: Answer) -> None:
    """The messages of an undisturbed client, under ids without a hole.

    Of progress that came while nobody was connected the newest stands for those before it, and says for how many.
    """
    messages = [event.message for event in arrived]
    by_value = {message["params"]["progress"]: message for message in answered.messages[:-1]}
    merged = [message["params"].pop("_meta", {}).get(COALESCED, 0) for message in messages[:-1]]
    assert messages[:-1] == [by_value[message["params"]["progress"]] for message in messages[:-1]]
    values = [message["params"]["progress"] for message in messages[:-1]]
    assert values == list(accumulate(count + 1 for count in merged)) and values[-1] == n
    assert content(messages[-1]) == content(answered.last)
    seqs = [int(str(event.id).rpartition(":")[2]) for event in arrived]
    assert seqs == list(range(2, len(arrived) + 2))
    assert len({str(event.id).partition(":")[0] for event in arrived}) == 1


@pytest.mark.parametrize("seed", range(2))
async def test_a_client_that_loses_its_connection_again_and_again_gets_every_message_once(
    client: HttpClient, seed: int
) -> None:
    chance = random.Random(seed)
    undisturbed = await client.post(progress(client, UNDISTURBED))
    counts = [chance.choice([0, 1, 2, 10, 40]) for _ in range(30)]
    message = progress(client, UNDISTURBED, chance.choice([0, 0.001, 0.002]))
    arrived, _ = await disturbed(client, message, counts)
    check_whole(arrived, UNDISTURBED, undisturbed)
    assert arrived[-1].message["id"] == message["id"]


async def test_a_thousand_messages_with_fifty_breaks(client: HttpClient) -> None:
    undisturbed = await client.post(progress(client, 1000))
    arrived, times = await disturbed(client, progress(client, 1000), [15] * 50)
    assert times == 50
    check_whole(arrived, 1000, undisturbed)


async def test_a_client_that_does_not_read_delays_nobody(client: HttpClient, front: tuple[Hub, Path]) -> None:
    """More waits for it than the machine's own buffers hold; it may come back for all of it."""
    message = progress(client, 3000)
    message["params"]["arguments"]["nonce"] = "x" * 2000
    head = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    head |= {"mcp-session-id": str(client.session), "mcp-protocol-version": "2025-11-25", "host": "127.0.0.1"}
    body = json.dumps(message).encode()
    lines = [f"{name}: {value}" for name, value in {**head, "content-length": str(len(body))}.items()]
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", urlsplit(front[0].url).port))
        stalled.sendall("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
        async with HttpClient(front[0].url) as other:
            await other.initialize()
            for same in (client, other):
                with anyio.fail_after(20):
                    assert (await same.post(progress(same, 2000))).last["result"]
        begun = stalled.recv(2000).decode()
        (place,) = {line[4:] for line in begun.splitlines() if line.startswith("id: ") and line.endswith(":0")}
        async with client.listen(place) as stream:
            rest = await stream.rest(30)
    assert [event.message["params"]["progress"] for event in part(stream)[:-1]] == list(range(1, 3001))
    assert "result" in rest.last


async def test_a_stop_of_the_hub_ends_a_resumed_stream_with_an_answer(tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv()}), tmp_path) as running, HttpClient(running.url) as client:
        await client.initialize()
        await client.request("tools/list")
        async with client.stream(progress(client, 1000, 0.05)) as stream:
            await read(stream, 3)
        async with client.listen(stream.last_id) as resumed:
            await read(resumed, 3)
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(running.stop)
                    with suppress(httpx2.TransportError):
                        await resumed.rest()
        assert part(resumed)[-1].message["error"]["code"] == 1005
