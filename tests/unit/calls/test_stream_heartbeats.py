"""What the registry's wheel does for calls that last: heartbeats, and being made durable; and that it does not spin."""

import pytest

from mcp_hub.calls import runner
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.events import Log, Progressed
from tests.unit.calls.call_scripts import DONE
from tests.unit.calls.durable_hub import DurableHub
from tests.unit.calls.virtual_time import CoarseLoop, LoopClock, VirtualLoop, run, sleep, virtual


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
