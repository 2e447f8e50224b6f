"""Files of the hub, and locks on them that end with the process that holds them, however it ends.

`flock`: it belongs to the open file, which programs that the process starts are not given (PEP 446). On Windows it is a
lock on a byte far behind the end of the file, and a file that is open can be neither removed nor renamed.
"""

import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from mcp_hub.attach.system import NO_WAIT, lock
from mcp_hub.logs import get_logger

log = get_logger(__name__)


def open_plain(path: Path | str, flags: int) -> int:
    """Opens a file as `os.open` does, for nobody else's eyes; a pipe or a device in its place is set aside first.

    Raises `OSError`.
    """
    set_special_aside(path)
    return os.open(path, flags | NO_WAIT, 0o600)  # a pipe may be put there since the look


def set_special_aside(path: Path | str) -> None:
    """Renames a pipe, a socket or a device to `<name>.corrupt-<time>`: to open one may block. Raises `OSError`."""
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
    """The name for a file that is set aside now."""
    return f"{path}.corrupt-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"


def lock_file(path: Path) -> int:
    """Opens a file to lock, for nobody else's eyes; makes it if need be. Raises `OSError`."""
    return open_plain(path, os.O_RDWR | os.O_CREAT)


def remove(path: Path | str) -> None:
    """Removes a file, if it is there and this process may."""
    with suppress(OSError):
        os.unlink(path)


def take(file: int, *, shared: bool) -> bool:
    """Whether the lock could be taken, at once. Raises `OSError` if the file system has no locks."""
    return lock(file, shared=shared)


def is_at(file: int, path: Path) -> bool:
    """Whether the open file is (still) the one at this place."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
