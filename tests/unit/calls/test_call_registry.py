"""Start, wait, cancel, run out of time, stop: the ways of a call to its one ending, in virtual time."""

import asyncio

import pytest
import structlog

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.calls.plan import CallPlan, ResumePoint, TimeLimits
from mcp_hub.errors import Busy, DeadlineExceeded, HubStopping, RpcError, UpstreamLost
from mcp_hub.events import Cancelled, Completed, Ending, Failed, InputReceived, InputRequired, Started
from mcp_hub.protocol.shape.stream_events import is_retryable
from tests.unit.calls.call_scripts import (
    DONE,
    GRACE,
    LONG,
    TICK,
    Watched,
    after,
    at_once,
    never,
    new_call,
    new_registry,
    raising,
    stubborn,
    talking,
    watch,
)
from tests.unit.calls.durable_hub import DurableHub, written
from tests.unit.calls.virtual_time import CoarseLoop, LoopClock, VirtualLoop, run, sleep, virtual


def failure(ending: Ending) -> Exception:
    assert isinstance(ending, Failed)
    return ending.error


@virtual
async def test_an_error_of_the_handler_is_the_ending_and_a_bug_is_not_shown_in_detail() -> None:
    registry = new_registry()
    lost = UpstreamLost("gone")
    refused, crashed = watch(registry, raising(lost)), watch(registry, raising(ZeroDivisionError("secret")))
    with structlog.testing.capture_logs() as logged:
        await sleep(1)
    assert [entry["event"] for entry in logged] == ["call_crashed"]
    assert failure(refused.ending) is lost
    assert "secret" not in str(failure(crashed.ending))
    assert len(registry) == 0


@pytest.mark.parametrize("pause", [None, 0, 3])
@virtual
async def test_a_cancelled_call_is_cancelled_however_far_it_has_come(pause: float | None) -> None:
    registry = new_registry()
    call = watch(registry, never)
    if pause is not None:
        await sleep(pause)
    registry.cancel(call.record, "enough")
    registry.cancel(call.record, "again")
    await sleep(0.1)
    assert call.ending == Cancelled("enough") and len(registry) == 0


@virtual
async def test_a_handler_that_does_not_obey_has_its_grace_and_then_the_call_ends_without_it() -> None:
    registry = new_registry(running=1)
    call = watch(registry, stubborn(60))
    await sleep(1)
    registry.cancel(call.record)
    await sleep(2 * GRACE)
    assert call.ending == Cancelled() and call.ended_at == call.began + 1 + GRACE
    assert len(registry) == 1, "it still holds its place"
    await sleep(60)
    assert call.ending == Cancelled() and len(registry) == 0
    assert call.record.log.refused == 1, "its late result is counted and dropped"


@virtual
async def test_what_waits_is_started_in_order_and_one_more_is_refused() -> None:
    registry = new_registry(running=2, waiting=2)
    calls = [watch(registry, after(seconds)) for seconds in (1, 5, 1, 1)]
    with pytest.raises(Busy, match="2 calls running and 2 waiting"):
        watch(registry, at_once)
    other = watch(registry, at_once, principal="q")
    await sleep(0)
    assert other.ending is DONE, "one principal does not wait for another"
    await sleep(10)
    assert [call.ended_at - call.began for call in calls if call.ended_at] == [1, 5, 2, 3]
    assert len(registry) == 0


@virtual
async def test_a_limit_that_is_raised_lets_waiting_calls_begin_in_order() -> None:
    registry = new_registry(running=1)
    calls = [watch(registry, after(5)) for _ in range(4)]
    await sleep(1)
    registry.limit(3, 10)
    newest = watch(registry, after(5))
    await sleep(20)
    ends = [call.ended_at - call.began for call in (*calls, newest) if call.ended_at]
    assert ends == [5, 6, 6, 10, 10], "the newest does not overtake the last one that waits"
    assert len(registry) == 0


@pytest.mark.parametrize("loop", [VirtualLoop, CoarseLoop])
@pytest.mark.parametrize(
    ("limits", "limit", "seconds"),
    [
        (TimeLimits(3.0004, 100), "timeout", 3.0004),
        (TimeLimits(100, 3.0004), "max_duration", 3.0004),
        (TimeLimits(3.0004, 100, "request_timeout"), "request_timeout", 3.0004),
    ],
)
def test_silent_call_runs_out_of_time(loop: type[VirtualLoop], limits: TimeLimits, limit: str, seconds: float) -> None:
    async def scenario() -> None:
        registry = new_registry()
        await sleep(0.3337)
        calls = [watch(registry, never, limits) for _ in range(3)]
        await sleep(20)
        for call in calls:
            error = failure(call.ending)
            assert isinstance(error, DeadlineExceeded) and f"`{limit}`" in str(error)
            assert error.data is not None and (error.data["limit"], error.data["seconds"]) == (limit, seconds)
            assert call.ended_at is not None and seconds <= call.ended_at - call.began <= seconds + 2 * TICK

    run(scenario, loop)


@pytest.mark.parametrize(("method", "outcome"), [("tools/call", "unknown"), ("resources/read", None)])
@virtual
async def test_outcome_of_a_tool_that_ran_out_of_time_is_unknown(method: str, outcome: str | None) -> None:
    registry = new_registry()
    call = registry.start(new_call(method=method), never, TimeLimits(5, 10))
    late = Watched(call, LoopClock().now())
    await sleep(20)
    error = failure(late.ending)
    assert isinstance(error, DeadlineExceeded) and (error.data or {}).get("outcome") == outcome


@virtual
async def test_progress_is_a_sign_of_life_but_the_longest_duration_stays() -> None:
    registry = new_registry()
    lively = watch(registry, talking(2, 5), TimeLimits(3, 1000))
    endless = watch(registry, talking(2, 1000), TimeLimits(3, 20))
    await sleep(1000)
    assert lively.ending is DONE
    error = failure(endless.ending)
    assert isinstance(error, DeadlineExceeded) and error.data is not None and error.data["limit"] == "max_duration"


def doubted(after_doubt: CallHandler) -> CallHandler:
    """A call that after 5 s, and the last time after 9 s, may have been answered in a way that nobody understands."""

    async def handler(call: Call, channel: CallChannel) -> Completed:
        for pause in (5, 1, 1, 1, 1):
            await sleep(pause)
            channel.times.suspect()
        return await after_doubt(call, channel)

    return handler


@virtual
async def test_a_call_that_may_have_been_answered_has_little_time_left() -> None:
    call = watch(new_registry(), doubted(never), LONG)
    await sleep(500)
    error = failure(call.ending)
    assert isinstance(error, UpstreamLost) and "cannot be read or belongs to no call" in str(error)
    assert error.data == {"upstream": {"server": "git", "code": "unreadable_answer"}, "outcome": "unknown"}
    assert call.ended_at is not None and 39 <= call.ended_at - call.began <= 39 + 2 * TICK


@virtual
async def test_its_answer_or_anything_it_says_takes_the_doubt_away() -> None:
    registry = new_registry()
    answered = watch(registry, doubted(after(29)), LONG)
    talked = watch(registry, doubted(talking(29, 3)), LONG)
    silent = watch(registry, doubted(heard_and_then(never)), LONG)
    await sleep(900)
    assert answered.ending is DONE and talked.ending is DONE and silent.ended_at is None
    await sleep(200)
    assert isinstance(failure(silent.ending), DeadlineExceeded)


def heard_and_then(handler: CallHandler) -> CallHandler:
    async def hearing(call: Call, channel: CallChannel) -> Completed:
        await sleep(1)
        channel.times.touch()
        return await handler(call, channel)

    return hearing


@virtual
async def test_a_sign_of_life_gives_the_caller_no_more_time_to_answer() -> None:
    async def asking(call: Call, channel: CallChannel) -> Completed:
        channel.ask(Question("roots/list", b"{}", lambda outcome: None))
        while True:
            await sleep(10)
            channel.times.touch()

    call = watch(new_registry(), asking, TimeLimits(1000, 1000, answer=25))
    await sleep(30)
    assert "roots/list was not answered for 25 s" in str(failure(call.ending))


@pytest.mark.parametrize("waits", ["for an answer", "for a yes"])
@virtual
async def test_after_a_long_wait_the_upstreams_silence_counts_as_before(waits: str) -> None:
    async def waiting(call: Call, channel: CallChannel) -> Completed:
        if waits == "for an answer":
            key = channel.ask(Question("roots/list", b"{}", lambda outcome: None))
            await sleep(100)
            record.questions.answer(key, b"{}")
        else:
            with channel.times.put_off(600):
                await sleep(100)
        return await never(call, channel)

    registry = new_registry()
    record = registry.start(new_call(), waiting, TimeLimits(60, 10_000))
    await sleep(159)
    assert not record.log.ended
    await sleep(1 + 2 * TICK)
    assert isinstance(failure(record.log.ending), DeadlineExceeded)


@virtual
async def test_time_in_the_queue_is_not_the_upstreams_silence() -> None:
    """`silence` is "the longest an upstream may say nothing for a call": it was not asked yet."""
    registry = new_registry(running=1)
    watch(registry, after(8))
    queued = watch(registry, after(5), TimeLimits(10, 1000))
    await sleep(100)
    assert queued.ending is DONE


@virtual
async def test_a_call_that_never_has_its_turn_ends_at_its_longest_duration_and_may_be_made_again() -> None:
    registry = new_registry(running=1)
    watch(registry, never)
    queued = watch(registry, never, TimeLimits(3, 20))
    await sleep(100)
    error = failure(queued.ending)
    assert isinstance(error, Busy) and is_retryable(error) and "waited 20 s for its turn" in str(error)
    assert error.data is not None and error.data["setting"] == "hub.limits.running_calls"
    assert queued.ended_at is not None and 20 <= queued.ended_at - queued.began <= 20 + 2 * TICK


@virtual
async def test_a_stop_ends_every_call_with_what_is_known() -> None:
    registry = new_registry(running=2)
    calls = [watch(registry, never), watch(registry, after(0.1)), watch(registry, never)]
    await sleep(1)
    calls.append(watch(registry, never))
    began = LoopClock().now()
    await registry.close(60)
    assert LoopClock().now() == began, "nobody is waited for who has obeyed"
    assert calls[1].ending is DONE
    for call in (calls[0], calls[2]):
        assert isinstance(call.ending, Failed) and call.ending.error.data == {"outcome": "unknown"}
    assert isinstance(calls[3].ending, Failed) and is_retryable(calls[3].ending.error), "its turn has not come"


@virtual
async def test_a_call_that_another_hub_has_begun_does_not_wait_for_its_turn_here() -> None:
    registry = new_registry(running=1)
    watch(registry, never)
    plan = CallPlan(may_last=False, resumption=ResumePoint(b"{}"), events=5)
    limits = [TimeLimits(seconds, seconds) for seconds in (20, 1000)]
    overdue, stopped = (Watched(registry.start(new_call(), never, each, plan), 0) for each in limits)
    waiting = watch(registry, never)
    assert [call.record.times.began is None for call in (overdue, stopped, waiting)] == [False, False, True]
    await sleep(100)
    await registry.close(60)
    assert isinstance(failure(overdue.ending), DeadlineExceeded)
    assert isinstance(stopped.ending, Failed) and stopped.ending.error.data == {"outcome": "unknown"}


@virtual
async def test_a_stop_is_bounded_and_even_a_handler_that_does_not_obey_leaves_an_ending() -> None:
    registry = new_registry()
    call = watch(registry, stubborn(3))
    await sleep(1)
    began = LoopClock().now()
    await registry.close(0.3)
    assert LoopClock().now() - began <= 0.4
    assert isinstance(call.ending, Failed), "every running call gets its ending (app.stop)"
    await sleep(5)


@virtual
async def test_call_that_comes_while_the_hub_stops_is_not_sent() -> None:
    registry, sent = new_registry(), list[Call]()

    async def handler(call: Call, channel: CallChannel) -> Completed:
        sent.append(call)
        return DONE

    watch(registry, stubborn(3))
    await sleep(1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(registry.close(0.3))
        await sleep(0.1)
        with pytest.raises(HubStopping) as refused:
            registry.start(new_call(), handler, LONG)
        assert is_retryable(refused.value)
        plan = CallPlan(may_last=False, resumption=ResumePoint(b"{}"), events=5)
        left = registry.start(new_call(), handler, LONG, plan)
        assert isinstance(left.stopping, Failed) and isinstance(left.stopping.error, HubStopping)
        assert left.log.ending is left.stopping, "the next hub continues it"
    await sleep(5)
    assert not sent


@virtual
async def test_a_task_cancelled_from_outside_still_leaves_an_ending() -> None:
    call = watch(new_registry(), never, LONG)
    await sleep(1)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await sleep(1)
    assert isinstance(call.ending, Cancelled)


@pytest.mark.parametrize("is_result", [True, False])
@virtual
async def test_a_question_without_an_answer_is_closed_before_a_result(is_result: bool) -> None:
    outcomes: list[object] = []

    async def handler(call: Call, channel: CallChannel) -> Completed:
        channel.ask(Question("roots/list", b"{}", outcomes.append))
        await sleep(1)
        if is_result:
            return DONE
        raise RpcError("no")

    hub = DurableHub()
    call = new_call()
    hub.registry.start(call, handler, LONG)
    await sleep(5)
    kinds = [type(event) for event in written(hub, call.id)]
    assert kinds == [Started, InputRequired, *([InputReceived, Completed] if is_result else [Failed])]
    assert len(outcomes) == 1
