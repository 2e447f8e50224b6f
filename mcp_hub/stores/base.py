"""Interfaces of stream stores, and their common rules. Pure.

A stream's owner appends to it. A new owner raises the epoch; appends of an earlier epoch are `Fenced`.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, Protocol

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.notices import SharedLists
from mcp_hub.stores.documents import DocumentLimits, Documents, Holdings, Rows, SharedCounts, SharedRecord
from mcp_hub.stores.history.base import HistoryStore
from mcp_hub.types import CallId, Status

_COUNTABLE: Final = 1 << 53
"""Number of an event or an epoch: beyond it scripts of a server cannot count."""
_YEAR_10000: Final = 253_402_300_800.0
"""Unix seconds of the first moment that has no date."""
_LONGEST_TEXT: Final = 1 << 20
"""Characters of one text of a row."""

NO_ANSWER: Final = "The store does not answer. Try again in a moment."
ENDINGS: Final = frozenset({"completed", "tool_error", "failed", "cancelled"})


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events from number `first`; each line is one encoded JSON object without a line break."""

    first: int
    lines: tuple[bytes, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class Change(msgspec.Struct, frozen=True):
    """The columns that an append changes; None keeps one.

    `frees_key`: the idempotency key. `is_firm`: as sure as an ending. `first`: the store lacks events before it, and
    drops those that it has.
    """

    updated: float
    status: Status | None = None
    message: str | None = None
    continuation: bytes | None = None
    info: bytes | None = None
    ttl: float | None = None
    frees_key: bool = False
    first: int | None = None
    is_firm: bool = False

    @property
    def is_vital(self) -> bool:
        return self.is_firm or self.status in ENDINGS


class EventPage(msgspec.Struct, frozen=True):
    """Consecutive events from number `first`, with the row read in the same step."""

    row: StreamInfo
    lines: tuple[bytes, ...]
    first: int


class Message(msgspec.Struct, frozen=True):
    """A message to a stream's owner: `cancel` (body: reason), `input` (JSON) or `touch`.

    The store itself makes `lost`: another process has claimed the stream.
    """

    stream: CallId
    kind: Literal["cancel", "input", "touch", "lost"]
    body: bytes


class SessionRow(msgspec.Struct, frozen=True):
    """The stored record of a handshake session; `body` is JSON."""

    id: str
    principal: str
    body: bytes
    expires: float


class LiveSessions:
    """Handshake sessions in memory, notified of other replicas' changes."""

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[SessionRow | None], None]] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._readers

    def join(self, id_: str, reader: Callable[[SessionRow | None], None]) -> None:
        """Calls `reader` with each new record, finally with None, until `leave`."""
        self._readers[id_] = reader

    def leave(self, id_: str) -> None:
        self._readers.pop(id_, None)

    def changed(self, id_: str, record: SessionRow | None) -> None:
        """Passes a record of another replica to the session, if it is in memory."""
        if (reader := self._readers.get(id_)) is not None:
            reader(record)


class Replicas(Protocol):
    """State shared by hubs that serve the same clients; `accounts` include pending logins."""

    sessions: LiveSessions
    lists: SharedLists

    @property
    def secret(self) -> bytes | None:
        """The shared key; None until the server has answered."""

    def holdings(self, kind: str) -> Holdings: ...
    def accounts(self, clock: Callable[[], float], *, is_pending: bool = False) -> Rows: ...

    def counts(self) -> SharedCounts: ...

    def record(self, name: str) -> SharedRecord: ...

    def documents(self, limits: DocumentLimits, now: Callable[[], float]) -> Documents:
        """The shared store of long results; `now` returns Unix seconds, as below."""

    def history(self, now: Callable[[], float]) -> HistoryStore: ...


Appended = Callable[[StoreError | None], None]
Fetched = Callable[[EventPage | StoreError | None], None]
"""Gets the page, None for a missing stream, or the error."""


class StreamLog(Protocol):
    """Rows and events of streams.

    A stream's next append starts only after the previous one is confirmed.
    """

    @property
    def instance(self) -> str:
        """This process's id: `in_` and 26 characters."""

    @property
    def is_durable(self) -> bool:
        """Whether events confirmed now survive this process."""

    @property
    def is_settled(self) -> bool:
        """Whether no process can hold more of a stream than the store."""

    def survives(self, stream: CallId) -> bool:
        """Whether the stream's confirmed events survive this process."""

    def is_held(self, stream: CallId) -> bool:
        """Whether no other process can have claimed this process's stream."""

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        """Adds a stream with its first events; `row` includes them. Fails with `KeyTaken`."""

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        """Appends events and changes the row; an empty chunk changes the row alone.

        Fails with `Fenced` for another epoch or an ended stream. A final status sets `expires`.
        """

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        """Reads 1 to `limit` events (about 1 MiB) from the first kept one after `after`."""

    async def find(self, stream: CallId) -> StreamInfo | None: ...

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        r"""The principal's stream with this idempotency key, else with the lowest `KEY\n1` of a further call."""

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        """Streams of the principal (None: of all), newest first."""


class StreamInbox(Protocol):
    """Messages between processes that share a store, and news of writes."""

    async def take(self) -> list[Message]:
        """Takes the messages for this process's streams, oldest first."""

    async def post(self, message: Message) -> bool:
        """Sends a message to the stream's owner; False for an unknown or ended stream."""

    async def has_news(self) -> bool:
        """Whether another process has written since the last call. Cheap."""

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        """The only streams that may have events after `row.last`.

        From now on `has_news` and `wait` watch exactly `followed`.
        """

    async def wait(self, seconds: float, longest: float = 0.0) -> None:
        """Waits so long, less if there may be news; up to `longest` if news always end it."""


class StreamLeases(Protocol):
    """Liveness of stream owners, and takeover."""

    @property
    def interval(self) -> float:
        """Seconds between searches for orphans."""

    async def orphans(self) -> list[StreamInfo]:
        """Running streams whose owner is gone."""

    async def is_orphan(self, row: StreamInfo) -> bool:
        """Whether the owner is gone."""

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """Takes the stream over and appends `lines` in one transaction.

        None if it has ended, or was written to since `row` was read.
        """


class SessionRows(Protocol):
    """Records of handshake sessions."""

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        """Stores the record if the current one equals `before` (None: any); the kept one, None if the session was
        ended.
        """

    async def find(self, id_: str) -> SessionRow | None: ...

    async def drop(self, id_: str) -> None: ...


class EventStore(Protocol):
    """A stream store. Methods run on the event loop without blocking it; callbacks may run before they return."""

    @property
    def log(self) -> StreamLog: ...

    @property
    def inbox(self) -> StreamInbox: ...

    @property
    def leases(self) -> StreamLeases: ...

    @property
    def sessions(self) -> SessionRows: ...

    @property
    def replicas(self) -> Replicas | None:
        """None without replicas, and for a store behind another one."""

    async def open(self) -> None:
        """Never raises for an unusable file: `StreamLog.is_durable` is False then."""

    async def close(self) -> None:
        """Commits pending writes within 1 s, and releases files and locks. Idempotent."""

    async def sweep(self, now: float) -> int:
        """Deletes expired streams and sessions, and surplus ended streams; the number of streams."""


# -- rules


class _Head(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def has_ended(self) -> bool: ...


def damage(row: StreamInfo) -> str:
    """The reason why no hub can have written this row; empty for a valid one."""
    times = row.created, row.updated, 0.0 if row.expires is None else row.expires
    if not (all(0 <= time < math.inf for time in times) and max(times[:2]) < _YEAR_10000 and 0 <= row.ttl < math.inf):
        return "a time is out of range"
    if not (0 < row.epoch < _COUNTABLE and 0 < row.first <= row.last + 1 <= _COUNTABLE):
        return "a number is out of range"
    texts = (row.principal, row.server, row.method, row.name, row.session, row.message, row.key, row.digest)
    return "a text is too long" if any(text and len(text) > _LONGEST_TEXT for text in texts) else ""


def joined(chunk: Chunk) -> bytes:
    """The stored form: lines joined by line breaks. Raises `StoreError` for a line with one."""
    body = b"\n".join(chunk.lines)
    if body.count(b"\n") >= max(len(chunk.lines), 1):
        raise StoreError(f"events from {chunk.first} on: an event holds a line break")
    return body


def begin(row: StreamInfo, chunk: Chunk) -> StreamInfo:
    """The stored row of a new stream. Raises `StoreError` if `chunk` does not end at `row.last`."""
    if chunk.last != row.last:
        raise StoreError(f"stream {row.id}: its first events end with {chunk.last} instead of {row.last}")
    if chunk.first == row.first and not row.has_ended:
        return row
    expires = row.updated + row.ttl if row.has_ended else None
    return msgspec.structs.replace(row, first=chunk.first, expires=expires)


def unknown(stream: CallId) -> Fenced:
    return Fenced(f"stream {stream}: no longer kept")


def refuse(stream: CallId, row: _Head, epoch: int, chunk: Chunk) -> None:
    """Raises `Fenced` unless the owner of this epoch may append the chunk."""
    if row.has_ended:
        raise Fenced(f"stream {stream}: has ended with event {row.last}")
    if epoch != row.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} is over, it is {row.epoch} now")
    if chunk.lines and chunk.first != row.last + 1:
        raise Fenced(f"stream {stream}: event {chunk.first} does not follow {row.last}")


def expiry(change: Change, ttl: float) -> float | None:
    """Unix seconds; None while the stream runs."""
    if change.status not in ENDINGS:
        return None
    return change.updated + (ttl if change.ttl is None else change.ttl)


def changed(row: StreamInfo, chunk: Chunk, change: Change) -> StreamInfo:
    """The row after a valid append."""
    is_plain = change.continuation is None and change.info is None and change.ttl is None and not change.frees_key
    if is_plain and chunk.lines and change.status == row.status == "working":  # as most
        message = row.message if change.message is None else change.message
        return msgspec.structs.replace(row, last=chunk.last, updated=change.updated, message=message)
    return msgspec.structs.replace(
        row,
        last=chunk.last if chunk.lines else row.last,
        updated=change.updated,
        expires=expiry(change, row.ttl),
        status=row.status if change.status is None else change.status,
        message=row.message if change.message is None else change.message,
        continuation=row.continuation if change.continuation is None else change.continuation,
        info=row.info if change.info is None else change.info,
        ttl=row.ttl if change.ttl is None else change.ttl,
        key=None if change.frees_key else row.key,
    )


def is_wanted(message: Message, waiting: Collection[str], limit: int) -> bool:
    """Whether to store the message: a second `cancel` or `touch` is dropped. Raises `StoreError` at `limit`."""
    if message.kind != "input" and message.kind in waiting:
        return False
    if len(waiting) >= limit:
        raise StoreError(f"stream {message.stream}: {limit} messages wait for its owner already")
    return True


MAX_MESSAGES: Final = 256
"""Pending messages of one stream; a live owner reads them every second."""
PAGE_BYTES: Final = 1 << 20
"""Bytes of one page, unless its first event is longer."""


class StoreLimits(msgspec.Struct, frozen=True):
    """Limits for each stream and the whole store.

    A sweep removes the oldest ended streams over `ended` or `total_bytes`. Over `memory_bytes` they go at once, then
    the oldest events of the growing stream.
    """

    stream_events: int = 10_000
    stream_bytes: int = 64 << 20
    ended: int = 100_000
    sessions: int = 10_000
    total_bytes: int = 4 << 30
    memory_bytes: int = 256 << 20


def surplus(chunks: Sequence[tuple[int, int]], most_events: int, most_bytes: int) -> int:
    """The number of oldest chunks (events, bytes) to drop: down to 7/8 of the limits, never the newest."""
    events, size = sum(count for count, _ in chunks), sum(length for _, length in chunks)
    if events <= most_events and size <= most_bytes:
        return 0
    gone = 0
    while gone < len(chunks) - 1 and (events > most_events * 7 // 8 or size > most_bytes * 7 // 8):
        events -= chunks[gone][0]
        size -= chunks[gone][1]
        gone += 1
    return gone
