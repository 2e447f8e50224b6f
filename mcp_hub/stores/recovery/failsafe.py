"""A stream store with memory behind it: calls continue whatever happens to the file.

Streams of a failing file continue in memory under the same numbers, not durable and invisible to other processes. When
it works again, running streams return with their next events, ended ones with `has_news` or `sweep`.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import (
    MAX_MESSAGES,
    Appended,
    Change,
    Chunk,
    EventPage,
    Fetched,
    Message,
    Replicas,
    SessionRow,
    StoreLimits,
    StreamLeases,
    StreamLog,
)
from mcp_hub.stores.faults import StoreFault, no_answer
from mcp_hub.stores.locks import Instances, new_instance_id
from mcp_hub.stores.memory import MemoryInbox, MemoryLog, MemorySessions
from mcp_hub.stores.recovery.memory_fallback import (
    BackedStore,
    Backing,
    MemoryFallback,
    OwnedStreams,
    read,
    write,
)
from mcp_hub.stores.recovery.recovery import Recovery
from mcp_hub.types import CallId

_AT_ONCE: Final = 64
"""Ended streams that return each time."""
_GOODBYE: Final = 0.5
"""Seconds for returning streams when the store closes."""
_NO_STORE: Final = 5.0
"""Seconds between two looks for orphans, which try the store, too."""
T = TypeVar("T")


class _Returns(Protocol):
    """Returns streams from memory to the store."""

    async def tend(self) -> None:
        """Retries a due store, and returns streams."""

    async def try_again(self) -> None:
        """Retries an unusable store."""

    async def return_all(self) -> None:
        """Returns streams until a failure."""

    def close(self) -> None:
        """Fails writes that still wait for the store."""


class StoreReads:
    """Reads from store and memory; from memory alone while the store is out of use.

    Then a shared store raises `StoreFault`: replicas may have more.
    """

    def __init__(self, backing: Backing, fallback: MemoryFallback, *, is_shared: bool = False) -> None:
        self._backing = backing
        self._fallback = fallback
        self._memory = MemoryLog(fallback.memory)
        self._is_shared = is_shared

    async def ask(self, question: Callable[[BackedStore], Awaitable[T]], otherwise: T) -> T:
        """The store's answer, else `otherwise`. Raises `StoreFault` for a shared store."""
        if not self._is_shared:
            return await read(self._backing, question, otherwise)
        if self._backing.store is None:
            raise no_answer()
        try:
            return await question(self._backing.store)
        except StoreFault as fault:
            self._backing.failed_reading(fault)
            raise

    def sure(self, answer: T | None) -> T | None:
        """Raises `StoreFault` for None if a replica may have the answer."""
        if answer is None and not self._backing.is_settled:
            raise no_answer()
        return answer

    async def find(self, stream: CallId) -> StreamInfo | None:
        while True:
            was_in_memory = self._fallback.row(stream) is not None
            stored = await self.ask(lambda store: store.log.find(stream), None)
            row = self._fallback.row(stream)
            if row is not None:
                is_claimed = stored is not None and stored.epoch > row.epoch
                return stored if is_claimed else self._fallback.whole(row, stored)
            if not was_in_memory:
                return stored

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        row = self._fallback.memory.by_key(principal, key)
        if row is None or row.key != key:
            row = await self.ask(lambda store: store.log.find_key(principal, key), None) or row
        return row

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        stored: list[StreamInfo] = await self.ask(lambda store: store.log.rows(principal, limit), [])
        rows = {row.id: row for row in stored}
        for row in await self._memory.rows(principal, limit):
            rows[row.id] = self._fallback.whole(row, rows.get(row.id))
        return sorted(rows.values(), key=lambda row: -row.created)[: max(limit, 0)]


class _FileReturns:
    def __init__(self, backing: Backing, streams: OwnedStreams) -> None:
        self._backing = backing
        self._streams = streams

    async def tend(self) -> None:
        await self._backing.recover(self._streams.leave_all)
        await self.return_all()

    async def try_again(self) -> None:
        if not self._backing.is_fit:
            await self._backing.recover(self._streams.leave_all)
            await write(self._backing, lambda store: store.touch())

    async def return_all(self) -> None:
        fallback = self._streams.fallback
        for row in [row for row in fallback.returnable() if row.has_ended][:_AT_ONCE]:
            store = self._backing.store
            if store is None or not self._backing.is_fit:
                return
            if fallback.row(row.id) is not None:  # else somebody else has asked at the same time
                await self._return(store, row)

    def close(self) -> None:
        """Nothing waits."""

    async def _return(self, store: BackedStore, row: StreamInfo) -> None:
        returned = anyio.Event()
        self.start(store, row, (), lambda _: returned.set())
        await returned.wait()

    def start(self, store: BackedStore, row: StreamInfo, lines: tuple[bytes, ...], callback: Appended) -> None:
        fallback = self._streams.fallback

        def returned(error: StoreError | None) -> None:
            if error is None:
                self._streams.messages.extend(fallback.returned(row.id))
                self._streams.confirm(row)
            elif isinstance(error, StoreFault):
                self._backing.failed(error)
            else:
                fallback.refused(row.id)
            callback(error)

        missing = fallback.missing(row.id, lines)
        if fallback.is_known(row.id):
            change = Change(
                updated=row.updated,
                status=row.status,
                message=row.message,
                continuation=row.continuation,
                info=row.info,
                ttl=row.ttl,
                frees_key=row.key is None, is_firm=True,
            )  # fmt: skip
            store.log.append(row.id, row.epoch, missing, change, returned)
        else:
            store.log.create(row, missing, returned)


class _FileLog:
    is_settled = True

    def __init__(self, backing: Backing, streams: OwnedStreams, returns: _FileReturns, reads: StoreReads) -> None:
        self.instance = streams.fallback.memory.instance
        self._backing = backing
        self._streams = streams
        self._fallback = streams.fallback
        self._returns = returns
        self._reads = reads

    @property
    def is_durable(self) -> bool:
        return self._backing.is_fit

    def survives(self, stream: CallId) -> bool:
        return self._fallback.row(stream) is None

    def is_held(self, stream: CallId) -> bool:
        return True

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        self._streams.create(row, chunk, callback)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        row = self._fallback.row(stream)
        store = self._backing.for_writing() if row is None or self._fallback.can_return(stream) else None
        if row is None or store is None:
            self._streams.append(store, stream, epoch, chunk, change, callback)
            return
        try:
            base.refuse(stream, row, epoch, chunk)
            base.joined(chunk)
        except StoreError as error:
            callback(error)
            return

        def returned(error: StoreError | None) -> None:
            callback(None if error is None else self._fallback.memory.append(stream, epoch, chunk, change))

        self._returns.start(store, base.changed(row, chunk, change), chunk.lines, returned)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        store, fallback = self._backing.store, self._fallback
        if store is None or (fallback.row(stream) is not None and not fallback.is_before(stream, after)):
            callback(fallback.memory.page(stream, after, limit))
            return

        def fetched(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._backing.failed_reading(page)
            if fallback.row(stream) is None:
                callback(page)
            elif isinstance(page, EventPage) and (page := fallback.joined(page)).lines:
                callback(page)
            else:
                callback(fallback.memory.page(stream, after, limit))

        store.log.fetch(stream, after, limit, fetched)

    async def find(self, stream: CallId) -> StreamInfo | None:
        return await self._reads.find(stream)

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        row = await self._reads.find_key(principal, key)
        return None if row is None else await self.find(row.id)

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        return await self._reads.rows(principal, limit)


class _FailsafeInbox:
    def __init__(self, backing: Backing, streams: OwnedStreams, returns: _Returns) -> None:
        self._backing, self._streams, self._returns = backing, streams, returns
        self._memory = MemoryInbox(streams.fallback.memory)

    async def take(self) -> list[Message]:
        streams = self._streams
        streams.messages.extend(await self._memory.take())
        streams.hear(await read(self._backing, lambda store: store.inbox.take(), []))
        messages = list(streams.messages)
        streams.messages.clear()
        return messages

    async def post(self, message: Message) -> bool:
        """Raises `StoreError` if the store fails and the owner may be another process."""
        streams, store = self._streams, self._backing.store
        if streams.fallback.row(message.stream) is not None:
            return await self._memory.post(message)
        try:
            return store is not None and await store.inbox.post(message)
        except StoreFault as fault:
            self._backing.failed_reading(fault)
            if message.stream not in streams.confirmed or len(streams.messages) >= MAX_MESSAGES:
                raise
        streams.messages.append(message)
        return True

    async def has_news(self) -> bool:
        await self._returns.tend()
        return await read(self._backing, lambda store: store.inbox.has_news(), False)

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        store = self._backing.store
        return () if store is None else store.inbox.moved(followed)

    async def wait(self, seconds: float, longest: float = 0.0) -> None:
        store = self._backing.store
        longest = longest if self._backing.is_fit and not self._streams.fallback.returnable() else 0.0
        await (anyio.sleep(seconds) if store is None else store.inbox.wait(seconds, longest))


class _FailsafeLeases:
    def __init__(self, backing: Backing, streams: OwnedStreams, returns: _Returns) -> None:
        self._backing = backing
        self._streams = streams
        self._returns = returns

    @property
    def interval(self) -> float:
        store = self._backing.store
        return _NO_STORE if store is None else store.leases.interval

    async def orphans(self) -> list[StreamInfo]:
        await self._returns.try_again()
        return await read(self._backing, lambda store: store.leases.orphans(), [])

    async def is_orphan(self, row: StreamInfo) -> bool:
        return await read(self._backing, lambda store: store.leases.is_orphan(row), False)

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """None also if the store fails."""
        store = self._backing.for_writing()
        try:
            claimed = None if store is None else await store.leases.claim(row, lines, change)
        except StoreFault as fault:
            self._backing.failed(fault)
            return None
        if claimed is not None:
            self._streams.confirm(claimed, tuple(lines))
        return claimed


class FailsafeSessions:
    """The `SessionRows` of store and `memory`."""

    def __init__(self, backing: Backing, reads: StoreReads, memory: MemorySessions) -> None:
        self._backing = backing
        self._reads = reads
        self.memory = memory

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        older = before if await self.memory.find(session.id) is None else None
        written = await write(self._backing, lambda store: store.sessions.put(session, older))
        if not written:
            return await self.memory.put(session)
        await self.memory.drop(session.id)
        return written[0]

    async def find(self, id_: str) -> SessionRow | None:
        session = await self.memory.find(id_)
        return self._reads.sure(session or await self._reads.ask(lambda store: store.sessions.find(id_), None))

    async def drop(self, id_: str) -> None:
        await self.memory.drop(id_)
        await read(self._backing, lambda store: store.sessions.drop(id_), None)


class FailsafeStore:
    """An `EventStore` that works without the store behind it."""

    def __init__(
        self,
        backing: Backing,
        log: StreamLog,
        sessions: FailsafeSessions,
        streams: OwnedStreams,
        *,
        returns: _Returns,
        leases: StreamLeases | None = None, replicas: Replicas | None = None,
    ) -> None:  # fmt: skip
        self.replicas = replicas
        self.log = log
        self.inbox = _FailsafeInbox(backing, streams, returns)
        self.leases = leases or _FailsafeLeases(backing, streams, returns)
        self.sessions = sessions
        self.backing = backing
        self._streams, self._returns = streams.fallback.memory, returns

    async def open(self) -> None:
        await self.backing.open()
        await self._returns.tend()

    async def close(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True):
            await self._returns.return_all()
        self._returns.close()
        await self.backing.close()

    async def sweep(self, now: float) -> int:
        await self._returns.tend()
        self.sessions.memory.sweep(now)
        return self._streams.sweep(now) + await read(self.backing, lambda store: store.sweep(now), 0)


def failsafe_on_file(folder: Path, limits: StoreLimits, clock: Clock) -> FailsafeStore:
    """The store over `<folder>/streams.db`."""
    instances = Instances(folder, new_instance_id())
    backing = Recovery(folder, limits, clock, instances)
    streams = OwnedStreams(backing, MemoryFallback(limits, instances.id))
    returns, reads = _FileReturns(backing, streams), StoreReads(backing, streams.fallback)
    log = _FileLog(backing, streams, returns, reads)
    sessions = FailsafeSessions(backing, reads, MemorySessions(limits.sessions))
    return FailsafeStore(backing, log, sessions, streams, returns=returns)
