"""Tells when a file is another one, by looking at it: what `stat` says of it, once a second.

Looking needs no handle on the file, so it survives editors that put a new file in its place, links that are turned to
another file or folder (as Kubernetes does), mounted folders and network file systems, none of which report changes
reliably. It costs about 20 µs a second, in a worker thread: a file system that hangs does not hold up the hub.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from mcp_hub.types import FileStamp

__all__ = ["changed", "stamp_of"]

_LOOK: Final = 1.0
"""Seconds between two looks."""
_SETTLED: Final = 0.25
"""Seconds that a file has to stay the same before it is read: who writes it may not be done."""
_LATEST: Final = 5.0
"""Seconds after which a file that is written all the time is read all the same."""


def stamp_of(path: Path) -> FileStamp | None:
    """What tells this file from the one that was there before; None if there is none that can be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


async def changed(
    path: Path, known: FileStamp | None, stamp: Callable[[Path], FileStamp | None] = stamp_of
) -> FileStamp | None:
    """Waits until the file is not the `known` one and nobody seems to write it; what it is then."""
    while (seen := await _look(path, stamp)) == known:  # noqa: ASYNC110 - a file sets no event
        await anyio.sleep(_LOOK)
    with anyio.move_on_after(_LATEST):
        while True:
            await anyio.sleep(_SETTLED)
            before, seen = seen, await _look(path, stamp)
            if seen == before:
                break
    return seen


async def _look(path: Path, stamp: Callable[[Path], FileStamp | None]) -> FileStamp | None:
    return await anyio.to_thread.run_sync(stamp, path, abandon_on_cancel=True)
