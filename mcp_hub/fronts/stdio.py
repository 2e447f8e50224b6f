"""One client on two pipes or a socket, in either era.

Descriptors 0 and 1 belong to the wire: stray prints go to stderr, children inherit `/dev/null`.
"""

import os
import socket
import stat
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Final

import anyio

from mcp_hub.files import open_null
from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.bonds import ClientBond
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.sessions.session import Caller
from mcp_hub.wire.files import widen
from mcp_hub.wire.pipe import Pipe

_READER_CHECK: Final = 0.2
"""Seconds between two looks whether a client that has closed its input still reads."""


def take_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """The wire's copies of stdin and stdout, which nothing else reaches then; wide before those of servers are."""
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = open_null(os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    files = os.fdopen(wire_in, "rb", buffering=0), os.fdopen(wire_out, "wb", buffering=0)
    for file in files:
        widen(file)
    return files


def _socket_of(read: IO[bytes], write: IO[bytes]) -> socket.socket | None:
    """The socket that both are, else None. A socket must not be opened as a pipe."""
    status = os.fstat(read.fileno())
    if not stat.S_ISSOCK(status.st_mode) or not os.path.samestat(status, os.fstat(write.fileno())):
        return None
    connection = socket.socket(fileno=os.dup(read.fileno()))
    connection.setblocking(False)
    return connection


class StdioFront:
    """One client."""

    def __init__(
        self, hub: HubPort, binding: Binding, caller: Caller, drain: Callable[[], float],
        bond: ClientBond | None = None,
    ) -> None:  # fmt: skip
        """`drain`: seconds for responses after the input has closed."""
        self._key = new_session_id()  # all modern requests are one client's, so they share a session
        self._connected = hub.durable.connected
        modern = partial(modern_session, caller, key=self._key, apps={})
        self._turn = hub.turn
        self._drain = drain
        self._bond = bond if bond is not None else ClientBond(ends_hub=True)
        self._duplex = Duplex(hub, binding, caller, modern, bond=self._bond)
        self._ended = anyio.Event()
        self._pipe: Pipe

    async def serve(self, read: IO[bytes], write: IO[bytes], line_limit: int) -> None:
        """Returns when the input has closed and every request is answered, `drain` is over, or the client is gone."""
        pipe = self._pipe = Pipe(
            self._duplex, line_limit=line_limit, couples=True, turn=self._turn, on_end=self._ended.set
        )
        connection = _socket_of(read, write)
        self._connected.add(self._key)
        try:
            async with self._duplex.serving(pipe) as tasks:
                await (pipe.open(read, write) if connection is None else pipe.connect(connection))
                tasks.start_soon(self._last_answers, tasks.cancel_scope)
                await self._duplex.closed.wait()
        finally:
            self._connected.discard(self._key)

    async def _last_answers(self, serving: anyio.CancelScope) -> None:
        await self._ended.wait()
        with anyio.move_on_after(self._drain()):
            while self._pipe.has_reader and not await self._has_answered():
                pass
        if self._bond.ends_hub:
            serving.cancel()
        else:
            self.close()

    async def _has_answered(self) -> bool:
        with anyio.move_on_after(_READER_CHECK) as waiting:
            await self._duplex.answered()
        return not waiting.cancelled_caught

    def close(self, last: bytes = b"") -> None:
        """Delivers ended calls, and `last`."""
        self._duplex.deliver()
        if last:
            self._pipe.send(last)
        self._pipe.close("the client closed the connection" if self._ended.is_set() else "the hub is stopping")
