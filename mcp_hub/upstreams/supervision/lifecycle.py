"""The life of an upstream as decisions: when to try again, when to give up, when to rest. Sans-I/O.

As with supervisors of OTP and systemd, too many deaths in a period are the end; until then the pause doubles with each
attempt in a row that did not get ready.
"""

from typing import Any, Final

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
"""Processes in a row that are spent on finding the era, each followed by the next one at once: two are usual."""
_STABLE: Final = 10.0
"""Seconds that a server under a rule without an end has to be ready for its next pause to be the shortest again."""


class RestartRule(msgspec.Struct, frozen=True):
    """At most `intensity` deaths in any `period` seconds; None: never given up."""

    intensity: int | None = 5
    period: float = 60.0


class Life(msgspec.Struct, frozen=True):
    """The state of an upstream; `reason` and `code` say why it is not ready, `code` that of the last failure.

    `delay` is the pause before the next attempt, in seconds. `rests`: it is stopped only until somebody needs it.
    `ready_at` is when it was ready last. `spent` counts the processes since then, or since the last failure, that were
    only needed to find the era.
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
    """The pause is over: next attempt."""
    if life.state is not UpstreamState.BACKING_OFF:
        return life
    return replace(life, state=UpstreamState.STARTING, restarts=life.restarts + 1, delay=0.0)


def ready(life: Life, now: float = 0.0) -> Life:
    """Handshake and first list are done."""
    if life.state is not UpstreamState.STARTING:
        return life
    return replace(life, state=UpstreamState.READY, reason=None, code=None, ready_at=now, spent=0)


def spent(life: Life) -> Life:
    """A process was only needed to find the era: another one is started at once."""
    return replace(life, spent=life.spent + 1)


def died(life: Life, rule: RestartRule, now: float, cause: Cause, jitter: float, lasted: float = 0.0) -> Life:
    """The attempt failed or the upstream is gone, after it was ready for `lasted` seconds.

    `jitter` in [0, 1) lengthens the pause by up to a quarter. What was ready begins again with the shortest pause: the
    rule bounds how often. A rule without an end does not, so there it has to have been ready for a while.
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
    """The server runs and has merely forgotten the session: no failure, the next one begins at once."""
    if life.state is not UpstreamState.READY:
        return life
    return _because(life, cause, state=UpstreamState.STARTING, restarts=life.restarts + 1)


def gave_up(life: Life, cause: Cause, state: UpstreamState = UpstreamState.FAILED) -> Life:
    """Trying again cannot help: the command does not exist (failed), the eras do not meet (incompatible)."""
    if life.state is UpstreamState.DRAINING:
        return drained(life)
    return life if life.state is UpstreamState.STOPPED else _because(life, cause, state=state)


def resting(life: Life, cause: Cause) -> Life:
    """Nobody needs it now: it is stopped until somebody does. Only what works or has not begun yet may rest."""
    if life.state not in (UpstreamState.STARTING, UpstreamState.READY):
        return life
    return _because(life, cause, state=UpstreamState.STOPPED, streak=0, rests=True)


def woken(life: Life) -> Life:
    """Somebody needs it."""
    if not life.rests:
        return life
    return replace(life, state=UpstreamState.STARTING, reason=None, code=None, rests=False)


def restarted(life: Life) -> Life:
    """On request it begins anew, whatever has happened before, without a past that counts against it."""
    return Life(restarts=life.restarts + (not life.rests))


def draining(life: Life, reason: str = "it was stopped on request") -> Life:
    """No more calls; what runs may end. Nothing runs where it was given up or rests: that is stopped at once."""
    cause = Cause("stopped", reason)
    if life.state in FINAL:
        return _because(life, cause, state=UpstreamState.STOPPED, rests=False)
    return _because(life, cause, state=UpstreamState.DRAINING, delay=0.0)


def drained(life: Life) -> Life:
    """Its process is gone, as it was meant to be."""
    return replace(life, state=UpstreamState.STOPPED) if life.state is UpstreamState.DRAINING else life


def stopped(life: Life) -> Life:
    """The hub is done with it; nothing follows."""
    return replace(life, state=UpstreamState.STOPPED, delay=0.0, rests=False)


def is_first_start(life: Life) -> bool:
    """Whether it is starting and nothing has gone wrong yet since it was to start."""
    return life.state is UpstreamState.STARTING and life.reason is None


def _because(life: Life, cause: Cause, **fields: Any) -> Life:
    return replace(life, reason=cause.reason, code=cause.code, spent=0, **fields)
