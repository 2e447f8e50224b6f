"""Decides how long a call continues without its client. Pure."""

import math
from typing import Final, Literal

import msgspec

from mcp_hub.calls.timeouts import CallTimes

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
    """The absence of a call's client; the call continues `until` then (None: it is here). Clock seconds.

    `followed_until`: how long another hub's client follows, as far as known. `is_joined`: another session than that
    which began the call waits for it.
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
        """A client waits for the call again, perhaps of another session."""
        self.until = None
        self.is_joined = is_other

    def touch(self, now: float, seconds: float) -> None:
        """Somebody follows at another hub for so many seconds."""
        self.followed_until = now + seconds
        if self.until is not None:
            self.until = now + self._patience

    def is_over(self, now: float) -> bool:
        return self.until is not None and max(self.until, self.followed_until) <= now
