"""What a call's stream keeps of what cannot be written, and what it keeps of a call for the hub after this one."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Question
from mcp_hub.errors import HubStopping, RpcError, UpstreamLost
from mcp_hub.events import Cancelled, Completed, Failed, Log, Progressed, Started, ToolCall
from mcp_hub.stores.memory import MemoryStore
from tests.unit.calls.durable_hub import HOW, DurableHub, delta, one_call, row_of, status, store_of, written
from tests.unit.calls.shared_store import HubStore
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual

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
    call.record.answer("q1", b"{}")
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
