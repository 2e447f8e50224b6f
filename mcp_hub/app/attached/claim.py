"""The hub's claim on its folder: a lock, which the kernel releases with the process, a record, and a socket.

Only this user's processes can connect to the socket.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from mcp_hub.attach.folder import LOCK, RECORD, Untrusted, check_peer
from mcp_hub.attach.hello import BUILD, NEWEST, OLDEST
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import is_at, lock_file, take

_ATTEMPTS: Final = 100
_PAUSE: Final = 0.02
"""Seconds between attempts: clients hold the lock for a moment to look."""

log = get_logger(__name__)

_Serve = Callable[[socket.socket], Coroutine[Any, Any, None]]
_BACKLOG: Final = 128
_DRAFT: Final = "new.sock"
_RETRY: Final = 0.1
"""Seconds until the next try without free descriptors."""


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


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise NotImplementedError
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


class PrivateSocket:
    """Listens at `path`, mode 0600, until closed. Raises `OSError`.

    The caller holds the folder's lock: an existing socket is stale.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = self._bound()

    def _bound(self) -> socket.socket:
        draft = self._path.with_name(_DRAFT)
        with suppress(FileNotFoundError):
            draft.unlink()
        bound = _unix_socket()
        try:
            bound.bind(str(draft))
            draft.chmod(0o600)
            bound.listen(_BACKLOG)
            draft.rename(self._path)  # clients find it whole, or not at all
        except OSError:
            bound.close()
            raise
        bound.setblocking(False)
        self._inode = self._path.lstat().st_ino
        return bound

    @property
    def is_there(self) -> bool:
        """Whether clients still reach this socket."""
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def restore(self) -> None:
        """Listens again after removal. Raises `OSError`."""
        old, self._socket = self._socket, self._bound()
        anyio.notify_closing(old)
        old.close()

    async def accept(self) -> socket.socket:
        """This user's next connection; closes others."""
        while True:
            listening = self._socket
            try:
                await anyio.wait_readable(listening)
                connection, _ = listening.accept()
                check_peer(connection)
            except BlockingIOError:
                continue
            except anyio.ClosedResourceError:
                continue  # restored
            except Untrusted as problem:
                log.warning("client_refused", reason=str(problem))
                connection.close()
            except OSError as problem:
                log.warning("client_not_accepted", reason=problem.strerror or str(problem))
                await anyio.sleep(_RETRY)
            else:
                connection.setblocking(False)
                return connection

    async def serve(self, take: _Serve) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                tasks.start_soon(_take, take, await self.accept())

    def close(self) -> None:
        """Stops listening; removes the socket if still its own."""
        if self.is_there:
            with suppress(OSError):
                self._path.unlink()
        self._socket.close()


async def _take(take: _Serve, connection: socket.socket) -> None:
    try:
        await take(connection)
    except Exception:  # one connection must not end the others
        log.exception("connection_crashed")
        connection.close()
