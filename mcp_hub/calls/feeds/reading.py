"""Readers of a feed: they pull from its durable streams in turn, without a queue."""

import re
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.calls.reading.stream import Stream, StreamReader
from mcp_hub.errors import EventsGone, Fenced, InvalidParams, RpcError, UnknownStream
from mcp_hub.protocol.jsonrpc.envelope import raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.occurrences import error_member
from mcp_hub.types import CallId, RawJson, RawObject

RUNNING: Final = "run"
"""The idempotency key of the stream that is being written: one at a time."""
_PREFIX: Final = "\x1ffeed "
"""Begins the principal of a feed's streams; no principal of a client has a control character."""
MOST_ARGUMENTS: Final = 16 << 10
"""Bytes of a subscription's arguments."""
_HEAD: Final = 64
"""Bytes of a line that has its kind."""
_CURSOR: Final = re.compile(r"(st_[0-9A-Z]{26})\.(\d{1,16})")


class Topic(msgspec.Struct, frozen=True):
    """The events of one subscription: a server's own `name`, canonical `arguments`, and the account that asks.

    `account` is a principal at servers with accounts, else empty.
    """

    server: str
    name: str
    arguments: bytes
    account: str = ""

    @property
    def key(self) -> str:
        """The principal of the feed's durable streams."""
        text = msgspec.json.encode([self.server, self.name, self.arguments.decode(), self.account])
        return feed_key(blake2b(text, digest_size=16).hexdigest())


def feed_key(digest: str) -> str:
    """The principal of the feed with this topic's digest."""
    return _PREFIX + digest


def topic(server: str, name: str, arguments: RawJson, account: str = "") -> Topic:
    """Raises `InvalidParams` for arguments that are not an object, or too long."""
    if len(arguments) > MOST_ARGUMENTS:
        raise InvalidParams(f"arguments have over {MOST_ARGUMENTS} bytes")
    try:
        members = msgspec.json.decode(arguments)
        canonical = msgspec.json.encode(members, order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InvalidParams(f"arguments cannot be read: {problem}") from None
    if not isinstance(members, dict):
        raise InvalidParams("arguments must be an object")
    return Topic(server, name, canonical, account)


class _Line(msgspec.Struct, frozen=True):
    at: float = 0.0
    e: msgspec.Raw = msgspec.Raw(b"")
    gap: bool = False
    end: msgspec.Raw = msgspec.Raw(b"")


def line_of(at: float, occurrence: RawObject) -> bytes:
    return msgspec.json.encode({"at": at, "e": occurrence})


def mark_line(at: float, *, gap: bool) -> bytes:
    """The first line of a durable stream, or a `gap`."""
    return msgspec.json.encode({"at": at, "gap": gap})


def end_line(at: float, error: RpcError) -> bytes:
    """The last line of a subscription that its server ended."""
    return msgspec.json.encode({"at": at, "end": error_member(error)})


def _end_in(text: bytes) -> RpcError | None:
    line = read_as(msgspec.Raw(text), _Line) if b'"end":' in text[:_HEAD] else None
    return from_wire(line.end) if line is not None and line.end else None


def read_line(text: bytes) -> tuple[float, RawObject | None, bool]:
    """Time, occurrence, whether some may be missing before; an unreadable line is a gap."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.DecodeError, RecursionError):
        return 0.0, None, True
    return line.at, (raw_object(line.e) if line.e else None), line.gap


def cursor_of(stream: CallId, seq: int) -> str:
    return f"{stream}.{seq}"


def cursor_in(text: str) -> tuple[CallId, int] | None:
    """The stream and its last read line; None: not a feed's cursor."""
    match = _CURSOR.fullmatch(text)
    return None if match is None else (CallId(match[1]), int(match[2]))


_PAGE_BYTES: Final = 4 << 20
"""Bytes of occurrences that are read at once, unless the first one is longer."""

OpenStream = Callable[[CallId, int], Awaitable[Stream | None]]
"""A stream of the feed, to be read behind this line; None for one that is gone or not of the feed."""
FindNext = Callable[[StreamInfo | None], Awaitable[Stream | None]]
"""The feed's stream after this one (None: the newest), if there is one."""


class _Page:
    """Occurrences that are read and not returned yet; a gap ends it.

    `end`: why the stream that was read is over, which another hub may have written. `floor`: see `FeedReader`.
    """

    def __init__(self, floor: float | None, *, is_truncated: bool = False, end: RpcError | None = None) -> None:
        self.floor = floor
        self.occurrences: list[tuple[RawObject, str]] = []
        self.size = 0
        self.cursor = ""
        self.is_truncated = is_truncated
        self.is_next_truncated = False
        self.end = end

    def miss(self) -> None:
        if self.occurrences:
            self.is_next_truncated = True
        else:
            self.is_truncated = True

    def add(self, line: bytes, cursor: str) -> bool:
        """Whether the page ends with this line."""
        at, occurrence, is_gap = read_line(line)
        is_late = occurrence is not None and self.floor is not None and at < self.floor
        self.cursor = cursor
        self.end = _end_in(line)
        if is_gap or is_late:
            self.miss()
        elif occurrence is not None:
            self.occurrences.append((occurrence, cursor))
            self.size += len(line)
        return self.is_next_truncated


class FeedReader:
    """Reads one feed behind `cursor`, which is safe to keep after each `read`.

    `problem`: the server does not deliver now; `ended`: why the subscription is over. `floor`: earlier lines, in Unix
    seconds, are skipped. Close it.
    """

    def __init__(
        self, topic: Topic, open_stream: OpenStream, find_next: FindNext, floor: float | None = None
    ) -> None:  # fmt: skip
        self.topic = topic
        self.cursor = ""
        self.problem: RpcError | None = None
        self.ended: RpcError | None = None
        self._open_stream = open_stream
        self._find_next = find_next
        self._reader: StreamReader | None = None
        self._page = _Page(floor)
        self.is_open = True
        self._news = anyio.Event()

    def wake(self) -> None:
        """Ends `wait`."""
        self._news.set()

    def tell(self, problem: RpcError | None) -> None:
        """Notes that the server does not deliver at present, or does again; a failure like the last one is not news."""
        present = self.problem
        if (problem and (problem.code, problem.message)) != (present and (present.code, present.message)):
            self.problem = problem
            self.wake()

    def end(self, error: RpcError) -> None:
        """Notes that the subscription is over, once all is read."""
        self.ended = error
        self.wake()

    async def begin(self, after: str | None) -> None:
        """Begins behind a cursor; None: from now on. Raises `StoreError`."""
        position = None if after is None else cursor_in(after)
        stream = None if position is None else await self._open_stream(*position)
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
        self._page.end = None
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

    @property
    def is_stranded(self) -> bool:
        """Whether an ended stream is read, though the subscription is not over."""
        reader = self._reader
        return reader is not None and reader.at_end and self.ended is None and self._page.end is None

    async def read(self, limit: int) -> tuple[list[tuple[RawObject, str]], bool]:
        """Occurrences that are there, each with the cursor behind it, and whether something is missing before them.

        A cancelled one loses nothing. Raises `StoreError`.
        """
        self._news = anyio.Event()
        page, is_whole = self._page, False
        while not is_whole and len(page.occurrences) < limit and page.size < _PAGE_BYTES:
            line = await self._next_line()
            if line is None:
                self.ended = self.ended or page.end
                break
            is_whole = page.add(*line)
        self._page = _Page(page.floor, is_truncated=page.is_next_truncated, end=page.end)
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
        stream = await self._open_stream(reader.stream.row.id, reader.cursor)
        if stream is None:
            await self._restart()
        else:
            self._follow(stream, reader.cursor)

    async def _fetched(self, reader: StreamReader) -> None:
        while reader.is_behind and not reader.has_more and reader.failed is None:
            await self._news.wait()
            self._news = anyio.Event()

    async def wait(self) -> None:
        """Waits for occurrences, or news of the subscription."""
        if self.has_more or self._page.is_truncated:
            await anyio.lowlevel.checkpoint()
        else:
            await self._news.wait()

    def close(self) -> None:
        """Idempotent."""
        self.is_open = False
        self._leave()

    def _leave(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
