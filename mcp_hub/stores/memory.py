"""Streams in the memory of this process: nothing outlives it, and there are no other processes.

Callbacks are called before the methods that take them return. Any other owner that a row names is gone.
"""

from bisect import bisect_right
from collections.abc import Collection, Sequence

import anyio
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import KeyTaken, StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, Fetched, Message, ReplicaNews, SessionRow
from mcp_hub.stores.instances import new_instance_id
from mcp_hub.stores.limits import MAX_MESSAGES, PAGE_BYTES, StoreLimits, surplus
from mcp_hub.types import CallId


class _Stream:
    """One stream: its row, its chunks with the events and bytes in each."""

    __slots__ = ("chunks", "row", "size", "sizes")

    def __init__(self, row: StreamInfo) -> None:
        self.row = row
        self.chunks: list[Chunk] = []
        self.sizes: list[tuple[int, int]] = []
        self.size = 0

    def page(self, after: int, most: int) -> EventPage:
        lines: list[bytes] = []
        start = max(after + 1, self.row.first)
        room, at = PAGE_BYTES, bisect_right(self.chunks, start, key=lambda chunk: chunk.first) - 1
        for chunk in self.chunks[max(at, 0) :]:
            for line in chunk.lines[max(start - chunk.first, 0) :]:
                room -= len(line)
                if lines and (len(lines) >= most or room < 0):
                    return EventPage(self.row, tuple(lines), start)
                lines.append(line)
        return EventPage(self.row, tuple(lines), start if lines else self.row.last + 1)

    def trim(self, most_events: int, most_bytes: int) -> int:
        """Lets go of the oldest chunks if there is too much; the bytes that are gone."""
        if self.row.last - self.row.first < most_events and self.size <= most_bytes:
            return 0
        gone = surplus(self.sizes, most_events, most_bytes)
        freed = sum(size for _, size in self.sizes[:gone])
        del self.chunks[:gone], self.sizes[:gone]
        self.size -= freed
        self.row = msgspec.structs.replace(self.row, first=self.chunks[0].first)
        return freed


def _of_request(principal: str, key: str) -> tuple[str, str]:
    """The key of the request that this one belongs to."""
    return principal, key.partition("\n")[0]


class MemoryStore:
    """An `EventStore` without a file."""

    is_durable = False
    is_settled = True
    is_shared = False
    secret = None
    orphan_interval = 5.0

    def __init__(self, limits: StoreLimits | None = None, instance: str | None = None) -> None:
        self.instance = instance or new_instance_id()
        self._limits = limits or StoreLimits()
        self._streams: dict[CallId, _Stream] = {}
        self._keys: dict[tuple[str, str], dict[str, CallId]] = {}
        self._ended: dict[CallId, None] = {}  # in the order in which they ended
        self._messages: list[Message] = []
        self._sessions: dict[str, SessionRow] = {}
        self._size = 0
        self.news = ReplicaNews()

    async def open(self) -> None:
        """Nothing has to be made ready."""

    async def close(self) -> None:
        """Does nothing: streams stay until the process ends."""

    def survives(self, stream: CallId) -> bool:
        return False

    def peek(self, stream: CallId) -> StreamInfo | None:
        """The row of a stream that is here."""
        entry = self._streams.get(stream)
        return None if entry is None else entry.row

    def has_key(self, principal: str, key: str) -> bool:
        return key in self._keys.get(_of_request(principal, key), ())

    def lines(self, stream: CallId) -> tuple[bytes, ...]:
        """All events that are here of a stream that is."""
        return tuple(line for chunk in self._streams[stream].chunks for line in chunk.lines)

    def drop(self, stream: CallId) -> list[Message]:
        """Forgets a stream that is here; the messages that wait for it."""
        entry = self._streams.pop(stream)
        self._ended.pop(stream, None)
        self._size -= entry.size
        messages = [message for message in self._messages if message.stream == stream]
        if messages:
            self._messages = [message for message in self._messages if message.stream != stream]
        if entry.row.key is not None:
            self._free(entry.row.principal, entry.row.key)
        return messages

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """Adds a stream with its first events. Its numbers may go on from events that are kept elsewhere."""
        done(self._attempt_create(row, chunk))

    def _attempt_create(self, row: StreamInfo, chunk: Chunk) -> StoreError | None:
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

    def _free(self, principal: str, key: str) -> None:
        request = _of_request(principal, key)
        del self._keys[request][key]
        if not self._keys[request]:
            del self._keys[request]

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        done(self._attempt_append(stream, epoch, chunk, change))

    def _attempt_append(self, id_: CallId, epoch: int, chunk: Chunk, change: Change) -> StoreError | None:
        stream = self._streams.get(id_)
        if stream is None:
            return base.unknown(id_)
        try:
            base.refuse(id_, stream.row, epoch, chunk)
            size = len(base.joined(chunk))
        except StoreError as error:
            return error
        if change.frees_key and stream.row.key is not None:
            self._free(stream.row.principal, stream.row.key)
        stream.row = base.changed(stream.row, chunk, change)
        self._add(stream, chunk, size)
        return None

    def _add(self, stream: _Stream, chunk: Chunk, size: int) -> None:
        """Puts the events behind those that are there and makes room again."""
        if chunk.lines:
            stream.chunks.append(chunk)
            stream.sizes.append((len(chunk.lines), size))
            stream.size += size
            self._size += size
        if stream.row.has_ended:
            self._ended[stream.row.id] = None
            self._messages = [message for message in self._messages if message.stream != stream.row.id]
        while self._size > self._limits.memory_bytes and len(self._ended) > stream.row.has_ended:
            self.drop(next(iter(self._ended)))
        most = self._limits.stream_bytes
        if self._size > self._limits.memory_bytes:
            most = min(most, max(stream.size - 1, 0))
        self._size -= stream.trim(self._limits.stream_events, most)

    async def inbox(self) -> list[Message]:
        streams = {message.stream for message in self._messages}
        own = {id_ for id_ in streams if self._streams[id_].row.owner == self.instance}
        mine = [message for message in self._messages if message.stream in own]
        self._messages = [message for message in self._messages if message.stream not in own]
        return mine

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        entry = self._streams.get(stream)
        done(None if entry is None else entry.page(after, most))

    async def find(self, stream: CallId) -> StreamInfo | None:
        return self.peek(stream)

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        calls = self._keys.get(_of_request(principal, key), {})
        if key not in calls and "\n" not in key:
            key = min(calls, default=key)
        return self._streams[calls[key]].row if key in calls else None

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        every = (stream.row for stream in reversed(self._streams.values()))
        mine = [row for row in every if principal in (None, row.principal)]
        return sorted(mine, key=lambda row: -row.created)[: max(most, 0)]

    async def post(self, message: Message) -> bool:
        stream = self._streams.get(message.stream)
        if stream is None or stream.row.has_ended:
            return False
        waiting = [other.kind for other in self._messages if other.stream == message.stream]
        if base.is_wanted(message, waiting, MAX_MESSAGES):
            self._messages.append(message)
        return True

    async def has_news(self) -> bool:
        return False

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        return [row.id for row in followed]

    async def wait(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def orphans(self) -> list[StreamInfo]:
        running = [stream.row for stream in self._streams.values() if not stream.row.has_ended]
        return [row for row in running if row.owner != self.instance]

    async def is_orphan(self, row: StreamInfo) -> bool:
        return row.owner != self.instance

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        stream = self._streams.get(row.id)
        if stream is None or stream.row.has_ended or stream.row.owner == self.instance:
            return None
        if (stream.row.epoch, stream.row.last) != (row.epoch, row.last):
            return None
        before = stream.row
        stream.row = msgspec.structs.replace(before, owner=self.instance, epoch=before.epoch + 1)
        error = self._attempt_append(row.id, stream.row.epoch, Chunk(row.last + 1, tuple(lines)), change)
        if error is not None:
            stream.row = before
            raise error
        return stream.row

    async def sweep(self, now: float) -> int:
        old = [id_ for id_ in self._ended if (self._streams[id_].row.expires or now) <= now]
        many = len(self._ended) - len(old) - self._limits.ended
        if many > 0:
            expired = set(old)
            old += [id_ for id_ in self._ended if id_ not in expired][:many]
        for id_ in old:
            self.drop(id_)
        self._sessions = {id_: session for id_, session in self._sessions.items() if session.expires > now}
        return len(old)

    @property
    def sessions(self) -> list[SessionRow]:
        """All that are here."""
        return list(self._sessions.values())

    async def put_session(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow:
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        if len(self._sessions) > self._limits.sessions:
            del self._sessions[next(iter(self._sessions))]
        return session

    async def session(self, id_: str) -> SessionRow | None:
        return self._sessions.get(id_)

    async def drop_session(self, id_: str) -> None:
        self._sessions.pop(id_, None)
