"""Messages for clients that fetch them, and a client in the hub's process, by JSON text of either era."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio

from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.sessions.session import Caller
from mcp_hub.wire.base import Requests, WireClosed

_CONGESTED: Final = 1 << 20
"""Queued bytes above which calls and the client's requests wait."""


class MessageQueue:
    """A `ClientWire` that delivers nothing before `next`."""

    def __init__(self, duplex: Duplex) -> None:
        self.requests = Requests()
        self.is_closed = False
        self._duplex = duplex
        self._is_ending = False
        self._due: list[Callable[[], object]] = []
        self._out: list[bytes] = []
        self._queued = 0
        self._work = anyio.Event()

    async def next(self) -> list[bytes]:
        """Waits for messages; empty once closed or ended."""
        while True:
            due, self._due = self._due, []
            for callback in due:
                callback()
            if self._out:
                out, self._out = self._out, []
                return out
            if self.is_closed or (self._is_ending and not self._duplex.is_busy):
                return []
            await self._work.wait()
            self._work = anyio.Event()

    def taken(self, messages: list[bytes]) -> None:
        """Confirms messages of `next`."""
        was_congested = self.is_congested
        self._queued -= sum(map(len, messages))
        if was_congested and not self.is_congested:
            self._duplex.on_writable()

    async def writable(self) -> None:
        """Waits until the client fetches. Raises `WireClosed`."""
        await self._duplex.writable()
        if self.is_closed:
            raise WireClosed("the connection is closed")

    def end(self) -> None:
        """Ends after the last response."""
        self._is_ending = True
        self._work.set()

    def close(self, reason: str, code: str) -> None:
        """Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self.requests.fail_all(reason)
            self._duplex.on_closed(reason, code)
            self._work.set()

    # -- ClientWire -----------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return self._queued > _CONGESTED

    def send(self, frame: envelope.Frame) -> None:
        frame = envelope.whole(frame)
        self._out.append(frame)
        self._queued += len(frame)
        self._work.set()

    def soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)
        self._work.set()


class InProcessFront:
    """One client."""

    def __init__(self, hub: HubPort, binding: Binding, caller: Caller) -> None:
        modern = partial(modern_session, caller, key=new_session_id(), apps={})
        self._duplex = Duplex(hub, binding, caller, modern)
        self._queue = MessageQueue(self._duplex)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the client meanwhile, then cancels its calls."""
        async with self._duplex.serving(self._queue):
            try:
                yield
            finally:
                self.close("the client closed its connection")

    async def take(self, text: bytes) -> None:
        """Accepts a message once the client fetches its own."""
        with suppress(WireClosed):
            await self._queue.writable()
            message = envelope.decode(text)
            if isinstance(message, BadMessage):
                self._duplex.on_bad_line(message, text)
            else:
                self._duplex.take(message)

    async def next(self) -> list[bytes]:
        """Waits for messages; empty once closed."""
        messages = await self._queue.next()
        self._queue.taken(messages)
        return messages

    def close(self, reason: str, code: str = "closed") -> None:
        self._queue.close(reason, code)
