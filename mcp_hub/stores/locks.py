"""Locks on files that end with the process that holds them, however it ends.

`flock`: it belongs to the open file, which programs that the process starts are not given (PEP 446). Where there is no
`flock` (Windows) every lock can be taken, and an open file protects itself: it can be neither removed nor renamed.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def make_folder(path: Path) -> None:
    """A folder for nobody else's eyes, unless it is there. Raises `OSError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def lock_file(path: Path) -> int:
    """Opens a file to lock, for nobody else's eyes; makes it if need be. Raises `OSError`."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def remove(path: Path | str) -> None:
    """Removes a file, if it is there and this process may."""
    with suppress(OSError):
        os.unlink(path)


def take(file: int, *, shared: bool) -> bool:
    """Whether the lock could be taken, at once. Raises `OSError` if the file system has no locks."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_at(file: int, path: Path) -> bool:
    """Whether the open file is (still) the one at this place."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
