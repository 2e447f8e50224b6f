"""What one hub makes of its own streams and of those that other hubs on the same store run or have left behind."""

import anyio
import pytest

from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.streams.owners import touching
from mcp_hub.errors import Busy, KeyTaken, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Failed, ToolCall
from mcp_hub.types import CallId
from tests.unit.calls.call_scripts import DONE
from tests.unit.calls.durable_hub import DurableHub, Pair, ask, pair_with_call, settle
from tests.unit.calls.shared_store import HubStore
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual

STEP = ToolCall("c", "t", b"{}")


@pytest.mark.parametrize("state", ["owned", "beginning", "another's", "ended", "orphan"])
@virtual
async def test_for_another_principal_a_stream_is_as_unknown_as_one_that_never_was(state: str) -> None:
    pair = Pair(delay=0.01)
    call = pair.one.call("alice")
    await sleep(0.255 if state == "beginning" else 1)
    if state == "ended":
        call.ends()
        await sleep(1)
    if state == "orphan":
        await pair.one.dies()
    streams = (pair.two if state in ("another's", "orphan") else pair.one).streams
    answers = ask(call) if state == "owned" else []
    said: set[str] = set()
    for id_ in (call.id, CallId("st_" + "0" * 26), CallId(""), CallId("st_\ud800")):
        for attempt in (
            streams.open("bob", id_),
            streams.cancel("bob", id_, "enough"),
            streams.answer("bob", id_, "q1", b"{}"),
        ):
            with pytest.raises(UnknownStream) as refused:
                await attempt
            said.add(str(refused.value.encoded()))
    assert len(said) == 1
    await sleep(0.1)
    assert not call.record.log.ended or state in ("ended", "orphan")
    assert answers == [] and not pair.shared.core.streams.messages
    if state != "orphan":
        assert (await streams.open("alice", call.id)).row.principal == "alice"


@virtual
async def test_a_reader_gets_from_the_store_what_its_writer_has_not_heard_of_yet() -> None:
    """Another hub's reader may have told its client of the ending already."""
    hub = DurableHub()
    assert isinstance(hub.store, HubStore)
    call = hub.call()
    await sleep(1)
    hub.store.holds_back = True
    call.says(STEP)
    call.ends()
    await sleep(1)
    assert call.record.stream is not None and not call.record.stream.row.has_ended
    hub.store.holds_back = False  # the writer's own answer is still on its way
    assert (await hub.streams.open("p", call.id)).row.has_ended
    follower = await hub.follow(call.id)
    hub.store.let_go()
    await settle(lambda: follower.at_end)
    assert [type(event).__name__ for event in follower.events] == ["Started", "ToolCall", "Completed"]


@virtual
async def test_a_stream_whose_first_event_is_not_committed_yet_is_waited_for_not_unknown() -> None:
    hub = DurableHub(HubStore(delay=lambda: 3.0))
    call = hub.call()
    hub.streams.begin(call.record)
    began = LoopClock().now()
    row = (await hub.streams.open("p", call.id)).row
    assert row.last == 1 and LoopClock().now() - began >= 6


@virtual
async def test_a_stream_that_could_not_be_begun_is_unknown_and_nobody_waits_for_it() -> None:
    hub = DurableHub(HubStore(delay=lambda: 1.0))
    call = hub.call()
    hub.store.refusals = [KeyTaken("in use")]  # type: ignore[attr-defined]
    writer = hub.streams.begin(call.record, key="k")
    with anyio.fail_after(240), pytest.raises(UnknownStream):
        await hub.streams.open("p", call.id)
    assert isinstance(writer.error, KeyTaken) and call.record.log.ended
    await writer.settled()


@virtual
async def test_so_many_calls_of_a_principal_may_be_detached_and_their_ends_make_room() -> None:
    hub = DurableHub(limits=StreamLimits(detached=2))
    first, second, third, other = hub.call(), hub.call(), hub.call(), hub.call("q")
    for call in (first, second, second, other):
        assert hub.streams.detach(call.record).is_detached
    with pytest.raises(Busy, match="2 calls run without a client"):
        hub.streams.detach(third.record)
    assert third.record.stream is None, "one that is refused stays an ordinary call"
    await sleep(0.1)
    first.ends()
    await sleep(0.1)
    assert hub.streams.detach(third.record).is_detached
    for call in (second, third, other):
        call.ends()
    await sleep(1)
    assert not hub.streams._detached and not hub.streams._owned


@virtual
async def test_a_call_with_a_key_goes_upstream_once_that_is_stored_and_not_at_all_if_it_is_taken() -> None:
    hub = DurableHub(HubStore(delay=lambda: 1.0))
    kept, late = hub.call(), hub.call()
    for call in (kept, late):
        call.ends()
        hub.streams.detach(call.record, key="k")
    assert hub.streams.running("p", key="k") is not None and hub.streams.running("q", key="k") is None
    await sleep(1.5)
    assert not kept.record.log.ended
    await sleep(10)
    row = await hub.store.log.find(kept.id)
    assert row is not None and row.status == "completed"
    assert await hub.store.log.find(late.id) is None
    assert isinstance(late.record.log.reader(lambda: None).take()[-1], Cancelled | Failed)


@virtual
async def test_a_call_whose_client_is_gone_ends_after_its_time_unless_somebody_follows_or_asks() -> None:
    hub = DurableHub().runs()
    left, followed, asked_after = hub.call(), hub.call(), hub.call()
    await sleep(1)
    for call in (left, followed, asked_after):
        hub.streams.begin(call.record).orphan(30)
    follower = await hub.follow(followed.id)
    await sleep(29)
    hub.streams._take(touching(asked_after.id))
    assert not left.record.log.ended
    await sleep(3)
    assert left.record.log.ended and not followed.record.log.ended and not asked_after.record.log.ended
    follower.reader.close()
    hub.streams.begin(followed.record).orphan(5)
    again = await hub.follow(followed.id)
    again.reader.close()
    await sleep(30)
    assert asked_after.record.log.ended and not followed.record.log.ended, "who follows takes it on"
    hub.streams._take(touching(followed.id))
    await sleep(5)
    assert not followed.record.log.ended
    last = await hub.follow(followed.id)
    hub.streams.begin(followed.record).orphan(5)
    await sleep(10)
    assert not followed.record.log.ended, "nor is one that somebody reads without a client"
    last.reader.close()
    await sleep(1)
    assert followed.record.log.ended


@pytest.mark.parametrize("is_left_later", [False, True])
@virtual
async def test_call_followed_at_another_hub_outlives_a_short_patience(is_left_later: bool) -> None:
    pair, call = await pair_with_call()
    if not is_left_later:
        pair.one.streams.begin(call.record).orphan(3)
    follower = await pair.two.follow(call.id)
    await sleep(1)
    if is_left_later:
        pair.one.streams.begin(call.record).orphan(1)
    await sleep(60)
    assert not call.record.log.ended
    follower.reader.close()
    await sleep(15)
    assert call.record.log.ended, "nobody follows it any more"


@pytest.mark.parametrize("delay", [None, 0.2])
@virtual
async def test_a_stream_of_another_hub_is_followed_to_its_end(delay: float | None) -> None:
    pair, call = await pair_with_call(delay=delay)
    early, late = await pair.two.follow(call.id), await pair.two.follow(call.id, 1)
    for _ in range(20):
        call.says(STEP, STEP)
        await sleep(0.1)
    await settle(lambda: early.seqs == list(range(1, 42)) and late.seqs == list(range(2, 42)))
    last = await pair.two.follow(call.id, 41)
    call.ends()
    await settle(lambda: early.at_end and late.at_end and last.at_end)
    assert early.lines == pair.shared.lines(call.id) and early.lines[1:] == late.lines
    assert last.events == [DONE]
    assert early.reader.stream is late.reader.stream is last.reader.stream


@virtual
async def test_a_look_that_fails_is_made_up_for_though_there_is_no_further_news() -> None:
    pair, call = await pair_with_call()
    follower = await pair.two.follow(call.id)
    await sleep(1)
    store = pair.two.store
    assert isinstance(store, HubStore)
    store.broken = StoreError("busy")
    call.says(STEP)
    call.ends()
    await sleep(5)
    store.broken = None
    await settle(lambda: follower.at_end)


@virtual
async def test_a_stream_that_is_deleted_while_it_is_followed_ends_for_its_follower() -> None:
    pair = Pair()
    call, other = pair.one.call(), pair.one.call()
    await sleep(1)
    follower = await pair.two.follow(call.id)
    await sleep(1)
    pair.shared.core.streams.drop(call.id)
    other.says(STEP)
    await settle(lambda: isinstance(follower.reader.failed, UnknownStream))
