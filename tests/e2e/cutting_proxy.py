"""A TCP proxy that cuts connections where it is told to, as networks do."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream


@dataclass
class CuttingProxy:
    """`url` stands for the one behind it; `passed` has the bytes that each connection brought until it was cut."""

    url: str
    passed: list[int] = field(default_factory=list)


@asynccontextmanager
async def cutting_proxy(url: str, cuts: Iterator[int]) -> AsyncIterator[CuttingProxy]:
    """Each connection is cut when the server has sent as many bytes as the next of `cuts` says; then no more are."""
    parts = urlsplit(url)

    async def serve(near: SocketStream) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with near, await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as far:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_forward, near, far)
                    await _until_cut(far, near, next(cuts, None))
                    tasks.cancel_scope.cancel()

    async def _until_cut(far: SocketStream, near: SocketStream, cut: int | None) -> None:
        place = len(proxy.passed)
        proxy.passed.append(0)
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            while cut is None or proxy.passed[place] < cut:
                part = await far.receive(65536 if cut is None else min(cut - proxy.passed[place], 65536))
                await near.send(part)
                proxy.passed[place] += len(part)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        proxy = CuttingProxy(f"http://127.0.0.1:{port}{parts.path}")
        tasks.start_soon(listener.serve, serve)
        yield proxy
        tasks.cancel_scope.cancel()


async def _forward(source: SocketStream, target: SocketStream) -> None:
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await target.send(await source.receive())
