"""Readers of a feed: they pull from its durable streams, one after the other, and have no queue."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from mcp_hub.call import StreamInfo
from mcp_hub.calls.feeds.lines import cursor_in, cursor_of, read_line
from mcp_hub.calls.reading.stream import Stream, StreamReader
from mcp_hub.errors import EventsGone, Fenced, RpcError, UnknownStream
from mcp_hub.types import CallId, RawObject

_PAGE_BYTES: Final = 4 << 20
"""Bytes of occurrences that are read at once, unless the first one is longer."""

OpenStream = Callable[[CallId], Awaitable[Stream | None]]
"""A stream of the feed; None for one that is gone or not of the feed."""
FindNext = Callable[[StreamInfo | None], Awaitable[Stream | None]]
"""The feed's stream after this one (None: the newest), if there is one."""


class _Page:
    """Occurrences that are read and not returned yet; a gap ends it."""

    def __init__(self, *, is_truncated: bool = False) -> None:
        self.occurrences: list[tuple[RawObject, str]] = []
        self.size = 0
        self.cursor = ""
        self.is_truncated = is_truncated
        self.is_next_truncated = False

    def miss(self) -> None:
        """Something is missing behind what was read."""
        if self.occurrences:
            self.is_next_truncated = True
        else:
            self.is_truncated = True

    def add(self, line: bytes, cursor: str, floor: float | None) -> bool:
        """Whether the page ends with this line."""
        at, occurrence, is_gap = read_line(line)
        is_late = occurrence is not None and floor is not None and at < floor
        self.cursor = cursor
        if is_gap or is_late:
            self.miss()
        elif occurrence is not None:
            self.occurrences.append((occurrence, cursor))
            self.size += len(line)
        return self.is_next_truncated


class FeedReader:
    """Reads one feed behind `cursor`, which is safe to keep after each `read`.

    `problem`: the server does not deliver at present; `ended`: why the subscription is over. `floor`: lines of before
    then, in Unix seconds, are skipped. Close it.
    """

    def __init__(self, open_stream: OpenStream, find_next: FindNext, floor: float | None = None) -> None:
        self.cursor = ""
        self.problem: RpcError | None = None
        self.ended: RpcError | None = None
        self._open_stream = open_stream
        self._find_next = find_next
        self._floor = floor
        self._reader: StreamReader | None = None
        self._page = _Page()
        self.is_open = True
        self._news = anyio.Event()

    def wake(self) -> None:
        """Ends `wait`."""
        self._news.set()

    def tell(self, problem: RpcError | None) -> None:
        """Notes that the server does not deliver at present, or does again."""
        if problem is not self.problem:
            self.problem = problem
            self.wake()

    def end(self, error: RpcError) -> None:
        """Notes that the subscription is over, once all is read."""
        self.ended = error
        self.wake()

    async def begin(self, after: str | None) -> None:
        """Begins behind a cursor; None: with what happens from now on. Raises `StoreError`."""
        position = None if after is None else cursor_in(after)
        stream = None if position is None else await self._open_stream(position[0])
        if stream is not None and position is not None and position[1] <= stream.row.last:
            self._follow(stream, position[1])
            return
        if after is not None:
            self._page.miss()
        newest = await self._find_next(None)
        if newest is not None:
            self._follow(newest, newest.row.last)

    def _follow(self, stream: Stream, after: int) -> None:
        self._leave()
        if after + 1 < stream.row.first:
            after = stream.row.first - 1
            self._page.miss()
        self._reader = stream.reader(self.wake, after)
        if not self._page.occurrences:
            self.cursor = cursor_of(stream.row.id, after)

    @property
    def has_more(self) -> bool:
        """Whether `read` has something at once."""
        reader = self._reader
        return reader is not None and (reader.has_more or reader.is_behind)

    async def read(self, limit: int) -> tuple[list[tuple[RawObject, str]], bool]:
        """Occurrences that are there, each with the cursor behind it, and whether something is missing before them.

        A cancelled one loses nothing. Raises `StoreError`.
        """
        self._news = anyio.Event()
        page, is_whole = self._page, False
        while not is_whole and len(page.occurrences) < limit and page.size < _PAGE_BYTES:
            line = await self._next_line()
            if line is None:
                break
            is_whole = page.add(*line, self._floor)
        self._page = _Page(is_truncated=page.is_next_truncated)
        self.cursor = page.cursor or self.cursor
        return page.occurrences, page.is_truncated

    async def _next_line(self) -> tuple[bytes, str] | None:
        while (reader := self._reader) is not None:
            if isinstance(reader.failed, EventsGone):
                reader.skip()
                self._page.miss()
            elif isinstance(reader.failed, UnknownStream):
                await self._restart()
            elif isinstance(reader.failed, Fenced):
                await self._follow_owner(reader)
            elif reader.failed is not None:
                raise reader.failed
            elif reader.has_more:
                (entry,) = reader.take_entries(1)
                return entry.line, cursor_of(reader.stream.row.id, reader.cursor)
            elif reader.is_behind:
                await self._fetched(reader)
            elif reader.at_end and (following := await self._find_next(reader.stream.row)) is not None:
                self._follow(following, following.row.first - 1)
            else:
                return None
        return None

    async def _restart(self) -> None:
        """The stream is gone: what follows it, if anything, is read from its beginning."""
        self._page.miss()
        self._leave()
        if (newest := await self._find_next(None)) is not None:
            self._follow(newest, newest.row.first - 1)

    async def _follow_owner(self, reader: StreamReader) -> None:
        """Another hub writes the stream now."""
        stream = await self._open_stream(reader.stream.row.id)
        if stream is None:
            await self._restart()
        else:
            self._follow(stream, reader.cursor)

    async def _fetched(self, reader: StreamReader) -> None:
        """Waits for the page that is read from the store."""
        while reader.is_behind and not reader.has_more and reader.failed is None:
            await self._news.wait()
            self._news = anyio.Event()

    async def wait(self) -> None:
        """Waits for news of the feed."""
        await self._news.wait()

    def close(self) -> None:
        """Idempotent."""
        self.is_open = False
        self._leave()

    def _leave(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
