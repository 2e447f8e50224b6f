"""The hub's claim on its folder: a lock, which the kernel releases with the process, and a record."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mcp_hub.attach.build import BUILD, NEWEST, OLDEST
from mcp_hub.attach.folder import LOCK, RECORD
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.stores.locks import is_at, lock_file, take

_ATTEMPTS: Final = 100
_PAUSE: Final = 0.02
"""Seconds between attempts: clients hold the lock for a moment to look."""


@contextmanager
def claimed(folder: Path) -> Iterator[Callable[[], bool]]:
    """Holds the folder's lock in the block. Raises `UpstreamUnavailable` if another hub has it.

    The yielded function tells whether the lock still counts: not after the folder's removal.
    """
    file = lock_file(folder / LOCK)

    def counts() -> bool:
        with suppress(OSError):
            return is_at(file, folder / LOCK)
        return False

    try:
        for attempt in range(_ATTEMPTS):
            if take(file, shared=False):
                break
            if attempt == _ATTEMPTS - 1:
                raise UpstreamUnavailable("another background hub holds the lock of its folder")
            time.sleep(_PAUSE)
        yield counts
    finally:
        os.close(file)


@contextmanager
def described(folder: Path, id_: str) -> Iterator[None]:
    """Keeps the hub's record in the block; removes only its own."""
    path, draft = folder / RECORD, folder / f"{RECORD}.{os.getpid()}"
    record = {
        "id": id_,
        "build": BUILD,
        "protocol": [OLDEST, NEWEST],
        "pid": os.getpid(),
        "process_started": _birth(),
    }
    with suppress(OSError):  # a full disk does not stop a hub
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(json.dumps(record).encode() + b"\n")
        draft.replace(path)
    try:
        yield
    finally:
        with suppress(OSError, ValueError, AttributeError, RecursionError):
            if json.loads(path.read_text("utf-8")).get("id") == id_:
                path.unlink()


def _birth() -> int | None:
    """The process start in ticks since boot, since pids are reused; None without `/proc`."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
    return None
