"""The store that replicas share, with memory behind its server.

The problem. A server that gives no answer may have done what it was asked for, or not. When it answers again it may
have lost the last seconds, or be another one that never had them. Meanwhile other replicas may have claimed streams.
Calls must not wait for it, and nobody may take for missing what is only out of reach.

Where a stream of this process is:

    confirmed    The server has all its events. `OwnedStreams.confirmed` has the row as long as the stream runs.
    in memory    The server has failed. The events behind the last one that it surely has are in `MemoryFallback`.
    returning    The server works again and is asked what it has of the stream. Appends wait for the outcome, in order.

    from         event                                               to
    confirmed    an append fails                                     in memory
    confirmed    the server has lost events (below)                  in memory, with the events of the last seconds
    in memory    the next append, or a look for news or orphans      returning
    returning    all is written                                      confirmed
    returning    the server fails again                              in memory
    returning    another replica has claimed the stream              forgotten here: later appends are `Fenced`
    returning    the server refuses for another reason               in memory, for as long as the stream is kept

The rules:

1. A return asks first (`_ServerReturns`): the answer to an append may have been lost, so the server may have more than
   this process believes. Only what is missing is written, behind what is there; a gap is an error.
2. A server confirms before its disk and its own replicas have the events. `RecentEvents` keeps those of the last
   seconds. They are written once more when the server was started again (`leave_all`), and when an append is `Fenced`
   although the server has the stream under this owner and epoch, and with fewer events (`_looked`).
3. What cannot be known is a fault and no absence. `find`, `find_key`, `rows` and sessions raise `StoreFault` while the
   server gives no answer; a missing row raises it until all replicas had the time to return theirs (`is_settled`).
4. A stream with an idempotency key begins on the server or not at all: another replica may have given the key away. If
   the answer is missing, the call was never sent. Such an `unconfirmed` stream is ended later, and its key is freed.
5. A page must not begin behind the cursor because the earlier events are on the server: memory answers only if it has
   the event behind the cursor.
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
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, Fetched, Replicas
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.memory import MemorySessions
from mcp_hub.stores.recovery.failsafe import FailsafeSessions, FailsafeStore, StoreReads
from mcp_hub.stores.recovery.memory_fallback import (
    BackedStore,
    Backing,
    MemoryFallback,
    OwnedStreams,
    RecentEvents,
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
    done: Appended


class _ServerBacking(Backing, Protocol):
    """A server over time: it can be asked at any time, and fails then."""

    @property
    def store(self) -> BackedStore: ...


class _ServerReturns:
    """`_Returns` to a server: it is asked what it has, and others wait for the events of streams that run."""

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
        """With each look for orphans: others wait for what is in memory, though nothing runs here any more."""
        await self.tend()

    async def return_all(self) -> None:
        """Returns what is in memory, until that fails."""
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
        """Whether the stream is returning; `proceed` is called afterwards then."""
        if stream not in self._waiting:
            return False
        self._waiting[stream].append(proceed)
        return True

    def start(self, store: BackedStore, row: StreamInfo, done: Appended) -> None:
        """Asks what the server has of a stream in memory, and writes what it lacks."""
        self._waiting[row.id] = []
        returned = partial(self._returned, row, done)

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

    def _returned(self, row: StreamInfo, done: Appended, error: StoreError | None) -> None:
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
        done(error)
        for proceed in waiting:
            proceed()


def _complete(store: BackedStore, stored: StreamInfo, row: StreamInfo, tail: Chunk, done: Appended) -> None:
    """Appends what the server lacks of `tail`, behind its row `stored`, so that the stream is as `row` says."""
    if stored.epoch != row.epoch or stored.owner != row.owner:
        done(Fenced(f"stream {row.id}: another hub has claimed it"))
    elif stored.last + 1 < tail.first:
        done(StoreError(f"stream {row.id}: the store has lost events that it had confirmed"))
    elif (stored.status, stored.last, stored.continuation) == (row.status, row.last, row.continuation):
        done(None)
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
        store.log.append(row.id, row.epoch, Chunk(stored.last + 1, missing), change, done)


class _ServerLog:
    """The `StreamLog` of a server with memory behind it."""

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

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """Fails for a stream with a key while the server is out of use (rule 4)."""
        if row.key is None:
            self._streams.create(row, chunk, done)
        elif not self._backing.is_fit:
            done(no_answer())
        else:
            self._backing.store.log.create(row, chunk, partial(self._created, row, chunk, done))

    def _created(self, row: StreamInfo, chunk: Chunk, done: Appended, error: StoreError | None) -> None:
        if error is None:
            self._streams.confirm(base.begin(row, chunk), chunk.lines)
        elif isinstance(error, StoreFault):
            self._backing.failed(error)
            self._returns.unconfirmed.append(row)
        done(error)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        if self._returns.wait(stream, partial(self.append, stream, epoch, chunk, change, done)):
            return
        append = _Append(stream=stream, epoch=epoch, chunk=chunk, change=change, done=done)
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
        """After a refusal the server is asked whether it has lost what it had confirmed (rule 2)."""
        stream, epoch, chunk, change, done = append
        fallen, row = self._fallback.row(stream), self._streams.confirmed.get(stream)
        if error is None and fallen is not None and fallen.last + 1 == chunk.first:  # it left meanwhile
            done(self._fallback.memory.append(stream, epoch, chunk, change))
        elif isinstance(error, Fenced) and row is not None:
            self._backing.store.log.fetch(stream, row.last, 1, partial(self._looked, append, row, error))
        else:
            done(error)

    def _looked(self, append: _Append, row: StreamInfo, error: Fenced, page: EventPage | StoreError | None) -> None:
        stored = page.row if isinstance(page, EventPage) else None
        is_same_owner = stored is None or (stored.epoch, stored.owner) == (row.epoch, row.owner)
        has_all = stored is not None and stored.last >= row.last
        if isinstance(page, StoreError) or not is_same_owner or has_all:
            append.done(error)
        else:
            self._streams.leave(append.stream)
            self.append(*append)

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        fallback = self._fallback

        def is_in_memory() -> bool:
            row = fallback.row(stream)
            return row is not None and after + 1 >= row.first

        def fetched(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._backing.failed_reading(page)
            if is_in_memory():  # it may have come there while the server was asked
                done(fallback.memory.page(stream, after, most))
            elif isinstance(page, EventPage):
                done(fallback.joined(page))
            else:
                done(no_answer() if page is None and not self._backing.is_settled else page)

        if is_in_memory():
            done(fallback.memory.page(stream, after, most))
        else:
            self._backing.store.log.fetch(stream, after, most, fetched)

    async def find(self, stream: CallId) -> StreamInfo | None:
        """Raises `StoreFault` (rule 3)."""
        try:
            row = await self._reads.find(stream)
        except StoreFault:
            row = self._row_in_memory(stream) or self._streams.confirmed.get(stream)
            if row is None:
                raise
        return self._reads.sure(row)

    def _row_in_memory(self, stream: CallId) -> StreamInfo | None:
        """The row as the server would have it: with the events there counted in."""
        row = self._fallback.row(stream)
        if row is None or not self._fallback.can_return(stream):
            return row
        return replace(row, first=self._fallback.begins.get(stream, row.first))

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        row = await self._reads.find_key(principal, key)
        return None if row is None else await self.find(row.id)

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        return await self._reads.rows(principal, most)


def failsafe_on_server(
    backing: _ServerBacking, limits: StoreLimits, instance: str, clock: Clock, *, replicas: Replicas
) -> FailsafeStore:
    """The store of the replica `instance`."""
    streams = OwnedStreams(backing, MemoryFallback(limits, instance), RecentEvents(clock))
    reads = StoreReads(backing, streams.fallback, is_shared=True)
    sessions = FailsafeSessions(backing, reads, MemorySessions(limits.sessions))
    returns = _ServerReturns(backing, streams, sessions)
    log = _ServerLog(backing, streams, returns, reads)
    return FailsafeStore(backing, log, sessions, streams, returns=returns, replicas=replicas)
