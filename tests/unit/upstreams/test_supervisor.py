"""Servers that rest, are drained, restarted and list: on virtual time, so that minutes are exact and cost nothing."""

import math
from collections.abc import Callable

import anyio
import pytest

from mcp_hub.errors import DeadlineExceeded, StartFailed
from mcp_hub.events import Failed
from mcp_hub.types import Kind, UpstreamState
from mcp_hub.upstreams.peer.negotiation import AnotherProcess, Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.supervision.lifecycle import RestartRule
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.toy_servers import Kept, Toys, envelope, kept, up

STARTING, READY, BACKING_OFF = UpstreamState.STARTING, UpstreamState.READY, UpstreamState.BACKING_OFF
FAILED, STOPPED, DRAINING = UpstreamState.FAILED, UpstreamState.STOPPED, UpstreamState.DRAINING


@virtual
async def test_an_idle_server_is_stopped_after_its_time_and_started_by_the_next_call() -> None:
    async with up(idle_stop=600.0) as far:
        assert far.now == 0.5
        await far.until(STOPPED)
        assert far.now == 600.5
        assert far.status.rests and "idle" in (far.status.reason or "") and far.status.listed_at is not None
        assert far.supervisor.snapshot() is not None, "what it offers stays listed"
        await anyio.sleep(1000)
        assert (far.toys.starts, far.toys.alive, far.status.pid) == (1, 0, None)
        assert await far.call() == "ok"
        assert (far.state, far.status.rests, far.toys.starts, far.status.restarts) == (READY, False, 2, 0)


@virtual
async def test_a_call_that_runs_keeps_it_up_and_the_time_begins_with_its_end() -> None:
    async with up(Toys(calls=3000.0), idle_stop=600.0) as far:
        far.start_call()
        await far.until(STOPPED)
        assert far.outcomes == [(3000.5, "ok")]
        assert 3600.5 <= far.now <= 3750.5


@virtual
async def test_a_watched_resource_keeps_it_up_and_starts_it() -> None:
    async with kept(idle_stop=60.0) as far:
        await far.supervisor.subscribe("x:1", request("x"))
        await anyio.sleep(1000)
        assert far.state is READY
        far.supervisor.unsubscribe("x:1", request("x"))
        await far.until(STOPPED)
        await far.supervisor.subscribe("x:2", request("x"))
        assert far.state is READY and far.toys.starts == 2


@virtual
async def test_process_that_ends_with_0_after_its_answer_rests_until_the_next_call() -> None:
    async with up(restart=RestartRule(1, 60.0)) as far:
        for starts in range(1, 9):
            assert await far.call() == "ok" and far.toys.starts == starts
            far.toys.wire.die("ended")
            await far.until(UpstreamState.STOPPED)
            assert far.status.rests and far.status.code == "ended" and far.status.failures == 0
            await anyio.sleep(100)
            assert far.toys.starts == starts, "nobody needs it"


@virtual
async def test_call_that_comes_while_a_process_ends_with_0_gets_the_next_one() -> None:
    async with up(Toys(starting=30.0, closing=2.0)) as far:
        far.toys.wire.die("ended")
        assert await far.call() == "ok"
        assert far.toys.starts == 2 and far.now >= 62


@virtual
async def test_process_that_ends_with_0_before_any_answer_is_started_ever_later() -> None:
    fails: list[StartFailed | None] = [StartFailed("ended", "exited with code 0") for _ in range(3)]
    async with kept(Toys(fails=fails)) as far:
        await far.until(UpstreamState.BACKING_OFF)
        assert far.status.code == "not_mcp"
        await far.until(UpstreamState.READY)
        assert far.toys.starts == 4 and far.now >= 0.5 + 1 + 2


@virtual
async def test_process_that_ends_with_0_is_started_again_for_a_watched_resource() -> None:
    async with up() as far:
        await far.supervisor.subscribe("x:1", request("x"))
        far.toys.wire.die("ended")
        await far.until(UpstreamState.READY, starts=2)


@virtual
async def test_an_idle_rule_that_is_set_or_lifted_while_it_runs_holds() -> None:
    async with kept(Toys()) as far:
        await far.until(READY)
        await anyio.sleep(999.5)
        far.supervisor.lifecycle.adjust(SupervisorRules(idle_stop=100.0))
        await far.until(STOPPED)
        assert far.now == 1100.0
        far.supervisor.lifecycle.adjust(SupervisorRules())
        await far.until(READY)
        await anyio.sleep(10_000)
        assert (far.state, far.toys.starts) == (READY, 2)


@virtual
async def test_processes_that_are_spent_one_after_another_count_as_failures() -> None:
    fails: list[StartFailed | None] = [AnotherProcess("era_mismatch", "the process is spent")] * 100
    async with kept(Toys(starting=0.0, fails=fails), restart=RestartRule(2, 60.0)) as far:
        await far.until(BACKING_OFF)
        assert (far.toys.starts, far.status.code, far.status.failures) == (4, "era_mismatch", 1)
        await far.until(FAILED)
        assert far.toys.starts == 12 and far.now >= 0.5 + 1


@virtual
async def test_calls_wait_for_a_first_start_as_long_as_it_may_take() -> None:
    async with kept(Toys(starting=50.0)) as far:
        assert await far.call() == "ok"
        assert far.now == 50.1


@virtual
async def test_calls_wait_no_longer_than_shortly_once_a_start_has_failed() -> None:
    async with kept(Toys(starting=20.0, fails=[StartFailed("start_failed", "boom")] * 3)) as far:
        assert await far.call() == 'server "toy" failed 1 time and is being restarted: boom'
        assert far.now == 25.2
        assert await far.call() == 'server "toy" failed 1 time and is being restarted: boom'
        assert far.now == 30.2


@virtual
async def test_drained_it_takes_no_calls_ends_those_that_run_and_stops() -> None:
    async with up(Toys(calls=10.0)) as far:
        far.start_call()
        await anyio.sleep(1)
        far.tasks.start_soon(far.supervisor.lifecycle.drain, 60.0)
        await anyio.sleep(1)
        assert (far.state, far.toys.alive, far.status.pid) == (DRAINING, 1, 7)
        assert await far.call() == 'server "toy" is stopping: it was stopped on request'
        await far.until(STOPPED)
        assert far.outcomes == [(2.5, far.outcomes[0][1]), (10.5, "ok")]
        assert (far.now, far.toys.alive, far.status.rests) == (10.7, 0, False)
        assert await far.call() == 'server "toy" is stopped: it was stopped on request'
        assert far.toys.starts == 1


@virtual
async def test_calls_that_outlast_the_drain_end_with_that_reason() -> None:
    async with up(Toys(calls=100.0)) as far:
        far.start_call()
        await anyio.sleep(1)
        await far.supervisor.lifecycle.drain(5.0)
        assert far.now == 6.7
        assert far.outcomes == [(6.5, 'server "toy" lost its connection: it was stopped on request')]


@virtual
async def test_a_drain_that_is_given_up_stops_it_all_the_same() -> None:
    async with up(Toys(calls=100.0)) as far:
        far.start_call()
        await anyio.sleep(1)
        with anyio.move_on_after(2):
            await far.supervisor.lifecycle.drain(60.0)
        await far.until(STOPPED)
        assert far.now == 3.7


@pytest.mark.parametrize("when", [STARTING, BACKING_OFF, FAILED, STOPPED])
@virtual
async def test_what_does_not_run_is_drained_at_once(when: UpstreamState) -> None:
    fails: list[StartFailed | None] = [StartFailed("start_failed", "boom")] if when in (BACKING_OFF, FAILED) else []
    rule = RestartRule(0) if when is FAILED else RestartRule()
    async with kept(Toys(fails=fails), idle_stop=60.0, restart=rule) as far:
        await far.until(when)
        await far.supervisor.lifecycle.drain(60.0)
        assert far.state is STOPPED and not far.status.rests
        starts = far.toys.starts
        await anyio.sleep(1000)
        assert (far.state, far.toys.starts, far.toys.alive) == (STOPPED, starts, 0)


@pytest.mark.parametrize(("failures", "state"), [(6, FAILED), (1, BACKING_OFF), (0, DRAINING), (0, STOPPED)])
@virtual
async def test_an_explicit_restart_begins_anew_whatever_has_been(failures: int, state: UpstreamState) -> None:
    toys = Toys(fails=[StartFailed("start_failed", "boom")] * failures)
    async with kept(toys, idle_stop=600.0) as far:
        if state is DRAINING:
            await far.until(READY)
            await far.supervisor.lifecycle.drain(0.0)
        else:
            await far.until(state)
            await anyio.sleep(0.3)  # the process of one that rests is closed
        far.toys.fails.clear()
        began = far.now
        far.supervisor.lifecycle.restart()
        assert (far.state, far.status.reason) == (STARTING, None)
        await far.until(READY)
        assert far.now == round(began + 0.5, 3)
        assert await far.call() == "ok"


@virtual
async def test_a_restart_ends_the_calls_that_run_and_forgives_earlier_failures() -> None:
    async with up(Toys(calls=100.0), restart=RestartRule(1)) as far:
        far.toys.wire.die()
        await far.until(BACKING_OFF)
        await far.until(READY)
        far.start_call()
        await anyio.sleep(1)
        far.supervisor.lifecycle.restart()
        await far.until(READY, starts=3)
        assert far.outcomes[0][1] == 'server "toy" lost its connection: it was restarted on request'
        far.toys.wire.die()
        await far.until(BACKING_OFF)  # not failed: what was before the restart does not count
        await far.until(READY, starts=4)


@virtual
async def test_a_restart_while_what_died_is_cleared_away_is_not_lost() -> None:
    async with up(Toys(closing=5.0)) as far:
        far.toys.wire.die()
        await anyio.sleep(1)
        far.supervisor.lifecycle.restart()
        await far.until(READY, starts=2)
        assert (far.now, far.status.restarts) == (0.5 + 5.0 + 0.5, 1)


@virtual
async def test_after_the_hub_is_done_with_it_nothing_starts_it() -> None:
    async with up() as far:
        pass
    far.supervisor.lifecycle.restart()
    await far.supervisor.lifecycle.drain(60.0)
    far.supervisor.lifecycle.wake()
    assert (far.state, far.toys.starts) == (STOPPED, 1)


@virtual
async def test_what_is_of_another_era_is_not_tried_again() -> None:
    async with kept(Toys(fails=[Incompatible("era_mismatch", "no common protocol version")])) as far:
        await far.until(UpstreamState.INCOMPATIBLE)
        await anyio.sleep(1000)
        assert far.toys.starts == 1
        assert await far.call() == 'server "toy" is incompatible: no common protocol version'
        far.supervisor.lifecycle.restart()
        await far.until(READY)


@virtual
async def test_a_rule_without_an_end_slows_down_what_is_ready_and_gone_again() -> None:
    async with kept(Toys(closing=0.0), restart=RestartRule(None)) as far:
        pauses = []
        for count in range(9):
            await far.until(READY, starts=count + 1)
            if count == 7:
                await anyio.sleep(10)
            far.toys.wire.die()
            await far.until(BACKING_OFF)
            began = far.now
            await far.until(STARTING)
            pauses.append(round(far.now - began, 3))
        assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 0.5, 1]


@virtual
async def test_a_server_that_has_just_died_hears_of_a_log_level_when_it_is_back() -> None:
    async with up() as far:
        far.toys.wire.can_send = False  # its exit is not known yet
        far.supervisor.set_log_level("debug")
        assert far.toys.levels == []
        far.toys.wire.die()
        await far.until(BACKING_OFF)
        await far.until(READY)
        assert far.toys.levels == ["debug"]


@virtual
async def test_each_process_that_it_takes_to_find_the_era_has_the_whole_time_to_start() -> None:
    spent = AnotherProcess("handshake_failed", "it does not take initialize after server/discover")
    async with up(Toys(starting=40.0, fails=[spent]), start_timeout=60.0) as far:
        assert (far.now, far.toys.starts, far.status.failures, far.status.restarts) == (80.2, 2, 0, 0)


READY = UpstreamState.READY


@virtual
async def test_a_server_whose_list_breaks_off_is_ready_with_what_was_read_and_a_later_list_has_to_be_whole() -> None:
    async with up(Toys(cursor="next")) as far:
        first = far.supervisor.snapshot()
        assert first is not None and len(first.lists[Kind.TOOL]) == 1
        assert len(far.status.warnings) == 1 and "stopped after 1 entry" in far.status.warnings[0]
        assert await far.call() == "ok"
        far.toys.tools.append("y")
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(60)
        assert far.supervisor.snapshot() is first and far.state is READY
        far.toys.cursor = None
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(60)
        second = far.supervisor.snapshot()
        assert second is not None and len(second.lists[Kind.TOOL]) == 2 and not far.status.warnings


@virtual
async def test_a_list_that_nobody_needs_at_once_does_not_keep_the_tools_away_and_is_read_when_it_comes() -> None:
    async with up(Toys(slow={"resources/list": 30.0})) as far:
        assert far.now == 10.5 and await far.call() == "ok"
        first = far.supervisor.snapshot()
        assert first is not None and not first.lists[Kind.RESOURCE]
        assert "no answer within 10 s" in "".join(far.status.warnings)
        await anyio.sleep(60)
        second = far.supervisor.snapshot()
        assert second is not None and len(second.lists[Kind.RESOURCE]) == 1 and not far.status.warnings
        far.toys.wire.die()
        await far.until(READY, starts=2)
        third = far.supervisor.snapshot()
        assert third is not None and third.lists == second.lists, "what is late stays as it was"


@virtual
async def test_a_list_that_never_comes_costs_at_most_half_of_the_start() -> None:
    async with up(Toys(slow={"resources/list": math.inf}), start_timeout=4.0) as far:
        assert far.now == 2.5
        await anyio.sleep(1000)
        assert far.state is READY and await far.call() == "ok"
        assert "no answer within 2 s" in "".join(far.status.warnings)


OVERDUE = Failed(DeadlineExceeded("the call took too long"))


async def give_up(far: Kept, *, is_overdue: bool = True) -> None:
    """A call that is not answered in 10 seconds."""
    with anyio.move_on_after(10) as limit:
        await far.supervisor.call(request("x"), Recorder(stopping=OVERDUE if is_overdue else None))
    assert limit.cancelled_caught


@virtual
async def test_a_server_that_says_nothing_any_more_is_started_anew_and_serves_again() -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.frozen = True
        await give_up(far)
        await anyio.sleep(59)
        assert (far.state, far.toys.starts) == (READY, 1)
        far.start_call()
        await far.until(BACKING_OFF)
        assert 70.5 <= far.now < 71
        assert (far.status.reason or "").startswith("it hangs: after a call timed out it was silent for 60 s")
        far.toys.frozen = False
        await far.until(READY)
        assert far.toys.starts == 2
        (lost,) = far.outcomes
        assert "lost its connection: it hangs" in lost[1], "its other calls do not wait any longer either"
        assert await far.call() == "ok"


@pytest.mark.parametrize("method", ["ping", "tools/list"])
@virtual
async def test_a_server_that_answers_anything_at_all_lives(method: str) -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.slow = {"ping": 1e6, "tools/list": 1e6, "tools/call": 1e6, method: 50.0}
        await give_up(far)
        await anyio.sleep(1000)
        assert (far.state, far.toys.starts) == (READY, 1)


SIGNS: dict[str, Callable[[Peer], None]] = {
    "given up by its caller": lambda peer: None,
    "notification": lambda peer: peer.messages.on_notification(envelope(method="notifications/message")),
    "request": lambda peer: peer.messages.on_request(envelope(method="ping", id=1)),
    "late answer": lambda peer: peer.messages.on_late_answer(1),
}


@pytest.mark.parametrize("sign", SIGNS)
@virtual
async def test_a_server_that_says_something_of_its_own_or_whose_caller_gave_up_lives(sign: str) -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.frozen = True
        await give_up(far, is_overdue=sign != "given up by its caller")
        await anyio.sleep(30)
        peer = far.supervisor.state.peer
        assert peer is not None
        SIGNS[sign](peer)
        await anyio.sleep(1000)
        assert (far.state, far.toys.starts) == (READY, 1)
