from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.types import Cause, UpstreamState
from mcp_hub.upstreams.supervision.lifecycle import (
    Life,
    RestartRule,
    died,
    drained,
    draining,
    gave_up,
    ready,
    restarted,
    resting,
    starting,
    stopped,
    woken,
)

STARTING, READY = UpstreamState.STARTING, UpstreamState.READY
BACKING_OFF, FAILED, STOPPED = UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.STOPPED

BOOM, IDLE = Cause("crashed", "boom"), Cause("idle", "idle")

rules = st.builds(RestartRule, st.integers(0, 8), st.floats(0.1, 600))
TOLD: dict[str, Callable[[Life], Life]] = {
    "starting": starting,
    "ready": ready,
    "gave_up": lambda life: gave_up(life, Cause("command_not_found", "no such command")),
    "resting": lambda life: resting(life, IDLE),
    "woken": woken,
    "draining": lambda life: draining(life, "reload"),
    "drained": drained,
    "restarted": restarted,
    "stopped": stopped,
}
told = st.sampled_from(["resting", "woken", "draining", "drained", "restarted"])
moments = st.tuples(
    st.sampled_from(["starting", "ready", "died", "died", "gave_up", "stopped"]),
    st.floats(0, 100),
    st.floats(0, 1, exclude_max=True),
)


Steps = list[tuple[str, float, float]]
"""Events, the pauses before them, and jitter."""


def lives(steps: Steps, rule: RestartRule) -> list[Life]:
    """The life after each event; every one comes some seconds after the one before."""
    life, now, seen = Life(), 0.0, [Life()]
    for event, pause, jitter in steps:
        now += pause
        life = died(life, rule, now, BOOM, jitter) if event == "died" else TOLD[event](life)
        seen.append(life)
    return seen


@given(st.lists(moments, max_size=40), rules)
def test_delays_are_bounded_and_belong_to_backing_off(steps: Steps, rule: RestartRule) -> None:
    for life in lives(steps, rule):
        assert 0 <= life.delay <= 30
        assert (life.delay > 0) or life.state is not BACKING_OFF
        assert life.reason or life.state in (STARTING, READY, STOPPED)
        assert rule.intensity is not None and len(life.deaths) <= rule.intensity + 1


@given(st.lists(moments, max_size=20), st.lists(moments, max_size=20), rules)
def test_a_stop_is_final(before: Steps, after: Steps, rule: RestartRule) -> None:
    seen = lives([*before, ("stopped", 0, 0), *after], rule)
    assert {life.state for life in seen[len(before) + 1 :]} == {STOPPED}


@given(st.lists(moments, max_size=40), rules)
def test_having_failed_it_only_stops(steps: Steps, rule: RestartRule) -> None:
    seen = lives(steps, rule)
    states = [life.state for life in seen]
    if FAILED in states:
        assert set(states[states.index(FAILED) :]) <= {FAILED, STOPPED}


@given(st.lists(moments, max_size=40), rules)
def test_it_gives_up_by_the_rule_and_only_by_it(steps: Steps, rule: RestartRule) -> None:
    now, alive = 0.0, list(zip(lives(steps, rule), steps, lives(steps, rule)[1:], strict=False))
    deaths: list[float] = []
    for before, (event, pause, _), after in alive:
        now += pause
        if event == "died" and before.state in (STARTING, READY, BACKING_OFF):
            deaths.append(now)
            recent = [at for at in deaths if now - at < rule.period]
            assert (after.state is FAILED) == (len(recent) > (rule.intensity or 0))
        elif after.state is FAILED and before.state is not FAILED:
            assert event == "gave_up"


@given(rules, st.lists(st.floats(0, 1, exclude_max=True), min_size=60, max_size=60))
def test_what_dies_at_once_every_time_leaves_backing_off_and_in_the_end_gives_up(
    rule: RestartRule, jitters: list[float]
) -> None:
    """Each pause is over some time; unless the pauses outlast the period, the deaths add up."""
    life, now = Life(), 0.0
    delays = []
    for jitter in jitters:
        life = died(life, rule, now, BOOM, jitter)
        if life.state is FAILED:
            assert "gave up after" in str(life.reason) and BOOM.reason in str(life.reason)
            return
        assert life.state is BACKING_OFF
        delays.append(life.delay)
        now += life.delay
        life = starting(life)
        assert life.state is STARTING and life.restarts == len(delays)
    assert rule.intensity is not None and rule.intensity * 30 >= rule.period, "it would have given up otherwise"
    assert delays[-1] >= 30 * 0.999


def test_the_pause_doubles_from_half_a_second_and_being_ready_resets_it() -> None:
    rule, life, delays = RestartRule(100, 1e9), Life(), []
    for now in range(9):
        life = died(life, rule, now, BOOM, 0.0)
        delays.append(life.delay)
        life = starting(life)
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    life = ready(life)
    assert life.state is READY and life.reason is None
    assert died(life, rule, 10, BOOM, 0.0).delay == 0.5


def test_jitter_lengthens_by_at_most_a_quarter_and_never_over_the_cap() -> None:
    assert died(Life(), RestartRule(), 0, BOOM, 0.5).delay == 0.5 * 1.125
    assert died(Life(streak=10), RestartRule(), 0, BOOM, 0.5).delay == 30


@pytest.mark.parametrize("state", [FAILED, STOPPED, UpstreamState.INCOMPATIBLE])
def test_a_death_after_the_end_is_not_counted(state: UpstreamState) -> None:
    life = Life(state, "reason")
    assert died(life, RestartRule(), 0, BOOM, 0.5) is life


def test_what_is_not_waiting_is_not_started_and_what_does_not_start_is_not_ready() -> None:
    backing_off = died(Life(), RestartRule(), 0, BOOM, 0)
    assert starting(ready(Life())).state is READY
    assert ready(backing_off) is backing_off


anything = st.tuples(
    st.one_of(st.sampled_from(["starting", "ready", "died", "died", "gave_up"]), told),
    st.floats(0, 100),
    st.floats(0, 1, exclude_max=True),
)


@given(st.lists(anything, max_size=40), rules)
def test_only_what_is_stopped_rests_and_what_rests_can_be_woken(steps: Steps, rule: RestartRule) -> None:
    for life in lives(steps, rule):
        assert not life.rests or (life.state is STOPPED and life.reason == "idle")
        assert woken(life).state is (STARTING if life.rests else life.state)
        assert 0 <= life.delay <= 30


@given(st.lists(anything, max_size=40), rules)
def test_an_explicit_restart_leaves_every_state_and_forgets_every_failure(steps: Steps, rule: RestartRule) -> None:
    life = lives(steps, rule)[-1]
    again = restarted(life)
    assert (again.state, again.reason, again.deaths, again.streak) == (STARTING, None, (), 0)
    assert again.restarts == life.restarts + (not life.rests)


@given(
    st.lists(anything, max_size=20),
    st.lists(anything.filter(lambda step: step[0] not in ("restarted", "drained")), max_size=20),
    rules,
)
def test_what_drains_comes_to_nothing_but_a_stop(before: Steps, after: Steps, rule: RestartRule) -> None:
    seen = lives([*before, ("draining", 0, 0), *after], rule)[len(before) + 1 :]
    assert {life.state for life in seen} <= {UpstreamState.DRAINING, STOPPED}
    assert not any(life.rests for life in seen)
    assert drained(seen[-1]).state is STOPPED


def test_what_works_may_rest_and_what_does_not_may_not() -> None:
    for life in (Life(), ready(Life())):
        assert resting(life, IDLE).rests
    for state in (FAILED, BACKING_OFF, STOPPED, UpstreamState.DRAINING, UpstreamState.INCOMPATIBLE):
        assert not resting(Life(state, "reason"), IDLE).rests


def test_a_rule_without_an_end_never_gives_up_and_slows_down_unless_it_lasted() -> None:
    rule, life = RestartRule(None, 60.0), Life()
    for now in range(1000):
        life = starting(died(ready(life), rule, now / 10, BOOM, 0.0))
    assert life.state is STARTING and life.restarts == 1000
    assert died(ready(life), rule, 101, BOOM, 0.0, lasted=9.9).delay == 30
    assert died(ready(life), rule, 101, BOOM, 0.0, lasted=10.0).delay == 0.5
