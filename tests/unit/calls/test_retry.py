"""Which failures may be retried, after which pause, and within which budget."""

import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.calls.retries import Retries, RetryRule, _RetryBudget, class_of
from mcp_hub.errors import (
    Busy,
    DeadlineExceeded,
    ExecutorLost,
    HttpRefused,
    RpcError,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.types import JsonObject
from tests.unit.calls.call_scripts import new_call

LATER = 10_000.0
LOST = UpstreamLost("gone", data={"upstream": {"server": "git"}, "outcome": "unknown"})
NOT_SENT = UpstreamUnavailable("no connection", data={"upstream": {"server": "git"}})
LIMITED, OVERLOADED = HttpRefused("git", 429, "HTTP 429"), HttpRefused("git", 503, "HTTP 503", 7)


class Clock:
    """Stands still until a test moves it."""

    time = 0.0

    def now(self) -> float:
        return self.time


def unavailable(state: str) -> UpstreamUnavailable:
    return UpstreamUnavailable("not up", data={"upstream": {"server": "git", "state": state}})


def retries(rule: RetryRule | None = None, jitter: float = 0.5, calls: int = 0, clock: Clock | None = None) -> Retries:
    return Retries(lambda call: rule or RetryRule(), lambda server: calls, clock or Clock(), lambda: jitter)


def pause(
    own: Retries,
    error: RpcError,
    attempt: int = 1,
    due: float = LATER,
    call: Call | None = None,
) -> float | None:
    return own.pause(call or new_call(), error, attempt, due)


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
        (OVERLOADED, "unavailable"),
        (HttpRefused("git", 503, "HTTP 503"), "lost"),
        (HttpRefused("git", 502, "HTTP 502"), "lost"),
        (HttpRefused("git", 401, "HTTP 401"), None),
        (HttpRefused("git", 200, "HTTP 200 and text/html"), None),
        (LOST, "lost"),
        (ExecutorLost("gone"), "lost"),
        (UpstreamLost("garbage", data={"upstream": {"code": "unreadable_answer"}, "outcome": "unknown"}), None),
        (RpcError("mine", raw=b'{"code":-1,"message":"mine"}'), None),
        (UpstreamLost("of a hub behind this one", raw=b'{"code":1002,"message":"gone"}'), None),
        (DeadlineExceeded("too long"), None),
        (Busy("full"), None),
    ],
)
def test_a_failure_has_the_class_of_what_the_server_may_have_done(error: RpcError, kind: str | None) -> None:
    assert class_of(error) == kind


@pytest.mark.parametrize("error", [NOT_SENT, LIMITED, OVERLOADED])
def test_a_call_that_nothing_came_of_is_made_again_whatever_its_tool_does(error: RpcError) -> None:
    assert pause(retries(), error) is not None


@pytest.mark.parametrize(
    ("rule", "method", "is_again"),
    [
        (RetryRule(), "tools/call", False),
        (RetryRule(is_safe=True), "tools/call", True),
        (RetryRule(), "resources/read", True),
        (RetryRule(on=frozenset({"lost"})), "tools/call", True),
        (RetryRule(on=frozenset({"not_sent"}), is_safe=True), "tools/call", False),
    ],
)
def test_call_that_may_have_had_its_effect_needs_to_be_safe(rule: RetryRule, method: str, is_again: bool) -> None:
    assert (pause(retries(rule), LOST, call=new_call(method=method)) is not None) is is_again


def test_attempts_end_at_their_number() -> None:
    assert [pause(retries(), LIMITED, attempt) is not None for attempt in (1, 2, 3)] == [True, True, False]
    assert pause(retries(RetryRule(attempts=1)), LIMITED) is None


@pytest.mark.parametrize(("jitter", "pauses"), [(0.0, (0.125, 0.25)), (0.5, (0.25, 0.5)), (1.0, (0.375, 0.75))])
def test_pauses_grow_and_differ_by_chance(jitter: float, pauses: tuple[float, float]) -> None:
    own = retries(jitter=jitter)
    assert (pause(own, LIMITED, 1), pause(own, LIMITED, 2)) == pauses


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 7.0), (1.0, 7.7)])
def test_a_server_is_left_alone_for_as_long_as_it_wants(jitter: float, seconds: float) -> None:
    assert pause(retries(jitter=jitter), OVERLOADED) == pytest.approx(seconds)


def test_no_pause_goes_beyond_the_time_of_the_call() -> None:
    assert pause(retries(), OVERLOADED, due=7.0) is None
    assert pause(retries(), OVERLOADED, due=7.5) is not None


def spent(budget: _RetryBudget, at: float, calls: int, most: int = 100) -> int:
    return sum(budget.spend(at, lambda: calls) for _ in range(most))


def test_a_budget_has_three_retries_in_ten_seconds_or_one_for_ten_calls() -> None:
    budget = _RetryBudget(0, 0)
    assert spent(budget, 5, 20) == 3
    assert spent(budget, 14, 20) == 0 and spent(budget, 15, 20) == 3
    assert spent(budget, 25, 20 + 500) == 50
    assert spent(budget, 36, 20 + 500) == 3, "only calls of the last ten seconds count"


def test_calls_of_long_ago_make_no_large_budget() -> None:
    assert spent(_RetryBudget(0, 0), 1000, 10_000) == 10, "100 calls in ten seconds, on average"


def test_each_server_has_a_budget_of_its_own() -> None:
    own, other = retries(), msgspec.structs.replace(new_call(), upstream="other")
    granted = [sum(pause(own, LIMITED, call=call) is not None for _ in range(9)) for call in (None, other, None)]
    assert granted == [3, 3, 0]


def test_the_seconds_to_wait_travel_with_the_error() -> None:
    data: JsonObject = OVERLOADED.data or {}
    assert data["retryAfter"] == 7 and "outcome" not in data and OVERLOADED.about_upstream["status"] == 503
    assert "Try again in 7 s" in OVERLOADED.message
