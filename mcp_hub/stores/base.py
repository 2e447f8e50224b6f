"""Where durable streams are kept: the interface of every store, and the rules that all of them share. Pure.

A stream has one owner, the hub process that appends to it, and an epoch that every change of owner raises: what an
earlier owner still sends is refused (`Fenced`). Events are opaque lines here (`protocol.shape.stream_events` knows
them); the store sees to order: chunk after chunk without a hole, nothing after the end.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, Protocol

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.notices import SharedLists
from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.history.base import HistoryStore
from mcp_hub.types import CallId, Status

_COUNTABLE: Final = 1 << 53
"""Number of an event or an epoch: beyond it scripts of a server cannot count."""
_YEAR_10000: Final = 253_402_300_800.0
"""Unix seconds of the first moment that has no date."""
_LONGEST_TEXT: Final = 1 << 20
"""Characters of one text of a row."""

ENDINGS: Final = frozenset({"completed", "tool_error", "failed", "cancelled"})


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events from number `first` on: `lines` are encoded, one JSON object each without a line break."""

    first: int
    lines: tuple[bytes, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class Change(msgspec.Struct, frozen=True):
    """The columns that an append changes; None leaves one as it is. `frees_key`: another stream may have the key."""

    updated: float
    status: Status | None = None
    message: str | None = None
    continuation: bytes | None = None
    info: bytes | None = None
    ttl: float | None = None
    frees_key: bool = False


class EventPage(msgspec.Struct, frozen=True):
    """Events that follow a place, and the row as it was when they were read."""

    row: StreamInfo
    lines: tuple[bytes, ...]
    first: int


class Message(msgspec.Struct, frozen=True):
    """For the owner of a stream, from another process: `cancel` (body: the reason), `input` (body: JSON) or `touch`."""

    stream: CallId
    kind: Literal["cancel", "input", "touch"]
    body: bytes


class SessionRow(msgspec.Struct, frozen=True):
    """A handshake session that has a durable stream. `body` is JSON that the front understands."""

    id: str
    principal: str
    body: bytes
    expires: float


class LiveSessions:
    """The handshake sessions in memory at this replica: each hears what other replicas do to its record."""

    def __init__(self) -> None:
        self._readers: dict[str, Callable[[SessionRow | None], None]] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._readers

    def join(self, id_: str, reader: Callable[[SessionRow | None], None]) -> None:
        """Calls `reader` with each new record of the session until it leaves; with None once it has been ended."""
        self._readers[id_] = reader

    def leave(self, id_: str) -> None:
        """Forgets the session. Idempotent."""
        self._readers.pop(id_, None)

    def changed(self, id_: str, record: SessionRow | None) -> None:
        """Hands on what another replica has stored. Does nothing for a session that is not in memory here."""
        if (reader := self._readers.get(id_)) is not None:
            reader(record)


class Holdings(Protocol):
    """Things of one kind that one replica has at a time."""

    async def hold(self, what: str) -> bool:
        """Whether this replica has the thing, from now on if none had. Raises `StoreError`."""

    def release(self, what: str) -> None:
        """Any replica may have the thing from now on."""


class Replicas(Protocol):
    """The other hubs on the same server of a store: the next request of a client may come to any of them."""

    sessions: LiveSessions
    lists: SharedLists

    @property
    def secret(self) -> bytes | None:
        """A key that all replicas have; None until the server has answered."""

    def holdings(self, kind: str) -> Holdings: ...

    def documents(self, limits: DocumentLimits, now: Callable[[], float]) -> Documents:
        """The place for long results of all replicas. `now` is in Unix seconds."""

    def history(self, now: Callable[[], float]) -> HistoryStore:
        """The past calls of all replicas. `now` is in Unix seconds."""


Appended = Callable[[StoreError | None], None]
Fetched = Callable[[EventPage | StoreError | None], None]
"""Given the page, None if there is no such stream (any more), or what went wrong."""


class StreamLog(Protocol):
    """The rows and the events of streams.

    An append is only asked for when the one before of the same stream has been confirmed. What is confirmed survives
    the process if the log `is_durable`.
    """

    @property
    def instance(self) -> str:
        """Id of this hub process, `in_` + 26 characters."""

    @property
    def is_durable(self) -> bool:
        """Whether what is confirmed from now on survives this process."""

    @property
    def is_settled(self) -> bool:
        """Whether no other process can have shown more of a stream than the store has."""

    def survives(self, stream: CallId) -> bool:
        """Whether all that is confirmed of this stream survives this process."""

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """Adds a stream with its first events, as `row` is with them. `KeyTaken` if its key is in use."""

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        """Adds events behind the last one, with what they change of the row. An empty chunk changes the row alone.

        `Fenced` if the epoch is not the stream's or it has ended. A status that is an ending sets `expires`.
        """

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        """At most `most` events (and about 1 MiB, but one at least) from the one behind `after` that is still kept."""

    async def find(self, stream: CallId) -> StreamInfo | None: ...

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        """The principal's stream of this idempotency key; without one, that of a further call of the same request.

        Such a call has the key of its request, a line break, and its place: `KEY\\n1`.
        """

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        """The principal's streams, those of all principals for None; the newest first."""


class StreamInbox(Protocol):
    """Messages between the processes that share a store, and whether others have written to it."""

    async def take(self) -> list[Message]:
        """Messages for streams of this process, oldest first; each is given out once."""

    async def post(self, message: Message) -> bool:
        """Puts a message into the inbox of the stream's owner; False if the stream is unknown or has ended."""

    async def has_news(self) -> bool:
        """Whether another process has written since this was asked last. Cheap."""

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        """Those of the streams followed here that may have events behind their row's last one; the others have none.

        From here on the store watches these streams, and no others, for `has_news` and `wait`.
        """

    async def wait(self, seconds: float) -> None:
        """Returns after so many seconds, or sooner once there may be news."""


class StreamLeases(Protocol):
    """The owners of streams: whether each is alive, and how a stream gets another one."""

    @property
    def interval(self) -> float:
        """Seconds between two looks for orphans: what that costs depends on the store."""

    async def orphans(self) -> list[StreamInfo]:
        """Streams that have not ended and whose owner is gone: its lock can be taken."""

    async def is_orphan(self, row: StreamInfo) -> bool:
        """Whether the row's owner is gone."""

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """Makes this process the owner and appends `lines` behind `row.last`, in one transaction; the new row.

        None, and nothing is done, if the stream is no longer as `row` says (epoch, last) or has ended.
        """


class SessionRows(Protocol):
    """The records of handshake sessions."""

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        """Adds or replaces it; the record that is kept then.

        That is another one, which stays, if it is no longer `before`; and None, if another process has ended it.
        """

    async def find(self, id_: str) -> SessionRow | None: ...

    async def drop(self, id_: str) -> None: ...


class StreamStore(Protocol):
    """One store, by its four parts.

    Methods are called on the event loop and never block it; callbacks come there, too, maybe at once.
    """

    @property
    def log(self) -> StreamLog: ...

    @property
    def inbox(self) -> StreamInbox: ...

    @property
    def leases(self) -> StreamLeases: ...

    @property
    def sessions(self) -> SessionRows: ...

    async def open(self) -> None:
        """Makes the store ready. Never raises for a file that cannot be used: see `StreamLog.is_durable`."""

    async def close(self) -> None:
        """Commits what was asked for, within a bound of 1 s, and lets go of files and locks. Idempotent."""

    async def sweep(self, now: float) -> int:
        """Deletes streams and sessions that have expired, and the oldest ended ones beyond the store's limits."""


class EventStore(StreamStore, Protocol):
    """The store of a hub."""

    @property
    def replicas(self) -> Replicas | None:
        """The other hubs that serve the same clients; None for a hub that is alone."""


# -- rules


class Head(Protocol):
    """The facts that decide whether a stream takes an append."""

    @property
    def epoch(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def has_ended(self) -> bool: ...


def damage(row: StreamInfo) -> str:
    """The reason why a row cannot be one that a hub has written, though its types are right; empty for a sound one."""
    times = row.created, row.updated, 0.0 if row.expires is None else row.expires
    if not (all(0 <= time < math.inf for time in times) and max(times[:2]) < _YEAR_10000 and 0 <= row.ttl < math.inf):
        return "a time is out of range"
    if not (0 < row.epoch < _COUNTABLE and 0 < row.first <= row.last + 1 <= _COUNTABLE):
        return "a number is out of range"
    texts = (row.principal, row.server, row.method, row.name, row.session, row.message, row.key, row.digest)
    return "a text is too long" if any(text and len(text) > _LONGEST_TEXT for text in texts) else ""


def joined(chunk: Chunk) -> bytes:
    """The lines as they are kept, parted by line breaks. Raises `StoreError` for a line that holds one."""
    body = b"\n".join(chunk.lines)
    if body.count(b"\n") >= max(len(chunk.lines), 1):
        raise StoreError(f"events from {chunk.first} on: an event holds a line break")
    return body


def begin(row: StreamInfo, chunk: Chunk) -> StreamInfo:
    """The row of a new stream as it is kept. Raises `StoreError` if its first events are not those of the row."""
    if chunk.last != row.last:
        raise StoreError(f"stream {row.id}: its first events end with {chunk.last} instead of {row.last}")
    if chunk.first == row.first and not row.has_ended:
        return row
    expires = row.updated + row.ttl if row.has_ended else None
    return msgspec.structs.replace(row, first=chunk.first, expires=expires)


def unknown(stream: CallId) -> Fenced:
    """The outcome of an append to a stream that is missing or gone."""
    return Fenced(f"stream {stream}: no longer kept")


def refuse(stream: CallId, row: Head, epoch: int, chunk: Chunk) -> None:
    """Raises `Fenced` unless the stream takes the chunk from the owner of this epoch."""
    if row.has_ended:
        raise Fenced(f"stream {stream}: has ended with event {row.last}")
    if epoch != row.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} is over, it is {row.epoch} now")
    if chunk.lines and chunk.first != row.last + 1:
        raise Fenced(f"stream {stream}: event {chunk.first} does not follow {row.last}")


def expiry(change: Change, ttl: float) -> float | None:
    """When the stream expires after this change; None while it runs. `ttl` applies unless the change has its own."""
    if change.status not in ENDINGS:
        return None
    return change.updated + (ttl if change.ttl is None else change.ttl)


def changed(row: StreamInfo, chunk: Chunk, change: Change) -> StreamInfo:
    """The row after an append that is not refused."""
    given = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
    if given.pop("frees_key"):
        given["key"] = None
    last = chunk.last if chunk.lines else row.last
    return msgspec.structs.replace(row, **given, last=last, expires=expiry(change, row.ttl))


def is_wanted(message: Message, waiting: Collection[str], most: int) -> bool:
    """Whether a message joins these kinds: a second cancel or touch does not. Raises `StoreError` at `most`."""
    if message.kind != "input" and message.kind in waiting:
        return False
    if len(waiting) >= most:
        raise StoreError(f"stream {message.stream}: {most} messages wait for its owner already")
    return True
