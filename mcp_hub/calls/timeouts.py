"""The times of a call: when it runs out of time, by which limit, and the error that names the setting to raise."""

import math
from typing import Final, Protocol

import msgspec

from mcp_hub.aio import call_soon
from mcp_hub.call import Call, WaitReason
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, UpstreamLost
from mcp_hub.events import Failed
from mcp_hub.types import JsonObject

_EARLY: Final = 0.01
"""Seconds before its time that an alarm may ring: timers may be a little early, and the next look would be late."""
_SUSPICION: Final = 30.0
"""Seconds that a call may stay silent after the last noise of its upstream that may have been its answer."""


class Alarm(Protocol):
    """Something to do for a call once it has run for long. A timer of the event loop would cost half a kilobyte."""

    @property
    def due(self) -> float: ...

    def ring(self) -> None:
        """Does it."""


class Wait(msgspec.Struct, frozen=True):
    """A wait of a call at its upstream: since when, by the clock of the call, and for which reason."""

    since: float
    reason: WaitReason


class CallTimes(msgspec.Struct):
    """Times of one call by `clock`: it `started`, `began` when its turn came (None before), its upstream was `heard`.

    `spoken` is the last progress that its caller received, or the start. `suspected` is when the last noise came that
    may have been the answer. `alarm` is what the registry is to ring. `waits` at its upstream, if it does.
    """

    clock: Clock
    limits: TimeLimits
    started: float
    began: float | None
    heard: float
    spoken: float
    suspected: float = -math.inf
    alarm: Alarm | None = None
    waits: Wait | None = None

    def begin_wait(self, reason: WaitReason) -> None:
        """The call waits at its upstream."""
        self.waits = Wait(self.clock.now(), reason)

    def end_wait(self) -> None:
        """It does not wait there any more."""
        self.waits = None

    def wait(self) -> None:
        """The call waits for its turn."""
        self.began = None

    def begin(self) -> None:
        """The wait is over; from here on the upstream may not be silent for too long."""
        self.began = self.heard = self.spoken = self.clock.now()

    def hear(self) -> float:
        """The upstream is at work; returns the time."""
        self.heard = now = self.clock.now()
        return now

    def speak(self, now: float) -> None:
        """The caller receives progress."""
        self.spoken = now

    def suspect(self) -> bool:
        """Something came that may have been the answer; False if that is known already."""
        is_new = self.suspected <= self.heard
        self.suspected = self.clock.now()
        return is_new

    def set_alarm(self, alarm: Alarm | None) -> None:
        """None: there is nothing to ring any more."""
        self.alarm = alarm

    def ring(self, now: float) -> float:
        """Rings the alarm in the next pass of the loop, if it is due; when it will be."""
        alarm = self.alarm
        if alarm is None:
            return math.inf
        if now < alarm.due - _EARLY:
            return alarm.due
        self.alarm = None
        call_soon(alarm.ring)
        return math.inf

    def due(self, *, is_asking: bool) -> float:
        """When the call runs out of time, unless its upstream sends something before. Waiting is not silence."""
        if self.began is None:
            return self.started + self.limits.total
        patience = self.limits.answer if is_asking else self.limits.silence
        suspected = self.suspected + _SUSPICION if self.suspected > self.heard else math.inf
        return min(self.heard + patience, self.started + self.limits.total, suspected)

    def overdue(self, call: Call, question: str | None) -> Failed:
        """The ending of a call that ran out of time; `question` is the method of its oldest open question."""
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
    """`behaviour` its upstream did for so many seconds, where the setting `key` allows no more."""
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
    """A tool may have acted before its call ran out of time; everything else only reads."""
    return {"outcome": "unknown"} if call.method == "tools/call" else {}


def _unanswered(call: Call, method: str, seconds: float) -> Failed:
    """The caller did not answer a question."""
    return Failed(
        DeadlineExceeded(
            f"{method} was not answered for {seconds:g} s. Raise hub.limits.question_timeout if that is normal.",
            data={"question": method, "limit": "question_timeout", "seconds": seconds, **_outcome(call)},
        )
    )
