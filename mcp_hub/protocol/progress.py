"""The monotony guard: any upstream progress becomes strictly increasing, order kept, values kept where they can be.

Source: specification, basic/utilities/progress ("the progress value MUST increase with each notification").
"""

import math
from typing import Final

from msgspec.structs import replace

from mcp_hub.events import Progressed

CEILING: Final = 1e15
"""Above it doubles have steps of more than 1/8, and `last + step` would soon not be larger than `last`."""
_STEP: Final = 1e-6


class ProgressGuard:
    """Guards the progress of one call. `dropped` counts values that no client could use.

    `progressed` is how far the call had come when another hub left it: what follows counts from there.
    """

    __slots__ = ("_base", "_last", "dropped")

    def __init__(self, progressed: float = 0) -> None:
        self._last: float | None = progressed or None
        self._base = progressed
        self.dropped = 0

    def admit(self, event: Progressed) -> Progressed | None:
        """The event itself if it is larger than the one before, else one a hair larger; None if it is unusable.

        After heartbeats value and total are shifted by as much as those have added.
        """
        value = event.progress
        if not _is_number(value) or abs(value) > CEILING:
            self.dropped += 1
            return None
        value += self._base
        if self._last is not None and value <= self._last:
            value = max(self._last + _STEP, math.nextafter(self._last, math.inf))
        if value > CEILING:
            self.dropped += 1
            return None
        self._last = value
        total = event.total
        if total is not None:
            total = total + self._base if _is_number(total) else None
        if value == event.progress and total == event.total:
            return event
        return replace(event, progress=value, total=total)

    def heartbeat(self) -> Progressed | None:
        """A sign of life: one more than the last value, and no total; None if there is no larger value to send."""
        value = 1 if self._last is None else self._last + 1
        if value > CEILING:
            return None
        self._last = value
        self._base += 1
        return Progressed(value)


def _is_number(value: object) -> bool:
    """A finite number; an integer beyond the floats is none of use."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
