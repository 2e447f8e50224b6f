"""`python -m rigs.chaos.stepped serve …`: `mcp-hub` with a wall clock that is set wrong.

The file `$CLOCK_OFF` says by how many seconds. It may change at any time, as a clock that is set does. Clocks that
count from the start of the machine stay.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from mcp_hub.__main__ import main

_LOOK = 0.02
"""Seconds between looks into the file."""


def stepped(clock: Callable[[], float], offset: Path) -> Callable[[], float]:
    """The clock, off by what the file says; by nothing without one."""
    monotonic = time.monotonic
    seen = [0.0, 0.0]  # when it was looked at last, and what it said

    def wrong() -> float:
        if monotonic() >= seen[0] + _LOOK:
            seen[:] = monotonic(), float(offset.read_text() or 0) if offset.exists() else 0.0
        return clock() + seen[1]

    return wrong


if __name__ == "__main__":
    time.time = stepped(time.time, Path(os.environ["CLOCK_OFF"]))
    main()
