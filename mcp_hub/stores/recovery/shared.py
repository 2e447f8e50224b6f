"""The store that replicas share, with memory behind its server.

A server that does not answer may have acted or not. It may return without its last seconds, or as another server.

    confirmed    the server has all events
    in memory    later events are in `MemoryFallback`
    returning    the server is asked what it has; appends wait

    from         event                                    to
    confirmed    an append fails                          in memory
    confirmed    the server has lost events               in memory, with recent events
    in memory    next append, search for news, orphans    returning
    returning    all is written                           confirmed
    returning    the server fails                         in memory
    returning    another replica has claimed the stream   forgotten: appends are `Fenced`
    returning    another refusal                          in memory until it expires

1. A return writes only what the server lacks; a gap is an error.
2. Recent events are written again after the server restarts, and when it fences an append although it has this owner
   and epoch with fewer events.
3. Without an answer, reads raise `StoreFault`; for a missing row until `is_settled`.
4. A stream with a key begins on the server only. Without an answer it is ended later.
5. Memory answers a read only if it has the event after the cursor.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import anyio
from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, Fetched, Replicas, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.memory import MemorySessions
from mcp_hub.stores.recovery.failsafe import FailsafeSessions, FailsafeStore, StoreReads
from mcp_hub.stores.recovery.memory_fallback import (
    BackedStore,
    Backing,
    MemoryFallback,
    OwnedStreams,
    no_answer,
)
from mcp_hub.types import CallId

_AT_ONCE: Final = 64
"""Streams that return each time."""


class _Append(NamedTuple):
    stream: CallId
    epoch: int
    chunk: Chunk
    change: Change
    callback: Appended


class _ServerBacking(Backing, Protocol):
    @property
    def store(self) -> BackedStore: ...


class _ServerReturns:
    def __init__(self, backing: _ServerBacking, streams: OwnedStreams, sessions: FailsafeSessions) -> None:
        self._backing = backing
        self._streams = streams
        self._fallback = streams.fallback
        self._sessions = sessions
        self._waiting: dict[CallId, list[Callable[[], None]]] = {}
        """Streams that are returning, with the appends that wait for that."""
        self.unconfirmed: list[StreamInfo] = []
        """Streams that the server may have made without saying so."""

    async def tend(self) -> None:
        await self._backing.recover(self._streams.leave_all)
        await self.return_all()

    async def try_again(self) -> None:
        await self.tend()

    async def return_all(self) -> None:
        if self._backing.is_fit:
            self._end_unconfirmed()
            for session in self._sessions.memory.rows:
                await self._sessions.put(session)
        for row in self._fallback.returnable()[:_AT_ONCE]:
            if not self._backing.is_fit:
                return
            if self._fallback.row(row.id) is not None and row.id not in self._waiting:
                await self._return(row)

    def _end_unconfirmed(self) -> None:
        rows, self.unconfirmed = self.unconfirmed, []
        for row in rows:
            change = Change(row.updated, "failed", ttl=0.0, frees_key=True)
            self._backing.store.log.append(row.id, row.epoch, Chunk(row.last + 1, ()), change, lambda _: None)

    async def _return(self, row: StreamInfo) -> None:
        returned = anyio.Event()
        self.start(self._backing.store, row, lambda _: returned.set())
        await returned.wait()

    def wait(self, stream: CallId, proceed: Callable[[], None]) -> bool:
        if stream not in self._waiting:
            return False
        self._waiting[stream].append(proceed)
        return True

    def start(self, store: BackedStore, row: StreamInfo, callback: Appended) -> None:
        self._waiting[row.id] = []
        returned = partial(self._returned, row, callback)

        def looked(page: EventPage | StoreError | None) -> None:
            missing = self._fallback.missing(row.id, ())
            if isinstance(page, EventPage):
                _complete(store, page.row, row, missing, returned)
            elif page is None:
                store.log.create(row, missing, partial(created, missing))
            else:
                returned(page)

        def created(missing: Chunk, error: StoreError | None) -> None:
            if isinstance(error, KeyTaken):
                store.log.create(replace(row, key=None), missing, returned)
            else:
                returned(error)

        store.log.fetch(row.id, row.last, 1, looked)

    def _returned(self, row: StreamInfo, callback: Appended, error: StoreError | None) -> None:
        if error is None:
            lines = self._fallback.memory.lines(row.id)
            self._streams.messages.extend(self._fallback.returned(row.id))
            self._streams.confirm(row, lines)
        elif isinstance(error, StoreFault):
            self._backing.failed(error)
        elif isinstance(error, Fenced):
            self._fallback.returned(row.id)
        else:
            self._fallback.refused(row.id)
        waiting = self._waiting.pop(row.id)
        callback(error)
        for proceed in waiting:
            proceed()


def _complete(store: BackedStore, stored: StreamInfo, row: StreamInfo, tail: Chunk, callback: Appended) -> None:
    if stored.epoch != row.epoch or stored.owner != row.owner:
        callback(Fenced(f"stream {row.id}: another hub has claimed it"))
    elif stored.last + 1 < tail.first:
        callback(StoreError(f"stream {row.id}: the store has lost events that it had confirmed"))
    elif (stored.status, stored.last, stored.continuation) == (row.status, row.last, row.continuation):
        callback(None)
    else:
        missing = tail.lines[stored.last + 1 - tail.first :]
        continuation = row.continuation if row.continuation is not None else b""
        change = Change(
            updated=row.updated,
            status=row.status,
            message=row.message,
            continuation=continuation,
            info=row.info,
            ttl=row.ttl,
            frees_key=row.key is None,
        )
        store.log.append(row.id, row.epoch, Chunk(stored.last + 1, missing), change, callback)


class _ServerLog:
    def __init__(
        self, backing: _ServerBacking, streams: OwnedStreams, returns: _ServerReturns, reads: StoreReads
    ) -> None:
        self.instance = streams.fallback.memory.instance
        self._backing = backing
        self._streams = streams
        self._fallback = streams.fallback
        self._returns = returns
        self._reads = reads

    @property
    def is_durable(self) -> bool:
        return self._backing.is_fit

    @property
    def is_settled(self) -> bool:
        return self._backing.is_settled

    def survives(self, stream: CallId) -> bool:
        return self._fallback.row(stream) is None

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        """Fails with a key while the server is out of use (rule 4)."""
        if row.key is None:
            self._streams.create(row, chunk, callback)
        elif not self._backing.is_fit:
            callback(no_answer())
        else:
            self._backing.store.log.create(row, chunk, partial(self._created, row, chunk, callback))

    def _created(self, row: StreamInfo, chunk: Chunk, callback: Appended, error: StoreError | None) -> None:
        if error is None:
            self._streams.confirm(base.begin(row, chunk), chunk.lines)
        elif isinstance(error, StoreFault):
            self._backing.failed(error)
            self._returns.unconfirmed.append(row)
        callback(error)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        if self._returns.wait(stream, partial(self.append, stream, epoch, chunk, change, callback)):
            return
        append = _Append(stream=stream, epoch=epoch, chunk=chunk, change=change, callback=callback)
        row = self._fallback.row(stream)
        store = self._backing.for_writing() if row is None or self._fallback.can_return(stream) else None
        if row is None or store is None:
            self._streams.append(store, stream, epoch, chunk, change, partial(self._appended, append))
        else:
            self._returns.start(store, row, partial(self._append_after_return, append))

    def _append_after_return(self, append: _Append, error: StoreError | None) -> None:
        stream, epoch, chunk, change, _ = append
        if error is None:
            self.append(stream, epoch, chunk, change, partial(self._appended, append))
        elif isinstance(error, Fenced):
            self._appended(append, error)
        else:
            self._appended(append, self._fallback.memory.append(stream, epoch, chunk, change))

    def _appended(self, append: _Append, error: StoreError | None) -> None:
        """Checks a refusal for lost events (rule 2)."""
        stream, epoch, chunk, change, callback = append
        fallen, row = self._fallback.row(stream), self._streams.confirmed.get(stream)
        if error is None and fallen is not None and fallen.last + 1 == chunk.first:  # it left meanwhile
            callback(self._fallback.memory.append(stream, epoch, chunk, change))
        elif isinstance(error, Fenced) and row is not None:
            self._backing.store.log.fetch(stream, row.last, 1, partial(self._looked, append, row, error))
        else:
            callback(error)

    def _looked(self, append: _Append, row: StreamInfo, error: Fenced, page: EventPage | StoreError | None) -> None:
        stored = page.row if isinstance(page, EventPage) else None
        is_same_owner = stored is None or (stored.epoch, stored.owner) == (row.epoch, row.owner)
        has_all = stored is not None and stored.last >= row.last
        if isinstance(page, StoreError) or not is_same_owner or has_all:
            append.callback(error)
        else:
            self._streams.leave(append.stream)
            self.append(*append)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        fallback = self._fallback

        def is_in_memory() -> bool:
            row = fallback.row(stream)
            return row is not None and after + 1 >= row.first

        def fetched(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._backing.failed_reading(page)
            if is_in_memory():  # it may have come there while the server was asked
                callback(fallback.memory.page(stream, after, limit))
            elif isinstance(page, EventPage):
                callback(fallback.joined(page))
            else:
                callback(no_answer() if page is None and not self._backing.is_settled else page)

        if is_in_memory():
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
        return await self._reads.rows(principal, limit)


def failsafe_on_server(
    backing: _ServerBacking, limits: StoreLimits, instance: str, clock: Clock, *, replicas: Replicas
) -> FailsafeStore:
    """The store of the replica `instance`."""
    streams = OwnedStreams(backing, MemoryFallback(limits, instance), clock)
    reads = StoreReads(backing, streams.fallback, is_shared=True)
    sessions = FailsafeSessions(backing, reads, MemorySessions(limits.sessions))
    returns = _ServerReturns(backing, streams, sessions)
    log = _ServerLog(backing, streams, returns, reads)
    return FailsafeStore(backing, log, sessions, streams, returns=returns, replicas=replicas)
