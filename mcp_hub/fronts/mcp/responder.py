"""What a client gets of its call: events pulled from the log, shaped for its era, in order, the answer last.

A token that was not given gets no progress; a level that was not asked for gets no log message (protocol.md §3).
"""

import math
from collections.abc import Callable

import msgspec

from mcp_hub.aio import Timer, call_later, call_soon
from mcp_hub.calls.log import Reader, nobody
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.stream import Stream, StreamReader
from mcp_hub.errors import CallCancelled, EventsGone, MethodNotFound, RpcError
from mcp_hub.events import (
    BY_CLIENT,
    CallEvent,
    Cancelled,
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
)
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.early_answer import EarlyAnswer
from mcp_hub.fronts.mcp.partials import Partials
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort
from mcp_hub.protocol import eras, extensions, questions
from mcp_hub.protocol.jsonrpc.envelope import error_frame, result_frame
from mcp_hub.protocol.rpc_errors import URL_ELICITATION_REQUIRED, for_caller, url_elicitations
from mcp_hub.protocol.shape import results
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

__all__ = ["CallResponder", "level_admits"]

_SOON = 1.0
"""Seconds: what takes the place of a result sooner has its time from the start, else from when the call lasts."""
_EARLY = 0.01
"""Seconds that count as none: timers may ring a little early, and the next turn would come late."""
_STARTED = 1
"""The first event of every log, which says nothing to a client: most calls are over with the next one."""


class CallResponder:
    """Follows one call for one request, from the event behind `after` on.

    `answer` is set when the call has ended (a cancelled one has none), or when a modern client must gather input
    first: then the call is `parked`. Where `instead` took the place of the result the call is `detached`: it goes on,
    as it does when it `is_lost` to a client that has to name another place.
    `asking` reaches a handshake client; without it nothing can be asked. `by_cursor` if each message is sent with its
    place: then, as for a client of the hub's extension, the call's durable stream is followed from the moment that it
    has one. A client that comes back reads that again from where it was (`follow`): the same messages, without
    questions that are settled.
    """

    __slots__ = (
        "_asked", "_asking", "_by_cursor", "_hub", "_is_back", "_is_due", "_last_words", "_partials", "_reader",
        "_session", "_skipped", "_substitute", "_timer", "_wake", "answer", "detached", "ended", "error_code", "id",
        "is_lost", "parked", "record", "token",
    )  # fmt: skip

    def __init__(
        self,
        hub: HubPort,
        id_: bytes,
        session: Session,
        record: CallRecord,
        token: bytes | None,
        wake: Callable[[], None],
        asking: ClientRequests | None = None,
        after: int = 0,
        *,
        by_cursor: bool = False,
        instead: EarlyAnswer | None = None,
    ) -> None:
        self.id = id_
        self.record = record
        self.token = token
        self.answer: bytes | None = None
        self.error_code: int | None = None
        self.parked = False
        self._hub = hub
        self._session = session
        self._asking = asking
        self._asked: dict[str, bytes | None] = {}
        self._last_words: list[bytes] | None = None
        self.ended = False
        self.detached = False
        self.is_lost = False
        self._partials: Partials | None = None
        if token is not None and extensions.declares(session.capabilities, session.era, extensions.STREAMS):
            self._partials = Partials(token, record.call.id)
        self._by_cursor = by_cursor
        self._is_back = False  # on another connection than that of its request
        self._skipped = 0  # events that are gone, of which the client does not know yet
        self._wake = wake
        self._reader: Reader | StreamReader
        if not by_cursor and self._partials is None:
            self._reader = record.log.reader(wake, after or _STARTED)
        elif record.stream is not None:
            self._reader = record.stream.reader(wake, after or _STARTED)
        else:
            self._reader = record.log.reader(wake, after or _STARTED)
            record.on_stream = self._has_stream
        self._substitute = instead
        self._is_due = False
        self._timer: Timer | None = None
        if instead is not None:
            if instead.after < _SOON or record.stream is not None:
                self._timer = call_later(instead.after, self._prepare)
            else:  # most calls are over before it is worth a timer
                record.on_stream = self._has_stream

    @property
    def has_more(self) -> bool:
        reader = self._reader
        if reader.has_more or self._is_due or reader.failed is not None:
            return True
        return bool(self.record.open_questions) and self._must_ask

    @property
    def is_behind(self) -> bool:
        """Whether there is something that is still being fetched."""
        reader = self._reader
        return isinstance(reader, StreamReader) and reader.cursor < reader.stream.row.last

    @property
    def cursor(self) -> int:
        """The number of the last event that was taken."""
        return self._reader.cursor

    def follow(self, wake: Callable[[], None], reader: StreamReader) -> None:
        """For another connection of the client, which takes what `reader` has; the one before has been closed."""
        self._reader.close()
        self._wake, self._reader = wake, reader
        self._by_cursor = self._is_back = True
        self.is_lost = False
        self.answer = self.error_code = None
        self.ended = reader.at_end

    def expect(self, instead: EarlyAnswer) -> None:
        """Of a call that has lasted: answers with `instead` when it has run long enough, counted from its start."""
        self._substitute = instead
        self._arm(instead)

    def _has_stream(self, stream: Stream) -> None:
        """The call has become a durable stream, before it said anything: that is followed in place of its log.

        So it lasts, and something may have to take the place of its result.
        """
        if self._by_cursor or self._partials is not None:
            after = self._reader.cursor
            self._reader.close()
            self._reader = stream.reader(self._wake, after)
        if self._substitute is not None and self._timer is None and not self.ended:
            self._arm(self._substitute)

    def _arm(self, instead: EarlyAnswer) -> None:
        record = self.record
        record.timer = self._look
        record.reschedule(record.started + instead.after)

    def _look(self, now: float) -> float:
        """Whether the call has lasted too long for its client; when it will have."""
        due = math.inf if self._substitute is None else self.record.started + self._substitute.after
        if now < due - _EARLY:
            return due
        self.record.timer = None
        call_soon(self._prepare)
        return math.inf

    def take(self) -> list[bytes]:
        """The next messages for the client; sets `answer` when the ending was among the events."""
        return [frame for _, frame in self.numbered()]

    def numbered(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """The same of at most that many events, each with the number of its event; 0 for one that is of none."""
        reader = self._reader
        seq = reader.cursor
        frames: list[tuple[int, bytes]] = []
        if self._partials is not None and isinstance(reader, StreamReader):
            frames = self._partial_frames(self._partials, reader, most)
        else:
            for event in reader.take(most):
                seq += 1
                frame = self._frame(seq, event)
                if frame is not None:
                    frames.append((seq, frame))
        if self.ended and (self._asked or self._last_words):
            frames += [(0, frame) for frame in self.withdrawn()]
        if reader.failed is not None and not self.ended:
            self._lost(reader)
        elif self._is_due and not (self.ended or reader.has_more):
            self._detach()
        elif self.record.open_questions and self._must_ask:
            self._park()
        return frames

    def _partial_frames(self, partials: Partials, reader: StreamReader, most: int | None) -> list[tuple[int, bytes]]:
        """Every event for a client of the extension; log messages, questions and the like in their usual form, too.

        Only the last of an event's messages has its number: who has that has them all.
        """
        seq = reader.cursor
        frames: list[tuple[int, bytes]] = []
        for entry in reader.take_entries(most):
            seq += 1
            event = entry.read
            usual = self._frame(seq, event) if not isinstance(event, Progressed) else None
            partial = partials.frame(seq, entry.line, event)
            if partial is not None:
                frames.append((seq if usual is None else 0, partial))
            if usual is not None:
                frames.append((seq, usual))
        return frames

    def _lost(self, reader: Reader | StreamReader) -> None:
        """The next events cannot be had. What was let go is skipped, and counted with the next progress.

        Who has come back for an exact suffix is sent to where it is told that there is none.
        """
        if isinstance(reader, StreamReader) and isinstance(reader.failed, EventsGone):
            if not self._is_back:
                reader.close()
                self._skipped += reader.failed.earliest - 1 - reader.cursor
                self._reader = reader.stream.reader(self._wake, reader.failed.earliest - 1)
                return
            self.is_lost = True
        else:
            self._fail(RpcError(f"the call's events cannot be read any more: {reader.failed}"))
        self.ended = True

    def _prepare(self) -> None:
        if self._substitute is not None and not self.ended:
            self._substitute.prepare(self._prepared)

    def _prepared(self) -> None:
        self._is_due = True
        self._wake()

    def _detach(self) -> None:
        """Answers with what stands in for the result; the call goes on."""
        assert self._substitute is not None
        self._is_due = False
        self.answer = result_frame(self.id, self._substitute.answer())
        self.detached = self.ended = True

    @property
    def _must_ask(self) -> bool:
        """Whether the client has to gather input before anything else can come, now that questions are open."""
        is_waiting = not (self.ended or self._reader.has_more)
        return is_waiting and self._session.era is Era.MODERN

    def withdrawn(self) -> list[bytes]:
        """The notifications that what the client is still asked for this call is off."""
        if self._last_words is None:
            self._last_words = [frame for key in self._asked if (frame := self._withdraw(key)) is not None]
        return self._last_words

    def pause(self) -> None:
        """Stops following until `follow`; what is to stand in for the result still comes in its time. Idempotent."""
        self.record.on_stream = None
        self._reader.close()

    def close(self) -> None:
        """Stops following for good. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        if self.record.timer == self._look:
            self.record.timer = None
        self._substitute = None
        self._is_due = False
        self.pause()
        self._wake = nobody

    def _frame(self, seq: int, event: CallEvent) -> bytes | None:
        """The message that an event is to this client, if any; `seq` is its number."""
        match event:
            case Completed():
                self.ended = True
                self._complete(event)
            case Progressed():
                return self._progress(event) if self.token is not None else None
            case Log():
                return results.log_frame(event) if self._wants(event.level) else None
            case InputRequired():
                return self._ask(event) if self._session.era is Era.HANDSHAKE else None
            case InputReceived(key):
                return self._answered(key)
            case Failed(error):
                self.ended = True
                self._fail(error)
            case Cancelled(reason):
                self.ended = True
                if reason != BY_CLIENT:
                    self._fail(CallCancelled(f"the call was cancelled: {reason or 'no reason was given'}"))
            case _:
                pass  # started; deltas travel with the streams extension only
        return None

    def _progress(self, event: Progressed) -> bytes:
        assert self.token is not None
        if self._skipped:
            event = msgspec.structs.replace(event, skipped=event.skipped + self._skipped)
            self._skipped = 0
        return results.progress_frame(self.token, event)

    def _ask(self, question: InputRequired) -> bytes | None:
        if self._asking is None:
            reason = f"{question.method}: this client takes no event stream and cannot be asked"
            self.record.answer(question.key, MethodNotFound(reason))
            return None
        frame = self._asking.ask(self.record, question, self._session.version)
        if frame is not None:
            self._asked.setdefault(question.key)
        return frame

    def _answered(self, key: str) -> bytes | None:
        """By somebody else than this client, if there is something to tell it."""
        if key in self._asked and self._asked[key] is None:
            self._asked[key] = self._withdraw(key)
        return self._asked.get(key)

    def _withdraw(self, key: str) -> bytes | None:
        return self._asking.withdraw(self.record, key) if self._asking is not None else None

    def _park(self) -> None:
        """Answers with what is asked; the call goes on, and the client comes back for it."""
        wanted = {
            key: (open_.method, questions.for_version(open_.method, open_.params, self._session.version, ""))
            for key, open_ in self.record.open_questions.items()
        }
        state = self._hub.park(self.record, self._reader.cursor)
        self.answer = result_frame(self.id, questions.input_required_result(wanted, state))
        self.parked = self.ended = True

    def _complete(self, event: Completed) -> None:
        call = self.record.call
        shared = call.method == "resources/read" and self._hub.is_shared(self._session, self.record)
        try:
            parts = result_for(self._hub, self._session, call, event, cursor=self._place(), shared=shared)
        except RpcError as error:
            self._fail(error)
        else:
            self.answer = result_frame(self.id, *parts)

    def _place(self) -> int | None:
        """How far the client has the call's durable stream for certain; None if there is none."""
        if isinstance(self._reader, StreamReader):
            return self._reader.cursor
        stream = self.record.stream
        return stream.row.last if stream is not None else None

    def _fail(self, error: RpcError) -> None:
        if error.code == URL_ELICITATION_REQUIRED and self._session.era is Era.MODERN:
            wanted = url_elicitations(error)
            if wanted and _can_open_urls(self._session):
                self.answer = result_frame(self.id, questions.input_required_result(wanted, None))
                return
        shaped = for_caller(error, self._session.era, self.record.call.upstream, self._session.capabilities)
        self.error_code = shaped.code
        self.answer = error_frame(self.id, shaped.encoded())

    def _wants(self, level: str) -> bool:
        """A handshake client that set no level gets what the server chose to send; a modern one gets nothing."""
        wanted = self._session.log_level
        if wanted is None:
            return self._session.era is Era.HANDSHAKE
        return level_admits(wanted, level)


def _can_open_urls(session: Session) -> bool:
    mode = msgspec.Raw(b'{"mode":"url"}')
    return questions.can_answer(session.capabilities, session.version, "elicitation/create", mode) is None


def level_admits(wanted: str, level: str) -> bool:
    """Whether a message of `level` passes; one of no known level is never held back."""
    return level not in eras.LOG_LEVELS or eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(wanted)
