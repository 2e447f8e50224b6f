"""Streams that outlive their connections, in virtual time; over real sockets: tests/e2e/test_http_resumption.py.

Not here: how long they do (test_stream_limits).
"""

import asyncio
import json

import pytest

from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading import stream as stream_module
from mcp_hub.errors import RpcError
from mcp_hub.events import BY_CLIENT, Cancelled, Log, Progressed
from mcp_hub.ids import new_call_id
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.memory import MemoryStore
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts.http_peer import MadeCall, World, reply, values
from tests.unit.fronts.soft_hub import delta

# -- what a stream looks like


@virtual
async def test_messages_carry_their_place_and_the_client_is_primed_first() -> None:
    call = MadeCall(World())
    await call.progresses(1, 2)
    await call.ends()
    (primed, first, second, answer) = call.post.events
    assert (primed.id, primed.data, primed.retry) == (call.place(0), "", 5000)
    assert [event.id for event in (first, second, answer)] == [call.place(2), call.place(3), call.place(4)]
    assert [event.retry for event in (first, second, answer)] == [None] * 3
    assert values(call.post) == [1, 2, "answer"] and call.post.is_complete


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
@virtual
async def test_an_older_client_is_not_primed_but_may_come_back(version: str) -> None:
    world = World()
    call = MadeCall(world, world.client(version))
    await call.progresses(1)
    assert call.post.ids == [2] and all(event.data for event in call.post.events)
    await call.drops()
    resumed = await call.comes_back(2)
    assert (resumed.status, resumed.body[:1]) == (200, b":")
    await call.ends()
    assert values(resumed) == ["answer"] and all(event.data for event in resumed.events)


@virtual
async def test_keep_alive_comments_carry_no_place() -> None:
    call = MadeCall(World())
    await sleep(50)
    assert call.post.ids == [0] and call.post.body.count(b": keep-alive\n\n") == 4


@virtual
async def test_a_call_that_ends_quietly_is_answered_with_json_and_leaves_nothing() -> None:
    call = MadeCall(World())
    await call.ends()
    assert call.post.json["result"] == {"content": []}
    assert (await call.comes_back(0)).status == 400 and call.client.requests == {}
    assert call.world.window.log.writes == 0 and await call.world.store.sessions.find("s") is None


@virtual
async def test_a_call_that_was_cancelled_before_it_said_anything_gives_no_place_to_come_back_to() -> None:
    call = MadeCall(World())
    await call.happens(Cancelled(BY_CLIENT))
    assert (call.post.status, call.post.body, call.post.is_complete) == (200, b"", True)


@virtual
async def test_a_client_that_takes_no_stream_is_given_no_place() -> None:
    call = MadeCall(World(), takes_sse=False)
    await sleep(1)
    assert call.record.stream is not None and not call.post.status
    assert (await call.comes_back(1)).status == 400
    await call.progresses(1)
    await sleep(60)
    await call.ends()
    assert call.post.json["id"] == 1 and call.post.json["result"]["content"] == []
    assert (await call.comes_back(0)).status == 400


# -- coming back


@virtual
async def test_a_client_gets_what_it_missed_and_then_what_comes() -> None:
    call = MadeCall(World())
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
async def test_the_answer_waits_for_a_client_that_was_away_when_it_came() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    await call.drops()
    await call.ends()
    resumed = await call.comes_back(2)
    assert (resumed.status, values(resumed), resumed.ids) == (200, ["answer"], [2, 3])
    assert resumed.messages[0]["id"] == 1


@virtual
async def test_a_client_that_has_everything_learns_that_nothing_follows() -> None:
    """An empty stream would have it come back for ever."""
    call = MadeCall(World())
    await call.progresses(1)
    await call.ends()
    done = await call.comes_back(3)
    assert (done.status, done.body, done.is_complete) == (204, b"", True)


# -- one connection at a time


@virtual
async def test_the_older_connection_is_closed_first() -> None:
    call = MadeCall(World())
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
    call = MadeCall(World())
    await call.progresses(1)
    call.post.stall()
    await call.progresses(2)
    resumed = await call.comes_back(2)
    assert (resumed.status, call.post.task.done()) == (0, False), "nothing goes out on two connections at once"
    await sleep(2)
    assert values(resumed) == [2] and call.post.task.done()
    call.post.leave()
    await call.ends()
    assert values(call.post) == [1] and values(resumed) == [2, "answer"]


@virtual
async def test_of_many_that_come_at_once_the_last_one_follows() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    place = call.place(2)
    peers = [call.world.comes(call.client, place) for _ in range(9)]
    await sleep(0.1)
    await call.ends()
    assert [peer.is_complete for peer in peers] == [True] * 9
    assert [values(peer) for peer in peers] == [[]] * 8 + [["answer"]]


@virtual
async def test_a_client_that_stops_reading_is_dropped_and_may_come_back() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    call.post.stall()
    await call.happens(Log("info", b'"%s"' % (b"x" * (2 << 20))))
    await sleep(59)
    assert not call.post.task.done()
    await sleep(2)
    assert call.post.task.done()
    assert (await call.comes_back(2)).ids == [2, 3]


# -- places that are refused


@virtual
async def test_unknown_foreign_and_malformed_places_look_alike() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    foreign = await call.world.get(call.world.client(id_="other"), call.place(2))
    named = [f"{new_call_id()}:1", call.place(4), call.place(2)[:-1], f"{call.place(2)}x", "", "nonsense", "é"]
    refused = [await call.world.get(call.client, text) for text in named]
    assert {(peer.status, peer.body) for peer in [foreign, *refused]} == {(400, foreign.body)}
    assert foreign.json == {
        "jsonrpc": "2.0",
        "error": {"code": -32600, "message": "unknown event id", "data": {"code": "unknown_event"}},
    }
    assert not call.post.is_complete, "who names the wrong place closes nobody's connection"


@virtual
async def test_a_place_behind_which_events_were_let_go_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_KEPT_EVENTS", 4)
    call = MadeCall(World(store=MemoryStore(StoreLimits(stream_events=16))))
    for number in range(1, 101):
        await call.progresses(number)
    assert values(call.post) == list(range(1, 101)), "who keeps up loses nothing"
    await call.drops()
    await call.progresses(101)
    await sleep(0.1)  # as long as what nobody follows may wait for its commit
    row = await call.world.store.log.find(call.record.call.id)
    assert row is not None and 1 < row.first
    gone = await call.comes_back(row.first - 2)
    assert gone.status == 410 and "id" not in gone.json and gone.json["error"]["code"] == -32600
    kept = await call.comes_back(row.first - 1)
    assert kept.status == 200 and kept.ids[1:] == list(range(row.first, row.last + 1))


@virtual
async def test_more_followers_than_a_stream_may_have_are_asked_to_wait() -> None:
    call = MadeCall(World(limits=StreamLimits(followers=2)))
    await call.progresses(1)
    await call.drops()
    stream = await call.world.streams.open("local", call.record.call.id)
    others = [call.world.streams.follow(stream, lambda: None, 0) for _ in range(2)]
    refused = await call.comes_back(2)
    assert refused.status == 503 and refused.headers["retry-after"] == "1" and "id" not in refused.json
    others[0].close()
    assert (await call.comes_back(2)).status == 200


# -- one against another


@virtual
async def test_reading_ahead_is_done_in_turns() -> None:
    """A client that comes back for ten thousand events does not hold up the loop while they are encoded."""
    call = MadeCall(World())
    for start in range(1, 9001, 1000):
        await call.progresses(*range(start, start + 1000))
    await call.drops()
    peer = call.world.comes(call.client, call.place(0))
    sizes: list[int] = []
    while 9001 not in sizes:
        await asyncio.sleep(0)
        sizes.append(len(peer.ids))
        assert len(sizes) < 100
    assert len(set(sizes)) >= 4


@virtual
async def test_partial_content_as_messages_is_the_same_when_it_is_sent_again() -> None:
    call = MadeCall(World(), partials="text")
    await call.happens(delta("a"), delta("b"), Log("info", b'{"level":"info"}'), Progressed(1))
    await sleep(0.2)
    await call.happens(delta("c"))
    frames = [(event.id, event.data) for event in call.post.events[1:]]
    assert [json.loads(data)["params"].get("message") for _, data in frames] == ["a", None, None, "bc"]
    await call.drops()
    resumed = await call.comes_back(0)
    assert [(event.id, event.data) for event in resumed.events[1:]] == frames
    await call.drops()
    place = int(str(frames[0][0]).rpartition(":")[2])
    assert [(event.id, event.data) for event in (await call.comes_back(place)).events[1:]] == frames[1:]


# -- questions: asked again as they were, until they are settled


@virtual
async def test_a_question_waits_for_the_client_and_may_be_answered_without_a_stream() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    await call.drops()
    await call.asks()
    first = await call.comes_back(2)
    (question,) = first.questions
    first.leave()
    again = await call.comes_back(2)
    assert again.questions == [question]
    again.leave()
    await sleep(0.03)
    reply(call.client, question["id"])
    await sleep(0.03)
    assert [bytes(result) for result in call.answers] == [b'{"action":"decline"}']
    settled = await call.comes_back(2)
    await call.ends()
    assert values(settled) == ["answer"] and settled.questions == []


@virtual
async def test_a_client_learns_at_every_reading_that_a_question_is_off() -> None:
    call = MadeCall(World())
    key = await call.asks()
    await sleep(0.03)
    (question,) = call.post.questions
    await call.drops()
    call.record.questions.withdraw(key)
    await call.asks()
    for _ in range(2):
        resumed = await call.comes_back(2)
        off, other = resumed.messages
        assert (off["method"], off["params"]) == ("notifications/cancelled", {"requestId": question["id"]})
        assert other["method"] == "elicitation/create" and other["id"] != question["id"]
        resumed.leave()
        await sleep(0.03)
    await call.ends()
    for _ in range(2):
        resumed = await call.comes_back(4)
        off, response = resumed.messages
        assert off["params"] == {"requestId": other["id"]} and "result" in response
        assert resumed.ids == [4, 5], "what belongs to no event has no place"


@virtual
async def test_a_question_to_a_session_that_is_over_is_not_waited_for() -> None:
    call = MadeCall(World())
    await call.asks()
    await sleep(0.03)
    await call.drops()
    call.world.resumption.close(call.client)
    await sleep(0.03)
    (refused,) = call.answers
    assert isinstance(refused, RpcError) and "the client is gone" in str(refused)


@virtual
async def test_one_session_at_two_hubs_is_asked_under_ids_of_their_own() -> None:
    """An answer to the question of one, late or sent to the other, is none to a question of the other."""
    world = World()
    ids = [world.client().questions._requests.expect("elicitation/create").id for _ in range(100)]
    assert len(set(ids)) == 100 and all(0 < id_ <= 1 << 30 for id_ in ids)
