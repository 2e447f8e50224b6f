"""The store that replicas share, with memory behind its server.

Writes wait for a silent server (`writes`). Without an answer, reads raise `StoreFault`; for a missing row until
`is_settled`. Memory answers a read only if it has the event after the cursor.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import anyio
from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, Fetched, Replicas, StoreLimits, StreamLog
from mcp_hub.stores.faults import StoreFault, no_answer
from mcp_hub.stores.memory import MemorySessions
from mcp_hub.stores.recovery.failsafe import FailsafeSessions, FailsafeStore, StoreReads
from mcp_hub.stores.recovery.memory_fallback import BackedStore, Backing, MemoryFallback, OwnedStreams, read
from mcp_hub.stores.recovery.writes import ServerWrites, _Lease
from mcp_hub.types import CallId

_AT_ONCE: Final = 64
"""Streams that return together."""


class _ServerBacking(Backing, Protocol):
    @property
    def store(self) -> BackedStore: ...

    @property
    def lease(self) -> _Lease: ...


class _ServerReturns:
    def __init__(
        self, backing: _ServerBacking, streams: OwnedStreams, writes: ServerWrites, sessions: FailsafeSessions
    ) -> None:
        self._backing = backing
        self._streams = streams
        self._writes = writes
        self._sessions = sessions

    async def tend(self) -> None:
        self._writes.look()
        await self._backing.recover(self._streams.leave_all)
        await self.return_all()

    async def try_again(self) -> None:
        await self.tend()

    async def return_all(self) -> None:
        if self._backing.is_fit:
            self._writes.end_unconfirmed()
            for session in self._sessions.memory.rows:
                await self._sessions.put(session)
        streams = self._writes.returnable
        for at in range(0, len(streams), _AT_ONCE):
            if not self._backing.is_fit:
                return
            async with anyio.create_task_group() as tasks:
                for stream in streams[at : at + _AT_ONCE]:
                    tasks.start_soon(self._return, stream)

    async def _return(self, stream: CallId) -> None:
        returned = anyio.Event()
        self._writes.bring_back(stream, returned.set)
        await returned.wait()

    def close(self) -> None:
        self._writes.close()


class _ServerLog:
    def __init__(self, backing: _ServerBacking, streams: OwnedStreams, writes: ServerWrites, reads: StoreReads) -> None:
        self.instance = streams.fallback.memory.instance
        self._backing = backing
        self._streams = streams
        self._fallback = streams.fallback
        self._writes = writes
        self._reads = reads

    @property
    def is_durable(self) -> bool:
        return self._backing.is_fit

    @property
    def is_settled(self) -> bool:
        return self._backing.is_settled

    def survives(self, stream: CallId) -> bool:
        return self._fallback.row(stream) is None or self._fallback.is_known(stream)

    def is_held(self, stream: CallId) -> bool:
        return self._writes.is_held(stream)

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        self._writes.create(row, chunk, callback)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        self._writes.append(stream, epoch, chunk, change, callback)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        fallback = self._fallback

        def is_in_memory() -> bool:
            row = fallback.row(stream)
            return row is not None and after + 1 >= row.first

        def fetched(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._backing.failed_reading(page)
            row = fallback.row(stream)
            if row is not None and isinstance(page, EventPage) and page.row.epoch > row.epoch:
                callback(page)  # another replica has claimed it
            elif is_in_memory():  # it may have come there while the server was asked
                callback(fallback.memory.page(stream, after, limit))
            elif isinstance(page, EventPage):
                callback(fallback.joined(page))
            else:
                callback(no_answer() if page is None and not self._backing.is_settled else page)

        row = fallback.row(stream)
        has_all = row is not None and (after < row.last or not self._backing.is_fit)
        if has_all and is_in_memory():
            callback(fallback.memory.page(stream, after, limit))
        else:
            self._backing.store.log.fetch(stream, after, limit, fetched)

    async def find(self, stream: CallId) -> StreamInfo | None:
        try:
            row = await self._reads.find(stream)
        except StoreFault:
            row = self._row_in_memory(stream) or self._streams.confirmed.get(stream)
            if row is None:
                raise
        return self._reads.sure(row)

    def _row_in_memory(self, stream: CallId) -> StreamInfo | None:
        row = self._fallback.row(stream)
        if row is None or not self._fallback.can_return(stream):
            return row
        return replace(row, first=self._fallback.begins.get(stream, row.first))

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        row = await self._reads.find_key(principal, key)
        return None if row is None else await self.find(row.id)

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        hidden = self._writes.unconfirmed
        rows = await self._reads.rows(principal, limit + len(hidden))
        return [row for row in rows if row.id not in hidden][: max(limit, 0)]


class _ServerLeases:
    """Takeovers by this replica. After a claim without an answer the stream may be an orphan of its own."""

    def __init__(self, backing: _ServerBacking, streams: OwnedStreams, returns: _ServerReturns) -> None:
        self._backing = backing
        self._streams = streams
        self._returns = returns
        self._unanswered: set[CallId] = set()

    @property
    def interval(self) -> float:
        return self._backing.store.leases.interval

    async def orphans(self) -> list[StreamInfo]:
        await self._returns.try_again()
        rows: list[StreamInfo] = await read(self._backing, lambda store: store.leases.orphans(), [])
        for stream in sorted(self._unanswered):
            row = await read(self._backing, partial(_found, stream), None)
            if row is not None and self._is_own(row) and not row.has_ended:
                rows.append(row)
            elif self._backing.is_fit:
                self._unanswered.discard(stream)
        return rows

    def _is_own(self, row: StreamInfo) -> bool:
        is_claimed = row.id in self._unanswered and row.owner == self._streams.fallback.memory.instance
        return is_claimed and row.id not in self._streams.confirmed and self._streams.fallback.row(row.id) is None

    async def is_orphan(self, row: StreamInfo) -> bool:
        return self._is_own(row) or await read(self._backing, lambda store: store.leases.is_orphan(row), False)

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """None also if the server fails."""
        if (store := self._backing.for_writing()) is None:
            return None
        try:
            if self._is_own(row):
                chunk = Chunk(row.last + 1, tuple(lines))
                await _appended(store.log, row, chunk, change)
                claimed: StreamInfo | None = base.changed(row, chunk, change)
            else:
                claimed = await store.leases.claim(row, lines, change)
        except StoreFault as fault:
            self._unanswered.add(row.id)
            self._backing.failed(fault)
            return None
        self._unanswered.discard(row.id)
        if claimed is not None:
            self._streams.confirm(claimed, tuple(lines))
        return claimed


async def _found(stream: CallId, store: BackedStore) -> StreamInfo | None:
    return await store.log.find(stream)


async def _appended(log: StreamLog, row: StreamInfo, chunk: Chunk, change: Change) -> None:
    """Raises `StoreError`."""
    errors: list[StoreError | None] = []
    answered = anyio.Event()

    def settle(error: StoreError | None) -> None:
        errors.append(error)
        answered.set()

    log.append(row.id, row.epoch, chunk, change, settle)
    await answered.wait()
    if errors[0] is not None:
        raise errors[0]


def failsafe_on_server(
    backing: _ServerBacking, limits: StoreLimits, instance: str, clock: Clock, *, replicas: Replicas
) -> FailsafeStore:
    """The store of the replica `instance`."""
    streams = OwnedStreams(backing, MemoryFallback(limits, instance), clock)
    reads = StoreReads(backing, streams.fallback, is_shared=True)
    writes = ServerWrites(backing, backing.store, backing.lease, streams)
    sessions = FailsafeSessions(backing, reads, MemorySessions(limits.sessions))
    returns = _ServerReturns(backing, streams, writes, sessions)
    log, leases = _ServerLog(backing, streams, writes, reads), _ServerLeases(backing, streams, returns)
    return FailsafeStore(backing, log, sessions, streams, returns=returns, leases=leases, replicas=replicas)
