"""Alarms of calls, which the registry rings: an early answer needs no timer of its own."""

import asyncio

import pytest

from mcp_hub.call import Early
from mcp_hub.calls.runner import CallRecord
from tests.unit.calls.call_scripts import TICK, handle_of
from tests.unit.calls.durable_hub import DurableHub
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
        self._record.set_alarm(self)

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
    hub = DurableHub()
    call = hub.call()
    await sleep(100)
    bell = Bell(call.record, 3)
    await sleep(3.1)
    assert bell.rung == [3]


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
    record.times.drop_alarm(second)  # is none of its any more
    record.times.drop_alarm(third)
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
