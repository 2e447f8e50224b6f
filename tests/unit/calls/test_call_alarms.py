"""What the registry's wheel does for calls that last: alarms, heartbeats, streams; and that it does not spin."""

import asyncio

import pytest

from mcp_hub.call import Early
from mcp_hub.calls import runner
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.events import Log, Progressed
from tests.unit.calls.call_scripts import DONE, TICK, handle_of
from tests.unit.calls.durable_hub import DurableHub, one_call, store_of
from tests.unit.calls.virtual_time import CoarseLoop, LoopClock, VirtualLoop, run, sleep, virtual


class Bell:
    """Rings after so many seconds, and then as often as there are more."""

    def __init__(self, record: CallRecord, *seconds: float) -> None:
        self.rung: list[float] = []
        self._record = record
        self._start = LoopClock().now()
        self._next = list(seconds)
        self._set()

    def _set(self) -> None:
        self.due = self._start + self._next.pop(0)
        self._record.times.set_alarm(self.due, self.ring)

    def ring(self) -> None:
        self.rung.append(round(LoopClock().now() - self._start, 1))
        if self._next:
            self._set()


@pytest.mark.parametrize("loop", [VirtualLoop, CoarseLoop])
@pytest.mark.parametrize("wants_progress", [False, True])
def test_an_alarm_rings_at_its_time_while_the_call_runs(loop: type[VirtualLoop], wants_progress: bool) -> None:
    async def scenario() -> None:
        hub = DurableHub()
        runs, ends = (hub.call(wants_progress=wants_progress) for _ in range(2))
        bells = [Bell(call.record, 7, 42, 42.5) for call in (runs, ends)]
        await sleep(8)
        ends.ends()
        await sleep(95)
        assert [bell.rung for bell in bells] == [[7, 42, 42.5], [7]]

    run(scenario, loop)


@virtual
async def test_an_alarm_that_is_set_late_rings_in_time_too() -> None:
    hub, call = await one_call(seconds=100)
    bell = Bell(call.record, 3)
    await sleep(3.1)
    assert bell.rung == [3]


@virtual
async def test_an_alarm_that_is_set_while_the_wheel_looks_at_its_call_rings_in_time_too() -> None:
    hub = DurableHub()
    call = hub.call()
    bells: list[Bell] = []
    handle_of(call.record, hub.streams).watch(lambda: bells.append(Bell(call.record, 3)))  # as it becomes durable
    await sleep(1)
    assert len(bells) == 1 and bells[0].rung == []
    await sleep(3)
    assert bells[0].rung == [3]


@virtual
async def test_a_call_that_waits_for_its_turn_has_its_alarm() -> None:
    hub = DurableHub(running=1)
    hub.call()
    bell = Bell(hub.call().record, 5)
    await sleep(6)
    assert bell.rung == [5]


@virtual
async def test_the_last_alarm_counts_and_none_is_none() -> None:
    hub = DurableHub()
    record = hub.call().record
    first, second = Bell(record, 5), Bell(record, 6)
    await sleep(10)
    assert (first.rung, second.rung) == ([], [6])
    third = Bell(record, 5)
    record.times.drop_alarm(second.ring)  # is none of its any more
    record.times.drop_alarm(third.ring)
    await sleep(10)
    assert third.rung == []


@virtual
async def test_calls_that_may_be_answered_early_share_one_timer() -> None:
    hub = DurableHub()
    timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    ready: list[None] = []
    early = Early(5, is_task=True)
    for _ in range(50):
        handle_of(hub.call().record, hub.streams, early=early).early_answer(lambda: ready.append(None))
    await sleep(1)
    assert len(timers) <= 3 and not ready
    await sleep(5)
    assert len(ready) == 50


@virtual
async def test_an_early_answer_that_is_due_at_once_does_not_wait_for_the_wheel() -> None:
    hub = DurableHub()
    start = LoopClock().now()
    ready: list[float] = []
    early = handle_of(hub.call().record, hub.streams, early=Early(0, is_task=True)).early_answer(
        lambda: ready.append(LoopClock().now() - start)
    )
    await sleep(1)
    assert early is not None and len(ready) == 1 and ready[0] < TICK / 2


@virtual
async def test_a_soft_answer_that_is_not_wanted_any_more_follows_nothing() -> None:
    hub = DurableHub()
    store_of(hub).holds_back = True
    call = hub.call()
    ready: list[None] = []
    early = handle_of(call.record, hub.streams, early=Early(5, is_task=False)).early_answer(lambda: ready.append(None))
    await sleep(6)
    assert early is not None and call.record.stream is not None and len(call.record.stream.readers) == 1
    early.close()
    assert not call.record.stream.readers
    store_of(hub).let_go()
    await sleep(1)
    assert not ready and not call.record.log.ended


@virtual
async def test_a_soft_answer_is_closed_before_it_is_due() -> None:
    hub = DurableHub()
    early = handle_of(hub.call().record, hub.streams, early=Early(5, is_task=False)).early_answer(lambda: None)
    assert early is not None
    early.close()


def beats(record: CallRecord) -> list[float]:
    """The progress that has been told so far."""
    return [event.progress for event in record.log.reader(lambda: None).take() if isinstance(event, Progressed)]


@pytest.mark.parametrize("loop", [VirtualLoop, CoarseLoop])
def test_who_wants_progress_hears_after_every_ten_silent_seconds_until_the_end(loop: type[VirtualLoop]) -> None:
    async def scenario() -> None:
        hub = DurableHub()
        call, unwanted = hub.call(wants_progress=True), hub.call()
        told: list[float] = []
        began = LoopClock().now()
        reader = call.record.log.reader(lambda: told.append(LoopClock().now() - began))
        await sleep(35)
        assert [round(at, 1) for at in told] == [10, 20, 30]
        call.says(Progressed(0.5))  # at 35
        await sleep(1)
        call.says(Progressed(float("nan")), Log("info", b"{}"))  # which is no progress
        await sleep(9.5)
        call.ends()
        await sleep(60)
        assert [round(at, 1) for at in told[3:]] == [35, 36, 45, 45.5]
        events = reader.take()
        said = [event.progress for event in events if isinstance(event, Progressed)]
        assert said == [0, 1e-6, 2e-6, 0.5, 0.5 + 1e-6]
        assert events[-1] == DONE and beats(unwanted.record) == []

    run(scenario, loop)


@virtual
async def test_the_silence_of_a_call_that_had_to_wait_counts_from_its_turn() -> None:
    hub = DurableHub(running=1)
    first, waits = hub.call(), hub.call(wants_progress=True)
    await sleep(33)
    first.ends()
    await sleep(9.5)
    assert beats(waits.record) == []
    await sleep(1)
    assert beats(waits.record) == [0]


class Turns:
    """Counts what the wheel is asked to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        turn = CallRegistry._turn

        def counted(registry: CallRegistry) -> None:
            self.count += 1
            turn(registry)

        monkeypatch.setattr(CallRegistry, "_turn", counted)


@virtual
async def test_the_wheel_turns_when_there_is_something_to_do_and_not_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(monkeypatch)
    hub = DurableHub()
    for number in range(50):
        hub.call(wants_progress=number % 2 == 0)
    await sleep(1)
    quiet = turns.count
    assert quiet <= 3
    await sleep(100)
    assert turns.count - quiet <= 12, "once for all heartbeats of the same time"
    for call in hub.calls:
        call.ends()
    await sleep(1)
    before = turns.count
    await sleep(1000)
    assert turns.count - before <= 1


@pytest.mark.parametrize("moment", [0.249, 0.26])
@virtual
async def test_what_ends_before_its_time_has_no_stream_and_what_ends_after_has_one(moment: float) -> None:
    hub = DurableHub()
    hub.call()  # the wheel turns for others as well
    await sleep(0.2)
    call = hub.call()
    await sleep(moment)
    call.ends()
    await sleep(1)
    assert (call.record.stream is not None) is (moment > runner.QUIET)


@virtual
async def test_the_time_until_a_call_has_a_stream_counts_from_its_turn() -> None:
    hub = DurableHub(running=1)
    first, waits = hub.call(), hub.call()
    await sleep(0.9)
    hub.call("other")  # the wheel turns for it at 1.15
    await sleep(0.1)
    first.ends()
    await sleep(0.2)
    assert waits.record.stream is None
    await sleep(0.1)
    assert waits.record.stream is not None
