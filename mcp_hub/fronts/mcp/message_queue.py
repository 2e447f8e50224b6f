"""Messages for a client that fetches them."""

from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.fronts.mcp.duplex import Duplex
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

    def send(self, frame: bytes) -> None:
        self._out.append(frame)
        self._queued += len(frame)
        self._work.set()

    def soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)
        self._work.set()
