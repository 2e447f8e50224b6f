"""Attempts whose server is silent: they are cancelled, and made again where that is allowed. In virtual time."""

import pytest
from anyio import get_cancelled_exc_class

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.calls.plan import CallRules, ResumePoint, TimeLimits
from mcp_hub.errors import DeadlineExceeded, HubStopping, RpcError
from mcp_hub.events import Attempt, Cancelled, Completed, Failed
from tests.unit.calls.call_scripts import DONE, GRACE, Watched, new_call, new_registry, stubborn
from tests.unit.calls.test_attempts import LOST, failure, plan, script
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual

HURRIED = TimeLimits(10, 100, retries_silence=True)
TIMED: CallRules = CallRules(pauses={"timeout": (1, 5)}, has_chosen=True, idempotent=True)


def timed(handler: CallHandler, rule: CallRules = TIMED, limits: TimeLimits = HURRIED) -> Watched:
    return Watched(new_registry().start(new_call(), handler, limits, plan(rule)), LoopClock().now())


def seconds(call: Watched) -> float:
    assert call.ended_at is not None
    return call.ended_at - call.began


@virtual
async def test_silent_attempt_is_cancelled_before_the_next_one_begins() -> None:
    notes: list[tuple[float, bool]] = []

    async def handler(call: Call, channel: CallChannel) -> Completed:
        if notes:
            return DONE
        try:
            await sleep(1000)
        finally:
            notes.append((LoopClock().now() - began, channel.times.has_lapsed))
        raise AssertionError("it was not cancelled")

    began = LoopClock().now()
    call = timed(handler)
    await sleep(100)
    ((cancelled, has_lapsed),) = notes
    assert cancelled == pytest.approx(10, abs=0.1) and has_lapsed, "so that a server that hangs is found"
    (attempt,) = (event for event in call.finish() if isinstance(event, Attempt))
    assert (attempt.number, attempt.reason, attempt.after) == (2, "timeout", 1)
    assert call.ending is DONE and seconds(call) == pytest.approx(11, abs=0.1)


@virtual
async def test_call_of_silent_attempts_ends_as_one_that_is_not_retried() -> None:
    call, once = timed(script(*[[1000.0]] * 3)), timed(script([1000.0]), CallRules(idempotent=True))
    await sleep(200)
    assert seconds(call) == pytest.approx(10 + 1 + 10 + 5 + 10, abs=0.2)
    for error in (failure(call), failure(once)):
        assert isinstance(error, DeadlineExceeded) and error.is_outcome_unknown and "was silent for 10 s" in str(error)


@pytest.mark.parametrize("limits", [HURRIED, TimeLimits(10, 100)])
@virtual
async def test_silent_call_that_may_act_twice_is_not_retried(limits: TimeLimits) -> None:
    call = timed(script([1000.0]), CallRules(pauses={"timeout": (1,)}, has_chosen=True), limits)
    await sleep(200)
    assert isinstance(failure(call), DeadlineExceeded) and seconds(call) == pytest.approx(10, abs=0.1)


@virtual
async def test_attempts_and_pauses_end_with_the_longest_duration_of_the_call() -> None:
    rule = CallRules(pauses={"timeout": (5,) * 5}, has_chosen=True, idempotent=True)
    totals = [TimeLimits(2, total, retries_silence=True) for total in (11, 15, 100)]
    in_pause, in_attempt, in_time = (timed(script(*[[1000.0]] * 2, [1.5, DONE]), rule, each) for each in totals)
    await sleep(200)
    assert failure(in_pause).data == {**(failure(in_pause).data or {}), "limit": "timeout"}
    assert failure(in_attempt).data == {**(failure(in_attempt).data or {}), "limit": "max_duration"}
    assert [round(seconds(call)) for call in (in_pause, in_attempt)] == [9, 15]
    assert in_time.ending is DONE, "a pause may be longer than the longest silence"


@virtual
async def test_result_of_a_cancelled_attempt_counts() -> None:
    async def handler(call: Call, channel: CallChannel) -> Completed:
        try:
            await sleep(1000)
        except get_cancelled_exc_class():
            return DONE
        raise AssertionError("it was not cancelled")

    call = timed(handler)
    await sleep(100)
    assert call.ending is DONE and seconds(call) == pytest.approx(10, abs=0.1)


@virtual
async def test_error_of_the_server_in_a_cancelled_attempt_counts() -> None:
    own = RpcError("mine", raw=b'{"code":-1,"message":"mine"}')

    async def handler(call: Call, channel: CallChannel) -> Completed:
        try:
            await sleep(1000)
        except get_cancelled_exc_class():
            raise own from None
        raise AssertionError("it was not cancelled")

    call = timed(handler)
    await sleep(100)
    assert failure(call) is own and seconds(call) == pytest.approx(10, abs=0.1)


@virtual
async def test_another_hub_does_not_continue_an_attempt_that_is_being_cancelled() -> None:
    async def handler(call: Call, channel: CallChannel) -> Completed:
        channel.continuable(b'{"task":"t"}')
        try:
            await sleep(1000)
        finally:
            await sleep(3)
        raise AssertionError("it was not cancelled")

    def resumption() -> ResumePoint | None:
        return call.record.resumption

    call = timed(handler)
    await sleep(9)
    assert resumption() is not None
    await sleep(2)
    assert resumption() is None and not call.record.log.ended
    call.record.stop(Failed(HubStopping("the hub is stopping", data={"outcome": "unknown"})))
    await sleep(1)
    assert isinstance(failure(call), HubStopping) and not call.record.survives


@virtual
async def test_attempt_that_does_not_obey_ends_its_call() -> None:
    call = timed(stubborn(500))
    await sleep(600)
    assert isinstance(failure(call), DeadlineExceeded) and seconds(call) == pytest.approx(10 + 2 * GRACE, abs=0.2)


@virtual
async def test_call_is_cancelled_between_and_during_its_attempts() -> None:
    between, during = timed(script([1000.0], [1000.0])), timed(script([1000.0], [1000.0]))
    await sleep(10.5)
    between.record.cancel("between")
    await sleep(1)
    during.record.cancel("during")
    await sleep(1)
    assert (between.ending, during.ending) == (Cancelled("between"), Cancelled("during"))


@virtual
async def test_call_whose_question_is_not_answered_is_not_retried() -> None:
    def asks(channel: CallChannel) -> None:
        channel.ask(Question("roots/list", b"{}", lambda outcome: None))

    call = timed(script([asks, 1000.0]), limits=TimeLimits(10, 100, answer=20, retries_silence=True))
    await sleep(100)
    assert "was not answered for 20 s" in str(failure(call)) and seconds(call) == pytest.approx(20, abs=0.1)


@virtual
async def test_another_hub_does_not_continue_an_attempt_that_has_failed() -> None:
    def starts_task(channel: CallChannel) -> None:
        channel.continuable(b'{"task":"t"}')

    call = timed(script([starts_task, LOST], [1.0, DONE]), CallRules(pauses={"lost": (5,)}, has_chosen=True))
    await sleep(1)
    assert call.record.resumption is None
    await sleep(20)
    assert call.ending is DONE


@virtual
async def test_task_that_is_cancelled_from_outside_makes_no_further_attempt() -> None:
    async def handler(call: Call, channel: CallChannel) -> Completed:
        try:
            await sleep(1000)
        finally:
            await sleep(3)
        return DONE

    call = timed(handler)
    await sleep(11)
    assert call.record.task is not None and call.record.task.cancelling(), "the attempt is being given up"
    call.record.task.cancel()
    await sleep(1)
    assert isinstance(call.ending, Cancelled)
