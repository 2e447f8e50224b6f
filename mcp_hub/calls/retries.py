"""Decides whether and when a failed call is retried. No I/O.

Calls that the server has not seen, or refused for now, may be retried; others only if safe to repeat. Each server has a
budget.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Final

from mcp_hub.call import Call
from mcp_hub.calls.plan import CallRules, RetryClass
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, ExecutorLost, HttpRefused, RpcError, UpstreamLost, UpstreamUnavailable

_SILENCE: Final = ("timeout", "request_timeout")
"""The limits of a server's silence."""
_LATER: Final = 0.1
"""Random part added to `Retry-After`."""
_WINDOW: Final = 10.0
"""Seconds of a budget."""
_LEAST: Final = 3
_SHARE: Final = 10
"""Calls per retry."""
_SAMPLES: Final = 1.0
"""Seconds between counts of calls."""


class _RetryBudget:
    """One server's retries: at most 10 % of its ended `calls`, at least 3 in 10 s or those of one call."""

    def __init__(self, now: float, calls: int) -> None:
        self._samples = deque([(now, calls)])
        self._spent: deque[float] = deque()

    def spend(self, now: float, calls: Callable[[], int], least: int = _LEAST) -> bool:
        """Takes one retry, if the budget allows."""
        if now >= self._samples[-1][0] + _SAMPLES:
            self._samples.append((now, calls()))
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOW:
            self._samples.popleft()
        while self._spent and self._spent[0] <= now - _WINDOW:
            self._spent.popleft()
        (since, before), (_, latest) = self._samples[0], self._samples[-1]
        recent = (latest - before) * min(1.0, _WINDOW / max(now - since, _SAMPLES))
        if len(self._spent) >= max(least, recent // _SHARE):
            return False
        self._spent.append(now)
        return True


class Retries:
    """Decides for one hub."""

    def __init__(
        self,
        rules: Callable[[Call], CallRules],
        calls: Callable[[str], int],
        clock: Clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._rules = rules
        self._calls = calls
        self._clock = clock
        self._jitter = jitter
        self._began = clock.now()
        self._budgets: dict[str, _RetryBudget] = {}

    def covers(self, call: Call, error: RpcError) -> bool:
        """Whether a call may be retried after this failure."""
        return bool(self._pauses(call, class_of(error)))

    def pause(self, call: Call, error: RpcError, attempt: int, due: float, end: float) -> float | None:
        """Seconds before the next attempt; None: no retry. `attempt` counts from 1.

        A pause ends before `end`, one that the server wants before `due`.
        """
        pauses = self._pauses(call, class_of(error))
        if attempt > len(pauses):
            return None
        retry_after = (error.data or {}).get("retryAfter")
        pause = pauses[attempt - 1] * (0.5 + self._jitter())
        now = self._clock.now()
        if isinstance(retry_after, int):
            pause_of_server = retry_after * (1 + _LATER * self._jitter())
            if now + pause_of_server >= due:
                return None
            pause = max(pause, pause_of_server)
        return pause if now + pause < end and self._spend(call.upstream, now, len(pauses)) else None

    def _pauses(self, call: Call, kind: RetryClass | None) -> tuple[float, ...]:
        if kind is None:
            return ()
        rules = self._rules(call)
        is_safe = rules.idempotent or call.method != "tools/call"
        may_repeat = is_safe or kind not in ("lost", "timeout") or (kind == "lost" and rules.has_chosen)
        return rules.pauses.get(kind, ()) if may_repeat else ()

    def _spend(self, server: str, now: float, least: int) -> bool:
        budget = self._budgets.get(server)
        if budget is None:
            budget = self._budgets[server] = _RetryBudget(self._began, 0)
        return budget.spend(now, lambda: self._calls(server), max(_LEAST, least))


def class_of(error: RpcError) -> RetryClass | None:
    """A failure's class; None if a retry would not help."""
    upstream = error.about_upstream
    match error:
        case HttpRefused(status=429):
            return "rate_limited"
        case HttpRefused(status=503) if "retryAfter" in (error.data or {}):
            return "unavailable"
        case UpstreamUnavailable():  # for a server that is not ready the call has waited already
            return "not_sent" if "server" in upstream and upstream.get("state", "ready") == "ready" else None
        case HttpRefused(status=status) if status < 500:
            return None
        case DeadlineExceeded():
            return "timeout" if error.raw is None and (error.data or {}).get("limit") in _SILENCE else None
        case UpstreamLost() | ExecutorLost():
            return None if error.raw is not None or upstream.get("code") == "unreadable_answer" else "lost"
        case _:
            return None
