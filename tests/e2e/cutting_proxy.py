"""TCP proxies that cut connections where they are told to, as networks do."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@dataclass
class CuttingProxy:
    """`url` stands for the one behind it; `passed` has the bytes that each connection brought until it was cut."""

    url: str = ""
    passed: list[int] = field(default_factory=list)


@asynccontextmanager
async def cutting_proxy(url: str, cuts: Iterator[int]) -> AsyncIterator[CuttingProxy]:
    """Each connection is cut when the server has sent as many bytes as the next of `cuts` says; then no more are."""
    proxy = CuttingProxy()

    async def join(near: SocketStream, far: SocketStream) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_forward, near, far)
            await until_cut(far, near, next(cuts, None))
            tasks.cancel_scope.cancel()

    async def until_cut(far: SocketStream, near: SocketStream, cut: int | None) -> None:
        place = len(proxy.passed)
        proxy.passed.append(0)
        with suppress(*_GONE):
            while cut is None or proxy.passed[place] < cut:
                part = await far.receive(65536 if cut is None else min(cut - proxy.passed[place], 65536))
                await near.send(part)
                proxy.passed[place] += len(part)

    async with _joined(url, join) as proxy.url:
        yield proxy


@dataclass
class Cutter:
    """`url` stands for the one behind it; `has_cut` once a connection was broken."""

    url: str = ""
    has_cut: bool = False


@asynccontextmanager
async def cutter(url: str, *, marker: bytes, sign: bytes, count: int) -> AsyncIterator[Cutter]:
    """Breaks one connection, once: the first to which `marker` went and from which `sign` came so often."""
    proxy = Cutter()

    async def join(near: SocketStream, far: SocketStream) -> None:
        there, back = bytearray(), bytearray()

        async def pump(source: SocketStream, to: SocketStream, seen: bytearray) -> None:
            with suppress(*_GONE):
                while proxy.has_cut or marker not in there or back.count(sign) < count:
                    chunk = await source.receive()
                    seen += b"" if proxy.has_cut else chunk
                    await to.send(chunk)
                proxy.has_cut = True
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pump, near, far, there)
            tasks.start_soon(pump, far, near, back)

    async with _joined(url, join) as proxy.url:
        yield proxy


@asynccontextmanager
async def _joined(url: str, join: Callable[[SocketStream, SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """A URL whose connections are joined, each to one of its own to the server of `url`."""
    parts = urlsplit(url)

    async def serve(near: SocketStream) -> None:
        with suppress(*_GONE):
            async with near, await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as far:
                await join(near, far)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}{parts.path}"
        tasks.cancel_scope.cancel()


async def _forward(source: SocketStream, target: SocketStream) -> None:
    with suppress(*_GONE):
        while True:
            await target.send(await source.receive())
