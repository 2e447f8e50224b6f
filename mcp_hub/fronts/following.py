"""A position in a durable stream whose events are sent unchanged."""

from typing import Final

import anyio

from mcp_hub.aio import Bell
from mcp_hub.errors import HubError
from mcp_hub.hub import StreamHandle
from mcp_hub.types import CallId

_FEW: Final = 8
"""Events between two looks at how large a page has become."""
_PAGE_BYTES: Final = 1 << 20
"""Bytes of events in one page, the last one aside."""
_GATHERING: Final = 0.2
"""Seconds after the first event of a page for others to come: a busy stream takes five requests a second."""
_FETCH: Final = 10.0
"""Seconds that events which are there already may take to come from the store."""


class Following:
    """A position in a stream; news ring `bell`. Raises as `StreamHandle.follow`."""

    __slots__ = ("_bell", "_reader", "_stream")

    def __init__(self, stream: StreamHandle, after: int, bell: Bell | None = None) -> None:
        self._bell = Bell() if bell is None else bell
        self._stream = stream
        self._reader = stream.follow(self._bell.ring, after)

    @property
    def stream(self) -> CallId:
        return self._stream.info.id

    @property
    def cursor(self) -> int:
        return self._reader.cursor

    @property
    def closed(self) -> bool:
        return self._reader.at_end

    @property
    def status(self) -> str:
        return self._stream.info.status

    async def lines(self, limit: int, seconds: float) -> list[bytes]:
        """The next events; empty after `seconds`, or when `closed`. Raises if none can follow."""
        until = anyio.current_time() + seconds
        while not (lines := self.next_lines(limit)) and not self.closed:
            is_there = self.cursor < self._stream.info.last
            patience = max(until - anyio.current_time(), _FETCH if is_there else 0)
            if not await self._bell.wait(max(patience, 0)):
                return []
        return lines

    def next_lines(self, limit: int) -> list[bytes]:
        """The next events without waiting. Raises if none can follow."""
        reader = self._reader
        if not reader.has_more:
            if reader.failed is not None and not self.closed:
                raise reader.failed
            return []
        return [entry.line for entry in reader.take_entries(limit)]

    async def page(self, limit: int, seconds: float, least: int = 1) -> list[bytes]:
        """The next events, as many as fit a response; waits a moment for `least`. Raises only before the first."""
        until = anyio.current_time() + seconds
        page = await self.lines(min(limit, _FEW), seconds)
        until = min(until, anyio.current_time() + _GATHERING)
        size = sum(map(len, page))
        while page and len(page) < limit and size < _PAGE_BYTES and not self.closed:
            is_enough = len(page) >= least
            if is_enough and self.cursor >= self._stream.info.last:
                break
            try:
                more = await self.lines(min(limit - len(page), _FEW), 0 if is_enough else until - anyio.current_time())
            except HubError:  # the next request gets it, and this one its events
                break
            if not more:
                break
            page += more
            size += sum(map(len, more))
        return page

    def close(self) -> None:
        self._reader.close()
