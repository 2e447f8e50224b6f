"""The life of an upstream: when to retry, give up or rest. Each function returns the life after one event. Sans-I/O.

Too many deaths in a period end it; until then the pause doubles with each failed attempt.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.types import Cause, UpstreamState

GAVE_UP: Final = " (gave up after "
"""Between the reason of the last failure and how many there were."""
_BASE: Final = 0.5
_CAP: Final = 30.0
_DOUBLED: Final = 16
"""The most doublings of a pause."""
MOST_SPENT: Final = 3
"""Processes in a row for finding the era without a pause; two are usual."""
_STABLE: Final = 10.0
"""Seconds of being ready that reset the pause under a rule without a limit."""


class RestartRule(msgspec.Struct, frozen=True):
    """At most `intensity` deaths in any `period` seconds; None: never give up."""

    intensity: int | None = 5
    period: float = 60.0


class Life(msgspec.Struct, frozen=True):
    """The state of an upstream, with `reason` and `code` of the last failure.

    `delay`: seconds before the next attempt. `rests`: stopped until needed. `ready_at`: when last ready. `spent`:
    recent processes used only to find the era.
    """

    state: UpstreamState = UpstreamState.STARTING
    reason: str | None = None
    code: str | None = None
    deaths: tuple[float, ...] = ()
    streak: int = 0
    restarts: int = 0
    delay: float = 0.0
    rests: bool = False
    ready_at: float = 0.0
    spent: int = 0


FINAL: Final = frozenset({UpstreamState.STOPPED, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE})
"""States that nothing but a reload or an explicit restart leaves, unless the upstream merely rests."""


def starting(life: Life) -> Life:
    """The next attempt after a pause."""
    if life.state is not UpstreamState.BACKING_OFF:
        return life
    return replace(life, state=UpstreamState.STARTING, restarts=life.restarts + 1, delay=0.0)


def ready(life: Life, now: float = 0.0) -> Life:
    """After the handshake and the first lists."""
    if life.state is not UpstreamState.STARTING:
        return life
    return replace(life, state=UpstreamState.READY, reason=None, code=None, ready_at=now, spent=0)


def spent(life: Life) -> Life:
    """After a process that only found the era."""
    return replace(life, spent=life.spent + 1)


def died(life: Life, rule: RestartRule, now: float, cause: Cause, jitter: float, lasted: float = 0.0) -> Life:
    """After a failed attempt, or a session that was ready for `lasted` seconds.

    `jitter` in [0, 1) lengthens the pause by up to a quarter. An upstream that was ready begins with the shortest
    pause; under a rule without a limit, only if it lasted.
    """
    if life.state in FINAL:
        return life
    if life.state is UpstreamState.DRAINING:
        return drained(life)
    was_ready = life.state is UpstreamState.READY and (rule.intensity is not None or lasted >= _STABLE)
    before = 0 if was_ready else life.streak
    recent = (*(t for t in life.deaths if now - t < rule.period), now)
    if rule.intensity is not None and len(recent) > rule.intensity:
        why = Cause(cause.code, f"{cause.reason}{GAVE_UP}{len(recent)} failures in {rule.period:g} s)")
        return _because(life, why, state=UpstreamState.FAILED, deaths=recent, streak=before + 1)
    delay = min(min(_BASE * 2 ** min(before, _DOUBLED), _CAP) * (1 + jitter / 4), _CAP)
    return _because(life, cause, state=UpstreamState.BACKING_OFF, deaths=recent, streak=before + 1, delay=delay)


def renewed(life: Life, cause: Cause) -> Life:
    """After a lost session: the next begins at once."""
    if life.state is not UpstreamState.READY:
        return life
    return _because(life, cause, state=UpstreamState.STARTING, restarts=life.restarts + 1)


def gave_up(life: Life, cause: Cause, state: UpstreamState = UpstreamState.FAILED) -> Life:
    """After a failure that another attempt cannot fix."""
    if life.state is UpstreamState.DRAINING:
        return drained(life)
    return life if life.state is UpstreamState.STOPPED else _because(life, cause, state=state)


def resting(life: Life, cause: Cause) -> Life:
    """Stopped until needed; only from starting or ready."""
    if life.state not in (UpstreamState.STARTING, UpstreamState.READY):
        return life
    return _because(life, cause, state=UpstreamState.STOPPED, streak=0, rests=True)


def woken(life: Life) -> Life:
    """The start of a resting upstream."""
    if not life.rests:
        return life
    return replace(life, state=UpstreamState.STARTING, reason=None, code=None, rests=False)


def restarted(life: Life) -> Life:
    return Life(restarts=life.restarts + (not life.rests))


def draining(life: Life, reason: str = "it was stopped on request") -> Life:
    """Takes no more calls; stopped at once if nothing runs."""
    cause = Cause("stopped", reason)
    if life.state in FINAL:
        return _because(life, cause, state=UpstreamState.STOPPED, rests=False)
    return _because(life, cause, state=UpstreamState.DRAINING, delay=0.0)


def drained(life: Life) -> Life:
    return replace(life, state=UpstreamState.STOPPED) if life.state is UpstreamState.DRAINING else life


def stopped(life: Life) -> Life:
    return replace(life, state=UpstreamState.STOPPED, delay=0.0, rests=False)


def is_first_start(life: Life) -> bool:
    """Whether it starts without an earlier failure."""
    return life.state is UpstreamState.STARTING and life.reason is None


def _because(life: Life, cause: Cause, **fields: object) -> Life:
    return replace(life, reason=cause.reason, code=cause.code, spent=0, **fields)
