"""Messages between hubs on one store, and what becomes of the streams of a hub that is gone."""

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import msgspec
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.reading.stored import last_progress, open_questions
from mcp_hub.calls.streams.owners import answer_in, answering
from mcp_hub.errors import Busy, HubRestarted, RpcError, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Failed, InputReceived, Progressed, Started, ToolCall
from mcp_hub.stores.base import Change, Message
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId
from tests.unit.calls.call_scripts import DONE
from tests.unit.calls.durable_hub import HOW, DurableHub, Pair, ask, delta, one_call, pair_with_call, settle, store_of
from tests.unit.calls.shared_store import HubStore
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.stores.event_stores import SoleStore

STEP = ToolCall("c", "t", b"{}")


@virtual
async def test_cancel_and_answers_reach_the_hub_that_runs_the_call() -> None:
    pair = Pair()
    call, other = pair.one.call(), pair.one.call()
    await sleep(1)
    answers = [*map(ask, [call] * 3)]
    await sleep(1)
    row = (await pair.two.streams.open("p", call.id)).row
    assert list(await open_questions(pair.two.streams.store.log, row)) == ["q1", "q2", "q3"]
    refusal = RpcError("no", code=-1, data={"why": [1]})
    await pair.two.streams.answer("p", call.id, "q1", b'{"action":"accept"}')
    await pair.two.streams.answer("p", call.id, "q2", refusal)
    await pair.two.streams.answer("p", call.id, "q3", b"null")
    await pair.two.streams.answer("p", call.id, "q9", b"{}")
    await pair.two.streams.cancel("p", other.id, "enough")
    await sleep(1)
    assert bytes(answers[0][0]) == b'{"action":"accept"}' and bytes(answers[2][0]) == b"null"  # type: ignore[arg-type]
    (error,) = answers[1]
    assert isinstance(error, RpcError) and bytes(error.encoded()) == bytes(refusal.encoded())
    assert pair.status(call.id) == "working" and pair.events(other.id)[-1] == Cancelled("enough")
    await pair.two.streams.cancel("p", other.id, "again")
    assert not pair.shared.core.streams.messages


@virtual
async def test_messages_that_cannot_be_read_or_are_for_nobody_do_no_harm() -> None:
    pair, call = await pair_with_call()
    answers = ask(call)
    await sleep(1)
    pair.shared.core.streams.messages = [
        *(
            Message(call.id, "input", body)
            for body in (b"", b"{}", b"[[", b'{"key":"q1"}', b'{"key":"q1","x":' + b"[" * 9000)
        ),
        answering(call.id, "q1", b"1"),
    ]
    pair.shared.writes["another"] += 1
    await sleep(1)
    assert [bytes(answer) for answer in answers] == [b"1"]  # type: ignore[arg-type]
    pair.one.streams._take(Message(CallId("st_unknown"), "cancel", b"x"))


@pytest.mark.parametrize("error", [RpcError("half \ufffd", code=7), RpcError("far", data={"deep": [[[]]]})])
def test_an_answer_arrives_as_it_was_sent(error: RpcError) -> None:
    there = answer_in(answering(CallId("st_1"), "q1", error)).outcome
    assert isinstance(there, RpcError) and (there.message, there.code) == (error.message, error.code)
    assert bytes(there.encoded()) == bytes(error.encoded())


@virtual
async def test_the_stream_of_a_hub_that_died_is_closed_by_the_next_one_exactly_once() -> None:
    pair = Pair(delay=0.05)
    third = DurableHub(HubStore(pair.shared, lambda: 0.05)).runs()
    call, ended = pair.one.call(), pair.one.call()
    await sleep(1)
    ended.ends()
    call.says(STEP)
    await sleep(1)
    followers = [await hub.follow(call.id) for hub in (pair.two, third)]
    await pair.one.dies()
    await settle(lambda: all(follower.at_end for follower in followers))
    *before, ending = pair.events(call.id)
    assert before == [Started(), STEP] and isinstance(ending, Failed)
    assert isinstance(ending.error, HubRestarted) and (ending.error.data or {})["outcome"] == "unknown"
    assert pair.events(ended.id) == [Started(), DONE], "what has ended stays as it is"
    assert all(follower.lines == pair.shared.lines(call.id) for follower in followers)


@virtual
async def test_an_orphan_is_closed_before_anybody_reads_it() -> None:
    pair, call = await pair_with_call()
    await pair.one.dies()
    row = (await pair.two.streams.open("p", call.id)).row
    assert row.status == "failed" and row.last == 2


@pytest.mark.parametrize("delay", [None, 0.1])
@pytest.mark.parametrize("is_asked", [True, False])
@virtual
async def test_a_continued_call_keeps_the_same_numbers(delay: float | None, is_asked: bool) -> None:
    pair, call = await pair_with_call(takes_up=True, delay=delay)
    follower = await pair.two.follow(call.id)
    call.record.continuable(HOW)
    call.says(Progressed(5))
    ask(call)
    await sleep(2)
    await pair.one.dies()
    if is_asked:
        opened: list[object] = []
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                opened.append(await pair.two.streams.open("p", call.id))

            for _ in range(3):
                tasks.start_soon(look)
        assert len(set(map(id, opened))) == 1, "everybody has the same one, taken up once"
    await settle(lambda: bool(pair.two.taken_up))
    (again,) = pair.two.taken_up
    again.says(Progressed(1))
    answers = ask(again)
    await sleep(2)
    assert pair.two.streams.owned(call.id) is not None and pair.two.streams._detached["p"] == 1
    await pair.two.streams.answer("p", call.id, "q5", b"{}")
    again.ends()
    await settle(lambda: follower.at_end)
    kinds = [type(event).__name__ for event in pair.events(call.id)]
    assert kinds == [
        *("Started", "Progressed", "InputRequired", "InputReceived"),
        *("Progressed", "InputRequired", "InputReceived", "Completed"),
    ]
    values = [event.progress for event in pair.events(call.id) if isinstance(event, Progressed)]
    assert values[0] == 5 and values[1] > 5 and len(answers) == 1
    assert follower.lines == pair.shared.lines(call.id)
    row = pair.shared.row(call.id)
    assert row is not None and row.epoch == 2 and not pair.two.streams._detached


@pytest.mark.parametrize("trouble", ["busy", "unreadable", "unknown"])
@virtual
async def test_a_call_that_cannot_be_gone_on_with_after_all_gets_its_ending(trouble: str) -> None:
    pair = Pair(takes_up=True)

    async def go_on(*_: object) -> None:
        if trouble == "busy":
            raise Busy("busy: half \ud800")
        if trouble == "unknown":
            raise UnknownStream
        msgspec.json.decode(b"{}", type=int)

    pair.two.go_on = go_on
    calls = [pair.one.call(), pair.one.call()]
    await sleep(1)
    follower = await pair.two.follow(calls[0].id)
    for call in calls:
        call.record.continuable(HOW)
    await sleep(1)
    await pair.one.dies()
    await settle(lambda: all(pair.status(call.id) == "failed" for call in calls))
    await settle(lambda: follower.at_end)
    assert isinstance(pair.events(calls[0].id)[-1], Failed)
    assert pair.two._running is not None and not pair.two._running.done(), "and the hub goes on"


@virtual
async def test_an_ending_that_waits_for_the_store_does_not_keep_the_hub_from_bringing_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, call = await pair_with_call(takes_up=True)
    call.record.continuable(HOW)
    await sleep(1)
    store, waiting = store_of(pair.two), list[Callable[[], None]]()
    append, orphans = store.append, store.orphans

    async def go_on(*_: object) -> None:
        monkeypatch.setattr(store, "append", lambda *write: waiting.append(lambda: append(*write)))
        raise Busy("busy")

    async def looked() -> list[StreamInfo]:
        while waiting:  # a look is what brings a store back, and then what waits is written
            waiting.pop()()
        return await orphans()

    pair.two.go_on = go_on
    monkeypatch.setattr(store, "orphans", looked)
    await pair.one.dies()
    await settle(lambda: bool(waiting))
    await settle(lambda: pair.status(call.id) == "failed")


@virtual
async def test_what_asked_for_an_orphan_may_be_cancelled_without_leaving_it_to_nobody() -> None:
    one = DurableHub()
    assert isinstance(one.store, HubStore)
    shared = one.store.shared
    two = DurableHub(HubStore(shared, lambda: 1.0), takes_up=True)  # and only takes up what it is asked for
    call = one.call()
    await sleep(1)
    call.record.continuable(HOW)
    await sleep(1)
    await one.dies()
    with anyio.move_on_after(5):  # when the stream is being claimed
        await two.streams.open("p", call.id)
    assert len(two.taken_up) == 1
    await two.streams.cancel("p", call.id, "enough")
    await sleep(10)
    row = shared.row(call.id)
    assert row is not None and row.status == "cancelled"


@pytest.mark.parametrize("is_here", [True, False])
@virtual
async def test_what_is_wanted_of_a_call_while_it_is_taken_up_is_done_then(is_here: bool) -> None:
    pair = Pair(takes_up=True)
    third = DurableHub(HubStore(pair.shared))
    call, other = pair.one.call(), pair.two.call()
    await sleep(1)
    call.record.continuable(HOW)
    await sleep(1)
    going_on, is_ready = pair.two.go_on, anyio.Event()

    async def late(row: StreamInfo, progressed: Progressed | None) -> None:
        await is_ready.wait()
        await going_on(row, progressed)

    pair.two.go_on = late
    await pair.one.dies()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pair.two.streams.open, "p", call.id)
        await sleep(0.1)
        if is_here:
            tasks.start_soon(pair.two.streams.cancel, "p", call.id, "enough")
        else:
            await third.streams.cancel("p", call.id, "enough")
        await sleep(2)
        is_ready.set()
    await settle(lambda: pair.status(call.id) == "cancelled")
    assert pair.status(other.id) == "working" and not pair.two.streams.inbox._messages


@virtual
async def test_an_orphan_that_cannot_be_taken_over_does_not_keep_the_others_waiting() -> None:
    pair = Pair()
    calls = [pair.one.call() for _ in range(3)]
    await sleep(1)
    claim = pair.two.store.leases.claim

    async def claims(row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        if row.id == calls[0].id:
            raise StoreError("not this one")
        return await claim(row, lines, change)

    pair.two.store.leases.claim = claims  # type: ignore[method-assign]
    await pair.one.dies()
    await settle(lambda: [pair.status(call.id) for call in calls] == ["working", "failed", "failed"])


@virtual
async def test_progress_continues_from_the_last_value_however_much_was_said_since() -> None:
    hub, call = await one_call(DurableHub(MemoryStore()))
    for number in range(1, 40):
        call.says(Progressed(number), delta("x" * 100_000, number))
        await sleep(0.3)
    row = (await hub.streams.open("p", call.id)).row
    assert await last_progress(hub.store.log, row) == Progressed(39)


@pytest.mark.parametrize("takes_up", [False, True])
@virtual
async def test_hub_taken_for_dead_writes_nothing_and_its_followers_read_the_other_one(takes_up: bool) -> None:
    pair, call = await pair_with_call(takes_up=takes_up)
    follower = await pair.one.follow(call.id)
    if takes_up:
        call.record.continuable(HOW)
        await sleep(1)
    pair.shared.alive.discard(pair.one.store.log.instance)
    await settle(lambda: bool(pair.two.taken_up) if takes_up else pair.status(call.id) == "failed")
    call.says(STEP)
    await settle(lambda: call.record.log.ended)
    for again in pair.two.taken_up:
        await sleep(1)
        again.says(Progressed(6))
        await sleep(1)
        again.ends()
    await settle(lambda: follower.at_end)
    later = await pair.one.follow(call.id)
    await settle(lambda: later.at_end)
    assert follower.lines == later.lines == pair.shared.lines(call.id) and STEP not in pair.events(call.id)


@virtual
async def test_hub_that_reads_of_its_loss_before_it_hears_of_it_writes_nothing_either() -> None:
    pair, call = await pair_with_call(takes_up=True)
    follower = await pair.one.follow(call.id)
    call.record.continuable(HOW)
    await sleep(1)
    pair.shared.alive.discard(pair.one.store.log.instance)
    await settle(lambda: bool(pair.two.taken_up))
    pair.shared.alive.add(pair.one.store.log.instance)
    [again] = pair.two.taken_up
    again.says(Progressed(6))
    await sleep(1)
    assert (await pair.one.streams.open("p", call.id)).row.epoch == 2
    call.says(STEP)
    await settle(lambda: call.record.log.ended)
    again.says(Progressed(7))
    again.ends()
    await settle(lambda: follower.at_end)
    assert follower.reader.failed is None and pair.events(call.id)[-1] == DONE
    assert follower.lines == pair.shared.lines(call.id) and STEP not in pair.events(call.id)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("takes_up", [True, False])
async def test_two_hubs_on_one_file(tmp_path: Path, takes_up: bool) -> None:
    stores = [SoleStore(tmp_path) for _ in range(2)]
    with anyio.fail_after(240):
        for store in stores:
            await store.open()
        one, two = DurableHub(stores[0]).runs(), DurableHub(stores[1], takes_up=takes_up).runs()
        call, other = one.call(limits=TimeLimits(60, 60)), one.call(limits=TimeLimits(60, 60))
        await one.streams.begin(call.record).settled()
        await one.streams.begin(other.record).settled()
        follower = await two.follow(call.id)
        call.says(*[STEP] * 50)
        answers = ask(call)
        await settle(lambda: len(follower.lines) == 52)
        await two.streams.answer("p", call.id, "q1", b"{}")
        await two.streams.cancel("p", other.id, "enough")
        await settle(lambda: other.record.log.ended)
        await settle(lambda: bool(answers))
        call.record.continuable(HOW)
        call.says(Progressed(1))
        await one.stops()
        await two.streams.open("p", call.id)
        for again in two.taken_up:
            again.ends()
        await settle(lambda: follower.at_end)
        row = await stores[1].log.find(call.id)
        assert row is not None and row.status == ("completed" if takes_up else "failed")
        assert follower.seqs == list(range(1, row.last + 1))
        assert InputReceived("q1") in follower.events and not two.streams._owned
        for principal, id_ in (("q", call.id), ("p", "st_\ud800")):
            with pytest.raises(UnknownStream):
                await two.streams.open(principal, id_)
        await two.stops()
