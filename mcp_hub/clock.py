"""The one place that asks the operating system for the time; everything else is handed a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a clock that never goes back. Only differences mean anything."""

    def now(self) -> float: ...


class SystemClock:
    """`time.monotonic`, the clock of the event loop too."""

    now = staticmethod(time.monotonic)


def wall_time() -> float:
    """Unix seconds, for people and for what outlives this process. It may jump: nothing is ordered by it."""
    return time.time()
