"""A socket in the hub's folder, for this user's processes only."""

import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc

from mcp_hub.attach.folder import Untrusted, check_peer
from mcp_hub.logs import get_logger

log = get_logger(__name__)

_BACKLOG: Final = 128
_DRAFT: Final = "new.sock"
_PAUSE: Final = 0.1
"""Seconds until the next try without free descriptors."""


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise NotImplementedError
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


class PrivateSocket:
    """Listens at `path`, mode 0600, until closed. Raises `OSError`.

    The caller holds the folder's lock, so that an existing socket is stale.
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
        """Listens again after the socket was removed. Raises `OSError`."""
        old, self._socket = self._socket, self._bound()
        anyio.notify_closing(old)
        old.close()

    async def accept(self) -> socket.socket:
        """This user's next connection; others are closed."""
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
                await anyio.sleep(_PAUSE)
            else:
                connection.setblocking(False)
                return connection

    async def serve(self, take: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                tasks.start_soon(take, await self.accept())

    def close(self) -> None:
        """Stops listening; removes the socket if it is still its own."""
        if self.is_there:
            with suppress(OSError):
                self._path.unlink()
        self._socket.close()
