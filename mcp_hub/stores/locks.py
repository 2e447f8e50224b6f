"""Private files, and locks that end with their process.

Child processes do not inherit a lock (PEP 446). On Windows an open file cannot be removed or renamed.

A live hub process holds a lock on `<folder>/instances/<id>.lock`, on Windows by the open file. A check takes a shared
lock: two checks do not take each other for the owner.
"""

import os
import re
import stat
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import NO_WAIT, lock
from mcp_hub.ids import ids
from mcp_hub.logs import get_logger

log = get_logger(__name__)


def open_plain(path: Path | str, flags: int) -> int:
    """Opens as `os.open`, private to the user; sets a pipe or device there aside. Raises `OSError`."""
    set_special_aside(path)
    return os.open(path, flags | NO_WAIT, 0o600)  # a pipe may be put there since the look


def set_special_aside(path: Path | str) -> None:
    """Renames a pipe, socket or device, which may block when opened, to `<name>.corrupt-<time>`. Raises `OSError`."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    aside = aside_of(path)
    os.rename(path, aside)
    log.error("file_set_aside", file=str(path), aside=aside, reason="it is a pipe, a socket or a device")


def aside_of(path: Path | str) -> str:
    return f"{path}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def lock_file(path: Path) -> int:
    return open_plain(path, os.O_RDWR | os.O_CREAT)


def remove(path: Path | str) -> None:
    """Removes a file if possible."""
    with suppress(OSError):
        os.unlink(path)


def take(file: int, *, shared: bool) -> bool:
    """Never waits. Raises `OSError` on file systems without locks."""
    return lock(file, shared=shared)


def is_at(file: int, path: Path) -> bool:
    """Whether `path` is still the open file."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


_ID: Final = re.compile(r"in_[0-9A-Za-z_-]{1,64}")
_fresh: Final = ids(os.urandom)


def new_instance_id() -> str:
    """The id of this run of the process: `in_` and 26 characters."""
    return "in_" + next(_fresh)


class Instances:
    """The instance locks in a folder. Calls block."""

    def __init__(self, folder: Path, id_: str) -> None:
        self.id = id_
        self._folder = folder / "instances"
        self._lock: int | None = None

    def enter(self) -> None:
        """Takes this process's lock and removes stale ones. Idempotent. Raises `OSError`."""
        if self._lock is not None:
            return
        make_folder(self._folder.parent)
        make_folder(self._folder)
        path = self._path(self.id)
        lock = lock_file(path)
        while not (take(lock, shared=False) and is_at(lock, path)):  # another process is clearing it away
            os.close(lock)
            lock = lock_file(path)
        self._lock = lock
        with suppress(OSError):  # for people who look; the lock holds on a full disk, too
            os.write(lock, f"{os.getpid()}\n".encode())
        for stale in self._folder.glob("in_*.lock"):
            self.is_gone(stale.stem)

    def leave(self) -> None:
        """Releases the lock. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            remove(self._path(self.id))

    def is_gone(self, id_: str) -> bool:
        """Whether the process has ended; then removes its lock file. Never true of this process."""
        if id_ == self.id:
            return False
        if not _ID.fullmatch(id_):  # a damaged record, which must lead to no other file
            return True
        is_free = _can_be_removed if sys.platform == "win32" else _can_be_locked
        return is_free(self._path(id_))

    def _path(self, id_: str) -> Path:
        return self._folder / f"{id_}.lock"


def _can_be_removed(path: Path) -> bool:
    """Windows refuses to remove an open file."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _can_be_locked(path: Path) -> bool:
    """Whether the lock is free; then removes the file while holding it."""
    try:
        file = open_plain(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        if is_free := take(file, shared=True):
            remove(path)
        return is_free
    except OSError:
        return False
    finally:
        os.close(file)
