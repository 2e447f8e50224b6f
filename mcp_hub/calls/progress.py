"""The monotony guard: any upstream progress becomes strictly increasing, order kept, values kept where they can be.

Source: specification, basic/utilities/progress ("the progress value MUST increase with each notification");
streams.md §2.
"""

import math
from typing import Final

from msgspec.structs import replace

from mcp_hub.events import Progress

__all__ = ["CEILING", "ProgressGuard"]

CEILING: Final = 1e15
"""Above it doubles have steps of more than 1/8, and `last + step` would soon not be larger than `last`."""
_STEP: Final = 1e-6


class ProgressGuard:
    """Guards the progress of one call. `dropped` counts values that no client could use."""

    __slots__ = ("_last", "dropped")

    def __init__(self) -> None:
        self._last: float | None = None
        self.dropped = 0

    def admit(self, event: Progress) -> Progress | None:
        """The event itself if it is larger than the one before, else one a hair larger; None if it is unusable."""
        value = event.progress
        if not _is_number(value) or abs(value) > CEILING:
            self.dropped += 1
            return None
        if self._last is not None and value <= self._last:
            value = max(self._last + _STEP, math.nextafter(self._last, math.inf))
            if value > CEILING:
                self.dropped += 1
                return None
            event = replace(event, progress=value)
        self._last = value
        if event.total is not None and not _is_number(event.total):
            event = replace(event, total=None)
        return event


def _is_number(value: object) -> bool:
    """A finite number; an integer beyond the floats is none of use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
