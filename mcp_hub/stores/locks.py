"""Private files, and locks that end with the process that holds them.

Child processes do not inherit a lock (PEP 446). On Windows an open file cannot be removed or renamed.
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
    """Opens a file as `os.open`, private to the user; sets a pipe or device there aside. Raises `OSError`."""
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
