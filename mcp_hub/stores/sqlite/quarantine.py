"""Sets a damaged file aside while no hub writes to it.

Writers hold a shared lock on `<file>.lock`, a rename an exclusive one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.locks import aside_of, lock_file, take
from mcp_hub.stores.sqlite.schema import COMPANIONS


class Tenancy:
    """This process's lock on the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._lock: int | None = None

    def begin(self, is_over: Callable[[], bool]) -> bool:
        """Takes the shared lock, waiting until `is_over`. Raises `OSError`."""
        make_folder(self._path.parent)
        lock = lock_file(self._path)
        while not take(lock, shared=True):
            if is_over():
                os.close(lock)
                return False
        self._lock = lock
        return True

    def end(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether the exclusive lock is held in the body. Raises `OSError`."""
        lock = lock_file(self._path)
        try:
            yield take(lock, shared=False)
        finally:
            os.close(lock)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode; None for a missing file."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def set_aside(path: Path) -> Path:
    """Renames file and companions to `<file>.corrupt-<time>`, inside `alone`. Raises `OSError`."""
    aside = Path(aside_of(path))
    path.rename(aside)
    for companion in COMPANIONS:
        beside = path.with_name(path.name + companion)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + companion))
    return aside
