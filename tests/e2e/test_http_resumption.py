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

from tests.e2e.bad_input import BOB
from tests.e2e.client import Answer, HttpClient, Hub, Message, PeerClosed, SseEvent, SseStream, until
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import argv, events, servers_yaml

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


@pytest.mark.parametrize("seed", range(6))
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


async def test_many_streams_break_at_once_and_keep_apart(client: HttpClient) -> None:
    undisturbed = await client.post(progress(client, 50))

    async def one(seed: int) -> None:
        chance = random.Random(seed)
        counts = [chance.randint(0, 6) for _ in range(8)]
        check_whole((await disturbed(client, progress(client, 50, 0.004), counts))[0], 50, undisturbed)

    async with anyio.create_task_group() as tasks:
        for seed in range(10):
            tasks.start_soon(one, seed)


async def test_an_older_protocol_version_has_places_but_no_priming(front: tuple[Hub, Path]) -> None:
    async with HttpClient(front[0].url) as old:
        await old.initialize("2025-06-18")
        undisturbed = await old.post(progress(old, 20))
        assert all(event.data and event.retry is None for event in undisturbed.events)
        arrived, _ = await disturbed(old, progress(old, 20, 0.01), [3, 5])
        check_whole(arrived, 20, undisturbed)


async def test_the_latest_connection_gets_the_stream(client: HttpClient) -> None:
    async with client.stream(progress(client, 40, 0.05)) as posted:
        await read(posted, 4)
        async with client.listen(posted.last_id) as second:
            posted_rest = (await posted.rest()).events
            await read(second, 4)
            async with client.listen(second.last_id) as third:
                second_rest = (await second.rest()).events
                answered = await third.rest()
    assert "result" in answered.last and "result" not in posted_rest[-1].message
    seen = [event for events in (posted_rest, second_rest, answered.events) for event in events if event.data]
    assert [event.message["params"]["progress"] for event in seen[:-1]] == list(range(1, 41))


async def test_after_the_end_there_is_the_rest_or_nothing(client: HttpClient) -> None:
    answered = await client.post(progress(client, 5))
    ids = [str(event.id) for event in answered.events]
    for at, id_ in enumerate(ids[:-1]):
        async with client.listen(id_) as stream:
            rest = await stream.rest()
        assert rest.messages == answered.messages[at:]
    async with client.listen(ids[-1]) as stream:
        assert ((await stream.rest()).status, stream.text) == (204, "")


async def test_events_that_were_let_go_are_gone(client: HttpClient) -> None:
    answered = await client.post(progress(client, 20_000))
    async with client.listen(answered.events[0].id) as stream:
        refused = await stream.rest()
    assert refused.status == 410 and "id" not in refused.last and "no longer" in refused.last["error"]["message"]
    numbers = [int(str(event.id).rpartition(":")[2]) for event in answered.events]
    kept = sum(number > numbers[-1] - 1000 for number in numbers)  # a reader on a busy machine may have skipped some
    async with client.listen(answered.events[-kept].id) as stream:
        assert (await stream.rest()).messages == answered.messages[1 - kept :]


async def test_nobody_else_can_come_back_for_a_stream(hub: Hub, alice: HttpClient) -> None:
    """Neither another principal nor another session of the same, and both learn nothing."""
    params = {"name": "a_progress", "arguments": {"n": 100, "delay": 0.05}, "_meta": {"progressToken": 1}}
    message = alice.message("tools/call", params)
    async with alice.stream(message) as stream:
        await read(stream, 3)
        place = stream.last_id
        assert place is not None
        unknown = "st_" + "0" * 26 + ":1"
        async with HttpClient(hub.url, BOB) as bob, HttpClient(hub.url, "alice-secret-token") as other:
            for thief in (bob, other):
                await thief.initialize()
                told: list[tuple[int, str, list[tuple[str, str]]]] = []
                for named in (place, unknown, "nonsense"):
                    async with thief.listen(named) as refused:
                        await refused.rest()
                    headers = [(name, value) for name, value in refused.headers.items() if name != "date"]
                    told.append((refused.status, refused.text, headers))
                assert told[0] == told[1] == told[2] and told[0][0] == 400
                assert "id" not in json.loads(told[0][1])
            bob.session = alice.session
            async with bob.listen(place) as refused:
                assert refused.status == 404
        await read(stream, 3)  # and the stream goes on
    await alice.notify("notifications/cancelled", {"requestId": message["id"]})


async def test_a_question_is_asked_again_until_it_is_answered_by_whatever_way(client: HttpClient) -> None:
    def told(question: Message, name: str) -> Message:
        return {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"said": name}}}

    call = client.message("tools/call", {"name": "asks_ask_two", "arguments": {}})
    async with client.stream(call) as stream:
        first = await stream.wait_for(lambda message: "method" in message)
        primed = stream.events[0].id
    async with client.listen(primed) as stream:
        assert await stream.wait_for(lambda message: "method" in message) == first
        place = stream.last_id
    assert (await client.post(told(first, "one"))).status == 202  # the stream is down
    again: list[Message] = []
    for _ in range(2):
        async with client.listen(place) as stream:
            again.append(await stream.wait_for(lambda message: "method" in message))
    assert again[0] == again[1] and again[0]["id"] != first["id"]
    async with client.listen(place) as stream:
        assert (await client.post(told(again[0], "two"))).status == 202
        answered = (await stream.rest()).last
    assert "one" in str(answered["result"]) and "two" in str(answered["result"])


async def test_a_call_without_a_stream_can_be_cancelled_and_keeps_its_id_until_it_ends(
    client: HttpClient, front: tuple[Hub, Path]
) -> None:
    async with client.stream(progress(client, 10_000, 0.01, id=77)) as stream:
        await read(stream, 3)
    reused = await client.request("tools/call", {"name": "a_echo", "arguments": {"text": "x"}}, id=77)
    assert (reused.status, reused.last["error"]["code"]) == (400, -32600)
    await client.notify("notifications/cancelled", {"requestId": 77})
    await until(lambda: bool(events(front[1], "cancelled")))
    reused = await client.request("tools/call", {"name": "a_echo", "arguments": {"text": "x"}}, id=77)
    assert reused.last["result"]
    async with client.listen(stream.last_id) as resumed:
        missed = (await resumed.rest()).messages
    assert resumed.status == (200 if missed else 204)
    assert all(message["method"] == "notifications/progress" for message in missed)


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


async def test_a_session_that_was_ended_takes_its_streams_along(front: tuple[Hub, Path]) -> None:
    async with HttpClient(front[0].url) as client:
        await client.initialize()
        async with client.stream(progress(client, 1000, 0.05)) as stream:
            await read(stream, 3)
        async with client.listen(stream.last_id) as resumed:
            await read(resumed, 3)
            assert (await client.delete()).status == 204
            assert "method" in (await resumed.rest()).last
        async with client.listen(stream.last_id) as refused:
            assert refused.status == 404


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
