"""Pauses of a client that lost its hub. No I/O, no clock."""

from collections.abc import Callable
from typing import Final

_FIRST: Final = 0.2
_LONGEST: Final = 3.0
"""Seconds of the first pause, doubled each time up to the longest."""


class Patience:
    """Random pauses between failures, for at most `seconds` from the first. `random` gives 0 to 1."""

    def __init__(self, seconds: float, random: Callable[[], float]) -> None:
        self.seconds = seconds
        self._random = random
        self._since: float | None = None
        self._failures = 0

    def worked(self) -> None:
        self._since, self._failures = None, 0

    def pause(self, now: float, retry_after: float = 0.0) -> float | None:
        """Seconds to wait, at least `retry_after` if time remains; None: give up."""
        if self._since is None:
            self._since = now
        remaining = self._since + self.seconds - now
        if remaining <= 0:
            return None
        longest = min(_LONGEST, _FIRST * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return min(max(longest * self._random(), retry_after), remaining)
