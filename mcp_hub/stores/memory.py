"""Streams in this process's memory. Any other owner counts as gone."""

from bisect import bisect_right
from collections.abc import Collection, Sequence

import anyio
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import KeyTaken, StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import (
    MAX_MESSAGES,
    PAGE_BYTES,
    Appended,
    Change,
    Chunk,
    EventPage,
    Fetched,
    Message,
    Replicas,
    SessionRow,
    StoreLimits,
    surplus,
)
from mcp_hub.stores.locks import new_instance_id
from mcp_hub.types import CallId


class _Stream:
    """A stream: row, chunks, and (events, bytes) of each chunk."""

    __slots__ = ("chunks", "row", "size", "sizes")

    def __init__(self, row: StreamInfo) -> None:
        self.row = row
        self.chunks: list[Chunk] = []
        self.sizes: list[tuple[int, int]] = []
        self.size = 0

    def page(self, after: int, limit: int) -> EventPage:
        lines: list[bytes] = []
        start = max(after + 1, self.row.first)
        room, at = PAGE_BYTES, bisect_right(self.chunks, start, key=lambda chunk: chunk.first) - 1
        for chunk in self.chunks[max(at, 0) :]:
            for line in chunk.lines[max(start - chunk.first, 0) :]:
                room -= len(line)
                if lines and (len(lines) >= limit or room < 0):
                    return EventPage(self.row, tuple(lines), start)
                lines.append(line)
        return EventPage(self.row, tuple(lines), start if lines else self.row.last + 1)

    def restart(self, first: int) -> int:
        """Drops all events; the next one is `first`. The bytes freed."""
        freed, self.size = self.size, 0
        self.chunks.clear()
        self.sizes.clear()
        self.row = msgspec.structs.replace(self.row, first=first, last=first - 1)
        return freed

    def trim(self, most_events: int, most_bytes: int) -> int:
        """Drops the oldest chunks over a limit; the bytes freed."""
        if self.row.last - self.row.first < most_events and self.size <= most_bytes:
            return 0
        gone = surplus(self.sizes, most_events, most_bytes)
        freed = sum(size for _, size in self.sizes[:gone])
        del self.chunks[:gone], self.sizes[:gone]
        self.size -= freed
        self.row = msgspec.structs.replace(self.row, first=self.chunks[0].first)
        return freed


def _of_request(principal: str, key: str) -> tuple[str, str]:
    return principal, key.partition("\n")[0]


class MemoryStreams:
    """Streams and their messages; synchronous."""

    def __init__(self, limits: StoreLimits, instance: str) -> None:
        self.instance = instance
        self.messages: list[Message] = []
        self._limits = limits
        self._streams: dict[CallId, _Stream] = {}
        self._keys: dict[tuple[str, str], dict[str, CallId]] = {}
        self._ended: dict[CallId, None] = {}  # in the order in which they ended
        self._size = 0

    def row(self, stream: CallId) -> StreamInfo | None:
        entry = self._streams.get(stream)
        return None if entry is None else entry.row

    def rows(self) -> list[StreamInfo]:
        return [stream.row for stream in reversed(self._streams.values())]

    def by_key(self, principal: str, key: str) -> StreamInfo | None:
        """The stream of `StreamLog.find_key`."""
        calls = self._keys.get(_of_request(principal, key), {})
        if key not in calls and "\n" not in key:
            key = min(calls, default=key)
        return self._streams[calls[key]].row if key in calls else None

    def has_key(self, principal: str, key: str) -> bool:
        return key in self._keys.get(_of_request(principal, key), ())

    def lines(self, stream: CallId) -> tuple[bytes, ...]:
        return tuple(line for chunk in self._streams[stream].chunks for line in chunk.lines)

    def page(self, stream: CallId, after: int, limit: int) -> EventPage | None:
        entry = self._streams.get(stream)
        return None if entry is None else entry.page(after, limit)

    def create(self, row: StreamInfo, chunk: Chunk) -> StoreError | None:
        """The first number may be above 1. Returns the error."""
        if row.id in self._streams:
            return StoreError(f"stream {row.id}: exists already")
        if row.key is not None and self.has_key(row.principal, row.key):
            return KeyTaken(f"idempotency key {row.key!r} is in use")
        try:
            stream, size = _Stream(base.begin(row, chunk)), len(base.joined(chunk))
        except StoreError as error:
            return error
        self._streams[row.id] = stream
        if row.key is not None:
            self._keys.setdefault(_of_request(row.principal, row.key), {})[row.key] = row.id
        self._add(stream, chunk, size)
        return None

    def append(self, id_: CallId, epoch: int, chunk: Chunk, change: Change) -> StoreError | None:
        """Returns the error."""
        stream = self._streams.get(id_)
        if stream is None:
            return base.unknown(id_)
        is_anew = change.first is not None and change.first > stream.row.last + 1
        row = msgspec.structs.replace(stream.row, last=chunk.first - 1) if is_anew else stream.row
        try:
            base.refuse(id_, row, epoch, chunk)
            size = len(base.joined(chunk))
        except StoreError as error:
            return error
        if is_anew:
            self._size -= stream.restart(chunk.first)
        if change.frees_key and stream.row.key is not None:
            self._free(stream.row.principal, stream.row.key)
        stream.row = base.changed(stream.row, chunk, change)
        self._add(stream, chunk, size)
        return None

    def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """Raises `StoreError`."""
        stream = self._streams.get(row.id)
        if stream is None or stream.row.has_ended or stream.row.owner == self.instance:
            return None
        if (stream.row.epoch, stream.row.last, stream.row.updated) != (row.epoch, row.last, row.updated):
            return None
        before = stream.row
        stream.row = msgspec.structs.replace(before, owner=self.instance, epoch=before.epoch + 1)
        error = self.append(row.id, stream.row.epoch, Chunk(row.last + 1, tuple(lines)), change)
        if error is not None:
            stream.row = before
            raise error
        return stream.row

    def drop(self, stream: CallId) -> list[Message]:
        """Returns the pending messages."""
        entry = self._streams.pop(stream)
        self._ended.pop(stream, None)
        self._size -= entry.size
        messages = [message for message in self.messages if message.stream == stream]
        if messages:
            self.messages = [message for message in self.messages if message.stream != stream]
        if entry.row.key is not None:
            self._free(entry.row.principal, entry.row.key)
        return messages

    def sweep(self, now: float) -> int:
        old = [id_ for id_ in self._ended if (self._streams[id_].row.expires or now) <= now]
        many = len(self._ended) - len(old) - self._limits.ended
        if many > 0:
            expired = set(old)
            old += [id_ for id_ in self._ended if id_ not in expired][:many]
        for id_ in old:
            self.drop(id_)
        return len(old)

    def _free(self, principal: str, key: str) -> None:
        request = _of_request(principal, key)
        del self._keys[request][key]
        if not self._keys[request]:
            del self._keys[request]

    def _add(self, stream: _Stream, chunk: Chunk, size: int) -> None:
        if chunk.lines:
            stream.chunks.append(chunk)
            stream.sizes.append((len(chunk.lines), size))
            stream.size += size
            self._size += size
        if stream.row.has_ended:
            self._ended[stream.row.id] = None
            self.messages = [message for message in self.messages if message.stream != stream.row.id]
        while self._size > self._limits.memory_bytes and len(self._ended) > stream.row.has_ended:
            self.drop(next(iter(self._ended)))
        limit = self._limits.stream_bytes
        if self._size > self._limits.memory_bytes:
            limit = min(limit, max(stream.size - 1, 0))
        self._size -= stream.trim(self._limits.stream_events, limit)


class MemoryLog:
    """The `StreamLog` in memory."""

    is_durable = False
    is_settled = True

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams

    @property
    def instance(self) -> str:
        return self._streams.instance

    def survives(self, stream: CallId) -> bool:
        return False

    def is_held(self, stream: CallId) -> bool:
        return True

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        callback(self._streams.create(row, chunk))

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        callback(self._streams.append(stream, epoch, chunk, change))

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        callback(self._streams.page(stream, after, limit))

    async def find(self, stream: CallId) -> StreamInfo | None:
        return self._streams.row(stream)

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        return self._streams.by_key(principal, key)

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        rows = [row for row in self._streams.rows() if principal in (None, row.principal)]
        return sorted(rows, key=lambda row: -row.created)[: max(limit, 0)]


class MemoryInbox:
    """The `StreamInbox` in memory."""

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams

    async def take(self) -> list[Message]:
        streams = self._streams
        taken: list[Message] = []
        remaining: list[Message] = []
        for message in streams.messages:
            row = streams.row(message.stream)
            (taken if row is not None and row.owner == streams.instance else remaining).append(message)
        streams.messages = remaining
        return taken

    async def post(self, message: Message) -> bool:
        row = self._streams.row(message.stream)
        if row is None or row.has_ended:
            return False
        waiting = [queued.kind for queued in self._streams.messages if queued.stream == message.stream]
        if base.is_wanted(message, waiting, MAX_MESSAGES):
            self._streams.messages.append(message)
        return True

    async def has_news(self) -> bool:
        return False

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        return [row.id for row in followed]

    async def wait(self, seconds: float, longest: float = 0.0) -> None:
        await anyio.sleep(seconds)


class _MemoryLeases:
    """The `StreamLeases` in memory."""

    interval = 5.0

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams

    async def orphans(self) -> list[StreamInfo]:
        running = [row for row in reversed(self._streams.rows()) if not row.has_ended]
        return [row for row in running if row.owner != self._streams.instance]

    async def is_orphan(self, row: StreamInfo) -> bool:
        return row.owner != self._streams.instance

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        return self._streams.claim(row, lines, change)


class MemorySessions:
    """The `SessionRows` in memory, at most `most`; a new one replaces the oldest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sessions: dict[str, SessionRow] = {}

    @property
    def rows(self) -> list[SessionRow]:
        return list(self._sessions.values())

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow:
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        if len(self._sessions) > self._limit:
            del self._sessions[next(iter(self._sessions))]
        return session

    async def find(self, id_: str) -> SessionRow | None:
        return self._sessions.get(id_)

    async def drop(self, id_: str) -> None:
        self._sessions.pop(id_, None)

    def sweep(self, now: float) -> None:
        self._sessions = {id_: session for id_, session in self._sessions.items() if session.expires > now}


class MemoryStore:
    """An `EventStore` in memory."""

    replicas: Replicas | None = None

    def __init__(self, limits: StoreLimits | None = None, instance: str | None = None) -> None:
        limits = limits or StoreLimits()
        self.streams = MemoryStreams(limits, instance or new_instance_id())
        self.log = MemoryLog(self.streams)
        self.inbox = MemoryInbox(self.streams)
        self.leases = _MemoryLeases(self.streams)
        self.sessions = MemorySessions(limits.sessions)

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Streams stay until the process ends."""

    async def sweep(self, now: float) -> int:
        self.sessions.sweep(now)
        return self.streams.sweep(now)
