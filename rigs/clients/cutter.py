"""A TCP proxy on 127.0.0.1 that breaks one connection, once, in the middle of an answer."""

from contextlib import suppress
from typing import Any, Self

import anyio
from anyio.abc import SocketStream


class Cutter:
    """Passes everything on to `port`, until on one connection `marker` went there and `sign` came back so often.

    Then that connection is closed on both sides, and `has_cut`; every other one is left alone. Leaving the block
    closes them all.
    """

    def __init__(self, port: int, *, marker: bytes, sign: bytes, count: int) -> None:
        self.port = 0
        self.has_cut = False
        self._target = port
        self._marker, self._sign, self._count = marker, sign, count

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._serve, listener)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _serve(self, listener: Any) -> None:
        async with listener:
            await listener.serve(self._connection)

    async def _connection(self, client: SocketStream) -> None:
        there, back = _Seen(self._marker), _Seen(self._sign)
        with suppress(OSError):  # nobody listens there just now
            async with client, await anyio.connect_tcp("127.0.0.1", self._target) as server:
                async with anyio.create_task_group() as both:

                    async def pump(source: SocketStream, to: SocketStream, seen: "_Seen") -> None:
                        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                            while not self._is_due(there, back):
                                chunk = await source.receive()
                                seen.feed(chunk)
                                await to.send(chunk)
                        both.cancel_scope.cancel()

                    both.start_soon(pump, client, server, there)
                    both.start_soon(pump, server, client, back)

    def _is_due(self, marker: "_Seen", sign: "_Seen") -> bool:
        if self.has_cut or not marker.count or sign.count < self._count:
            return False
        self.has_cut = True
        return True


class _Seen:
    """Counts a text in a stream of bytes, whatever the portions."""

    def __init__(self, text: bytes) -> None:
        self.count = 0
        self._text = text
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        joined = self._rest + chunk
        self.count += joined.count(self._text)
        self._rest = joined[-(len(self._text) - 1) :]
