"""Watches a file by `stat` once a second, in a worker thread because a file system may hang."""

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
"""Seconds without a change before a file is read."""
_LATEST: Final = 5.0
"""Seconds until a changing file is read anyway."""


def stamp_of(path: Path) -> FileStamp | None:
    """The stamp of the file's current version; None if `stat` fails."""
    try:
        return FileStamp.of(os.stat(path))
    except OSError:
        return None


class WatchedFile:
    """A file, and the `stamp` of the version read last."""

    def __init__(
        self, path: Path, stamp: FileStamp | None, look: Callable[[Path], FileStamp | None] = stamp_of
    ) -> None:
        self.path = path
        self.stamp = stamp
        self._look = look

    async def look(self) -> FileStamp | None:
        return await anyio.to_thread.run_sync(self._look, self.path, abandon_on_cancel=True)

    async def changed(self) -> FileStamp | None:
        """Waits until the file has changed and is stable; returns its stamp."""
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
        self.stamp = stamp
