"""The two locks of a hub's folder. Only a lock says who lives: the kernel lets go of it, however its process ends."""

import fcntl
import os

from mcp_hub.attach.folder import LOCK, START

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def is_alive(folder: str) -> bool:
    """Whether a hub holds the lock of this folder. Raises `OSError`."""
    file = _take(folder, LOCK, fcntl.LOCK_SH)
    if file is None:
        return True
    os.close(file)
    return False


def take_start(folder: str) -> int | None:
    """The open file of the start-up lock, to be closed; None if somebody else starts a hub now. Raises `OSError`."""
    return _take(folder, START, fcntl.LOCK_EX)


def _take(folder: str, name: str, kind: int) -> int | None:
    file = os.open(os.path.join(folder, name), _FLAGS, 0o600)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
