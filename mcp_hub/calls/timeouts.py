"""A call's times and deadlines; errors name the setting to raise."""

import math
from typing import Final, Protocol

import msgspec

from mcp_hub.aio import call_soon
from mcp_hub.call import Call, WaitReason
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, UpstreamLost
from mcp_hub.events import Failed
from mcp_hub.types import JsonObject

_EARLY: Final = 0.01
"""Seconds that an alarm may ring early."""
HEARTBEAT: Final = 10.0
"""Seconds without progress before a heartbeat."""
_SUSPICION: Final = 30.0
"""Seconds of silence after noise that may have been the answer."""


class Alarm(Protocol):
    """Something to do after a while. Cheaper than a timer."""

    @property
    def due(self) -> float: ...

    def ring(self) -> None:
        """Does it."""


class _Wait(msgspec.Struct, frozen=True):
    """A wait at the upstream: since when, and why."""

    since: float
    reason: WaitReason


class CallTimes(msgspec.Struct):
    """One call's times by `clock`. `began` None: it waits for its turn.

    `heard` is the upstream's last sign, `spoken` the last progress sent, `suspected` the last noise that may be the
    answer.
    """

    clock: Clock
    limits: TimeLimits
    started: float
    began: float | None
    heard: float
    spoken: float
    suspected: float = -math.inf
    alarm: Alarm | None = None
    waits: _Wait | None = None

    def begin_wait(self, reason: WaitReason) -> None:
        self.waits = _Wait(self.clock.now(), reason)

    def end_wait(self) -> None:
        self.waits = None

    def wait(self) -> None:
        self.began = None

    def begin(self) -> None:
        self.began = self.heard = self.spoken = self.clock.now()

    def hear(self) -> float:
        """Notes a sign of the upstream; returns the time."""
        self.heard = now = self.clock.now()
        return now

    def speak(self, now: float) -> float:
        """Notes progress that was sent; returns the time of the next heartbeat."""
        self.spoken = now
        return now + HEARTBEAT

    def suspect(self) -> bool:
        """Notes a possible lost answer; False if one is known."""
        is_new = self.suspected <= self.heard
        self.suspected = self.clock.now()
        return is_new

    def set_alarm(self, alarm: Alarm) -> float:
        """Replaces the alarm; returns its time."""
        self.alarm = alarm
        return alarm.due

    def drop_alarm(self, alarm: Alarm) -> None:
        """Drops this alarm, unless another one has replaced it."""
        if self.alarm is alarm:
            self.alarm = None

    def ring(self, now: float) -> float:
        """Rings a due alarm in the next pass; else returns its time."""
        alarm = self.alarm
        if alarm is None:
            return math.inf
        if now < alarm.due - _EARLY:
            return alarm.due
        self.alarm = None
        call_soon(alarm.ring)
        return math.inf

    def due(self, *, is_asking: bool) -> float:
        """The time at which the call fails, unless its upstream sends something."""
        if self.began is None:
            return self.started + self.limits.total
        patience = self.limits.answer if is_asking else self.limits.silence
        suspected = self.suspected + _SUSPICION if self.suspected > self.heard else math.inf
        return min(self.heard + patience, self.started + self.limits.total, suspected)

    def overdue(self, call: Call, question: str | None) -> Failed:
        """The ending for lack of time; `question` is the oldest open one's method."""
        limits, latest = self.limits, self.started + self.limits.total
        if question is not None and self.heard + limits.answer <= latest:
            return _unanswered(call, question, limits.answer)
        if self.suspected > self.heard and self.suspected + _SUSPICION == self.due(is_asking=question is not None):
            return _not_answering(call)
        if self.began is None:
            return _out_of_time(call, "was busy with other calls for", limits.total, "max_duration")
        if self.heard + limits.silence <= latest:
            return _out_of_time(call, "was silent for", limits.silence, limits.setting)
        return _out_of_time(call, "has not answered after", limits.total, "max_duration")


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
    return {"outcome": "unknown"} if call.method == "tools/call" else {}


def _unanswered(call: Call, method: str, seconds: float) -> Failed:
    return Failed(
        DeadlineExceeded(
            f"{method} was not answered for {seconds:g} s. Raise hub.limits.question_timeout if that is normal.",
            data={"question": method, "limit": "question_timeout", "seconds": seconds, **_outcome(call)},
        )
    )
