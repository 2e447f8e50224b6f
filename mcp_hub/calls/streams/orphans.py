"""Calls whose client is gone, and for how long they continue. Pure."""

import math
from typing import Final, Literal

import msgspec

DETACHED: Final = 3600.0
_READ_ONLY: Final = 30.0
_OTHERS: Final = 600.0
"""Seconds that a call may continue without a client: a detached one, one that only reads, any other."""


def patience(policy: Literal["cancel", "finish"] | float | None, *, is_detached: bool, is_read_only: bool) -> float:
    """Seconds, infinity for a call that is to finish. `cancel` holds for calls that are not detached alone."""
    if policy is None or policy == "cancel":
        return DETACHED if is_detached else _READ_ONLY if is_read_only else _OTHERS
    return math.inf if policy == "finish" else policy


class Absence(msgspec.Struct):
    """Whether the client of a call is gone, and `until` when the call continues then (None: the client is here).

    `followed_until` is how long somebody follows the call at another hub, as far as this one knows. Times are a
    clock's seconds.
    """

    until: float | None = None
    followed_until: float = -math.inf
    _patience: float = 0.0

    def begin(self, now: float, seconds: float) -> None:
        """The client is gone; the call continues for so many seconds, again with each `touch`."""
        self._patience = seconds
        self.until = now + seconds

    def end(self) -> None:
        """Somebody follows the call, or it is about to end."""
        self.until = None

    def touch(self, now: float, seconds: float) -> None:
        """Somebody follows the call at another hub, for so many seconds at least."""
        self.followed_until = now + seconds
        if self.until is not None:
            self.until = now + self._patience

    def is_over(self, now: float) -> bool:
        """Whether the call has been without a client for too long."""
        return self.until is not None and max(self.until, self.followed_until) <= now
