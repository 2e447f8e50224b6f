"""The only module that asks the operating system for the time."""

import os
import sys
import time
from typing import Final, Protocol

_OLDEST: Final = 60.0
"""Seconds for an interpreter's start; more is wrong."""


class Clock(Protocol):
    """A monotonic clock, in seconds."""

    def now(self) -> float: ...


class SystemClock:
    """`time.monotonic`, also the event loop's clock."""

    now = staticmethod(time.monotonic)


def boot_time() -> float:
    """Monotonic seconds, on Linux including suspension of the machine."""
    if sys.platform == "linux":
        time_now = time.clock_gettime(time.CLOCK_BOOTTIME)
    else:
        time_now = time.monotonic()
    return time_now


def wall_time() -> float:
    """Unix seconds. They may jump: never order by them."""
    return time.time()


def process_start() -> float:
    """The start of this process on `SystemClock`, or now if unknown."""
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
