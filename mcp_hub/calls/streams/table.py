"""Durable streams of this process's calls, and followed ones of other processes."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from sys import intern
from typing import Final
from weakref import WeakValueDictionary

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, StreamInfo
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading.stored import exported_name, own_name
from mcp_hub.calls.reading.stream import Stream, StreamReader, interrupt
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.owners import (
    GoOn,
    Inbox,
    Takeover,
    answering,
    cancelling,
    lost_call,
    may_move,
    pass_answer,
    read_on,
    reason_in,
    touching,
    until_heard,
    until_stored,
)
from mcp_hub.calls.streams.writer import StreamWriter
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import Busy, Fenced, HubError, HubStopping, KeyTaken, RpcError, StoreError, UnknownStream
from mcp_hub.events import Completed, failed_by
from mcp_hub.logs import get_logger
from mcp_hub.protocol.shape.stream_events import LAST_MOMENT, start_data
from mcp_hub.stores.base import NO_ANSWER, EventStore, Message, StreamLog
from mcp_hub.types import CallId, RawJson

log = get_logger(__name__)

_NEWS: Final = 0.05  # seconds between looks for other processes' news
_TOUCH: Final = 5.0
_SWEEP: Final = 60.0
"""Seconds between messages to owners of followed streams, and between sweeps."""
_IDLE: Final = 0.5  # while idle, and between looks at waits
BEGUN: Final = 25.0
_AWAY: Final = 60.0  # seconds for the store to confirm a beginning, and for readers of other replicas' streams


def _is_left(writer: StreamWriter) -> bool:
    return failed_by(writer.record.stopping, HubStopping) and writer.record.survives


class _ForeignStreams:
    """Streams of other processes that are followed here, one object for all readers."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._streams: WeakValueDictionary[CallId, Stream] = WeakValueDictionary()
        self._used: float | None = None  # when the store was in use last, or at the first look

    @property
    def followed(self) -> list[Stream]:
        streams, instance = self._streams.values(), self._log.instance
        return [stream for stream in streams if stream.readers and may_move(stream.row, instance)]

    def add(self, stream: Stream) -> None:
        self._streams[stream.row.id] = stream

    def shared(self, row: StreamInfo) -> Stream:
        """The stream as of `row`; a new one for one that has failed."""
        stream = self._streams.get(row.id)
        if stream is None or stream.failed is not None:
            stream = self._streams[row.id] = Stream(row, self._log)
        else:
            stream.committed(row)
        return stream

    def settled(self, row: StreamInfo) -> None:
        if (stream := self._streams.get(row.id)) is not None:
            stream.committed(row)

    def look(self, time: float, *, is_away: bool) -> None:
        """Ends reads that have waited too long for the store."""
        if not is_away or self._used is None:
            self._used = time
        elif time >= self._used + _AWAY:
            for stream in self.followed:
                interrupt(stream)

    async def refresh(self, stream: Stream, problems: list[HubError]) -> None:
        """Reads what is new; a failure is one more of the `problems`."""
        try:
            row = await (self._log.find(stream.row.id) if stream.behind else read_on(stream))
        except HubError as problem:
            problems.append(problem)
            return
        if row is None:
            stream.fail(UnknownStream())
        elif (row.epoch, row.last, row.status) != (stream.row.epoch, stream.row.last, stream.row.status):
            stream.committed(row)


class StreamTable:
    """The table. `go_on` continues a lost hub's call; without it the stream ends."""

    def __init__(self, store: EventStore, clock: Clock, limits: StreamLimits, go_on: GoOn | None = None) -> None:
        self.store = store
        self.clock = clock
        self.limits = limits
        self._owned: dict[CallId, StreamWriter] = {}
        self._foreign = _ForeignStreams(store.log)
        self._takeover = Takeover(store, go_on, self._foreign.settled, self._deliver)
        self.inbox = Inbox(store.inbox)
        self._detached: Counter[str] = Counter()
        self._idle: anyio.Event | None = None
        self._running: anyio.CancelScope | None = None

    # -- streams of this process ----------------------------------------------------------------------------------
    def owned(self, id_: CallId) -> StreamWriter | None:
        return self._owned.get(id_)

    def begin(self, record: CallRecord, *, key: str | None = None, digest: str = "") -> StreamWriter:
        """Makes a call durable. Idempotent."""
        call = record.call
        if (writer := self._owned.get(call.id)) is not None:
            return writer
        if record.stream is not None:
            return StreamWriter(record, record.stream, self, is_over=True)
        wall = wall_time()
        row = StreamInfo(
            id=call.id,
            principal=call.principal,
            owner=self.store.log.instance,
            server=call.upstream,
            method=call.method,
            name=intern(exported_name(call)),
            created=wall,
            updated=wall,
            session=call.session,
            ttl=self.limits.retention,
            info=None if record.plan.info is None else record.plan.info(call),
            key=key,
            digest=f"{digest} {record.plan.digest}".strip(),
        )
        arguments = call.params.get("arguments", b"{}")
        deadline = wall + record.times.limits.total - (self.clock.now() - record.times.started)
        until = deadline if deadline < LAST_MOMENT else None
        start = start_data(call.upstream, own_name(call), row.name, arguments, 1, until)
        writer = StreamWriter(record, Stream(row, self.store.log), self, start)
        self._owned[call.id] = writer
        record.has_stream(writer.stream, writer)
        return writer

    def take_up(self, record: CallRecord, row: StreamInfo) -> StreamWriter:
        """Continues a claimed stream with the events of `record`."""
        if (before := self._owned.get(row.id)) is not None:  # it has not heard that another hub had the call meanwhile
            before.fail(Fenced(f"stream {row.id}: was lost, and claimed anew"))
        stream = self._shared(row)  # readers that followed it at another hub continue
        writer = StreamWriter(record, stream, self)
        self._owned[row.id] = writer
        self._detached[row.principal] += 1
        writer.absence.detach()
        record.has_stream(writer.stream, writer)
        return writer

    def running(self, principal: str, *, key: str | None = None, digest: str = "") -> StreamWriter | None:
        """The principal's call with this key, else this digest."""
        rows = ((writer, writer.stream.row) for writer in self._owned.values())
        mine = ((writer, row) for writer, row in rows if row.principal == principal)
        return next((writer for writer, row in mine if (row.digest == digest if key is None else row.key == key)), None)

    def detach(self, record: CallRecord, *, key: str | None = None, digest: str = "") -> StreamWriter:
        """Lets the call continue without its client. Raises `Busy`.

        A new call with a `key` is sent once the key is stored, unless another hub was first.
        """
        principal = record.call.principal
        writer = self._owned.get(record.call.id)
        if writer is not None and writer.is_detached:
            return writer
        if self._detached[principal] >= self.limits.detached:
            limit = self.limits.detached
            raise Busy.at(f"{limit} calls run without a client already", "hub.limits.detached_calls", limit)
        writer = self.begin(record, key=key, digest=digest)
        if writer.is_over:
            return writer
        writer.absence.detach()
        self._detached[principal] += 1
        if key is not None:
            record.wrap(partial(self._after_commit, writer))
        return writer

    def _after_commit(self, writer: StreamWriter, handler: CallHandler) -> CallHandler:
        async def run(call: Call, channel: CallChannel) -> Completed:
            await writer.settled()
            if writer.error is not None:
                raise RpcError(f"the call was not sent: {writer.error}")
            return await handler(call, channel)

        return run

    def written(self, writer: StreamWriter) -> None:
        """Removes the writer of an ended or lost stream."""
        call = writer.record.call
        self._owned.pop(call.id, None)
        if self._idle is not None and not self._owned:
            self._idle.set()
        if writer.is_detached:
            self._detached[call.principal] -= 1
            if not self._detached[call.principal]:
                del self._detached[call.principal]
        if isinstance(writer.error, Fenced):
            self.inbox.pass_on(call.id, writer.record.stopping)
            writer.record.cancel(error=lost_call(call.upstream))
        elif isinstance(writer.error, KeyTaken):
            writer.record.cancel("its stream belongs to another hub now")
        if writer.error is None or isinstance(writer.error, Fenced):  # with any other it continues without being kept
            self._foreign.add(writer.stream)  # readers need no second one

    # -- streams of anybody ---------------------------------------------------------------------------------------
    async def open(self, principal: str, id_: str, after: int | None = None) -> Stream:
        """A stream, to be read behind event `after`. Raises `UnknownStream`, `StoreError`."""
        writer = self._owned.get(CallId(id_))
        if writer is not None:
            if writer.stream.row.principal != principal:
                raise UnknownStream
            if not self.store.log.is_held(writer.stream.row.id) or writer.is_overdue(self.clock.now()):
                raise StoreError(NO_ANSWER)
            with anyio.move_on_after(BEGUN) as waiting:
                await writer.settled()
            if writer.error is None and waiting.cancelled_caught:
                raise StoreError(NO_ANSWER)
            if writer.error is None:
                await writer.stream.refresh(after)
                return writer.stream
        row = await self._row(principal, id_)
        if not row.has_ended and (self._takeover.is_at(row.id) or await self.store.leases.is_orphan(row)):
            await self._takeover.take_over(row)
            row = await self._row(principal, id_)
        if not row.has_ended and row.owner != self.store.log.instance:
            await self._touch(row.id)  # a client that asks after a call wants it to continue
        return self._shared(row)

    async def _row(self, principal: str, id_: str) -> StreamInfo:
        row = await self.store.log.find(CallId(id_)) if id_.isascii() else None
        if row is None or row.principal != principal:
            raise UnknownStream
        return row

    def _shared(self, row: StreamInfo) -> Stream:
        writer = self._owned.get(row.id)
        return self._foreign.shared(row) if writer is None else writer.stream

    def follow(self, stream: Stream, wake: Callable[[], None], after: int) -> StreamReader:
        """A client's reader. Raises `EventsGone`, `InvalidParams`, `Busy`, `StoreError`."""
        reader = stream.follow(wake, after, self.limits.followers)
        writer = self._owned.get(stream.row.id)
        if writer is not None:
            writer.absence.end()
            writer.wake()  # what it has not looked at yet is read now
        else:
            self.store.inbox.moved([stream.row for stream in self._foreign.followed])  # which watches it from now on
        return reader

    async def cancel(self, principal: str, id_: str, reason: str) -> StreamInfo:
        """Cancels any process's call. Raises `UnknownStream`, `StoreError`."""
        row = (await self.open(principal, id_)).row
        writer = self._owned.get(row.id)
        if writer is not None and not _is_left(writer):
            writer.cancel(reason)
            if writer.record.resumption is not None:
                await until_stored(writer)  # a hub that continues the call knows it, too
        if (writer is None or _is_left(writer) or isinstance(writer.error, Fenced)) and not row.has_ended:
            await self.store.inbox.post(cancelling(row.id, reason))
        return row

    async def answer(self, principal: str, id_: str, key: str, outcome: RawJson | RpcError) -> StreamInfo:
        """Answers any process's question. Raises `UnknownStream`, `StoreError`."""
        row = (await self.open(principal, id_)).row
        writer = self._owned.get(row.id)
        if writer is not None:
            writer.record.questions.answer(key, outcome)
            if self.store.replicas is not None:
                await until_stored(writer)  # who asks another hub next must not see the question
        elif not row.has_ended and await self.store.inbox.post(answering(row.id, key, outcome)):
            await until_heard(self.store.log, row)
        return row

    # -- other processes ------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Follows other processes, takes over lost streams, sweeps expired ones; until `close`."""
        next_orphans = next_touch = next_waits = self.clock.now()
        next_sweep, problem = next_orphans + _SWEEP, ""
        with anyio.CancelScope() as self._running:
            while True:
                now = self.clock.now()
                try:
                    if now >= next_touch:
                        next_touch = now + _TOUCH
                        for stream in self._foreign.followed:
                            await self._touch(stream.row.id)  # what somebody reads continues
                    if now >= next_orphans:
                        next_orphans = now + self.store.leases.interval
                        await self._inherit()
                    if now >= next_sweep:
                        next_sweep = now + _SWEEP
                        await self.store.sweep(wall_time())
                    await self._look()
                    problem = ""
                except Exception as error:  # a record that nobody expected ends no replica
                    is_known = isinstance(error, HubError)
                    reason = str(error) if is_known else ascii(repr(error))
                    if reason != problem:
                        (log.warning if is_known else log.exception)("store_unreadable", reason=reason)
                    problem = reason
                if (time := self.clock.now()) >= next_waits:
                    next_waits = time + _IDLE
                    self._end_waits(time)
                is_asked = (self._foreign.followed or self._owned) and self.store.replicas is None  # they ring
                await self.store.inbox.wait(_NEWS if is_asked else _IDLE, _IDLE)

    async def _look(self) -> None:
        followed = self._foreign.followed
        self.store.inbox.moved([stream.row for stream in followed])  # which watches them
        if not (followed or self._owned or self.inbox.is_needed):
            return
        if not await self.inbox.has_news():
            return
        await self._deliver()
        problems: list[HubError] = []
        followed = self._foreign.followed  # also those since it was asked for news
        moved = self.store.inbox.moved([stream.row for stream in followed])
        async with anyio.create_task_group() as tasks:  # a store on a server answers them together
            for stream in followed:
                if stream.row.id in moved:
                    tasks.start_soon(self._foreign.refresh, stream, problems)
        if problems:
            raise problems[0]
        self.inbox.settle()

    async def _deliver(self) -> None:
        for message in await self.inbox.messages():
            if not self._take(message):
                self.inbox.send(message)
        await self.inbox.post()

    def _take(self, message: Message) -> bool:
        """Whether it was for this hub; a cancel of a left call is for the next owner."""
        writer = self._owned.get(message.stream)
        if writer is None and self._takeover.is_at(message.stream):
            if message.kind != "lost":  # which was about the owner before
                self.inbox.put_back(message)  # its call is about to be continued
            return True
        if writer is None or _is_left(writer):
            return self.inbox.note(message)
        match message.kind:
            case "cancel":
                writer.cancel(reason_in(message))
            case "lost":
                writer.fail(Fenced(f"stream {message.stream}: another hub has claimed it"))
            case "touch":
                writer.absence.touch(self.clock.now(), 2 * _TOUCH)  # a hub that reads sends the next one sooner
            case _:
                pass_answer(message, writer.record.questions.answer)
        return True

    async def _inherit(self) -> None:
        for row in await self.store.leases.orphans():
            try:
                await self._takeover.take_over(row)
            except HubError as error:
                log.warning("stream_not_inherited", stream=row.id, reason=str(error))

    async def _touch(self, id_: CallId) -> None:
        with suppress(StoreError):  # there are too many messages, or the file is locked: the next one may get through
            await self.store.inbox.post(touching(id_))

    def _end_waits(self, time: float) -> None:
        """Ends waits of calls for their clients, and of readers for the store."""
        for writer in list(self._owned.values()):
            writer.look(time)
        self._foreign.look(time, is_away=self.store.replicas is not None and not self.store.log.is_durable)

    async def close(self, seconds: float) -> None:
        """Waits at most `seconds` for writes, then closes the store."""
        if self._owned:
            self._idle = anyio.Event()
            with anyio.move_on_after(seconds, shield=True):
                await self._idle.wait()
        if self._running is not None:
            self._running.cancel()
        with anyio.CancelScope(shield=True):
            await self.store.close()
