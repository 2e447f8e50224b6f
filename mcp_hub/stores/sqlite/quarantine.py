"""Setting a damaged file aside, which is only done while no hub process has it open for writing.

Every process that writes holds a shared lock on `<file>.lock`, an exclusive one if it renames. Renaming it under a
process that has only reading connections is safe: SQLite leaves the files of another database alone when it closes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.locks import aside_of, lock_file, take
from mcp_hub.stores.sqlite.schema import COMPANIONS


class Tenancy:
    """This process's share in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._held: int | None = None

    def begin(self, is_over: Callable[[], bool]) -> bool:
        """Shares in the file, waiting until `is_over` for a process that sets it aside. Raises `OSError`."""
        make_folder(self._path.parent)
        held = lock_file(self._path)
        while not take(held, shared=True):
            if is_over():
                os.close(held)
                return False
        self._held = held
        return True

    def end(self) -> None:
        """Idempotent."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody has a share, which then holds for the body. Raises `OSError`."""
        held = lock_file(self._path)
        try:
            yield take(held, shared=False)
        finally:
            os.close(held)


def identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from another one that is at the same place later; None if there is none."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def set_aside(path: Path) -> Path:
    """Renames the file and its companions to `<file>.corrupt-<time>`. Raises `OSError`. To be called while alone."""
    aside = Path(aside_of(path))
    path.rename(aside)
    for companion in COMPANIONS:
        beside = path.with_name(path.name + companion)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + companion))
    return aside
