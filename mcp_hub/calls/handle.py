"""A call for its client, and its early answers: a task, or the output so far."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from mcp_hub.aio import Timer, call_later, call_soon
from mcp_hub.call import Call, CallChannel, Early, EarlyOutput, Question, Reader, StoredEvent
from mcp_hub.calls.log import nobody
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.progress import Transcript, still_running
from mcp_hub.calls.reading.stream import StreamReader
from mcp_hub.calls.runner import CallRecord, moved_record, new_record
from mcp_hub.calls.streams.owners import answering, cancelling, lost_call, unconfirmed_call
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.calls.timeouts import end_of_wait
from mcp_hub.errors import Busy, RpcError, StoreError
from mcp_hub.events import (
    BY_CLIENT,
    CallEvent,
    Cancelled,
    Completed,
    Ending,
    Failed,
    InputRequired,
    cancelled_by_client,
    failed_by,
    is_by_client,
)
from mcp_hub.logs import get_logger
from mcp_hub.types import RawJson

log = get_logger(__name__)

_MOST: Final = 2000
"""Bytes of output shown, from its end."""
_LATEST: Final = 1024
"""Events looked at for the output."""
_EARLY: Final = 0.01
"""Seconds by which a timer may be early."""
_NO_LIMITS: Final = TimeLimits(0, 0)
PassOn = Callable[[str, RawJson | RpcError], None]
"""Takes the answer to a question, by its key."""


class _EarlyAnswer(ABC):
    """Calls `ready` after `after` seconds (a retry: from now), once the call is detached."""

    __slots__ = ("_ready", "_record", "_streams", "due")

    def __init__(
        self, record: CallRecord, streams: StreamPort, after: float, ready: Callable[[], None], *, is_retry: bool
    ) -> None:
        self._record = record
        self._streams = streams
        self._ready = ready
        now = record.times.clock.now()
        self.due = after + (now if is_retry else record.times.started)
        if self.due > now:
            record.times.set_alarm(self.due, self.ring)
        else:  # the registry would ring a moment later
            call_soon(self.ring)

    def ring(self) -> None:
        if self._ready is not nobody and not self._record.log.ended:
            self._detach()

    @abstractmethod
    def _detach(self) -> None:
        """Detaches the call, then calls `_ready`."""

    @abstractmethod
    def take(self) -> EarlyOutput:
        """The answer; the call continues without its client."""

    def close(self) -> None:
        self._record.times.drop_alarm(self.ring)
        self._ready = nobody


class _TaskAnswer(_EarlyAnswer):
    """A task, once its first event is stored."""

    __slots__ = ("_stream",)

    def _detach(self) -> None:
        try:
            self._stream = self._streams.detach(self._record)
        except Busy as busy:
            log.info("task_refused", call_id=self._record.call.id, reason=str(busy))
        else:
            self._stream.on_stored(self._notify)

    def _notify(self) -> None:
        self._ready()

    def take(self) -> EarlyOutput:
        self._streams.leave(self._record)
        return self._stream.info, 0, None


class _OutputSoFar(_EarlyAnswer):
    """Output and questions so far; `hub_calls` and `hub_cancel` serve the rest."""

    __slots__ = ("_reader", "_transcript")

    def __init__(
        self, record: CallRecord, streams: StreamPort, after: float, ready: Callable[[], None], *, is_retry: bool
    ) -> None:
        self._reader: StreamReader | None = None
        super().__init__(record, streams, after, ready, is_retry=is_retry)

    def _detach(self) -> None:
        stream = self._streams.table.begin(self._record).stream
        after = max(stream.row.last - _LATEST, stream.row.first - 1)
        self._transcript = Transcript(_MOST, is_cut=after > 0)
        self._reader = stream.reader(self._look, after)
        self._look()

    def _look(self) -> None:
        reader = self._reader
        if reader is None or reader.is_closed:  # it is just being made
            return
        for event in reader.take():
            self._transcript.add(event)
        if self._record.log.ended or reader.failed is not None:
            reader.close()
        elif 0 < reader.stream.row.last <= reader.cursor:
            reader.close()  # a follower would keep the call going
            try:
                self._streams.detach(self._record)
            except Busy as busy:
                log.info("soft_answer_refused", call_id=self._record.call.id, reason=str(busy))
            else:
                self._ready()

    def close(self) -> None:
        super().close()
        if self._reader is not None:
            self._reader.close()

    def take(self) -> EarlyOutput:
        assert self._reader is not None
        self._streams.leave(self._record)
        row, cursor = self._reader.stream.row, self._reader.cursor
        call, questions = self._record.call, self._record.questions.open.values()
        return row, cursor, still_running(row.id, cursor, self._transcript, "Output so far", call, questions)


class _ConfirmedReader:
    """Reads a call's log behind event `after`: a `call.Reader` without stored events.

    The ending of a call with a stream comes once the store has confirmed it, for another hub may have claimed the
    stream. If one has, the store refuses it, or the call's time is over before, an error with unknown outcome comes in
    its place, whose data has the server's `answer`.
    """

    __slots__ = ("_reader", "_record", "_timer", "_until", "_wake")
    is_stored = is_behind = False
    failed: None = None

    def __init__(self, record: CallRecord, wake: Callable[[], None], after: int) -> None:
        self._record = record
        self._wake = wake
        self._reader = record.log.reader(wake, after)
        self._timer: Timer | None = None
        self._until: float | None = None  # the end of the wait, once it has begun

    @property
    def cursor(self) -> int:
        return self._reader.cursor

    @property
    def has_more(self) -> bool:
        reader = self._reader
        return reader.has_more and (reader.unread > 1 or not self._record.log.ended or self._may_end())

    @property
    def at_end(self) -> bool:
        return self._reader.at_end

    def take(self, limit: int | None = None) -> list[CallEvent]:
        if self._record.log.ended and not self._may_end():
            unread = self._reader.unread - 1
            return self._reader.take(unread if limit is None else min(limit, unread)) if unread > 0 else []
        events = self._reader.take(limit)
        if events and isinstance(ending := events[-1], Ending):
            events[-1] = self._confirmed(ending)
        return events

    def take_entries(self, limit: int | None = None) -> Sequence[StoredEvent]:
        return ()

    def skip(self) -> int:
        return 0

    def close(self) -> None:
        self._wake = nobody
        self._reader.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _may_end(self) -> bool:
        writer, times = self._record.writer, self._record.times
        if writer is None or writer.is_committed(self._news):
            return True
        time = times.clock.now()
        if self._until is None:
            self._until = end_of_wait(times, time)
        remaining = self._until - time
        if remaining > _EARLY and self._timer is None:
            self._timer = call_later(remaining, self._ring)
        return remaining <= _EARLY

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _news(self) -> None:
        self._wake()

    def _confirmed(self, ending: Ending) -> Ending:
        record, stream = self._record, self._record.stream
        if stream is None or isinstance(ending, Cancelled) or failed_by(ending, "owner_lost"):
            return ending
        if stream.is_lost:
            return Failed(lost_call(record.call.upstream, ending))
        if record.writer is None and not isinstance(stream.failed, StoreError):
            return ending
        return Failed(unconfirmed_call(record.call.upstream, ending))


class CallHandle(msgspec.Struct, gc=False):
    """A call for its front; its client has seen events up to `after`.

    `record` and `streams` are for the hub alone.
    """

    call: Call
    record: CallRecord
    streams: StreamPort
    after: int = 0
    early: Early | None = None

    @property
    def open_questions(self) -> Mapping[str, Question]:
        """By key, oldest first; live."""
        return self.record.questions.open

    @property
    def seconds(self) -> float:
        return self.record.times.limits.total

    @property
    def has_ended(self) -> bool:
        return self.record.state == "ended" or self.record.log.ended

    @property
    def plain_result(self) -> Completed | None:
        """The result of an ended, otherwise silent call without stream."""
        return self.record.log.plain_result if self.record.stream is None else None

    @property
    def stored(self) -> int | None:
        """The last event; None: no durable stream, or one that other replicas cannot find."""
        stream = self.record.stream
        if stream is None or (self.streams.has_replicas and not self.streams.survives(self.call.id)):
            return None
        return stream.row.last

    def reader(self, wake: Callable[[], None], after: int = 0, moves: Callable[[Reader], None] | None = None) -> Reader:
        """Follows the call behind event `after`; `wake` is called (soon, often) for more.

        `moves` gets the durable stream's reader if that comes later.
        """
        record = self.record
        if moves is not None and record.stream is not None:
            return record.stream.reader(wake, after)
        if moves is None and self.streams.has_replicas:
            return _ConfirmedReader(record, wake, after)
        return record.log.reader(wake, after, moves)

    def watch(self, news: Callable[[], object] | None) -> None:
        self.record.log.watch(news)

    def early_answer(self, ready: Callable[[], None]) -> _EarlyAnswer | None:
        """Calls `ready` when the call may be answered early; None: never."""
        if self.early is None:
            return None
        kind = _TaskAnswer if self.early.is_task else _OutputSoFar
        return kind(self.record, self.streams, self.early.after, ready, is_retry=self.after > 0)

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        return self.record.questions.answer(key, outcome)

    def cancel(self, reason: str | None = None, *, is_clients: bool = False) -> bool:
        """Ends the call; True: it continues, as it may after its client's time-out.

        A client's cancellation reaches a call at another hub a moment later.
        """
        if is_elsewhere(self):
            if is_clients or is_by_client(reason):
                why = cancelled_by_client(reason) if is_clients else BY_CLIENT
                self.streams.table.inbox.send(cancelling(self.call.id, why))
            return False
        if is_clients:
            return self.streams.timed_out.give_up(self.record, reason)
        self.record.cancel(reason)
        return False

    async def begin_stream(self, key: str | None = None, digest: str = "") -> StreamHandle:
        """Makes a new call durable and detaches it; returns once stored, perhaps with another hub's stream of that key.

        Raises `Busy` (the call is gone), `KeyReused`, `StoreError`.
        """
        return await self.streams.begin(self.record, key, digest)

    def leave(self, back_within: float | None = None, *, is_final: bool = False) -> None:
        """The client is gone; the call may continue (`StreamPort.leave`)."""
        self.streams.leave(self.record, back_within, is_final=is_final)


class RemoteCall(CallHandle, gc=False):
    """A call that has ended or runs elsewhere, known up to event `last`.

    `pass_on` gets answers, perhaps too late.
    """

    pass_on: PassOn = lambda key, outcome: None
    last: int = 0

    def opened(self, question: InputRequired, seq: int) -> None:
        """Opens the question of a later event."""
        if seq > self.last:
            self.last = seq
            answered = partial(self.pass_on, question.key)
            self.record.questions.open[question.key] = Question(question.method, question.params, answered)

    def closed(self, key: str) -> None:
        """The question of a later event is open no more."""
        self.record.questions.open.pop(key, None)

    def leave(self, back_within: float | None = None, *, is_final: bool = False) -> None:
        """The hub that has the call counts the time without a client."""


def is_elsewhere(call: CallHandle) -> bool:
    """Whether another hub has the call, or this one again after a loss."""
    if isinstance(call, RemoteCall):
        return True
    stream = call.record.stream
    if stream is None or stream.failed is not None:
        return False
    return stream.is_lost or failed_by(call.record.stopping, "owner_lost")


def followed_elsewhere(call: CallHandle, pass_on: PassOn | None) -> RemoteCall:
    """A call lost here. Answers are sent a moment later, unless `pass_on` gets them."""
    pass_on = pass_on or _sending(call.call, call.streams)
    return RemoteCall(call.call, moved_record(call.record, _elsewhere), call.streams, pass_on=pass_on)


def is_known(call: CallHandle, wake: Callable[[], None], *, by_stream: bool) -> bool:
    """Whether replicas, and its stream's followers, can read all of it; if not, `wake` is called soon."""
    if is_elsewhere(call):
        return True
    streams = call.streams
    return not (streams.has_replicas or by_stream) or streams.table.begin(call.record).is_committed(wake)


def remote_call(call: Call, streams: StreamPort, keys: Iterable[str], pass_on: PassOn | None, last: int) -> RemoteCall:
    """A call elsewhere, with these open questions as of event `last`."""
    record, pass_on = new_record(call, _elsewhere, _NO_LIMITS, streams.table.clock), pass_on or _sending(call, streams)
    record.questions.open.update({key: Question("", b"{}", partial(pass_on, key)) for key in keys})
    return RemoteCall(call, record, streams, pass_on=pass_on, last=last)


def _sending(call: Call, streams: StreamPort) -> PassOn:
    return lambda key, outcome: streams.table.inbox.send(answering(call.id, key, outcome))


async def _elsewhere(call: Call, channel: CallChannel) -> Completed:
    raise NotImplementedError
