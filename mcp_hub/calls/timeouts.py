"""A call's times, deadlines, absent client and open questions; errors name the setting to raise.

While a question is open, its caller's patience counts, not the upstream's silence.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from mcp_hub.aio import call_soon
from mcp_hub.call import Call, CallEnded, Question, WaitReason
from mcp_hub.calls.log import CallLog
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, RpcError, UpstreamLost
from mcp_hub.events import Failed, InputReceived, InputRequired
from mcp_hub.methods import may_write
from mcp_hub.protocol.shape.questions import action_of
from mcp_hub.types import JsonObject, RawJson

EARLY: Final = 0.01
"""Seconds that an alarm may ring early."""
_MOST_QUESTIONS: Final = 64
"""Open questions per call."""
_SUSPICION: Final = 30.0
"""Seconds of silence after noise that may have been the answer."""
_GRACE: Final = 5.0
"""Seconds for a cancelled attempt to end."""


class _Wheel(Protocol):
    """Looks at the call when something is due."""

    @property
    def at(self) -> float:
        """The next look."""

    def reschedule(self, due: float) -> None:
        """The call needs a look by that time."""

    def begin(self) -> None:
        """A look begins. What becomes due sooner by it, such as an alarm that it sets, counts."""

    def plan(self, *due: float) -> float:
        """A look has ended; the next one is at the first of these times, and is returned."""


class _Wait(msgspec.Struct, frozen=True):
    since: float
    reason: WaitReason


class _Alarm(msgspec.Struct, frozen=True):
    due: float
    ring: Callable[[], None]


class _Attempt(msgspec.Struct):
    """An attempt of a call, which `cancel` ends without its call; None: the call ends with it.

    `suspected` is the last noise that may be the answer. `lapse`: why the attempt was cancelled, to end by `due`.
    """

    cancel: Callable[[], object] | None = None
    suspected: float = -math.inf
    lapse: RpcError | None = None
    due: float = math.inf

    def give_up(self, error: RpcError, time: float) -> bool:
        """Cancels the attempt; False: it cannot be, or was before."""
        if self.cancel is None or self.lapse is not None:
            return False
        self.lapse, self.due = error, time + _GRACE
        self.cancel()
        return True


class CallTimes(msgspec.Struct):
    """One call's times by `clock`, on a `wheel` that looks at what is due. `began` None: it waits for its turn.

    `heard` is the upstream's last sign. `is_asking`: a question is open.
    """

    clock: Clock
    wheel: _Wheel
    limits: TimeLimits
    started: float
    began: float | None
    heard: float
    alarm: _Alarm | None = None
    waits: _Wait | None = None
    is_asking: bool = False
    attempt: _Attempt = msgspec.field(default_factory=_Attempt)

    def begin_wait(self, reason: WaitReason, silence: float = 0.0) -> None:
        """Begins a wait with so many seconds of silence, which do not count."""
        self.waits = _Wait(self.clock.now(), reason)
        self.heard += silence

    def end_wait(self) -> None:
        self.waits = None

    def begin(self, *, later: bool = False) -> None:
        """Begins the call; `later`: once its turn has come."""
        self.heard = self.clock.now()
        self.began = None if later else self.heard

    def hear(self) -> float:
        """Notes a sign of the upstream; returns the time."""
        self.heard = now = self.clock.now()
        return now

    def touch(self) -> None:
        if not self.is_asking:
            self.heard = self.clock.now()

    def suspect(self) -> None:
        """Notes a possible lost answer, unless the caller is asked."""
        if not self.is_asking:
            is_new = self.attempt.suspected <= self.heard
            self.attempt.suspected = self.clock.now()
            if is_new:
                self.wheel.reschedule(self.due)

    @contextmanager
    def put_off(self, seconds: float) -> Iterator[None]:
        """Gives so many more seconds in the block; the time that it took stays."""
        before, began = self.limits, self.clock.now()
        total, silence, answer = (each + seconds for each in (before.total, before.silence, before.answer))
        self.limits = replace(before, total=total, silence=silence, answer=answer)
        try:
            yield
        finally:
            self.limits = replace(before, total=before.total + self.hear() - began)
            self.wheel.reschedule(self.due)

    def set_alarm(self, due: float, ring: Callable[[], None]) -> None:
        """Replaces the alarm."""
        self.alarm = _Alarm(due, ring)
        self.wheel.reschedule(due)

    def drop_alarm(self, ring: Callable[[], None]) -> None:
        """Drops this alarm, unless another one has replaced it."""
        if self.alarm is not None and self.alarm.ring == ring:
            self.alarm = None

    def ring(self, now: float) -> float:
        """Rings a due alarm in the next pass; else returns its time."""
        alarm = self.alarm
        if alarm is None:
            return math.inf
        if now < alarm.due - EARLY:
            return alarm.due
        self.alarm = None
        call_soon(alarm.ring)
        return math.inf

    @property
    def due(self) -> float:
        """The time at which the call fails, unless its upstream sends something."""
        if self.began is None:
            return self.started + self.limits.total
        if self.attempt.lapse is not None:
            return min(self.attempt.due, self.started + self.limits.total)
        patience = self.limits.answer if self.is_asking else self.limits.silence
        return min(self.heard + patience, self.started + self.limits.total, _suspicious_at(self))

    @property
    def has_lapsed(self) -> bool:
        return self.attempt.lapse is not None


class OpenQuestions(msgspec.Struct):
    """One call's questions: those that are `open` by key, oldest first, and the `count` of all."""

    log: CallLog
    times: CallTimes
    count: int
    open: dict[str, Question] = msgspec.field(default_factory=dict)

    @property
    def refusal(self) -> str | None:
        """Why no more questions are taken, or None."""
        if self.log.ended:
            return "the call has ended"
        return f"{_MOST_QUESTIONS} questions of this call are open" if len(self.open) >= _MOST_QUESTIONS else None

    def ask(self, question: Question) -> str:
        """Opens a question, or answers it with the refusal; returns its key."""
        self.count += 1
        key = f"q{self.count}"
        if (refusal := self.refusal) is not None:
            question.answered(RpcError(f"{question.method} not passed on: {refusal}"))
            return key
        self.open[key] = question
        self.log.append(InputRequired(key, question.method, question.params))
        self.times.hear()
        self.times.is_asking = True
        self.times.wheel.reschedule(self.times.due)
        return key

    def withdraw(self, key: str) -> None:
        self.answer(key, RpcError("the question was withdrawn"))

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        """Answers a question; False if it is not open."""
        question = self.open.pop(key, None)
        if question is None:
            return False
        self.times.hear()
        self.times.is_asking = bool(self.open)
        self.times.wheel.reschedule(self.times.due)
        self.log.append(InputReceived(key, len(self.open), action_of(question.method, outcome)))
        question.answered(outcome)
        return True

    def close(self) -> None:
        """The call ends, or has ended, without the open answers."""
        while self.open:
            key, question = self.open.popitem()
            if not self.log.ended:
                self.log.append(InputReceived(key, len(self.open)))
            question.answered(CallEnded(f"{question.method} was not answered: the call has ended"))

    @property
    def oldest(self) -> str | None:
        """The method of the oldest open question."""
        return next((question.method for question in self.open.values()), None)


@contextmanager
def running(times: CallTimes, cancel: Callable[[], object]) -> Iterator[_Attempt]:
    """An attempt that `cancel` cancels."""
    times.attempt = attempt = _Attempt(cancel)
    try:
        yield attempt
    finally:
        times.attempt = _Attempt()


def overdue(times: CallTimes, call: Call, question: str | None) -> Failed:
    """The ending for lack of time; `question` is the oldest open one's method."""
    limits, latest = times.limits, times.started + times.limits.total
    if times.attempt.lapse is not None and times.attempt.due <= latest:
        return Failed(times.attempt.lapse)
    if question is not None and times.heard + limits.answer <= latest:
        return _unanswered(call, question, limits.answer)
    if _suspicious_at(times) == times.due < math.inf:
        return _not_answering(call)
    if times.began is None:
        return _out_of_time(call, "was busy with other calls for", limits.total, "max_duration")
    if times.heard + limits.silence <= latest:
        return _out_of_time(call, "was silent for", limits.silence, limits.setting)
    return _out_of_time(call, "has not answered after", limits.total, "max_duration")


def _suspicious_at(times: CallTimes) -> float:
    suspected = times.attempt.suspected
    return suspected + _SUSPICION if suspected > times.heard else math.inf


def _out_of_time(call: Call, behaviour: str, seconds: float, key: str) -> Failed:
    return Failed(
        DeadlineExceeded(
            f'server "{call.upstream}" {behaviour} {seconds:g} s on {call.method}. '
            f"Raise `{key}` of the server if that is normal.",
            data={"upstream": {"server": call.upstream}, "limit": key, "seconds": seconds, **_outcome(call)},
        )
    )


def _not_answering(call: Call) -> Failed:
    behaviour = f"sent a message that cannot be read or belongs to no call, then nothing for {_SUSPICION:g} s"
    data = {"upstream": {"server": call.upstream, "code": "unreadable_answer"}, "outcome": "unknown"}
    return Failed(
        UpstreamLost(f'server "{call.upstream}" {behaviour}: it may have been the answer to {call.method}.', data=data)
    )


def _outcome(call: Call) -> JsonObject:
    return {"outcome": "unknown"} if may_write(call.method) else {}


def _unanswered(call: Call, method: str, seconds: float) -> Failed:
    return Failed(
        DeadlineExceeded(
            f"{method} was not answered for {seconds:g} s. Raise hub.limits.question_timeout if that is normal.",
            data={"question": method, "limit": "question_timeout", "seconds": seconds, **_outcome(call)},
        )
    )


DETACHED: Final = 3600.0
_READ_ONLY: Final = 30.0
_OTHERS: Final = 600.0
"""Seconds without a client: detached, read-only, other calls."""
_CONFIRMED: Final = 5.0
"""Seconds that the store has at least to confirm events."""


def patience(policy: Literal["cancel", "finish"] | float | None, *, is_detached: bool, is_read_only: bool) -> float:
    """Seconds; infinity for `finish`. `cancel` does not hold for detached calls."""
    if policy is None or policy == "cancel":
        return DETACHED if is_detached else _READ_ONLY if is_read_only else _OTHERS
    return math.inf if policy == "finish" else policy


def end_of_wait(times: CallTimes, since: float) -> float:
    """When a wait of readers for the store, since then, ends: with the call's time."""
    return max(times.started + times.limits.total, since + _CONFIRMED)


class Absence(msgspec.Struct):
    """The call continues `until` then (None: the client is here). Clock seconds.

    `followed_until`: how long another hub's client follows, as far as known. `is_joined`: another session than the
    first waits.
    """

    until: float | None = None
    followed_until: float = -math.inf
    is_detached: bool = False
    is_joined: bool = False
    _patience: float = 0.0

    def detach(self) -> None:
        """Lets the call continue without the client that began it."""
        self.is_detached = True

    def begin(self, now: float, seconds: float) -> None:
        """Lets the call continue for so many seconds, counted again from each `touch`."""
        self._patience = seconds
        self.until = now + seconds

    def end(self) -> None:
        self.until = None

    def join(self, *, is_other: bool) -> None:
        """A client waits again, perhaps of another session."""
        self.until = None
        self.is_joined = is_other

    def touch(self, now: float, seconds: float) -> None:
        """Somebody follows at another hub for so many seconds."""
        self.followed_until = now + seconds
        if self.until is not None:
            self.until = now + self._patience

    def is_over(self, now: float) -> bool:
        return self.until is not None and max(self.until, self.followed_until) <= now
