"""The one place that asks the operating system for the time; everything else is handed a `Clock`."""

import os
import sys
import time
from typing import Final, Protocol

_OLDEST: Final = 60.0
"""Seconds that an interpreter may take to start; what says more is wrong."""


class Clock(Protocol):
    """Seconds on a clock that never goes back. Only differences mean anything."""

    def now(self) -> float: ...


class SystemClock:
    """`time.monotonic`, the clock of the event loop too."""

    now = staticmethod(time.monotonic)


def wall_time() -> float:
    """Unix seconds, for people and for what outlives this process. It may jump: nothing is ordered by it."""
    return time.time()


def process_start() -> float:
    """The time of `SystemClock` at which this process was started; now, where the system does not show it."""
    time_now = time.monotonic()
    age = 0.0
    if sys.platform == "linux":
        try:
            with open("/proc/self/stat", "rb") as file:
                started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
        except (OSError, ValueError, IndexError):
            return time_now
    return time_now - age if 0 <= age <= _OLDEST else time_now
