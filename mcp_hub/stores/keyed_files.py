"""Small files that several hubs change: one for each key, read whole, replaced whole, for nobody else's eyes.

A process that changes one holds the lock beside it, so that no change is lost; readers need none.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.locks import lock_file, open_plain, remove, take

_LARGEST: Final = 64 << 20
"""Bytes of a file that is read; the hub writes far smaller ones."""
_PATIENCE: Final = 2.0
"""Seconds to wait for a lock, which others hold for milliseconds."""
_STEP: Final = 0.01


class KeyedFiles:
    """The files under `folder`. Blocks for as long as the file system does, and at most 2 s for another's change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, key: str) -> Path:
        """Where the file of `key`, which must be fit for a file's name, is or would be."""
        return self._folder / f"{key}.json"

    def stamp(self, key: str) -> tuple[int, int, int] | None:
        """Distinguishes one content from the next, without reading; None if there is no file. Raises `OSError`."""
        try:
            found = self.place(key).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self, key: str) -> bytes | None:
        """The content; None if there is no file. Raises `OSError`."""
        try:
            with open(open_plain(self.place(key), os.O_RDONLY), "rb") as file:
                text = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        if len(text) > _LARGEST:
            raise OSError(f"{self.place(key)} is larger than {_LARGEST} bytes")
        return text

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replaces the content by what `change` makes of it, or leaves it for None, under the lock.

        Raises `OSError`, and whatever `change` raises; then the file is as it was.
        """
        make_folder(self._folder)
        lock = lock_file(self.place(key).with_suffix(".lock"))
        try:
            self._wait_for(lock, key)
            text = change(self.read(key))
            if text is not None:
                self._replace(key, text)
        finally:
            os.close(lock)

    def _wait_for(self, lock: int, key: str) -> None:
        for _ in range(int(_PATIENCE / _STEP)):
            if take(lock, shared=False):
                return
            time.sleep(_STEP)
        raise OSError(f"{self.place(key)} is locked by another process for more than {_PATIENCE:g} s")

    def _replace(self, key: str, text: bytes) -> None:
        fresh = self.place(key).with_suffix(f".{os.getpid()}")
        try:
            fresh.unlink(missing_ok=True)  # of a hub that was killed
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "wb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())  # a name for an empty file would be a record that cannot be read
            fresh.replace(self.place(key))
        except OSError:
            remove(fresh)
            raise
