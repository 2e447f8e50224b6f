"""The writer of a call's stream: what is committed, in which order, and what it does with a store that is not kind."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Question
from mcp_hub.errors import Fenced, HubStopping, RpcError, StoreError, UpstreamLost
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Started,
    ToolCall,
)
from mcp_hub.stores.memory import MemoryStore
from tests.unit.calls.call_scripts import DONE
from tests.unit.calls.durable_hub import HOW, DurableHub, delta, one_call, row_of, settle, status, store_of, written
from tests.unit.calls.shared_store import HubStore
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual


@pytest.mark.parametrize("delay", [None, 0.0, 0.2])
@virtual
async def test_all_that_a_call_says_is_committed_in_order_with_its_one_ending(delay: float | None) -> None:
    said: list[CallEvent] = [
        Progressed(1),
        delta("a"),
        Log("info", b'{"level":"info","data":1}'),
        ToolCall("c", "t", b"{}"),
    ]
    hub, call = await one_call(DurableHub(HubStore(delay=None if delay is None else lambda: delay)), seconds=0)
    call.says(*said)
    call.ends()
    await sleep(2)
    assert written(hub, call.id) == [Started(), *said, DONE]
    assert status(hub, call.id) == "completed" and hub.streams.owned(call.id) is None


@virtual
async def test_a_short_quiet_call_never_gets_to_the_store() -> None:
    hub, call = await one_call(seconds=0.2)
    call.ends()
    await sleep(10)
    call.says(Progressed(1), Log("info", b"{}"))  # of which nothing follows either: the call has ended
    await sleep(10)
    assert store_of(hub).appends == [] and call.record.stream is None


@virtual
async def test_a_call_becomes_durable_with_its_first_event_or_question_or_after_a_while() -> None:
    hub = DurableHub()
    talks, asks, lasts, continues = (hub.call() for _ in range(4))
    await sleep(0.1)
    talks.says(Progressed(1))
    asks.record.ask(Question("roots/list", b"{}", lambda outcome: None))
    continues.record.continuable(None)
    assert continues.record.stream is None
    continues.record.continuable(HOW)
    await sleep(0)
    assert [call.record.stream is not None for call in (talks, asks, lasts, continues)] == [True, True, False, True]
    await sleep(0.1)
    assert lasts.record.stream is None
    await sleep(0.1)
    assert lasts.record.stream is not None


@virtual
async def test_one_append_is_under_way_at_a_time_and_what_comes_meanwhile_goes_with_the_next() -> None:
    hub, call = await one_call(DurableHub(HubStore(delay=lambda: 1.0)), seconds=0)
    for number in range(20):
        call.says(ToolCall(f"c{number}", "t", b"{}"))
        await sleep(0.1)
    assert len(store_of(hub).appends) <= 2
    call.ends()
    await sleep(10)
    assert len(written(hub, call.id)) == 22 and len(store_of(hub).appends) <= 4


@virtual
async def test_nothing_is_published_before_it_is_committed() -> None:
    hub, call = await one_call()
    store = store_of(hub)
    follower = await hub.follow(call.id)
    await sleep(1)
    store.holds_back = True
    call.says(ToolCall("c", "t", b"{}"))
    await sleep(5)
    assert follower.seqs == [1] and len(store.shared.lines(call.id)) == 2
    store.let_go()
    await sleep(1)
    assert follower.seqs == [1, 2]


@pytest.mark.parametrize(("at_once", "pause"), [(1, 0.15), (1, 0.021), (50, 1.02)])
@virtual
async def test_progress_that_nobody_follows_is_kept_whole_up_to_fifty_a_second(at_once: int, pause: float) -> None:
    said = [Progressed(number) for number in range(200)]
    hub, call = await one_call(seconds=0)
    for first in range(0, 200, at_once):
        call.says(*said[first : first + at_once])
        await sleep(pause)
    await sleep(1)
    assert written(hub, call.id) == [Started(), *said]


@virtual
async def test_progress_that_nobody_follows_is_thinned_out_above_that_but_its_last_value_stays() -> None:
    hub, call = await one_call(seconds=0)
    for number in range(1, 2001):
        call.says(Progressed(number, skipped=2))
        await sleep(0.001)
    await sleep(1)
    progress = [event for event in written(hub, call.id) if isinstance(event, Progressed)]
    assert progress[-1].progress == 2000 and 54 <= len(progress) <= 62
    assert sum(event.skipped + 1 for event in progress) == 6000, "each says how many it stands for"


@virtual
async def test_a_flood_costs_nobody_who_reads_the_log_directly_an_event() -> None:
    """The writer looks seldom, but never so seldom that the log takes it for a slow reader and merges for all."""
    hub = DurableHub()
    call = hub.call()
    seen: list[CallEvent] = []
    reader = call.record.log.reader(lambda: None)
    await sleep(0)
    for number in range(1, 60_001):
        call.says(Progressed(number))
        if number % 5000 == 0:
            seen += reader.take()
    seen += reader.take()
    assert [event for event in seen if isinstance(event, Progressed)] == [Progressed(n) for n in range(1, 60_001)]
    await sleep(1)
    kept = [event for event in written(hub, call.id) if isinstance(event, Progressed)]
    assert len(kept) < 55 and sum(event.skipped + 1 for event in kept) == 60_000


@virtual
async def test_one_append_has_about_a_mebibyte_also_after_a_flood_of_large_events() -> None:
    said = [delta(f"{number:5}" * 2000) for number in range(1000)]
    hub, call = await one_call()
    follower = await hub.follow(call.id)
    await sleep(1)
    call.says(*said)
    call.ends()
    await settle(lambda: follower.at_end)
    assert follower.events[1:] == [*said, DONE]
    assert max(sum(map(len, chunk.lines)) for chunk in store_of(hub).appends) < 4 << 20


@pytest.mark.slow
@virtual
async def test_while_the_store_does_not_answer_what_waits_is_bounded_and_the_log_merges() -> None:
    hub, call = await one_call()
    follower = await hub.follow(call.id)
    await sleep(1)
    store_of(hub).holds_back = True
    for number in range(1, 40_001):
        call.says(Progressed(number))
        if number % 100 == 0:
            await sleep(0.001)
    call.ends()
    await sleep(1)
    assert len(call.record.log._events) < 10_000
    store_of(hub).let_go()
    await settle(lambda: follower.at_end)
    values = [event.progress for event in follower.events if isinstance(event, Progressed)]
    assert values == sorted(set(values)) and values[-1] == 40_000 and len(values) < 20_000
    assert follower.seqs == list(range(1, len(follower.seqs) + 1))


@pytest.mark.parametrize("error", [StoreError("disk on fire"), Fenced("another owner")])
@pytest.mark.parametrize("at", [0, 1, 3])
@virtual
async def test_lost_stream_ends_for_its_followers_and_its_call_only_if_taken(error: StoreError, at: int) -> None:
    hub = DurableHub()
    call = hub.call()
    store_of(hub).refusals = [None] * at + [error]
    hub.streams.begin(call.record)
    assert call.record.stream is not None
    reader = call.record.stream.reader(lambda: None, 0)
    for number in range(5):
        call.says(ToolCall(f"c{number}", "t", b"{}"))
        await sleep(1)
    assert reader.failed is error
    assert hub.streams.owned(call.id) is None
    assert call.record.log.ended == isinstance(error, Fenced), "a call does not fail for its store"
    assert len(store_of(hub).appends) == at + 1, "nothing more is tried"
    late = call.record.stream.reader(lambda: None, 0)
    assert late.failed is error, "nor does somebody wait who comes later"
    assert hub.streams.begin(call.record).error is error


@virtual
async def test_begun_twice_is_begun_once_whenever_that_is() -> None:
    hub = DurableHub()
    call = hub.call()
    first = hub.streams.begin(call.record)
    assert hub.streams.begin(call.record) is first
    await sleep(1)
    assert hub.streams.begin(call.record) is first
    call.ends()
    await sleep(1)
    again = hub.streams.begin(call.record)
    assert again.stream is first.stream and again.is_over and hub.streams.owned(call.id) is None
    assert hub.streams.detach(call.record).stream is first.stream
    await sleep(1)
    assert written(hub, call.id) == [Started(), DONE] and len(store_of(hub).appends) == 2
    assert not hub.streams._detached


@virtual
async def test_a_call_that_waits_can_be_made_durable_and_be_seen_before_its_turn() -> None:
    hub = DurableHub(running=1)
    first, waits, dropped = hub.call(), hub.call(), hub.call()
    hub.streams.begin(waits.record)
    hub.streams.begin(dropped.record)
    await sleep(1)
    assert written(hub, waits.id) == [Started()] and status(hub, waits.id) == "working"
    hub.registry.cancel(dropped.record, "enough")
    first.ends()
    await sleep(1)
    waits.says(Progressed(1))
    waits.ends()
    await sleep(1)
    assert written(hub, waits.id) == [Started(), Progressed(1), DONE]
    assert written(hub, dropped.id) == [Started(), Cancelled("enough")]


@virtual
async def test_the_row_has_the_status_and_the_last_message() -> None:
    hub, call = await one_call()
    call.says(Progressed(1, None, {"message": msgspec.Raw(b'"one"')}))
    await sleep(1)
    call.says(Progressed(2, None, {"message": msgspec.Raw(b'["none"]')}), ToolCall("c", "t", b"{}"))
    key = call.record.ask(Question("roots/list", b"{}", lambda outcome: None))
    await sleep(1)
    row = row_of(hub, call.id)
    assert (row.status, row.message) == ("input_required", "one")
    assert call.record.stream is not None and call.record.stream.row == row
    assert written(hub, call.id)[-1] == InputRequired(key, "roots/list", b"{}")
    call.record.questions.answer(key, b"{}")
    await sleep(1)
    assert status(hub, call.id) == "working" and written(hub, call.id)[-1] == InputReceived(key)


@pytest.mark.parametrize("whole", [False, True])
@virtual
async def test_a_caller_that_waits_until_events_are_stored_waits_for_the_store(whole: bool) -> None:
    hub = DurableHub(HubStore(delay=lambda: 0.3))
    call = hub.call()
    before = LoopClock().now()
    for n in range(200):
        call.says(delta(str(n)))
    if whole:
        call.ends()
    await call.record.until_stored(whole=whole)
    assert '"199"' in str(written(hub, call.id)) and LoopClock().now() - before < 2
    assert status(hub, call.id) == ("completed" if whole else "working")
    await call.record.until_stored(whole=whole)  # nothing to wait for


@virtual
async def test_nobody_waits_for_a_lost_stream_or_a_call_without_one() -> None:
    hub = DurableHub()
    await hub.call().record.until_stored(whole=False)
    store_of(hub).broken = StoreError("gone")
    call = hub.call()
    call.says(delta("x"))
    await call.record.until_stored(whole=False)
    assert call.record.stream is not None and call.record.stream.failed is not None


HALF = "half a character \ud800"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (RpcError(HALF), "half a character <U+D800>"),
        (UpstreamLost("gone", data={"reason": HALF}), "gone"),
        (UpstreamLost("gone", data={"reason": object(), "outcome": "unknown"}), "gone (the rest of this error cannot"),
    ],
)
@virtual
async def test_error_that_cannot_be_written_as_it_is_is_still_an_ending(how: RpcError, message: str) -> None:
    hub, call = await one_call()
    call.ends(how)
    await sleep(1)
    *_, ending = written(hub, call.id)
    assert isinstance(ending, Failed) and ending.error.message.startswith(message)
    assert status(hub, call.id) == "failed"
    assert (ending.error.data or {}).get("outcome") == (how.data or {}).get("outcome")
    reader = call.record.log.reader(lambda: None)
    assert reader.take()[-1] == Failed(how), "the caller's own channel keeps the original"


@virtual
async def test_a_cancellation_that_cannot_be_written_is_still_one() -> None:
    hub, call = await one_call()
    hub.registry.cancel(call.record, HALF)
    await sleep(1)
    assert written(hub, call.id)[-1] == Cancelled(HALF.replace("\ud800", "?"))
    assert status(hub, call.id) == "cancelled"


@virtual
async def test_another_event_that_cannot_be_written_is_a_message_that_says_so_and_no_hole() -> None:
    hub, call = await one_call()
    follower = await hub.follow(call.id)
    call.says(ToolCall("c1", HALF, b"{}"), Progressed(1))
    call.record.ask(Question(HALF, b"{}", lambda outcome: None))
    call.record.questions.answer("q1", b"{}")
    call.ends()
    await sleep(1)
    kinds = [type(event) for event in written(hub, call.id)]
    assert kinds == [Started, Log, Progressed, Log, Log, Completed], "the answer to no question is none either"
    log = written(hub, call.id)[1]
    assert isinstance(log, Log) and log.level == "warning" and "ToolCall" in json.loads(bytes(log.params))["data"]
    assert follower.events == written(hub, call.id)


@virtual
async def test_what_another_hub_needs_is_stored_at_once_though_nothing_happens_and_once_only() -> None:
    hub, call = await one_call()
    call.record.continuable(HOW)
    await sleep(1)
    row = row_of(hub, call.id)
    assert row.last == 1
    kept: Any = msgspec.json.decode(row.continuation or b"")
    assert kept["how"] == {"task": "t1"} and kept["call"]["id"] == call.id
    for number in range(3):
        call.says(ToolCall(f"c{number}", "t", b"{}"))
        await sleep(1)
    assert [change.continuation is not None for change in store_of(hub).changes] == [True, False, False, False]
    call.record.continuable(None)
    await sleep(1)
    row = row_of(hub, call.id)
    assert not row.continuation


@pytest.mark.parametrize("delay", [None, 0.05])
@virtual
async def test_a_hub_that_stops_leaves_a_call_that_can_be_continued_with_all_it_has_said(delay: float | None) -> None:
    hub = DurableHub(HubStore(delay=None if delay is None else lambda: delay))
    left, ended = hub.call(), hub.call()
    await sleep(1)
    left.says(Progressed(1), delta("a"))
    left.record.continuable(HOW)
    store = store_of(hub).shared
    began = LoopClock().now()
    assert not left.record.survives, "not before the hub stops"
    await hub.stops()
    assert LoopClock().now() - began < 0.4 and not hub.streams._owned, "what is left is not waited for"
    assert left.was_left and not ended.was_left
    assert status(hub, left.id) == "working" and written(hub, left.id) == [Started(), Progressed(1), delta("a")]
    row = store.row(left.id)
    assert row is not None and row.continuation
    assert status(hub, ended.id) == "failed"
    ending = written(hub, ended.id)[-1]
    assert isinstance(ending, Failed) and isinstance(ending.error, HubStopping)


@virtual
async def test_a_call_that_is_cancelled_or_whose_store_forgets_is_not_left() -> None:
    hub, forgets = DurableHub(), DurableHub(MemoryStore())
    cancelled, forgotten = hub.call(), forgets.call()
    await sleep(1)
    for call in (cancelled, forgotten):
        call.record.continuable(HOW)
    hub.registry.cancel(cancelled.record)
    await forgets.stops()
    await sleep(1)
    assert cancelled.was_left is False and forgotten.was_left is False
    assert status(hub, cancelled.id) == "cancelled"
    row = await forgets.store.log.find(forgotten.id)
    assert row is not None and row.status == "failed"
