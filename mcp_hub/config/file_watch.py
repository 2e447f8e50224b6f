"""Finds out when a file has changed, by calling `stat` once a second, in a worker thread: a file system may hang.

So it works with editors that replace the file, with links that are turned to another place (as Kubernetes does), and
with mounted folders and network file systems, which do not report changes reliably.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from mcp_hub.types import FileStamp

_LOOK: Final = 1.0
"""Seconds between two looks."""
_SETTLED: Final = 0.25
"""Seconds that a file has to stay the same before it is read: its writer may not be done."""
_LATEST: Final = 5.0
"""Seconds after which a file that keeps changing is read anyway."""


def stamp_of(path: Path) -> FileStamp | None:
    """The stamp that differs between two versions of the file; None if it cannot be looked at."""
    try:
        return FileStamp.of(os.stat(path))
    except OSError:
        return None


class WatchedFile:
    """A file, and the `stamp` of the version that was read last."""

    def __init__(
        self, path: Path, stamp: FileStamp | None, look: Callable[[Path], FileStamp | None] = stamp_of
    ) -> None:
        self.path = path
        self.stamp = stamp
        self._look = look

    async def look(self) -> FileStamp | None:
        """The stamp that the file has now."""
        return await anyio.to_thread.run_sync(self._look, self.path, abandon_on_cancel=True)

    async def changed(self) -> FileStamp | None:
        """Waits until the file is another one and is no longer being written; its stamp then."""
        read_stamp = self.stamp
        while (seen := await self.look()) == read_stamp:  # noqa: ASYNC110 - a file sets no event
            await anyio.sleep(_LOOK)
        with anyio.move_on_after(_LATEST):
            while True:
                await anyio.sleep(_SETTLED)
                before, seen = seen, await self.look()
                if seen == before:
                    break
        return seen

    def was_read(self, stamp: FileStamp | None) -> None:
        """This version is the known one from now on."""
        self.stamp = stamp
