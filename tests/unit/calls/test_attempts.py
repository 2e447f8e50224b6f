"""Calls that are made again: which failures, pauses and budgets allow it, and what readers hear. In virtual time."""

from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.call import Call, CallChannel, CallHandler, Question
from mcp_hub.calls.attempts import Retries, _RetryBudget, class_of
from mcp_hub.calls.plan import CallPlan, CallRules, TimeLimits
from mcp_hub.errors import (
    Busy,
    DeadlineExceeded,
    HttpRefused,
    RpcError,
    UpstreamLost,
    UpstreamUnavailable,
    executor_lost,
)
from mcp_hub.events import Attempt, CallEvent, Cancelled, Completed, Delta, Failed, Progressed, Reset, Started
from mcp_hub.protocol.meta import STREAMS
from mcp_hub.types import JsonObject, PartialForm
from tests.unit.calls.call_scripts import DONE, LONG, Watched, new_call, new_registry
from tests.unit.calls.durable_hub import DurableHub, written
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual
from tests.unit.fakes import HandClock

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


def plan(rules: CallRules | None = None) -> CallPlan:
    own = rules or CallRules(idempotent=True)
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
    "members",
    [
        {},
        {"wants_progress": True},
        {"wants_progress": True, "capabilities": EXTENSION},
        {"wants_progress": True, "takes_events": True},
    ],
)
@virtual
async def test_partial_content_of_a_failed_attempt_is_taken_back(members: dict[str, object]) -> None:
    hub = DurableHub()
    handler = script([sent(Progressed(1)), sent(TEXT), sent(TEXT), LOST], [sent(TEXT), LOST], [sent(TEXT), DONE])
    call = msgspec.structs.replace(new_call(), **members)
    record = hub.registry.start(call, handler, LONG, plan())
    await sleep(0)
    follower = await hub.follow(call.id)
    await sleep(10)
    told = [event for event in follower.events if not isinstance(event, Started | Progressed | Delta)]
    assert record.log.ended
    assert told[:-1] == [
        Attempt(2, "lost", 0.25, "gone"),
        Reset(2, "lost", 3),
        Attempt(3, "lost", 0.5, "gone"),
        Reset(3, "lost", follower.events.index(Reset(2, "lost", 3)) + 2),
    ]
    first = follower.events.index(TEXT) + 1 if TEXT in follower.events else 3
    assert first == 3, "the number of the first partial content"


@pytest.mark.parametrize("form", ["line", "text"])
@virtual
async def test_text_in_progress_begins_anew_with_each_attempt_and_its_values_rise(form: PartialForm) -> None:
    hub = DurableHub()
    call = msgspec.structs.replace(new_call(), wants_progress=True, partials=form)
    attempt = [sent(TEXT), 0.3]
    more = [sent(TEXT), sent(TEXT)]  # the second one waits
    hub.registry.start(call, script([*attempt, *more, LOST], [*attempt, LOST], [*attempt, DONE]), LONG, plan())
    await sleep(10)
    events = written(hub, call.id)
    shown = [event for event in events if isinstance(event, Progressed)]
    messages = [msgspec.json.decode(event.members["message"]) for event in shown if event.members]
    assert messages == ["half", {"line": "halfhalf", "text": "half"}[form], "half", "half"]
    assert [event.progress for event in shown] == sorted({e.progress for e in shown})
    assert isinstance(events[-1], Completed)


@virtual
async def test_without_partial_content_there_is_nothing_to_discard() -> None:
    hub, call = DurableHub(), new_call()
    hub.registry.start(call, script([sent(Progressed(1)), LOST], [DONE]), LONG, plan())
    await sleep(10)
    assert [type(event) for event in written(hub, call.id)] == [Started, Progressed, Attempt, Completed]


LATER = 10_000.0
SILENT = DeadlineExceeded("silent", data={"limit": "timeout", "outcome": "unknown"})
LIMITED, SOON = HttpRefused("git", 429, "HTTP 429"), HttpRefused("git", 503, "HTTP 503", 7)


def unavailable(state: str) -> UpstreamUnavailable:
    return UpstreamUnavailable("not up", data={"upstream": {"server": "git", "state": state}})


def retries(rules: CallRules | None = None, jitter: float = 0.5, calls: int = 0) -> Retries:
    return Retries(lambda call: rules or CallRules(), lambda server: calls, HandClock(0.0), lambda: jitter)


def pause(
    own: Retries, error: RpcError, attempt: int = 1, due: float = LATER, call: Call | None = None
) -> float | None:
    return own.pause(call or new_call(), error, attempt, due, LATER)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NOT_SENT, "not_sent"),
        (unavailable("ready"), "not_sent"),
        (unavailable("backing_off"), None),
        (unavailable("failed"), None),
        (UpstreamUnavailable("raised by a tool"), None),
        (LIMITED, "rate_limited"),
        (HttpRefused("git", 429, "HTTP 429", 3), "rate_limited"),
        (SOON, "unavailable"),
        (HttpRefused("git", 503, "HTTP 503"), "lost"),
        (HttpRefused("git", 502, "HTTP 502"), "lost"),
        (HttpRefused("git", 401, "HTTP 401"), None),
        (HttpRefused("git", 200, "HTTP 200 and text/html"), None),
        (LOST, "lost"),
        (executor_lost("gone", {}), "lost"),
        (UpstreamLost("garbage", data={"upstream": {"code": "unreadable_answer"}, "outcome": "unknown"}), None),
        (RpcError("mine", raw=b'{"code":-1,"message":"mine"}'), None),
        (UpstreamLost("of a hub behind this one", raw=b'{"code":1002,"message":"gone"}'), None),
        (SILENT, "timeout"),
        (DeadlineExceeded("too long", data={"limit": "request_timeout"}), "timeout"),
        (DeadlineExceeded("too long", data={"limit": "max_duration"}), None),
        (DeadlineExceeded("no answer", data={"limit": "question_timeout"}), None),
        (DeadlineExceeded("of a hub behind this one", data={"limit": "timeout"}, raw=b"{}"), None),
        (DeadlineExceeded("raised by a tool"), None),
        (Busy("full"), None),
    ],
)
def test_a_failure_has_the_class_of_what_the_server_may_have_done(error: RpcError, kind: str | None) -> None:
    assert class_of(error) == kind


@pytest.mark.parametrize("error", [NOT_SENT, LIMITED, SOON])
def test_a_call_that_nothing_came_of_is_made_again_whatever_its_tool_does(error: RpcError) -> None:
    assert pause(retries(), error) is not None


@pytest.mark.parametrize(
    ("rules", "method", "is_again"),
    [
        (CallRules(), "tools/call", False),
        (CallRules(idempotent=True), "tools/call", True),
        (CallRules(), "resources/read", True),
        (CallRules(pauses={"lost": (1,)}, has_chosen=True), "tools/call", True),
        (CallRules(pauses={"not_sent": (1,)}, has_chosen=True, idempotent=True), "tools/call", False),
    ],
)
def test_call_that_may_have_had_its_effect_needs_to_be_safe(rules: CallRules, method: str, is_again: bool) -> None:
    assert (pause(retries(rules), LOST, call=new_call(method=method)) is not None) is is_again


def test_attempts_end_at_their_number() -> None:
    assert [pause(retries(), LIMITED, attempt) is not None for attempt in (1, 2, 3)] == [True, True, False]
    assert pause(retries(CallRules(pauses={})), LIMITED) is None


def test_each_class_has_pauses_and_attempts_of_its_own() -> None:
    rule = CallRules(pauses={"not_sent": (2, 2), "rate_limited": (1, 1, 1), "lost": (5,) * 5}, has_chosen=True)
    listed = {
        class_of(error): [pause(retries(rule), error, attempt) for attempt in range(1, 7)]
        for error in (NOT_SENT, LIMITED, LOST, SOON)
    }
    assert listed == {
        "not_sent": [2, 2, None, None, None, None],
        "rate_limited": [1, 1, 1, None, None, None],
        "lost": [5, 5, 5, 5, 5, None],
        "unavailable": [None] * 6,
    }


@pytest.mark.parametrize(
    ("rules", "method", "is_again"),
    [
        (CallRules(), "resources/read", False),
        (CallRules(idempotent=True), "tools/call", False),
        (CallRules(pauses={"timeout": (1,)}, has_chosen=True), "tools/call", False),
        (CallRules(pauses={"timeout": (1,)}, has_chosen=True, idempotent=True), "tools/call", True),
        (CallRules(pauses={"timeout": (1,)}, has_chosen=True), "resources/read", True),
    ],
)
def test_timeout_is_retried_if_listed_and_the_call_is_safe(rules: CallRules, method: str, is_again: bool) -> None:
    assert (pause(retries(rules), SILENT, call=new_call(method=method)) is not None) is is_again


@pytest.mark.parametrize(("jitter", "pauses"), [(0.0, (0.125, 0.25)), (0.5, (0.25, 0.5)), (1.0, (0.375, 0.75))])
def test_pauses_grow_and_differ_by_chance(jitter: float, pauses: tuple[float, float]) -> None:
    own = retries(jitter=jitter)
    assert (pause(own, LIMITED, 1), pause(own, LIMITED, 2)) == pauses


@given(
    st.lists(st.floats(0.001, 3600), min_size=1, max_size=9).map(tuple),
    st.floats(0, 1),
    st.integers(0, 100),
    st.floats(1, 10_000),
)
def test_pause_is_near_its_nominal_one_and_within_the_time(
    pauses: tuple[float, ...], jitter: float, retry_after: int, end: float
) -> None:
    own = retries(CallRules(pauses={"unavailable": pauses}), jitter)
    error, due = HttpRefused("git", 503, "HTTP 503", retry_after), end / 2
    for attempt, nominal in enumerate(pauses, 1):
        pause = own.pause(new_call(), error, attempt, due, end)
        wanted = max(nominal * (0.5 + jitter), retry_after * (1 + 0.1 * jitter))
        assert (pause is None) == (wanted >= end or retry_after * (1 + 0.1 * jitter) >= due)
        assert pause is None or (pause == pytest.approx(wanted) and pause >= max(nominal / 2, retry_after))
    assert own.pause(new_call(), error, len(pauses) + 1, due, end) is None


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 7.0), (1.0, 7.7)])
def test_a_server_is_left_alone_for_as_long_as_it_wants(jitter: float, seconds: float) -> None:
    assert pause(retries(jitter=jitter), SOON) == pytest.approx(seconds)


def test_no_pause_goes_beyond_the_time_of_the_call() -> None:
    assert pause(retries(), SOON, due=7.0) is None
    assert pause(retries(), SOON, due=7.5) is not None


def spent(budget: _RetryBudget, at: float, calls: int, most: int = 100) -> int:
    return sum(budget.spend(at, lambda: calls) for _ in range(most))


def test_a_budget_has_three_retries_in_ten_seconds_or_one_for_ten_calls() -> None:
    budget = _RetryBudget(0, 0)
    assert spent(budget, 5, 20) == 3
    assert spent(budget, 14, 20) == 0 and spent(budget, 15, 20) == 3
    assert spent(budget, 25, 20 + 500) == 50
    assert spent(budget, 36, 20 + 500) == 3, "only calls of the last ten seconds count"


def test_budget_allows_the_retries_of_one_call() -> None:
    own = retries(CallRules(pauses={"rate_limited": (1,) * 5}))
    assert [pause(own, LIMITED, attempt) for attempt in range(1, 7)] == [1] * 5 + [None]
    assert pause(own, LIMITED) is None, "another call's"


def test_calls_of_long_ago_make_no_large_budget() -> None:
    assert spent(_RetryBudget(0, 0), 1000, 10_000) == 10, "100 calls in ten seconds, on average"


def test_each_server_has_a_budget_of_its_own() -> None:
    own, other = retries(), msgspec.structs.replace(new_call(), upstream="other")
    granted = [sum(pause(own, LIMITED, call=call) is not None for _ in range(9)) for call in (None, other, None)]
    assert granted == [3, 3, 0]


def test_the_seconds_to_wait_travel_with_the_error() -> None:
    data: JsonObject = SOON.data or {}
    assert data["retryAfter"] == 7 and "outcome" not in data and SOON.about_upstream["status"] == 503
    assert "Try again in 7 s" in SOON.message
