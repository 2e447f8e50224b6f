"""What a client gets of its call: events pulled from the log, shaped for its era, in order, the answer last.

A token that was not given gets no progress; a level that was not asked for gets no log message (protocol.md §3).
"""

from collections.abc import Callable

import msgspec

from mcp_hub.calls.parking import mark
from mcp_hub.calls.runner import CallRecord
from mcp_hub.catalog.links import mentions_uris
from mcp_hub.errors import MethodNotFound, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed, InputReceived, InputRequired, Log, Progress
from mcp_hub.fronts.asking import Asking
from mcp_hub.hub import Facade
from mcp_hub.protocol import eras, questions, shape
from mcp_hub.protocol.envelope import error_frame, object_bytes, raw_object, result_frame
from mcp_hub.protocol.rpc_errors import URL_ELICITATION_REQUIRED, for_caller, url_elicitations
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

__all__ = ["Delivery", "level_admits"]


_STARTED = 1
"""The first event of every log, which says nothing to a client: most calls are over with the next one."""
_ASKS = msgspec.Raw(b'"input_required"')


class Delivery:
    """Follows one call for one request, from the event behind `after` on.

    `answer` is set when the call has ended (a cancelled one has none), or when a modern client must gather input
    first: then the call is `parked`. `asking` reaches a handshake client; without it nothing can be asked. A client
    that comes back reads again from where it was (`follow`): the same messages, without questions that are settled.
    """

    __slots__ = (
        "_asked", "_asking", "_hub", "_last_words", "_reader", "_session", "answer", "ended", "error_code", "id",
        "parked", "record", "token",
    )  # fmt: skip

    def __init__(
        self,
        hub: Facade,
        id_: bytes,
        session: Session,
        record: CallRecord,
        token: bytes | None,
        wake: Callable[[], None],
        asking: Asking | None = None,
        after: int = 0,
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
        self._reader = record.log.reader(wake, after or _STARTED)
        self.ended = False

    @property
    def has_more(self) -> bool:
        return self._reader.has_more or (bool(self.record.open_questions) and self._must_ask)

    @property
    def cursor(self) -> int:
        """The number of the last event that was taken."""
        return self._reader.cursor

    def follow(self, wake: Callable[[], None], after: int) -> None:
        """For another connection of the client, from the event behind `after` on; the one before has been closed."""
        self._reader = self.record.log.reader(wake, after)
        self.ended = self._reader.at_end

    def take(self) -> list[bytes]:
        """The next messages for the client; sets `answer` when the ending was among the events."""
        return [frame for _, frame in self.numbered()]

    def numbered(self, most: int | None = None) -> list[tuple[int, bytes]]:
        """The same of at most that many events, each with the number of its event; 0 for one that is of none."""
        seq = self._reader.cursor
        frames: list[tuple[int, bytes]] = []
        for event in self._reader.take(most):
            seq += 1
            frame = self._frame(event)
            if frame is not None:
                frames.append((seq, frame))
        if self._asked and self.ended:
            frames += [(0, frame) for frame in self.withdrawn()]
        if self.record.open_questions and self._must_ask:
            self._park()
        return frames

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

    def close(self) -> None:
        self._reader.close()

    def _frame(self, event: CallEvent) -> bytes | None:
        match event:
            case Completed():
                self.ended = True
                self._complete(event)
            case Progress():
                return shape.progress_frame(self.token, event) if self.token is not None else None
            case Log():
                return shape.log_frame(event) if self._wants(event.level) else None
            case InputRequired():
                return self._ask(event) if self._session.era is Era.HANDSHAKE else None
            case InputReceived(key):
                return self._answered(key)
            case Failed(error):
                self.ended = True
                self._fail(error)
            case Cancelled():
                self.ended = True
                self.answer = None
            case _:
                pass  # started; deltas travel with the streams extension only
        return None

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
        if mentions_uris(event.result):
            event = Completed(self._hub.exported(self._session, call, event.result), event.era)
        shared = call.method == "resources/read" and self._hub.is_shared(self._session, self.record)
        try:
            if event.era is Era.MODERN and questions.may_ask(event.result):
                event = _marked(event)
            parts = shape.call_result(call.method, event, self._session.era, shared=shared)
        except RpcError as error:
            self._fail(error)
        else:
            self.answer = result_frame(self.id, *parts)

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


def _marked(done: Completed) -> Completed:
    """A modern server's `input_required`, its state marked as not the hub's own.

    Raises `RpcError` for a state that is no text.
    """
    members = raw_object(done.result) or {}
    state = members.get("requestState")
    if state is None or members.get("resultType") != _ASKS:
        return done
    try:
        own = msgspec.json.decode(state, type=str)
    except (msgspec.DecodeError, RecursionError):
        raise RpcError("upstream asked for input in a way that cannot be read: requestState must be a string") from None
    return Completed(object_bytes({**members, "requestState": mark(own)}), done.era)


def _can_open_urls(session: Session) -> bool:
    mode = msgspec.Raw(b'{"mode":"url"}')
    return questions.can_answer(session.capabilities, session.version, "elicitation/create", mode) is None


def level_admits(wanted: str, level: str) -> bool:
    """Whether a message of `level` passes; one of no known level is never held back."""
    return level not in eras.LOG_LEVELS or eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(wanted)
