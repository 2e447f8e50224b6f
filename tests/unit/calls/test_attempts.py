"""Calls that are made again, in virtual time: what their readers hear, and what forbids another attempt."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.calls.plan import CallPlan, TimeLimits
from mcp_hub.calls.retries import Retries, RetryRule
from mcp_hub.errors import DeadlineExceeded, HttpRefused, RpcError, UpstreamLost, UpstreamUnavailable
from mcp_hub.events import Attempt, CallEvent, Cancelled, Completed, Delta, Failed, Progressed, Reset, Started
from mcp_hub.protocol.extensions import STREAMS
from mcp_hub.types import JsonObject
from tests.unit.calls.call_scripts import DONE, LONG, Watched, new_call, new_registry
from tests.unit.calls.durable_hub import DurableHub
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual

LOST = UpstreamLost("gone", data={"upstream": {"server": "git"}, "outcome": "unknown"})
NOT_SENT = UpstreamUnavailable("no connection", data={"upstream": {"server": "git"}})
OVERLOADED = HttpRefused("git", 503, "HTTP 503", 20)
TEXT = Delta(b'[{"type":"text","text":"half"}]')

Step = Callable[[CallChannel], object] | RpcError | Completed | float


def script(*attempts: Sequence[Step]) -> CallHandler:
    """Each attempt does its steps: sends, waits, raises, or returns."""
    left = list(attempts)

    async def handler(call: Call, channel: CallChannel) -> Completed:
        for step in left.pop(0):
            if isinstance(step, RpcError):
                raise step
            if isinstance(step, Completed):
                return step
            if isinstance(step, float):
                await sleep(step)
            else:
                step(channel)
        raise AssertionError("the attempt has no end")

    return handler


def plan(rule: RetryRule | None = None) -> CallPlan:
    own = rule or RetryRule(is_safe=True)
    return CallPlan(retries=Retries(lambda call: own, lambda server: 0, LoopClock(), lambda: 0.5))


def begun(handler: CallHandler, call: Call | None = None, limits: TimeLimits = LONG) -> Watched:
    return Watched(new_registry().start(call or new_call(), handler, limits, plan()), LoopClock().now())


def sent(event: CallEvent) -> Step:
    return lambda channel: channel.send(event)


def failure(call: Watched) -> RpcError:
    assert isinstance(call.ending, Failed)
    return call.ending.error


@virtual
async def test_a_call_is_made_again_and_its_readers_hear_of_each_attempt() -> None:
    call = begun(script([LOST], [NOT_SENT], [DONE]))
    await sleep(10)
    attempts = [Attempt(2, "lost", 0.25, "gone"), Attempt(3, "not_sent", 0.5, "no connection")]
    assert call.finish() == [Started(), *attempts, DONE]
    assert call.ended_at is not None and call.ended_at - call.began == 0.75


@virtual
async def test_a_result_is_final_also_one_that_reports_an_error() -> None:
    refused = Completed(b'{"content":[],"isError":true}')
    call = begun(script([refused]))
    await sleep(10)
    assert call.ending is refused


@virtual
async def test_the_last_failure_is_the_ending_unless_an_attempt_may_have_had_its_effect() -> None:
    certain, doubtful = begun(script(*[[NOT_SENT]] * 3)), begun(script([LOST], [NOT_SENT], [NOT_SENT]))
    own = RpcError("mine", raw=b'{"code":-1,"message":"mine"}')
    answered = begun(script([LOST], [own]))
    await sleep(10)
    assert failure(certain) is NOT_SENT and failure(doubtful) is LOST and failure(answered) is own


@virtual
async def test_progress_increases_over_all_attempts() -> None:
    said = [sent(Progressed(value)) for value in (1, 5)]
    call = begun(script([*said, LOST], [*said, sent(Progressed(6)), DONE]))
    await sleep(10)
    values = [event.progress for event in call.finish() if isinstance(event, Progressed)]
    assert len(values) == 5 and values == sorted(set(values)) and (values[0], values[-1]) == (1, 6)


@virtual
async def test_a_call_that_has_asked_is_not_made_again() -> None:
    def asks(channel: CallChannel) -> None:
        channel.ask(Question("roots/list", b"{}", lambda outcome: None))

    asked = begun(script([asks, LOST]))
    answers = msgspec.structs.replace(new_call(), input_responses={}, request_state="s")
    retried = begun(script([LOST]), answers)
    await sleep(10)
    assert failure(asked) is LOST and failure(retried) is LOST


@virtual
async def test_a_call_ends_at_once_with_a_pause_that_its_time_does_not_allow() -> None:
    in_time = begun(script([OVERLOADED], [DONE]), limits=TimeLimits(30, 30))
    too_late = begun(script([15.0, OVERLOADED]), limits=TimeLimits(30, 30))
    await sleep(60)
    assert in_time.ending is DONE and in_time.ended_at == in_time.began + 21
    error = failure(too_late)
    assert error is OVERLOADED and error.data is not None and error.data["retryAfter"] == 20
    assert too_late.ended_at == too_late.began + 15


@virtual
async def test_an_attempt_has_the_longest_silence_to_itself() -> None:
    busy = HttpRefused("git", 503, "HTTP 503", 5)
    call = begun(script([8.0, busy], [8.0, DONE]), limits=TimeLimits(10, 100))
    late = begun(script([8.0, busy], [12.0, DONE]), limits=TimeLimits(10, 100))
    await sleep(60)
    assert call.ending is DONE and isinstance(failure(late), DeadlineExceeded)


@virtual
async def test_a_call_that_waits_for_its_next_attempt_can_be_cancelled() -> None:
    call = begun(script([OVERLOADED]))
    await sleep(1)
    call.record.cancel("enough")
    await sleep(1)
    assert call.ending == Cancelled("enough") and call.ended_at == call.began + 1


EXTENSION: JsonObject = {"experimental": {STREAMS: {}}}


@pytest.mark.parametrize(
    ("members", "is_again"),
    [
        ({"wants_progress": True}, False),
        ({"wants_progress": True, "capabilities": EXTENSION}, True),
        ({"wants_progress": True, "takes_events": True}, True),
        ({}, True),
    ],
)
@virtual
async def test_partial_content_is_taken_back_if_it_can_be_discarded(members: dict[str, object], is_again: bool) -> None:
    hub = DurableHub()
    handler = script([sent(Progressed(1)), sent(TEXT), sent(TEXT), LOST], [sent(TEXT), LOST], [sent(TEXT), DONE])
    call = msgspec.structs.replace(new_call(), **members)
    record = hub.registry.start(call, handler, LONG, plan())
    await sleep(0)
    follower = await hub.follow(call.id)
    await sleep(10)
    told = [event for event in follower.events if not isinstance(event, Started | Progressed | Delta)]
    assert record.log.ended
    if not is_again:
        assert [type(event) for event in told] == [Failed]
        return
    assert told[:-1] == [
        Attempt(2, "lost", 0.25, "gone"),
        Reset(2, "lost", 3),
        Attempt(3, "lost", 0.5, "gone"),
        Reset(3, "lost", follower.events.index(Reset(2, "lost", 3)) + 2),
    ]
    first = follower.events.index(TEXT) + 1 if TEXT in follower.events else 3
    assert first == 3, "the number of the first partial content"


@virtual
async def test_without_partial_content_there_is_nothing_to_discard() -> None:
    call = begun(script([sent(Progressed(1)), LOST], [DONE]))
    await sleep(10)
    assert not any(isinstance(event, Reset) for event in call.finish())
