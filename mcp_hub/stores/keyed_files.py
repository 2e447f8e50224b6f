"""Small private files shared by hubs, one for each key; a writer holds the `.lock` file beside it."""

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
    """The files in `folder`. Calls block on the file system, and up to 2 s for another writer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def stamp(self, key: str) -> tuple[int, int, int] | None:
        """Differs between contents; None for a missing file. Raises `OSError`."""
        try:
            status = self.path(key).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self, key: str) -> bytes | None:
        """The content; None for a missing file. Raises `OSError`."""
        try:
            with open(open_plain(self.path(key), os.O_RDONLY), "rb") as file:
                text = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        if len(text) > _LARGEST:
            raise OSError(f"{self.path(key)} is larger than {_LARGEST} bytes")
        return text

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replaces the content by `change(content)` under the lock; None keeps it.

        Raises `OSError` and errors of `change`, and keeps the file then.
        """
        make_folder(self._folder)
        lock = lock_file(self.path(key).with_suffix(".lock"))
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
        raise OSError(f"{self.path(key)} is locked by another process for more than {_PATIENCE:g} s")

    def _replace(self, key: str, text: bytes) -> None:
        fresh = self.path(key).with_suffix(f".{os.getpid()}")
        try:
            fresh.unlink(missing_ok=True)  # of a hub that was killed
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "wb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())  # a name for an empty file would be a record that cannot be read
            fresh.replace(self.path(key))
        except OSError:
            remove(fresh)
            raise
