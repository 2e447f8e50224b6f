"""The life of an upstream as decisions: when to try again, when to give up. Sans-I/O.

States and rules from OTP supervisors and systemd (reliability.md §3): more than `intensity` deaths within `period`
seconds → failed; before that the pause doubles with each attempt in a row that did not get ready, with jitter, capped.
"""

from dataclasses import dataclass, replace
from typing import Final

from mcp_hub.types import UpstreamState

__all__ = ["FINAL", "Life", "RestartRule", "died", "gave_up", "is_ready", "ready", "renewed", "starting", "stopped"]

_BASE: Final = 0.5
_CAP: Final = 30.0


@dataclass(frozen=True, slots=True)
class RestartRule:
    """At most `intensity` deaths in any `period` seconds."""

    intensity: int = 5
    period: float = 60.0


@dataclass(frozen=True, slots=True)
class Life:
    """Where an upstream stands. `delay` is the pause before the next attempt while backing off, in seconds."""

    state: UpstreamState = UpstreamState.STARTING
    reason: str | None = None
    deaths: tuple[float, ...] = ()
    streak: int = 0
    restarts: int = 0
    delay: float = 0.0


FINAL: Final = frozenset({UpstreamState.STOPPED, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE})
"""States that nothing but a reload leaves."""


def starting(life: Life) -> Life:
    """The pause is over: next attempt."""
    if life.state is not UpstreamState.BACKING_OFF:
        return life
    return replace(life, state=UpstreamState.STARTING, restarts=life.restarts + 1, delay=0.0)


def ready(life: Life) -> Life:
    """Handshake and first list are done."""
    if life.state is not UpstreamState.STARTING:
        return life
    return replace(life, state=UpstreamState.READY, reason=None, streak=0)


def died(life: Life, rule: RestartRule, now: float, reason: str, jitter: float) -> Life:
    """The attempt failed or the upstream is gone. `jitter` in [0, 1) lengthens the pause by up to a quarter."""
    if life.state in FINAL:
        return life
    recent = (*(t for t in life.deaths if now - t < rule.period), now)
    if len(recent) > rule.intensity:
        text = f"{reason} (gave up after {len(recent)} failures in {rule.period:g} s)"
        return replace(life, state=UpstreamState.FAILED, reason=text, deaths=recent)
    delay = min(_BASE * 2**life.streak, _CAP) * (1 + jitter / 4)
    streak = min(life.streak + 1, 16)
    return replace(
        life, state=UpstreamState.BACKING_OFF, reason=reason, deaths=recent, streak=streak, delay=min(delay, _CAP)
    )


def renewed(life: Life, reason: str) -> Life:
    """The server runs and has merely forgotten the session: no failure, the next one begins at once."""
    if life.state is not UpstreamState.READY:
        return life
    return replace(life, state=UpstreamState.STARTING, reason=reason, restarts=life.restarts + 1)


def gave_up(life: Life, reason: str) -> Life:
    """Trying again cannot help: the command does not exist, the eras do not meet."""
    return life if life.state is UpstreamState.STOPPED else replace(life, state=UpstreamState.FAILED, reason=reason)


def stopped(life: Life) -> Life:
    """The hub is done with it; nothing follows."""
    return replace(life, state=UpstreamState.STOPPED, delay=0.0)


def is_ready(life: Life) -> bool:
    return life.state is UpstreamState.READY
