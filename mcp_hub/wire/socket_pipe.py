"""A JSON-RPC pipe over one connected socket."""

import asyncio
import socket
from typing import cast

from mcp_hub.wire.pipe import Pipe


class SocketPipe(Pipe):
    """A `Pipe` whose peer may still read after it stops sending."""

    async def connect(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(lambda: _SocketSide(self), connection)

    def begin(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=self._write_limit)
        self._writer = self._reader = transport

    def congest(self, congested: bool) -> None:
        self._turn.run(self._congest, congested)


class _SocketSide(asyncio.Protocol):
    """Passes on events; stays open when the peer stops sending."""

    def __init__(self, pipe: SocketPipe) -> None:
        self._pipe = pipe

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe.begin(cast(asyncio.Transport, transport))  # uvloop's is of no class of asyncio

    def data_received(self, data: bytes) -> None:
        self._pipe.data_received(data)

    def eof_received(self) -> bool:
        self._pipe.eof_received()
        return True

    def pause_writing(self) -> None:
        self._pipe.congest(True)

    def resume_writing(self) -> None:
        self._pipe.congest(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipe.close("the peer closed the connection", "connection_lost")
