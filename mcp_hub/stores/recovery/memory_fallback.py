"""Streams of this process beside a failing store: in memory, or recently confirmed."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, EventStore, Message, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.memory import MemoryStreams
from mcp_hub.types import CallId

_RECENT_SECONDS: Final = 5.0
"""Longer than a server waits for its disk before it stops answering (2 s), and than a replica of it lags behind."""
_RECENT_BYTES: Final = 64 << 20
"""Bytes of events; the oldest go first."""

T = TypeVar("T")


class BackedStore(EventStore, Protocol):
    """A store that fails with `StoreFault`."""

    async def touch(self) -> None:
        """Test write. Raises `StoreFault`."""


class Backing(Protocol):
    """A store that fails and recovers."""

    @property
    def store(self) -> BackedStore | None:
        """The store, if readable."""

    @property
    def is_fit(self) -> bool: ...

    @property
    def is_settled(self) -> bool:
        """Whether other replicas have had time to return their streams."""

    def for_writing(self) -> BackedStore | None:
        """The store if usable or due for a retry; the caller reports `worked` or `failed`."""

    def worked(self) -> None: ...
    def failed(self, fault: StoreFault) -> None: ...
    def failed_reading(self, fault: StoreFault) -> None: ...
    async def open(self) -> None: ...
    async def recover(self, leave: Callable[[], None]) -> None:
        """Retries the store if due; calls `leave` before `store` changes."""

    async def close(self) -> None: ...


async def read(backing: Backing, ask: Callable[[BackedStore], Awaitable[T]], otherwise: T) -> T:
    """The store's answer, else `otherwise`."""
    if backing.store is None:
        return otherwise
    try:
        return await ask(backing.store)
    except StoreFault as fault:
        backing.failed_reading(fault)
        return otherwise


async def write(backing: Backing, change: Callable[[BackedStore], Awaitable[T]]) -> list[T]:
    """The store's answer in a list; empty on failure."""
    if (store := backing.for_writing()) is None:
        return []
    try:
        answer = [await change(store)]
    except StoreFault as fault:
        backing.failed(fault)
        return []
    backing.worked()
    return answer


class MemoryFallback:
    """Events that the store lacks."""

    def __init__(self, limits: StoreLimits, instance: str) -> None:
        self.memory = MemoryStreams(limits, instance)
        self._stored: dict[CallId, int | None] = {}
        """The last event in the store; None if the store does not know the stream."""
        self.begins: dict[CallId, int] = {}
        """The first event in the store of those that it knows."""
        self._strays: set[CallId] = set()
        """Streams that the store does not take back."""

    def row(self, stream: CallId) -> StreamInfo | None:
        """The row in memory, whose `first` is the first event there."""
        return self.memory.row(stream)

    def create(self, row: StreamInfo, chunk: Chunk) -> StoreError | None:
        error = self.memory.create(row, chunk)
        if error is None:
            self._stored[row.id] = None
        return error

    def leave(self, row: StreamInfo, lines: tuple[bytes, ...] = ()) -> None:
        last = Chunk(row.last + 1 - len(lines), lines)
        if self.memory.create(row, last) is not None:  # the key has been used again meanwhile
            self.memory.create(msgspec.structs.replace(row, key=None), last)
        self._stored[row.id], self.begins[row.id] = last.first - 1, row.first

    # -- what the store holds

    def is_known(self, stream: CallId) -> bool:
        return self._stored.get(stream) is not None

    def is_before(self, stream: CallId, after: int) -> bool:
        """Whether the store has the event after `after`."""
        row, last = self.memory.row(stream), self._stored.get(stream)
        return row is not None and last is not None and after < last and row.first == last + 1

    def whole(self, row: StreamInfo, stored: StreamInfo | None) -> StreamInfo:
        """The row including the store's events, unless there is a gap."""
        last = self._stored.get(row.id)
        if stored is None or last is None or row.first != last + 1 or stored.last < last:
            return row
        return msgspec.structs.replace(row, first=min(stored.first, row.first))

    def joined(self, page: EventPage) -> EventPage:
        """The store's page without events in memory."""
        row, last = self.memory.row(page.row.id), self._stored.get(page.row.id)
        if row is None or last is None:
            return page
        return EventPage(self.whole(row, page.row), page.lines[: max(last + 1 - page.first, 0)], page.first)

    # -- returning

    def can_return(self, stream: CallId) -> bool:
        """Whether events in memory follow the store's."""
        row, last = self.memory.row(stream), self._stored.get(stream)
        return row is not None and stream not in self._strays and (last is None or row.first == last + 1)

    def returnable(self) -> list[StreamInfo]:
        """Streams that can return."""
        self._stored = {id_: last for id_, last in self._stored.items() if self.memory.row(id_) is not None}
        self.begins = {id_: first for id_, first in self.begins.items() if id_ in self._stored}
        self._strays &= self._stored.keys()
        rows = [row for id_ in self._stored if (row := self.memory.row(id_)) is not None]
        return [row for row in rows if self.can_return(row.id)]

    def missing(self, stream: CallId, lines: tuple[bytes, ...]) -> Chunk:
        row = self.memory.row(stream)
        assert row is not None
        return Chunk(row.first, self.memory.lines(stream) + lines)

    def returned(self, stream: CallId) -> list[Message]:
        """Forgets a fully stored stream; its pending messages."""
        self._stored.pop(stream, None)
        self.begins.pop(stream, None)
        return [] if self.memory.row(stream) is None else self.memory.drop(stream)

    def refused(self, stream: CallId) -> None:
        """A known stream is created again next time, an unknown one stays in memory."""
        if self._stored.get(stream) is None:
            self._strays.add(stream)
        else:
            self._stored[stream] = None


class _RecentEvents:
    """Events of the last seconds, which a failed server may have lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._added: deque[tuple[float, CallId, deque[bytes], int, int]] = deque()  # when, of what, events, bytes
        self._rows: dict[CallId, StreamInfo] = {}
        self._lines: dict[CallId, deque[bytes]] = {}
        self._size = 0

    def add(self, row: StreamInfo, lines: Sequence[bytes]) -> None:
        now, size = self._clock.now(), sum(map(len, lines))
        self._rows[row.id] = row
        tail = self._lines.setdefault(row.id, deque())
        tail.extend(lines)
        self._added.append((now, row.id, tail, len(lines), size))
        self._size += size
        while self._added and (self._added[0][0] < now - _RECENT_SECONDS or self._size > _RECENT_BYTES):
            self._drop()

    def _drop(self) -> None:
        _, id_, lines, count, size = self._added.popleft()
        self._size -= size
        for _ in range(min(count, len(lines))):
            lines.popleft()
        if not lines and self._lines.get(id_) is lines:
            del self._lines[id_], self._rows[id_]

    def take(self, stream: CallId) -> tuple[bytes, ...]:
        self._rows.pop(stream, None)
        lines = self._lines.pop(stream, deque())
        taken = tuple(lines)
        lines.clear()
        return taken

    def rows(self) -> list[StreamInfo]:
        return list(self._rows.values())


class OwnedStreams:
    """This process's streams: running ones `confirmed` by the store, or in the `fallback`.

    With a `clock`, events of the last seconds are kept: the server may lose them.
    """

    def __init__(self, backing: Backing, fallback: MemoryFallback, clock: Clock | None = None) -> None:
        self.fallback = fallback
        self.confirmed: dict[CallId, StreamInfo] = {}
        self.messages: list[Message] = []
        self._backing = backing
        self._recent = None if clock is None else _RecentEvents(clock)

    def confirm(self, row: StreamInfo, lines: tuple[bytes, ...] = ()) -> None:
        """Records that the store has the row and its last events `lines`."""
        self._backing.worked()
        if row.has_ended:
            self.confirmed.pop(row.id, None)
        else:
            self.confirmed[row.id] = row
        if self._recent is not None:
            self._recent.add(row, lines)

    def hear(self, messages: Sequence[Message]) -> None:
        """Takes messages of the store. Memory does not answer for a lost stream until its return is refused."""
        for message in messages:
            if message.kind == "lost":
                self.forget(message.stream)
                self.fallback.returned(message.stream)
        self.messages.extend(messages)

    def forget(self, stream: CallId) -> None:
        """Another process owns the stream."""
        self.confirmed.pop(stream, None)
        if self._recent is not None:
            self._recent.take(stream)

    def leave(self, stream: CallId) -> None:
        if (row := self.confirmed.pop(stream, None)) is not None:
            self._take(row)

    def leave_all(self) -> None:
        """Moves all streams to memory, when the store changes or has lost events."""
        recent = () if self._recent is None else self._recent.rows()
        rows = list({row.id: row for row in (*self.confirmed.values(), *recent)}.values())
        for row in rows:
            self.confirmed.pop(row.id, None)
            if self.fallback.row(row.id) is None:
                self._take(row)

    def _take(self, row: StreamInfo) -> None:
        self.fallback.leave(row, () if self._recent is None else self._recent.take(row.id))

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        """In memory if the store fails or the key is used there."""
        store = self._backing.for_writing()
        if store is None or (row.key is not None and self.fallback.memory.has_key(row.principal, row.key)):
            callback(self.fallback.create(row, chunk))
            return

        def created(error: StoreError | None) -> None:
            if isinstance(error, StoreFault):
                self._backing.failed(error)
                error = self.fallback.create(row, chunk)
            elif error is None:
                self.confirm(base.begin(row, chunk), chunk.lines)
            callback(error)

        store.log.create(row, chunk, created)

    def append(
        self, store: BackedStore | None, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended
    ) -> None:
        if store is None:
            self.leave(stream)
            callback(self.fallback.memory.append(stream, epoch, chunk, change))
            return

        def appended(error: StoreError | None) -> None:
            if isinstance(error, StoreFault):
                self._backing.failed(error)
                self.append(None, stream, epoch, chunk, change, callback)
                return
            row = self.confirmed.get(stream)
            if error is None and row is not None:
                self.confirm(base.changed(row, chunk, change), chunk.lines)
            elif error is None:
                self._backing.worked()
            callback(error)

        store.log.append(stream, epoch, chunk, change, appended)
