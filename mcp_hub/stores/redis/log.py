"""Rows and events on a server: written by scripts, read page by page up to a damaged chunk."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, takewhile
from typing import Final, NamedTuple

import anyio

from mcp_hub.call import StreamInfo
from mcp_hub.clock import wall_time
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores import base
from mcp_hub.stores.base import ENDINGS, PAGE_BYTES, Appended, Change, Chunk, EventPage, Fetched, StoreLimits
from mcp_hub.stores.redis import scripts
from mcp_hub.stores.redis.index import Index
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.leases import StoreLinks
from mcp_hub.stores.redis.link import Command, Link, Reply, script
from mcp_hub.stores.redis.records import Quarantine, changes_of, fields_of, row_of
from mcp_hub.stores.redis.scripts import FETCH
from mcp_hub.types import CallId

log = get_logger(__name__)

_DAMAGED: Final = "not a chunk of events"
_ATTEMPTS: Final = 64
"""To read a page whose chunks are damaged, one after the other."""


_MOST_PARTS: Final = 9999
"""Limit of one chunk."""


class _StoredChunk(NamedTuple):
    """A chunk; its body may be in `parts` parts named `name`."""

    first: int
    last: int
    size: int
    name: str
    parts: int
    body: bytes

    @classmethod
    def of(cls, reply: Sequence[bytes]) -> "_StoredChunk":
        """Raises `ValueError`."""
        first, part, body, id_, size = reply
        name, _, parts = part.decode("ascii").rpartition(":")
        chunk = cls(
            first=int(first),
            last=int(id_.partition(b"-")[0]),
            size=int(size),
            name=name,
            parts=int(parts or 0),
            body=body,
        )
        if chunk.parts > _MOST_PARTS:
            raise ValueError("too many parts")
        return chunk

    def lines(self, body: bytes) -> list[bytes]:
        """The events in `body`. Raises `ValueError` for a wrong number or size."""
        lines = body.split(b"\n")
        if len(body) != self.size or len(lines) != self.last - self.first + 1:
            raise ValueError("not as many events as it has numbers")
        return lines


class _Pages:
    """Calls `behind` for a stream with foreign entries after its last event."""

    def __init__(
        self, keys: RedisKeys, reader: Link, quarantine: Quarantine, behind: Callable[[StreamInfo], None]
    ) -> None:
        self._keys = keys
        self._reader = reader
        self._quarantine = quarantine
        self._behind = behind

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched, attempts: int = _ATTEMPTS) -> None:
        """Reads again without a damaged first chunk."""
        limit = max(limit, 1)
        keys = self._keys.stream(stream)

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            fields, stored, *damaged = replies[0]
            try:
                row = row_of(stream, fields)
            except StoreError as error:
                self._quarantine.row(keys.row, fields, str(error), lambda: callback(None))
                return
            if row is None:
                callback(None)
                return
            chunks, bad = _sound(stored)
            if damaged or bad:
                self._behind(row)
                again = partial(self.fetch, stream, after, limit, callback, attempts - 1)
                is_empty = not chunks and attempts > 0
                self._quarantine.members(keys.events, [*damaged, *bad], _DAMAGED, again if is_empty else None)
                if is_empty:
                    return
            if any(chunk.parts for chunk in chunks):
                self._complete(row, chunks, after, limit, callback)
            else:
                self._finish(row, [(chunk, chunk.body) for chunk in chunks], after, limit, callback)

        command = script(FETCH, [keys.row, keys.events], max(after, 0) + 1, limit, PAGE_BYTES)
        self._reader.submit([command], answered)

    def _complete(
        self, row: StreamInfo, chunks: Sequence[_StoredChunk], after: int, limit: int, callback: Fetched
    ) -> None:
        parts = self._keys.stream(row.id).parts
        commands: list[Command] = [
            ("HMGET", parts, *(f"{chunk.name}:{number}" for number in range(1, chunk.parts + 1)))
            for chunk in chunks
            if chunk.parts
        ]

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            remaining = iter(replies)
            every = [(chunk, next(remaining) if chunk.parts else [chunk.body]) for chunk in chunks]
            # up to a chunk that was trimmed or deleted meanwhile
            there = takewhile(lambda pieces: None not in pieces[1], every)
            self._finish(row, [(chunk, b"".join(pieces)) for chunk, pieces in there], after, limit, callback)

        self._reader.submit(commands, answered)

    def _finish(
        self, row: StreamInfo, chunks: Sequence[tuple[_StoredChunk, bytes]], after: int, limit: int, callback: Fetched
    ) -> None:
        lines: list[tuple[int, list[bytes]]] = []
        for chunk, body in chunks:
            try:
                lines.append((chunk.first, chunk.lines(body)))
            except ValueError:
                self._quarantine.members(self._keys.stream(row.id).events, [b"%d-0" % chunk.last], _DAMAGED)
                break
        callback(_page(row, lines, after, limit))


def _sound(stored: Sequence[Sequence[bytes]]) -> tuple[list[_StoredChunk], list[bytes]]:
    chunks: list[_StoredChunk] = []
    for reply in stored:
        try:
            chunks.append(_StoredChunk.of(reply))
        except ValueError:
            return chunks, [reply[3]]
    return chunks, []


def _page(row: StreamInfo, chunks: Sequence[tuple[int, list[bytes]]], after: int, limit: int) -> EventPage:
    start = max(after + 1, row.first)
    lines: list[bytes] = []
    room = PAGE_BYTES
    for first, events in chunks:
        if first > start + len(lines):
            if lines:
                break
            start = first
        for line in events[start + len(lines) - first :]:
            room -= len(line)
            if lines and (len(lines) >= limit or room < 0):
                return EventPage(row, tuple(lines), start)
            lines.append(line)
    return EventPage(row, tuple(lines), start if lines else row.last + 1)


_PART: Final = 512 << 10
"""Bytes of a chunk passed to a script; a longer one is sent before it in parts of this size."""
_WRITTEN_TO: Final = "somebody else has written to this stream"


class RedisLog:
    """The `StreamLog` of a server."""

    is_durable = True
    _tags = count()

    def __init__(
        self, links: StoreLinks, index: Index, behind: Callable[[StreamInfo], None], limits: StoreLimits
    ) -> None:
        """`behind` is called for a stream with foreign entries after its last event."""
        self.instance = links.instance
        self._keys = links.keys
        self._writer = links.writer
        self._reader = links.reader
        self._quarantine = links.quarantine
        self._lease = links.leases
        self._index = index
        self._pages = _Pages(links.keys, links.reader, links.quarantine, behind)
        self._limits = limits

    @property
    def is_settled(self) -> bool:
        return self._lease.is_trusted

    def survives(self, stream: CallId) -> bool:
        return True

    def is_held(self, stream: CallId) -> bool:
        return self._lease.is_held

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        try:
            row = base.begin(row, chunk)
            base.joined(chunk)
        except StoreError as error:
            self._refuse(error, callback)
            return
        if row.key is None:
            self._create(row, chunk, callback)
        else:
            self._index.reserve(
                row, lambda error: self._create(row, chunk, callback) if error is None else callback(error)
            )

    def _create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        member = self._index.member(row, wall_time())
        listed: list[Command] = [*self._index.added(row, member)]
        if not row.has_ended:
            listed.append(("SADD", self._keys.running(row.owner), row.id))
        if row.owner != self.instance:
            listed.append(("HSETNX", self._keys.replicas, row.owner, 1))
        written = self.written(scripts.CREATE, row.id, row.epoch, chunk, [*fields_of(row), "place", member])

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            outcome, *details = replies[-1]
            if outcome != b"done":
                callback(_not_created(row, details))
                return
            self.list_ended(row.id, details[0], member.encode())
            callback(None)

        self._writer.submit([*listed, *written], answered, size=_size(chunk), is_vital=True)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        try:
            base.joined(chunk)
        except StoreError as error:
            self._refuse(error, callback)
            return

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            outcome, *details = replies[-1]
            if outcome == b"done":
                self.list_ended(stream, *details)
                callback(None)
            elif outcome == b"damaged":
                self.set_aside(stream, lambda: callback(base.unknown(stream)))
            else:
                callback(_refusal(stream, epoch, chunk, details) if outcome == b"fenced" else base.unknown(stream))

        written = self.written(scripts.APPEND, stream, epoch, chunk, changes_of(change))
        self._writer.submit(written, answered, size=_size(chunk), is_vital=change.is_vital)

    def set_aside(self, stream: CallId, callback: Callable[[], None]) -> None:
        """The owner then writes its copy."""
        keys = self._keys.stream(stream)
        self._quarantine.whole(keys.events, _WRITTEN_TO)
        self._quarantine.whole(keys.row, _WRITTEN_TO, callback)

    def written(
        self, text: str, stream: CallId, epoch: int | str, chunk: Chunk, changes: Sequence[str | bytes]
    ) -> list[Command]:
        """Commands that append a chunk, the script last."""
        keys, body = self._keys.stream(stream), b"\n".join(chunk.lines)
        tag = f"{self.instance}:{next(self._tags)}"
        parts, part, size = [], "", len(body)
        if size > _PART:
            pieces = [body[at : at + _PART] for at in range(0, size, _PART)]
            parts = [("HSET", keys.parts, f"{tag}:{number}", piece) for number, piece in enumerate(pieces, 1)]
            part, body = f"{tag}:{len(pieces)}", b""
        numbers = tag, epoch, chunk.first, chunk.last, size, part
        limits = self._limits.stream_events, self._limits.stream_bytes
        return [*parts, script(text, keys, *numbers, *limits, body, *changes)]

    def _refuse(self, problem: StoreError, callback: Appended) -> None:
        """Fails in the order of the queue."""
        self._writer.submit((), lambda _: callback(problem))

    def list_ended(self, stream: CallId, expires: bytes, member: bytes) -> None:
        if expires:
            gone = ("SREM", self._keys.running(self.instance), stream)
            self._writer.submit([gone, self._index.expiring(member, expires)], _ignore)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        self._pages.fetch(stream, after, limit, callback)

    async def find(self, stream: CallId) -> StreamInfo | None:
        """None also for a damaged row, which is set aside."""
        key = self._keys.stream(stream).row
        [reply] = await self._reader.ask(("HGETALL", key))
        try:
            return row_of(stream, reply)
        except StoreError as error:
            moved = anyio.Event()
            self._quarantine.row(key, reply, str(error), moved.set)
            await moved.wait()
            return None

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        return await self._index.find_key(principal, key)

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        return await self._index.rows(principal, limit)


def _size(chunk: Chunk) -> int:
    return sum(map(len, chunk.lines))


def _ignore(replies: list[Reply] | StoreError) -> None:
    if isinstance(replies, StoreError):
        log.debug("index_not_changed", reason=str(replies))


def _not_created(row: StreamInfo, head: Sequence[bytes]) -> StoreError:
    """`Fenced` if an unanswered try made the stream and another hub has claimed it since."""
    if head[0].isdigit() and int(head[0]) > row.epoch:
        return _refusal(row.id, row.epoch, Chunk(row.first, ()), head)
    return StoreError(f"stream {row.id}: exists already")


def _refusal(stream: CallId, epoch: int, chunk: Chunk, head: Sequence[bytes]) -> StoreError:
    current, last, status = (part.decode("ascii", "replace") for part in head)
    if status in ENDINGS:
        return Fenced(f"stream {stream}: has ended with event {last}")
    if str(epoch) != current:
        return Fenced(f"stream {stream}: epoch {epoch} is over, it is {current} now")
    return Fenced(f"stream {stream}: event {chunk.first} does not follow {last}")
