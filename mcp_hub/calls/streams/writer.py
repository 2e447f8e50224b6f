"""Writes the log of one running call to its durable stream.

Events pass these bounded stations:

    log → coalescer   8192 events or 1 MiB; the rest stays in the log
    → intake          due events, in final order
    → `_batch`        up to 4096 events, numbered and encoded; one append at a time
    → store, readers  after the store's confirmation

A slow store makes larger batches, not a queue. `_pump` moves events on, after `wake` or when merged progress is due;
`_appended` takes the store's answer.

Numbers continue the row's `last` without gaps: an illegal or unencodable event becomes a notice. Nothing is merged
while followers keep up or somebody waits for a commit. A changed resume point is written to the row.

If another hub can continue a stopping hub's call, the last batch (LAST) has no ending and the stream stays open. A
failed append ends the writer (OVER), not the call; after `Fenced` readers follow the new owner, else they fail.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

import anyio
import msgspec

from mcp_hub import aio
from mcp_hub.call import CallingClient, Reader, StreamInfo
from mcp_hub.calls import machine
from mcp_hub.calls.coalesce import LAG, Coalescer, next_events, slices
from mcp_hub.calls.metering import is_tool_error
from mcp_hub.calls.plan import ResumePoint
from mcp_hub.calls.reading.stored import UNWRITABLE, unwritable
from mcp_hub.calls.reading.stream import Committed, Stream, interrupt
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.timeouts import Absence, end_of_wait
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import Fenced, HubStopping, KeyTaken, StoreError
from mcp_hub.events import BY_SESSION, Attempt, CallEvent, Completed, Delta, Failed, Reset, Started
from mcp_hub.logs import get_logger
from mcp_hub.protocol.shape.stream_events import encoded, is_retryable, timestamp
from mcp_hub.stores.base import Change, Chunk, EventStore
from mcp_hub.types import RawJson, Status

log = get_logger(__name__)

_PAUSE: Final = 0.1
_FOLLOWED: Final = 0.02
"""Seconds between looks into logs without stream readers, and into those that another hub's client follows."""
_HURRY: Final = LAG // 4
"""Events after which a look is not delayed."""
_BEHIND: Final = 8192
"""Committed events that the fastest follower may lag before progress is merged."""
_MOST: Final = 4096
"""Events of one append; half of the followers' tail in memory."""
_STARTED: Final = 1  # a stream has its own first event
_GONE: Final = b""  # a cleared continuation; None would keep the row's


class _WriterState(Enum):
    """`NEW → APPENDING ⇄ IDLE`, then `LAST`, then `OVER`, which a failing store reaches from any state."""

    NEW = "new"
    """The stream is not stored yet."""
    IDLE = "idle"
    APPENDING = "appending"
    LAST = "last"
    """The last append is under way; another hub continues the call."""
    OVER = "over"


class _Batch(NamedTuple):
    events: Sequence[CallEvent]
    lines: Sequence[bytes]
    row: StreamInfo
    since: float


class _WriterOwner(Protocol):
    @property
    def store(self) -> EventStore: ...

    @property
    def clock(self) -> Clock: ...

    def written(self, writer: "StreamWriter") -> None:
        """The writer is over."""


class _Intake:
    """Events between the log and the next append: unread, merged, and taken in final order."""

    __slots__ = ("_coalescer", "_reader", "taken")

    def __init__(self, reader: Reader, taken: Sequence[CallEvent]) -> None:
        self._reader = reader
        self._coalescer: Coalescer | None = None  # most streams say nothing for long
        self.taken = taken

    def collect(self, at: float, *, is_eager: bool) -> None:
        """Reads the log; merges nothing if `is_eager`."""
        coalescer, reader = self._coalescer, self._reader
        if coalescer is None:
            if not reader.has_more:
                return
            coalescer = self._coalescer = Coalescer()
        if not self.taken and not coalescer.count:
            self.taken = next_events(reader, _MOST) if is_eager else coalescer.alone(reader, at)
        if reader.has_more or coalescer.count:
            coalescer.collect(slices(reader), at, is_eager=is_eager)

    @property
    def due(self) -> float | None:
        return None if self._coalescer is None else self._coalescer.due

    @property
    def has_more(self) -> bool:
        return bool(self.taken) or self._reader.has_more or self.due is not None

    def take(self, at: float) -> list[CallEvent]:
        """The events of the next append; a single one that was taken is joined by those that are due."""
        waiting = self.taken
        if self._coalescer is not None and len(waiting) <= 1 and self._coalescer.count:
            waiting = [*waiting, *self._coalescer.take(at)]
        self.taken = waiting[_MOST:] or ()
        return list(waiting[:_MOST])

    def close(self) -> None:
        self._reader.close()


class StreamWriter:
    """The owner's side of one stream.

    `start`: the first event's data; None: an existing stream continues. `is_over` from the start: all is written.
    """

    __slots__ = (
        "_batch", "_intake", "_owner", "_planned", "_resumption", "_start", "_state", "_status", "_timer", "_unread",
        "_waiters", "absence", "error", "is_kept", "record", "stream",
    )  # fmt: skip

    def __init__(
        self,
        record: CallRecord,
        stream: Stream,
        owner: _WriterOwner,
        start: RawJson | None = None,
        *,
        is_over: bool = False,
    ) -> None:
        self.record = record
        self.stream = stream
        self.error: StoreError | None = stream.failed if isinstance(stream.failed, StoreError) else None
        self.absence = Absence()
        self._owner = owner
        self._start = start
        self._state = _WriterState.OVER if is_over else _WriterState.NEW if start is not None else _WriterState.IDLE
        self._batch: _Batch | None = None
        self._resumption = None if start is not None else record.resumption  # as the row has it
        self._status: Status | None = None if start is not None else "working"
        self._planned: bool | None = True  # whether the next look is urgent; None: none is planned
        self._unread, self.is_kept = 0, start is None
        self._waiters: tuple[Callable[[], None], ...] = ()
        self._timer: aio.Timer | None = None
        if not is_over:
            stream.own()
            self._intake = _Intake(record.log.reader(self.wake, _STARTED), () if start is None else (Started(),))
            aio.call_soon(self._pump)

    @property
    def is_over(self) -> bool:
        return self._state is _WriterState.OVER

    async def settled(self) -> None:
        if self.error is None:
            await self.stream.begun()

    def orphan(self, seconds: float) -> None:
        """The call continues for so many seconds, unless followed."""
        self.absence.begin(self._owner.clock.now(), seconds)

    def cancel(self, reason: str) -> None:
        """Cancels the call, unless its session has ended and another waits for it."""
        if not (self.absence.is_joined and reason == BY_SESSION):
            self.record.cancel(reason)

    def look(self, time: float) -> None:
        """Ends waits: of the call for its client, of readers for the store."""
        if self.absence.until is not None and self.absence.is_over(time) and not self.stream.readers:
            self.absence.end()
            log.info("call_orphaned", call_id=self.record.call.id, upstream=self.record.call.upstream)
            self.record.cancel("its client did not come back")
        if self._batch is not None and self.is_overdue(time):
            interrupt(self.stream)

    def is_overdue(self, time: float) -> bool:
        """Whether a shared store has not confirmed events in the call's time."""
        batch = self._batch if self._owner.store.replicas is not None else None
        return batch is not None and time >= end_of_wait(self.record.times, batch.since)

    @property
    def _is_busy(self) -> bool:
        return self._state in (_WriterState.APPENDING, _WriterState.LAST)

    @property
    def is_detached(self) -> bool:
        return self.absence.is_detached

    # -- from the log to the coalescer

    async def committed(self) -> None:
        """Returns once present events are stored or cannot be; merges nothing meanwhile."""
        news = anyio.Event()
        while not self.is_committed(news.set):
            await news.wait()
            news = anyio.Event()

    def is_committed(self, wake: Callable[[], None]) -> bool:
        """Whether present events are stored or cannot be; if not, `wake` is called soon."""
        if self.is_over or not (self._is_busy or self._has_more):
            return True
        if wake not in self._waiters:
            self._waiters = (*self._waiters, wake)
        self.wake()
        return False

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, ()
        for wake in waiters:
            wake()

    def wake(self) -> None:
        is_urgent = bool(self.stream.readers or self._waiters) or self.record.log.ending is not None
        if self._planned is not None and self._planned >= is_urgent:
            self._unread += 1
            if self._unread >= _HURRY:
                self._collect(self._owner.clock.now())
            return
        self._planned = is_urgent
        if is_urgent:
            aio.call_soon(self._pump)
        else:
            is_followed = self._owner.clock.now() < self.absence.followed_until
            aio.call_together(_FOLLOWED if is_followed else _PAUSE, self._pump)

    def _pump(self) -> None:
        self._planned = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_over:
            return
        if self.stream.is_lost:  # a reader has seen that first
            self.fail(Fenced(f"stream {self.stream.row.id}: another hub has claimed it"))
            return
        now = self._owner.clock.now()
        self._collect(now)
        if not self._is_busy:
            self._flush(now)

    def _collect(self, now: float) -> None:
        self._unread = 0
        keeps_up = self.stream.behind <= _BEHIND or now < self.absence.followed_until
        self._intake.collect(now, is_eager=keeps_up or bool(self._waiters))

    # -- from the coalescer to the store

    def _flush(self, now: float) -> None:
        intake, is_news = self._intake, self._has_news
        due = now if is_news or intake.taken else intake.due
        if due is None:
            return
        if due > now:
            self._timer = aio.call_later(due - now, self._pump)
            return
        events = intake.take(now)
        leaves = bool(events) and self._may_leave(events[-1])
        if leaves:
            events.pop()
        if events or is_news:
            self._append(events, is_news=is_news, is_last=leaves)
        elif leaves:
            self._end()
        elif (later := intake.due) is not None:  # progress that may be replaced yet
            self._timer = aio.call_later(max(later - now, 0), self._pump)

    def _may_leave(self, last: CallEvent) -> bool:
        return isinstance(last, Failed) and isinstance(last.error, HubStopping) and self.record.survives

    def _append(self, events: list[CallEvent], *, is_news: bool, is_last: bool) -> None:
        is_new = self._state is _WriterState.NEW
        self._state = _WriterState.LAST if is_last else _WriterState.APPENDING
        wall = wall_time()
        before = self.stream.row
        lines, row = self._encoded(events, wall)
        continuation, is_firm = None, False
        if is_news:
            self._resumption = self.record.resumption
            continuation = _GONE if self._resumption is None else self._continuation(self._resumption)
            is_firm = self._resumption is not None and self._resumption.is_firm
            row = msgspec.structs.replace(row, continuation=continuation or None)
        frees_key = before.key is not None and bool(events) and _may_repeat(events[-1])
        if frees_key:
            row = msgspec.structs.replace(row, key=None)
        self._batch = _Batch(events, lines, row, self._owner.clock.now())
        chunk = Chunk(before.last + 1, tuple(lines))
        if is_new:
            self._start = None
            self._owner.store.log.create(row, chunk, self._appended)
        else:
            change = Change(wall, row.status, row.message, continuation, frees_key=frees_key, is_firm=is_firm)
            self._owner.store.log.append(row.id, row.epoch, chunk, change, self._appended)

    def _encoded(self, events: list[CallEvent], wall: float) -> tuple[list[bytes], StreamInfo]:
        """Lines, and the row after them; replaces unwritable `events`."""
        row, when, lines = self.stream.row, timestamp(wall), []
        for index, event in enumerate(events):
            seq = row.last + 1 + index
            if type(event) is Delta or type(event) is Reset or type(event) is Attempt:
                event = events[index] = self.stream.content.placed(event, seq)
            try:
                status = machine.advance(self._status, event)
                line = encoded(row.id, seq, when, event, self._start)
            except UNWRITABLE as problem:
                log.warning("event_unwritable", stream=row.id, kind=type(event).__name__, reason=ascii(str(problem)))
                event = events[index] = unwritable(event, problem)
                status = machine.advance(self._status, event)
                line = encoded(row.id, seq, when, event)
            self._status = status
            lines.append(line)
        assert self._status is not None
        message = self.stream.content.newest(events) or row.message
        reached = self._status
        is_tool = self.record.call.method == "tools/call"
        if is_tool and events and type(ending := events[-1]) is Completed and is_tool_error(ending.result):
            reached = "tool_error"
        end = row.last + len(events)
        return lines, msgspec.structs.replace(row, last=end, updated=wall, status=reached, message=message)

    def _continuation(self, by: ResumePoint) -> bytes:
        call = self.record.call
        client = None if call.client is None else CallingClient(call.client.name)
        call = msgspec.structs.replace(call, people=None, client=client)  # those are here
        return msgspec.json.encode({"call": call, "how": msgspec.Raw(bytes(by.state)), "revoked": by.revoked})

    def _appended(self, error: StoreError | None) -> None:
        batch, self._batch = self._batch, None
        if self.is_over or batch is None:
            return
        if error is not None:
            self.fail(error)
            return
        if self._resumption is not None and self._owner.store.log.survives(batch.row.id):
            self.is_kept = True
        is_last = self._state is _WriterState.LAST or batch.row.has_ended
        self._state = _WriterState.IDLE
        decoded = (batch.events,) if self.stream.readers else ()  # who comes later reads the line
        self.stream.committed(batch.row, [*map(Committed, batch.lines, *decoded)])
        if is_last:
            self._end()
        elif self._has_more:
            self.wake()
        self._notify()

    def fail(self, error: StoreError) -> None:
        """Nothing more is written; after `Fenced` another owner has the stream, perhaps this hub anew."""
        self.error = error
        if not isinstance(error, KeyTaken):  # another hub was sooner: nothing is lost
            log.error("stream_lost", stream=self.stream.row.id, reason=str(error))
        if isinstance(error, Fenced):
            self.stream.fenced(error)
        else:
            self.stream.fail(error)
        self._end()

    @property
    def _has_more(self) -> bool:
        return self._intake.has_more or self._has_news

    @property
    def _has_news(self) -> bool:
        return self.record.resumption is not self._resumption

    def _end(self) -> None:
        self._state = _WriterState.OVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.record.is_written()
        self._intake.close()
        self._notify()
        self._owner.written(self)


def _may_repeat(last: CallEvent) -> bool:
    return isinstance(last, Failed) and is_retryable(last.error)
