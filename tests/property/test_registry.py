from collections import Counter
from typing import Any

import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.errors import Busy
from mcp_hub.events import Completed
from tests.examples import examples
from tests.unit.calls.call_scripts import GRACE, HANDLERS, TICK, Watched, new_registry, watch
from tests.unit.calls.virtual_time import run, sleep

RUNNING, WAITING = 2, 2
Step = tuple[tuple[Any, ...], str, float]

pauses = st.sampled_from([0, 0, 0.01, 0.5, 3, 7])
starts = st.tuples(
    st.just("start"), st.sampled_from(HANDLERS), st.sampled_from([0, 0.2, 1, 4]), st.sampled_from([1, 5.0004, 20, 1000])
)
cancels = st.tuples(st.just("cancel"), st.integers(0, 20))
scripts = st.lists(st.tuples(starts | starts | cancels, st.sampled_from("pq"), pauses), max_size=25)


class Floor:
    """Counts who is running, by principal; remembers the most there were and who came in which order."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most = 0
        self.entered: list[str] = []

    def counted(self, handler: CallHandler) -> CallHandler:
        async def count(call: Call, channel: CallChannel) -> Completed:
            self.entered.append(call.id)
            self.now[call.principal] += 1
            self.most = max(self.most, self.now[call.principal])
            try:
                return await handler(call, channel)
            finally:
                self.now[call.principal] -= 1

        return count


async def play(script: list[Step]) -> tuple[list[Watched], Floor]:
    registry, floor = new_registry(RUNNING, WAITING), Floor()
    calls: list[Watched] = []
    for (what, *rest), principal, pause in script:
        if what == "cancel" and rest[0] < len(calls):
            registry.cancel(calls[rest[0]].record, "enough")
        elif what == "start":
            make, seconds, limit = rest
            try:
                calls.append(watch(registry, floor.counted(make(seconds)), TimeLimits(limit, 500), principal))
            except Busy as busy:
                held = [call for call in calls if call.record.call.principal == principal and not finished(call)]
                assert len(held) >= RUNNING + WAITING and busy.symbol == "busy"
        await sleep(pause)
    await sleep(600)
    counted = sum(sum(own.outcomes.values()) for own in registry.meters.figures({"git"}))
    assert counted == len(calls) and len(registry) == 0
    assert not any(floor.now.values())
    return calls, floor


def finished(call: Watched) -> bool:
    task = call.record.task
    return call.record.log.ended if task is None else task.done()


@settings(max_examples=examples(60))
@given(scripts)
def test_every_call_has_exactly_one_ending_in_time_and_limits_hold(script: list[Step]) -> None:
    with structlog.testing.capture_logs():
        calls, floor = run(lambda: play(script))
    assert floor.most <= RUNNING
    for call in calls:
        assert call.ending is not None
        assert call.ended_at is not None
        limit = call.record.times.limits.total + GRACE + 2 * TICK
        assert call.ended_at - call.began <= limit, "a call outlives its limit by the grace at most"
    for principal in "pq":
        own = [call.record.call.id for call in calls if call.record.call.principal == principal]
        assert [id_ for id_ in own if id_ in floor.entered] == [id_ for id_ in floor.entered if id_ in own]
