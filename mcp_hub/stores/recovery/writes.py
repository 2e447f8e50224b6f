"""Writes to the store that replicas share. They wait while its server does not answer.

A server that does not answer may have acted or not. It may return without its last seconds, or as another server, and
another replica may have claimed a stream meanwhile. So no event leaves before the server has confirmed it:

    confirmed    the server has all events
    waiting      a write was not answered, or the stream has to be checked; its next write waits
    alone        it began while the server was out of use: only memory has it
    returning    the server is asked what it has; writes wait

    from         event                                                to
    confirmed    a write fails                                        waiting
    confirmed    the server has lost events, or a lease was over      waiting, with recent events
    waiting      the server is in use                                 returning
    alone        the server is in use                                 returning
    returning    all is written                                       confirmed
    returning    the server fails                                     waiting
    returning    another replica has claimed the stream               forgotten: the write is `Fenced`
    returning    another refusal                                      alone, until it expires

1. A return writes only what the server lacks. If memory lacks some of it, too, the stream begins anew behind the gap.
2. Recent events are written again after the server restarts, and when it fences an append although it has this owner
   and epoch with fewer events.
3. A stream with a key begins on the server only. Without an answer it is ended later: its call was not sent.
4. Streams from before a lease are held again once they have returned.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.clock import wall_time
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, StreamLog
from mcp_hub.stores.faults import StoreFault, no_answer, not_sent
from mcp_hub.stores.recovery.memory_fallback import BackedStore, Backing, MemoryFallback, OwnedStreams
from mcp_hub.types import CallId


class _Append(NamedTuple):
    stream: CallId
    epoch: int
    chunk: Chunk
    change: Change
    callback: Appended

    def is_in(self, stored: StreamInfo, row: StreamInfo) -> bool:
        """Whether the server has it behind `row` already: only its answer was lost."""
        return bool(self.chunk.lines) and stored.last == self.chunk.last > row.last


class _Begin(NamedTuple):
    callback: Appended


_Write = _Append | _Begin
_ATTEMPTS: Final = 3
"""Looks at what the server has of one stream."""


class _Lease(Protocol):
    @property
    def is_held(self) -> bool:
        """Whether it holds now."""

    @property
    def held_from(self) -> float:
        """When it began, by any clock; infinity before the first one."""


class ServerWrites:
    """Writes of this replica's streams."""

    def __init__(self, backing: Backing, store: BackedStore, lease: _Lease, streams: OwnedStreams) -> None:
        self._backing = backing
        self._store = store
        self._lease = lease
        self._streams = streams
        self._waiting: dict[CallId, _Write] = {}
        """One of each stream: the next begins when it is confirmed."""
        self._returning: set[CallId] = set()
        self._doubtful: set[CallId] = set()
        """Streams from before the lease, which another replica may have claimed."""
        self._checked = lease.held_from
        self._alone: set[CallId] = set()
        """Streams that the server was never asked to keep."""
        self._unconfirmed: list[tuple[StreamInfo, Chunk]] = []
        """Streams that still have to be ended, and their last events."""

    @property
    def _fallback(self) -> MemoryFallback:
        return self._streams.fallback

    def is_held(self, stream: CallId) -> bool:
        """Whether no other replica can have claimed the stream."""
        if self._is_alone(stream):
            return True
        is_checked = self._checked == self._lease.held_from and stream not in self._doubtful
        return is_checked and self._lease.is_held

    def _is_alone(self, stream: CallId) -> bool:
        """Whether the stream is in memory, and no other replica can know of it or take it from here."""
        is_in_memory = self._fallback.row(stream) is not None
        return is_in_memory and (stream in self._alone or not self._fallback.can_return(stream))

    def look(self) -> None:
        """Makes streams from before a lease wait for a check."""
        if self._lease.held_from != self._checked:
            self._checked = self._lease.held_from
            self._streams.leave_all()
            self._doubtful = {row.id for row in self._fallback.returnable()} - self._alone

    def close(self) -> None:
        """Fails the writes that wait."""
        waiting, self._waiting = self._waiting, {}
        for write in waiting.values():
            write.callback(no_answer())

    # -- the first write

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        """Fails with a key while the server is out of use (rule 3)."""
        if self._backing.is_fit:
            self._store.log.create(row, chunk, partial(self._created, row, chunk, callback))
        elif row.key is not None:
            callback(no_answer())
        else:
            self._alone.add(row.id)
            callback(self._fallback.create(row, chunk))

    def _created(self, row: StreamInfo, chunk: Chunk, callback: Appended, error: StoreError | None) -> None:
        if error is None:
            self._streams.confirm(base.begin(row, chunk), chunk.lines)
        elif isinstance(error, StoreFault):
            self._backing.failed(error)
            if row.key is not None:
                self._unconfirmed.append((row, Chunk(row.last + 1, (not_sent(row, wall_time()),))))
            elif (refusal := self._fallback.create(row, chunk)) is None:
                self._wait(row.id, _Begin(callback))
                return
            else:
                error = refusal
        callback(error)

    @property
    def unconfirmed(self) -> frozenset[CallId]:
        """Streams whose beginning waits; shown to nobody."""
        return frozenset(stream for stream, write in self._waiting.items() if isinstance(write, _Begin))

    def end_unconfirmed(self) -> None:
        """Ends streams whose beginning had no answer: another replica may have shown them."""
        streams, self._unconfirmed = self._unconfirmed, []
        for row, last in streams:
            change = Change(row.updated, "failed", ttl=None if last.lines else 0.0, frees_key=True)
            self._store.log.append(row.id, row.epoch, last, change, partial(self._unended, row, last))

    def _unended(self, row: StreamInfo, last: Chunk, error: StoreError | None) -> None:
        if isinstance(error, StoreFault):
            self._unconfirmed.append((row, last))

    # -- further ones

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        """An append of `StreamLog`, which the server confirms unless the stream is alone."""
        write = _Append(stream=stream, epoch=epoch, chunk=chunk, change=change, callback=callback)
        row, confirmed = self._fallback.row(stream), self._streams.confirmed.get(stream)
        if confirmed is not None and confirmed.epoch != epoch:  # perhaps that of another hub, which a reader has seen
            callback(Fenced(f"stream {stream}: epoch {epoch} is not this hub's, which is {confirmed.epoch}"))
            return
        if row is None and self._backing.is_fit:
            self._store.log.append(stream, epoch, chunk, change, partial(self._appended, write))
        elif stream in self._returning:
            self._wait(stream, write)
        elif self._backing.is_fit and self._fallback.can_return(stream):
            self._wait(stream, write)
            self.bring_back(stream)
        elif self._is_alone(stream):
            callback(self._fallback.memory.append(stream, epoch, chunk, change))
        else:
            self._wait(stream, write)

    def _wait(self, stream: CallId, write: _Write) -> None:
        self._streams.leave(stream)
        if self._fallback.row(stream) is None:  # nothing is known of it that could be brought back
            write.callback(no_answer())
            return
        self._alone.discard(stream)
        self._waiting[stream] = write

    def _appended(self, append: _Append, error: StoreError | None) -> None:
        """Checks a refusal for lost events (rule 2)."""
        stream, epoch, chunk, change, callback = append
        fallen, row = self._fallback.row(stream), self._streams.confirmed.get(stream)
        if isinstance(error, StoreFault):
            self._backing.failed(error)
        if isinstance(error, StoreFault) or (fallen is not None and (error is None or isinstance(error, Fenced))):
            self._wait(stream, append)  # if it has left meanwhile, its return will tell
        elif error is None and row is not None:
            self._streams.confirm(base.changed(row, chunk, change), chunk.lines)
            callback(None)
        elif isinstance(error, Fenced) and row is not None:
            self._store.log.fetch(stream, row.last, 1, partial(self._looked, append, row, error))
        else:
            if error is not None and row is not None:  # and will be: nobody shall wait for its end
                self._streams.forget(stream)
                self._unconfirmed.append((row, Chunk(row.last + 1, ())))
            callback(error)

    def _looked(self, append: _Append, row: StreamInfo, error: Fenced, page: EventPage | StoreError | None) -> None:
        stored = page.row if isinstance(page, EventPage) else None
        if self._fallback.row(append.stream) is not None:
            self._wait(append.stream, append)
            return
        if stored is not None and _is_same(stored, row) and append.is_in(stored, row):  # by an earlier try
            self._streams.confirm(base.changed(row, append.chunk, append.change), append.chunk.lines)
            append.callback(None)
            return
        is_same_owner = stored is None or _is_same(stored, row)
        has_all = stored is not None and stored.last >= row.last
        if isinstance(page, StoreFault):
            self._backing.failed(page)
            self._wait(append.stream, append)
        elif isinstance(page, StoreError) or not is_same_owner or has_all:
            self._streams.forget(append.stream)  # memory must not answer for it
            append.callback(error)
        else:
            self._streams.leave(append.stream)
            self.append(*append)

    # -- returning

    @property
    def returnable(self) -> list[CallId]:
        """Streams in memory that the server may get."""
        rows = [row.id for row in self._fallback.returnable()]
        self._alone.intersection_update(rows)
        for stream in [stream for stream in self._waiting if self._fallback.row(stream) is None]:
            self._drop(stream)
        return [id_ for id_ in rows if id_ not in self._returning]

    def bring_back(self, stream: CallId, ready: Callable[[], None] = lambda: None, attempts: int = _ATTEMPTS) -> None:
        """Asks the server what it has of a stream in memory, and writes the rest; then the write that waits.

        If that is refused it asks again: a request that was given up may have arrived meanwhile.
        """
        row = self._fallback.row(stream)
        if row is None or stream in self._returning:
            ready()
            return
        self._returning.add(stream)
        self._alone.discard(stream)

        def returned(error: StoreError | None) -> None:
            if error is None or isinstance(error, StoreFault) or attempts <= 1:
                self._returned(row, ready, error)
            else:
                self._returning.discard(stream)
                self.bring_back(stream, ready, attempts - 1)

        self._store.log.fetch(stream, row.last, 1, partial(self._complete, row, ready, returned))

    def _complete(
        self, row: StreamInfo, ready: Callable[[], None], returned: Appended, page: EventPage | StoreError | None
    ) -> None:
        """Writes what the server's `page` lacks."""
        if self._fallback.row(row.id) is None:  # memory was full, or it has expired
            self._returning.discard(row.id)
            self._drop(row.id)
            ready()
            return
        missing, write = self._fallback.missing(row.id, ()), self._waiting.get(row.id)
        log, touches = self._store.log, row.id in self._doubtful
        if isinstance(page, StoreError):
            returned(page)
        elif page is None:
            log.create(row, missing, partial(self._created_again, row, missing, returned))
        elif isinstance(write, _Append) and write.is_in(page.row, row) and _is_same(page.row, row):
            was_written = partial(self._was_written, row, write, ready)
            if touches and not page.row.has_ended:
                _touch(log, page.row, was_written)
            else:
                was_written(None)
        else:
            _complete(log, page.row, row, missing, returned, touches=touches)

    def _drop(self, stream: CallId) -> None:
        if (write := self._waiting.pop(stream, None)) is not None:
            write.callback(no_answer())

    def _created_again(self, row: StreamInfo, missing: Chunk, returned: Appended, error: StoreError | None) -> None:
        if isinstance(error, KeyTaken):
            self._store.log.create(replace(row, key=None), missing, returned)
        else:
            returned(error)

    def _returned(self, row: StreamInfo, ready: Callable[[], None], error: StoreError | None) -> None:
        if isinstance(error, StoreFault):
            self._returning.discard(row.id)
            self._backing.failed(error)
            ready()
            return
        if error is None:
            self._confirm(row)
        elif isinstance(error, Fenced):
            self._fallback.returned(row.id)
        else:
            self._fallback.refused(row.id)
        write = self._leave_memory(row.id)
        if isinstance(write, _Begin) or (write is not None and isinstance(error, Fenced)):
            write.callback(error)
        elif write is not None:
            self.append(*write)
        ready()

    def _confirm(self, row: StreamInfo) -> None:
        lines = self._fallback.memory.lines(row.id)
        self._streams.messages.extend(self._fallback.returned(row.id))
        self._streams.confirm(row, lines)

    def _leave_memory(self, stream: CallId) -> _Write | None:
        self._returning.discard(stream)
        self._doubtful.discard(stream)
        return self._waiting.pop(stream, None)

    def _was_written(
        self, row: StreamInfo, write: _Append, ready: Callable[[], None], error: StoreError | None
    ) -> None:
        """The server has the waiting append, of which the answer alone was lost; if it is held, without an `error`."""
        if error is not None:
            self._returned(row, ready, error)
            return
        self._confirm(row)
        self._leave_memory(row.id)
        self._streams.confirm(base.changed(row, write.chunk, write.change), write.chunk.lines)
        write.callback(None)
        ready()


def _is_same(stored: StreamInfo, row: StreamInfo) -> bool:
    return stored.epoch == row.epoch


def _later(row: StreamInfo) -> float:
    """A time unlike the row's, whatever the clock says."""
    return max(wall_time(), math.nextafter(row.updated, math.inf))


def _touch(log: StreamLog, row: StreamInfo, callback: Appended) -> None:
    """Writes only the time, so that no claim under way succeeds."""
    log.append(row.id, row.epoch, Chunk(row.last + 1, ()), Change(_later(row)), callback)


def _complete(
    log: StreamLog, stored: StreamInfo, row: StreamInfo, tail: Chunk, callback: Appended, *, touches: bool
) -> None:
    """Writes what the server lacks; something in any case if that `touches`, so that no claim under way succeeds."""
    is_whole = (stored.status, stored.last, stored.continuation) == (row.status, row.last, row.continuation)
    if not _is_same(stored, row):
        callback(Fenced(f"stream {row.id}: another hub has claimed it"))
    elif stored.last > row.last:  # by an append that is under way
        callback(None)
    elif is_whole and (row.has_ended or not touches):
        callback(None)
    else:
        has_gap = stored.last + 1 < tail.first
        missing = tail if has_gap else Chunk(stored.last + 1, tail.lines[stored.last + 1 - tail.first :])
        continuation = row.continuation if row.continuation is not None else b""
        change = Change(
            updated=_later(stored) if touches else row.updated,
            status=row.status,
            message=row.message,
            continuation=continuation,
            info=row.info,
            ttl=row.ttl,
            frees_key=row.key is None,
            first=tail.first if has_gap else None,
            is_firm=True,
        )
        log.append(row.id, row.epoch, missing, change, callback)
