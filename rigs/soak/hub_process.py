"""`mcp-hub` with a window: `hub_process.py PROBE ARGUMENTS…` writes the number of its asyncio tasks to PROBE as JSON.

Whoever makes PROBE.ask gets PROBE.types: how many objects of each type there are; with $SOAK_TRACES also PROBE.trace:
what was allocated since the first time, and is still there. It is done between two steps of the hub's loop, because a
look from another thread would find objects that are still being made.
"""

import asyncio
import collections
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from mcp_hub.cli import main

_loops: list[asyncio.AbstractEventLoop] = []


def _noting(make: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[], asyncio.AbstractEventLoop]:
    def made() -> asyncio.AbstractEventLoop:
        _loops.append(make())
        return _loops[-1]

    return made


def _watch(probe: Path) -> None:
    while True:
        time.sleep(0.5)
        if _loops and not _loops[-1].is_closed():
            _loops[-1].call_soon_threadsafe(_look, probe, _loops[-1])


def _look(probe: Path, loop: asyncio.AbstractEventLoop) -> None:
    _write(probe, {"tasks": len(asyncio.all_tasks(loop)), "at": time.monotonic()})
    asked = Path(f"{probe}.ask")
    if asked.exists():
        asked.unlink()
        gc.collect()
        if tracemalloc.is_tracing():
            tracemalloc.take_snapshot().dump(f"{probe}.trace")
            tracemalloc.stop()
        elif "SOAK_TRACES" in os.environ:
            tracemalloc.start(8)
        types = collections.Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
        _write(Path(f"{probe}.types"), types)


def _write(path: Path, value: object) -> None:
    fresh = Path(f"{path}.new")
    fresh.write_text(json.dumps(value))
    os.replace(fresh, path)


if __name__ == "__main__":
    modules: list[Any] = [uvloop, asyncio]
    for module in modules:
        module.new_event_loop = _noting(module.new_event_loop)
    threading.Thread(target=_watch, args=(Path(sys.argv.pop(1)),), daemon=True).start()
    main()
