"""The other end of a pipe: raw lines over `os.pipe`, and a handler that keeps what it is told."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, notification_frame
from mcp_hub.wire.base import WireHandler
from mcp_hub.wire.pipe import Pipe

T = TypeVar("T")
WAIT = 240.0
"""Seconds that no wait of these tests may take."""


async def within(waiting: Awaitable[T]) -> T:
    """What it comes to, within the bound of every wait."""
    with anyio.fail_after(WAIT):
        return await waiting


@asynccontextmanager
async def group() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled in the end."""
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


def cancellation(id_: int) -> bytes:
    return notification_frame("notifications/cancelled", b'{"requestId":%d}' % id_)


class Told:
    """A `WireHandler` that keeps everything and can be waited on."""

    def __init__(self) -> None:
        self.requests: list[Envelope] = []
        self.notifications: list[Envelope] = []
        self.bad: list[tuple[BadMessage, bytes]] = []
        self.late: list[int] = []
        self.writable = 0
        self.reasons: list[str] = []
        self.codes: list[str] = []
        self._news = anyio.Event()

    def on_request(self, message: Envelope, source: object = None) -> None:
        self.requests.append(message)
        self._news.set()

    def on_notification(self, message: Envelope, source: object = None) -> None:
        self.notifications.append(message)
        self._news.set()

    def on_bad_line(self, bad: BadMessage, line: bytes, source: object = None) -> None:
        self.bad.append((bad, line))
        self._news.set()

    def on_late_answer(self, id_: int) -> None:
        self.late.append(id_)
        self._news.set()

    def on_writable(self) -> None:
        self.writable += 1
        self._news.set()

    def on_closed(self, reason: str, code: str) -> None:
        self.reasons.append(reason)
        self.codes.append(code)
        self._news.set()

    async def until(self, name: str, count: int = 1) -> Any:
        """What was told under this name, as soon as there are so many."""
        with anyio.fail_after(WAIT):
            while (self.writable if name == "writable" else len(getattr(self, name))) < count:
                self._news = anyio.Event()
                await self._news.wait()
        return getattr(self, name)


class OtherEnd:
    """Reads and writes raw bytes; every wait is bounded."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self.buffer = b""
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    async def chunk(self) -> bytes:
        """What one read finds; empty at the end."""
        with anyio.fail_after(WAIT):
            await anyio.wait_readable(self.read_fd)
            return os.read(self.read_fd, 1 << 20)

    async def line(self) -> Any:
        """The next message."""
        while b"\n" not in self.buffer:
            chunk = await self.chunk()
            assert chunk, "the pipe was closed instead"
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    async def write(self, data: bytes) -> None:
        with anyio.fail_after(WAIT):
            while data:
                await anyio.wait_writable(self.write_fd)
                with suppress(BlockingIOError):
                    data = data[os.write(self.write_fd, data) :]

    async def send(self, **members: Any) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def close(self, *sides: str) -> None:
        """Closes its `read` or its `write` side, or both."""
        for side in sides or ("read", "write"):
            fd = getattr(self, f"{side}_fd")
            if fd >= 0:
                setattr(self, f"{side}_fd", -1)
                os.close(fd)


E = TypeVar("E", bound=OtherEnd)


@asynccontextmanager
async def connected_to(
    end: type[E], handler: WireHandler | None, kind: Callable[..., Pipe] = Pipe, **options: Any
) -> AsyncIterator[tuple[Pipe, E]]:
    """A pipe, and its other end as raw lines."""
    its_read, our_write = os.pipe()
    our_read, its_write = os.pipe()
    other = end(its_read, its_write)
    pipe = kind(handler, **{"line_limit": 1 << 20, **options})
    await pipe.open(os.fdopen(our_read, "rb", buffering=0), os.fdopen(our_write, "wb", buffering=0))
    try:
        yield pipe, other
    finally:
        pipe.close()
        other.close()
        with anyio.CancelScope(shield=True):
            for _ in range(3):  # the transports let go of their files in the next passes
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def connected(told: Told | None = None, **options: Any) -> AsyncIterator[tuple[Pipe, OtherEnd, Told]]:
    """`connected_to` an end that only reads and writes; and what the pipe's handler is told."""
    told = told or Told()
    async with connected_to(OtherEnd, told, **options) as (pipe, other):
        yield pipe, other, told
