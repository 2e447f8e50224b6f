"""The pause before a server's changed lists are read again. Sans-I/O.

A server that announces changes all the time is read ever less often, one that does it now and then at once.
"""

from typing import Final

_SETTLE: Final = 0.1
"""Seconds to collect `list_changed` notifications before listing again."""
_FREE: Final = 5
"""Times in a row that are not held against a server: it may be adding tools one by one."""
_LONGEST: Final = 5.0
_QUIET: Final = 10.0
"""Seconds without a change after which everything is forgiven."""


class Pacer:
    """The pauses of one server; times are a clock's seconds."""

    def __init__(self) -> None:
        self._last = -_QUIET
        self._streak = 0

    def pause(self, now: float) -> float:
        """Seconds to wait after a change was announced at `now`, before the lists are read."""
        self._streak = self._streak + 1 if now - self._last < _QUIET else 0
        pause = min(_SETTLE * 2.0 ** max(0, self._streak - _FREE), _LONGEST)
        self._last = now + pause
        return pause
