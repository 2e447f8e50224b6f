"""Streams that outlive their connections, in virtual time; over real sockets: tests/e2e/test_http_resumption.py."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mcp_hub.calls import log as log_module
from mcp_hub.errors import RpcError
from mcp_hub.events import Cancelled, Failed, Log, Progress
from mcp_hub.fronts import resumption
from mcp_hub.fronts.resumption import KEPT_SECONDS, ORPHAN_SECONDS
from mcp_hub.ids import new_call_id
from mcp_hub.protocol import envelope
from mcp_hub.protocol.envelope import Envelope
from tests.unit.calls.virtual_time import run, sleep
from tests.unit.fronts.http_peer import Connection, MadeCall, World

Scenario = Callable[[], Coroutine[Any, Any, None]]


def virtual(scenario: Scenario) -> Callable[[], None]:
    """Runs a test on the loop whose time passes by itself."""

    def test() -> None:
        run(scenario)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def values(connection: Connection) -> list[Any]:
    """The progress in it; "answer" stands for the response."""
    return [m["params"]["progress"] if "method" in m else "answer" for m in connection.messages]


# -- what a stream looks like


@virtual
async def test_messages_carry_their_place_and_the_client_is_primed_first() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1, 2)
    await call.ends()
    (primed, first, second, answer) = call.post.events
    assert (primed.id, primed.data, primed.retry) == (call.place(0), "", 5000)
    assert [event.id for event in (first, second, answer)] == [call.place(2), call.place(3), call.place(4)]
    assert [event.retry for event in (first, second, answer)] == [None] * 3
    assert values(call.post) == [1, 2, "answer"] and call.post.is_complete


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_an_older_client_is_not_primed_but_may_come_back(version: str) -> None:
    async def scenario() -> None:
        world = World()
        call = MadeCall(world, world.client(version))
        await call.progresses(1)
        assert call.post.ids == [2] and all(event.data for event in call.post.events)
        await call.drops()
        resumed = await call.comes_back(2)
        assert (resumed.status, resumed.body[:1]) == (200, b":")
        await call.ends()
        assert values(resumed) == ["answer"] and all(event.data for event in resumed.events)

    run(scenario)


@virtual
async def test_keep_alive_comments_carry_no_place() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await sleep(50)
    assert call.post.ids == [0] and call.post.body.count(b": keep-alive\n\n") == 3


@virtual
async def test_a_call_that_ends_quietly_is_answered_with_json_and_leaves_nothing() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client)
    await call.ends()
    assert call.post.error["result"] == {"content": []}
    assert (await call.comes_back(0)).status == 400 and client.requests == {}


@virtual
async def test_a_client_that_takes_no_stream_is_given_no_place() -> None:
    world = World()
    call = MadeCall(world, world.client(), takes_sse=False)
    await call.progresses(1)
    await sleep(60)
    await call.ends()
    assert call.post.error["result"] == {"content": []}
    assert (await call.comes_back(0)).status == 400


# -- coming back


@virtual
async def test_a_client_gets_what_it_missed_and_then_what_comes() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1, 2, 3)
    await call.drops()
    await call.progresses(4, 5)
    resumed = await call.comes_back(3)
    assert values(resumed) == [3, 4, 5] and resumed.ids == [3, 4, 5, 6]
    assert (resumed.events[0].data, resumed.events[0].retry) == ("", 5000)
    await call.progresses(6)
    await call.ends()
    assert values(resumed) == [3, 4, 5, 6, "answer"]
    assert resumed.is_complete and resumed.task.done()


@virtual
async def test_a_place_may_be_named_again_and_again() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(*range(1, 10))
    await call.drops()
    for after in (0, 5, 3, 10, 0):
        resumed = await call.comes_back(after)
        assert resumed.ids == [after, *range(max(after + 1, 2), 11)]
        resumed.leave()
        await sleep(0.01)
    await call.ends()
    for after in (0, 5, 3, 10, 0):
        assert values(await call.comes_back(after))[-1] == "answer"


@virtual
async def test_the_answer_waits_for_a_client_that_was_away_when_it_came() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    await call.ends()
    resumed = await call.comes_back(2)
    assert (resumed.status, values(resumed), resumed.ids) == (200, ["answer"], [2, 3])
    assert resumed.messages[0]["id"] == 1


@virtual
async def test_an_error_waits_too() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    await call.happens(Failed(RpcError("no")))
    assert (await call.comes_back(2)).messages[0]["error"]["message"] == "no"


@virtual
async def test_a_client_that_has_everything_is_told_that_nothing_follows() -> None:
    """An empty stream would have it come back for ever."""
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.ends()
    done = await call.comes_back(3)
    assert (done.status, done.body, done.is_complete) == (204, b"", True)


@virtual
async def test_a_cancelled_call_has_nothing_more_either() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    await call.progresses(2)
    await call.happens(Cancelled())
    assert (await call.comes_back(3)).status == 204
    missed = await call.comes_back(2)
    assert (missed.status, values(missed), missed.is_complete) == (200, [2], True)


# -- one connection at a time


@virtual
async def test_the_older_connection_is_closed_first() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    second = await call.comes_back(2)
    assert call.post.is_complete and call.post.task.done()
    await call.progresses(2)
    third = await call.comes_back(2)
    assert second.is_complete and second.task.done()
    await call.progresses(3)
    await call.ends()
    assert [values(peer) for peer in (call.post, second, third)] == [[1], [2], [2, 3, "answer"]]


@virtual
async def test_an_older_connection_that_does_not_read_is_given_up() -> None:
    """Its client's machine has lost the network; nothing says so for minutes."""
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    call.post.stall()
    await call.progresses(2)
    resumed = await call.comes_back(2)
    await sleep(2)
    assert values(resumed) == [2] and call.post.task.done()
    call.post.leave()
    await call.ends()
    assert values(call.post) == [1] and values(resumed) == [2, "answer"]


@virtual
async def test_of_many_that_come_at_once_the_last_one_follows() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    place = call.place(2)
    peers = [
        world.open(lambda peer: world.resumption.resume(call.client, place, peer.receive, peer.send)) for _ in range(9)
    ]
    await sleep(0.1)
    await call.ends()
    assert [peer.is_complete for peer in peers] == [True] * 9
    assert [values(peer) for peer in peers] == [[]] * 8 + [["answer"]]


@virtual
async def test_a_client_that_stops_reading_is_dropped_and_may_come_back() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    call.post.stall()
    await call.progresses(2)
    await sleep(59)
    assert not call.post.task.done()
    await sleep(2)
    assert call.post.task.done()
    assert values(await call.comes_back(2)) == [2]


# -- places that are refused


@virtual
async def test_unknown_foreign_and_malformed_places_look_alike() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    foreign = await world.get(world.client(id_="other"), call.place(2))
    named = [f"{new_call_id()}:1", call.place(4), call.place(2)[:-1], f"{call.place(2)}x", "", "nonsense", "é"]
    refused = [await world.get(call.client, text) for text in named]
    assert {(peer.status, peer.body) for peer in [foreign, *refused]} == {(400, foreign.body)}
    assert foreign.error == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "unknown event id"}}
    assert not call.post.is_complete, "who names the wrong place closes nobody's connection"


@virtual
async def test_a_place_behind_which_events_were_let_go_is_gone() -> None:
    world = World()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "MOST_EVENTS", 16)
        patch.setattr(log_module, "MOST_BYTES", 1000)
        call = MadeCall(world, world.client())
        for number in range(100):
            await call.happens(Log("info", b'{"data":"%s"}' % (b"x" * 400)), Progress(number))
        await call.drops()
        first = call.record.log.first_seq
        gone = await call.comes_back(first - 2)
        assert gone.status == 410 and "id" not in gone.error and gone.error["error"]["code"] == -32600
        kept = await call.comes_back(first - 1)
        assert kept.status == 200 and kept.ids[1:] == list(range(first, 202))


# -- how long


@virtual
async def test_a_call_goes_on_for_a_while_without_a_client() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    await sleep(ORPHAN_SECONDS - 2)
    resumed = await call.comes_back(2)
    await sleep(ORPHAN_SECONDS * 3)
    assert world.cancelled == []
    resumed.leave()
    await sleep(ORPHAN_SECONDS - 2)
    assert world.cancelled == []
    await sleep(4)
    assert world.cancelled == [call.record]


@virtual
async def test_a_call_whose_client_left_before_it_knew_of_a_stream_goes_on_as_long() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client)
    await call.drops()
    await sleep(ORPHAN_SECONDS - 2)
    assert world.cancelled == [] and client.is_taken(1)
    await sleep(4)
    assert world.cancelled == [call.record] and client.requests == {}
    assert (await call.comes_back(0)).status == 400


@virtual
async def test_a_stream_stays_for_a_while_after_its_end() -> None:
    world = World()
    call, away = MadeCall(world, world.client()), MadeCall(world, world.client())
    await call.progresses(1)
    await away.progresses(1)
    await away.drops()
    await call.ends()
    await away.ends()
    await sleep(KEPT_SECONDS - 2)
    assert values(await call.comes_back(0)) == values(await away.comes_back(0)) == [1, "answer"]
    await sleep(4)
    assert (await call.comes_back(0)).status == (await away.comes_back(0)).status == 400


@pytest.mark.parametrize("bound", ["of a client", "of all", "of payload"])
def test_of_too_many_ended_streams_the_oldest_goes_first(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"of a client": "_MOST_OF_CLIENT", "of all": "_MOST", "of payload": "_MOST_BYTES"}[bound]
    monkeypatch.setattr(resumption, name, 3 if bound != "of payload" else 3 * 1014 + 10)

    async def scenario() -> None:
        world = World()
        one, other = world.client(id_="one"), world.client(id_="other")
        calls = []
        for number in range(5):
            client = other if number == 2 and bound != "of a client" else one
            call = MadeCall(world, client, number, params=b'"%s"' % (b"x" * 998))
            await call.progresses(1)
            await call.ends()
            calls.append(call)
        assert [(await call.comes_back(0)).status for call in calls] == [400, 400, 200, 200, 200]

    run(scenario)


@virtual
async def test_one_client_does_not_push_out_another_ones_streams() -> None:
    world = World()
    quiet, busy = world.client(id_="quiet"), world.client(id_="busy")
    kept = MadeCall(world, quiet)
    for number in range(200):
        call = MadeCall(world, busy, number)
        await call.progresses(1)
        await call.ends()
        if number == 0:
            await kept.progresses(1)
            await kept.ends()
    assert (await kept.comes_back(0)).status == 200


@virtual
async def test_nobody_comes_back_for_the_streams_of_a_session_that_is_over() -> None:
    world = World()
    client = world.client()
    ended, running = MadeCall(world, client, 1), MadeCall(world, client, 2)
    await ended.progresses(1)
    await ended.ends()
    await running.progresses(1)
    world.resumption.forget(client)
    await running.ends()
    assert values(running.post) == [1, "answer"], "the response that is being sent is sent"
    assert client.ended == {} and client.requests == {}
    assert (await ended.comes_back(0)).status == (await running.comes_back(0)).status == 400


# -- polling


async def closed_within(connection: Connection, low: float, high: float) -> bool:
    """Whether it is closed after so many seconds, not before."""
    await sleep(low)
    early = connection.is_complete
    await sleep(high - low)
    return connection.is_complete and not early


@virtual
async def test_a_client_that_was_primed_is_made_to_poll() -> None:
    world = World(close_after=30)
    call = MadeCall(world, world.client())
    await sleep(20)
    await call.progresses(1)
    assert call.post.ids == [0, 2]
    assert await closed_within(call.post, 15, 28), "the time counts from when it became a stream"
    resumed = await call.comes_back(2)
    assert await closed_within(resumed, 28, 33) and resumed.ids == [2]
    await call.ends()
    assert values(await call.comes_back(2)) == ["answer"] and world.cancelled == []


@pytest.mark.parametrize(("version", "close_after"), [("2025-06-18", 30), ("2025-11-25", None)])
def test_others_are_not(version: str, close_after: float | None) -> None:
    async def scenario() -> None:
        world = World(close_after)
        call = MadeCall(world, world.client(version))
        await call.progresses(1)
        await sleep(300)
        assert not call.post.is_complete

    run(scenario)


@virtual
async def test_a_call_that_is_silent_from_the_start_is_not_closed_before_the_client_can_come_back() -> None:
    world = World(close_after=10)
    call = MadeCall(world, world.client())
    await sleep(14)
    assert call.post.status is None
    await sleep(12)
    assert call.post.is_complete and call.post.ids == [0]


# -- request ids


@virtual
async def test_the_id_of_a_request_is_taken_until_its_call_has_ended() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client, 7)
    await call.progresses(1)
    await call.drops()
    assert client.is_taken(7)
    await call.ends()
    assert not client.is_taken(7)
    again = MadeCall(world, client, 7)
    await sleep(5)
    assert client.is_taken(7), "the end of the older one does not free the id of the newer"
    await again.ends()
    assert client.requests == {}


# -- questions


def asked(connection: Connection) -> list[Any]:
    return [message for message in connection.messages if "method" in message and "id" in message]


def answer(call: MadeCall, id_: int, result: bytes = b'{"action":"decline"}') -> None:
    message = envelope.decode(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (id_, result))
    assert isinstance(message, Envelope)
    call.client.asking.take(message)


@virtual
async def test_a_question_waits_for_the_client_and_may_be_answered_without_a_stream() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    call.asks()
    first = await call.comes_back(2)
    (question,) = asked(first)
    first.leave()
    again = await call.comes_back(2)
    assert asked(again) == [question]
    again.leave()
    await sleep(0.01)
    answer(call, question["id"])
    await sleep(0.01)
    assert [bytes(result) for result in call.answers] == [b'{"action":"decline"}']
    settled = await call.comes_back(2)
    await call.ends()
    assert values(settled) == ["answer"] and asked(settled) == []


@virtual
async def test_a_client_learns_at_every_reading_that_a_question_is_off() -> None:
    world = World()
    call = MadeCall(world, world.client())
    key = call.asks()
    await sleep(0.01)
    (question,) = asked(call.post)
    await call.drops()
    call.record.withdraw(key)
    call.asks()
    for _ in range(2):
        resumed = await call.comes_back(2)
        off, other = resumed.messages
        assert (off["method"], off["params"]) == ("notifications/cancelled", {"requestId": question["id"]})
        assert other["method"] == "elicitation/create" and other["id"] != question["id"]
        resumed.leave()
        await sleep(0.01)
    await call.ends()
    for _ in range(2):
        resumed = await call.comes_back(4)
        off, response = resumed.messages
        assert off["params"] == {"requestId": other["id"]} and "result" in response


@virtual
async def test_nothing_is_waited_for_after_a_stream_is_forgotten() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client)
    call.asks()
    await sleep(0.01)
    await call.drops()
    await call.ends()
    await sleep(KEPT_SECONDS + 5)
    assert client.asking._requests.pending == {}


# -- one against another


@virtual
async def test_a_client_that_stalls_delays_nobody() -> None:
    world = World()
    client = world.client()
    stalled, other = MadeCall(world, client, 1), MadeCall(world, client, 2)
    await stalled.progresses(1)
    stalled.post.stall()
    for value in range(2, 100):
        stalled.record.log.append(Progress(value))
        other.record.log.append(Progress(value))
    await other.ends()
    assert other.post.is_complete and len(values(other.post)) == 99


@virtual
async def test_reading_ahead_is_done_in_turns() -> None:
    """A client that comes back for ten thousand events does not hold up the loop while they are encoded."""
    world = World()
    call = MadeCall(world, world.client())
    for start in range(1, 9001, 1000):
        await call.progresses(*range(start, start + 1000))
    await call.drops()
    peer = world.open(lambda peer: world.resumption.resume(call.client, call.place(0), peer.receive, peer.send))
    sizes: list[int] = []
    while 9001 not in sizes:
        await asyncio.sleep(0)
        sizes.append(len(peer.ids))
        assert len(sizes) < 100
    assert len(set(sizes)) >= 4
