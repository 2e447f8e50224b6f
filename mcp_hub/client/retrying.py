"""The pauses of a client that lost its hub: when it tries again, and when it gives up. No I/O, no clock."""

from collections.abc import Callable
from typing import Final

_FIRST: Final = 0.2
_LONGEST: Final = 3.0
"""Seconds that the first pause may take, doubled each time up to the longest."""


class Patience:
    """The pauses between attempts that fail one after the other, for at most `seconds` from the first failure on.

    Each is random (`random` gives 0 to 1), so that many clients of one hub do not come back at the same moment.
    """

    def __init__(self, seconds: float, random: Callable[[], float]) -> None:
        self.seconds = seconds
        self._random = random
        self._since: float | None = None
        self._failures = 0

    def worked(self) -> None:
        """An attempt succeeded: the next failure is a first one."""
        self._since, self._failures = None, 0

    def pause(self, now: float, retry_after: float = 0.0) -> float | None:
        """Seconds to wait after a failed attempt, at least `retry_after` if there is time; None to give up."""
        if self._since is None:
            self._since = now
        remaining = self._since + self.seconds - now
        if remaining <= 0:
            return None
        longest = min(_LONGEST, _FIRST * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return min(max(longest * self._random(), retry_after), remaining)
