"""Retries of a call within each server's budget.

Calls that the server has not seen, or refused for now, may be retried; others only if safe to repeat.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, SentCall
from mcp_hub.calls.plan import CallPlan, CallRules, RetryClass
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.timeouts import CallTimes, OpenQuestions, running
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, HttpRefused, RpcError, UpstreamLost, UpstreamUnavailable
from mcp_hub.events import Attempt, Completed, Ending, Failed, Reset
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.methods import may_write
from mcp_hub.protocol.jsonrpc.rpc_errors import for_others

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

        It ends before `end`, one that the server wants before `due`.
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
        is_safe = rules.idempotent or not may_write(call.method)
        may_repeat = is_safe or kind not in ("lost", "timeout") or (kind == "lost" and rules.has_chosen)
        return rules.pauses.get(kind, ()) if may_repeat else ()

    def _spend(self, server: str, now: float, least: int) -> bool:
        budget = self._budgets.get(server)
        if budget is None:
            budget = self._budgets[server] = _RetryBudget(self._began, 0)
        return budget.spend(now, lambda: self._calls(server), max(_LEAST, least))


def class_of(error: RpcError) -> RetryClass | None:
    """A failure's class; None: a retry would not help."""
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
        case UpstreamLost() | RpcError(symbol="executor_lost"):
            return None if error.raw is not None or upstream.get("code") == "unreadable_answer" else "lost"
        case _:
            return None


log = get_logger(__name__)

_DETAIL: Final = 200
"""Characters of the error shown with an attempt."""


class _Task(Protocol):
    def cancel(self) -> object: ...
    def cancelling(self) -> int: ...
    def uncancel(self) -> int: ...


class _Retriable(CallChannel, Protocol):
    """A running call with its retries."""

    call: Call
    plan: CallPlan
    times: CallTimes
    questions: OpenQuestions
    stopping: Ending | None
    stream: Stream | None

    @property
    def task(self) -> _Task | None: ...


async def attempted(record: _Retriable, handler: CallHandler) -> Completed:
    """The result of `handler`, retried after failures that may pass.

    After an attempt with unknown outcome, its error is raised instead of a later one.
    """
    number = 1
    unknown: RpcError | None = None
    while True:
        try:
            return await _attempt(record, handler)
        except RpcError as error:
            unknown = unknown or (error if error.is_outcome_unknown else None)
            pause = _pause(record, error, number)
            if pause is None:
                if unknown is None or error.raw is not None:
                    raise
                raise unknown from None
            number += 1
            _announce(record, number, error, pause)
        record.times.begin_wait("its next attempt", pause)
        try:
            await anyio.sleep(pause)
        finally:
            record.times.end_wait()
        record.times.hear()  # the attempt has the longest silence to itself


async def _attempt(record: _Retriable, handler: CallHandler) -> Completed:
    """One attempt. Raises the reason of its end if it was cancelled without its call."""
    task = record.task
    if task is None or not record.times.limits.retries_silence:
        return await handler(record.call, record)
    with running(record.times, task.cancel) as attempt:
        try:
            return await handler(record.call, record)
        except (RpcError, anyio.get_cancelled_exc_class()) as exc:
            is_answer = isinstance(exc, RpcError) and exc.raw is not None
            if attempt.lapse is None or is_answer or task.cancelling() > 1:
                raise
            raise attempt.lapse from None
        finally:
            if attempt.lapse is not None:
                task.uncancel()


def lapses(record: _Retriable, ending: Failed) -> bool:
    """Whether the overdue attempt was cancelled, so that another may follow."""
    retries, times, error = record.plan.retries, record.times, ending.error
    if retries is None or _is_last(record) or not retries.covers(record.call, error):
        return False
    if not times.attempt.give_up(error, times.clock.now()):
        return False
    record.continuable(None)  # its server is asked to stop
    return True


def finishing(sent: SentCall, again: CallHandler) -> CallHandler:
    """Finishes a written request; later attempts call `again`."""
    is_first = True

    async def finish(call: Call, channel: CallChannel) -> Completed:
        nonlocal is_first
        if is_first:
            is_first = False
            return await sent.finish()
        return await again(call, channel)

    return finish


def _pause(record: _Retriable, error: RpcError, number: int) -> float | None:
    times, retries = record.times, record.plan.retries
    if retries is None or _is_last(record):
        return None
    times.hear()
    return retries.pause(record.call, error, number, times.due, times.started + times.limits.total)


def _is_last(record: _Retriable) -> bool:
    """Whether the call is stopping, has asked its caller, or may be another hub's."""
    call, stream = record.call, record.stream
    has_answers = call.input_responses is not None or call.request_state is not None
    has_asked = has_answers or record.questions.count > record.plan.events
    return record.stopping is not None or has_asked or (stream is not None and not stream.store.is_held(stream.row.id))


def _announce(record: _Retriable, number: int, error: RpcError, pause: float) -> None:
    reason, call = str(class_of(error)), record.call
    log.info("call_retried", call_id=call.id, upstream=call.upstream, attempt=number, reason=reason)
    record.continuable(None)
    detail = (error if call.shows_paths else for_others(error)).message
    record.send(Attempt(number, reason, round(pause, 3), hide_head(detail, _DETAIL)))
    if record.stream is not None and record.stream.content.is_any:
        record.send(Reset(number, reason))
