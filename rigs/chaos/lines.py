"""TCP lines to a server that can be cut: closed, silent, or deaf in one direction."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, Literal

import anyio
from anyio.abc import SocketAttribute, SocketStream

_GONE: Final = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_AT_A_TIME: Final = 65536
Cut = Literal["closed", "silent", "no answers"]
"""Connections end and are refused; nothing passes; what is asked passes, and no answer does."""
CUTS: Final[tuple[Cut, ...]] = ("closed", "silent", "no answers")


class Line:
    """One client's way to the server on `port`; `url` is for the client."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self._port = port
        self._cut: Cut | None = None
        self._whole = anyio.Event()
        self._whole.set()
        self._open: set[anyio.CancelScope] = set()

    def cut(self, kind: Cut) -> None:
        self._cut, self._whole = kind, anyio.Event()
        if kind == "closed":
            self._drop()

    def mend(self) -> None:
        """Connections of before end, as after any long silence."""
        self._drop()
        self._cut = None
        self._whole.set()

    def _drop(self) -> None:
        for scope in self._open:
            scope.cancel()

    async def serve(self, near: SocketStream) -> None:
        with anyio.CancelScope() as scope, suppress(*_GONE):
            self._open.add(scope)
            try:
                async with near:
                    if self._cut != "closed":
                        await self._join(near)
            finally:
                self._open.discard(scope)

    async def _join(self, near: SocketStream) -> None:
        async with await anyio.connect_tcp("127.0.0.1", self._port) as far, anyio.create_task_group() as tasks:
            tasks.start_soon(self._forward, near, far, ("silent",), tasks.cancel_scope)
            tasks.start_soon(self._forward, far, near, ("silent", "no answers"), tasks.cancel_scope)

    async def _forward(
        self, source: SocketStream, sink: SocketStream, stops: tuple[Cut, ...], scope: anyio.CancelScope
    ) -> None:
        with suppress(*_GONE):
            while True:
                part = await source.receive(_AT_A_TIME)
                if self._cut in stops:
                    await self._whole.wait()
                await sink.send(part)
        scope.cancel()


@asynccontextmanager
async def lines(count: int, port: int) -> AsyncIterator[list[Line]]:
    """So many lines to the server on this port of the loopback."""
    made = [Line(port) for _ in range(count)]
    async with AsyncExitStack() as listeners, anyio.create_task_group() as tasks:
        for line in made:
            listener = await listeners.enter_async_context(await anyio.create_tcp_listener(local_host="127.0.0.1"))
            line.url = f"redis://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/0"
            tasks.start_soon(listener.serve, line.serve)
        try:
            yield made
        finally:
            tasks.cancel_scope.cancel()


def any_cut(rng: random.Random) -> Cut:
    return rng.choice(CUTS)
