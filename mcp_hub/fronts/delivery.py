"""What a client gets of its call: events pulled from the log, shaped for its era, in order, the answer last.

A token that was not given gets no progress; a level that was not asked for gets no log message (protocol.md §3).
"""

from collections.abc import Callable

import msgspec

from mcp_hub.calls.parking import mark
from mcp_hub.calls.runner import CallRecord
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


_COMPLETE = b'{"resultType":"complete",'
_ASKS = msgspec.Raw(b'"input_required"')


class Delivery:
    """Follows one call for one request, from the event behind `after` on.

    `answer` is set when the call has ended (a cancelled one has none), or when a modern client must gather input
    first: then the call is `parked`. `asking` reaches a handshake client; without it nothing can be asked.
    """

    __slots__ = (
        "_asked", "_asking", "_hub", "_reader", "_session", "answer", "error_code", "id", "parked", "record", "token",
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
        self._asked: list[str] = []
        self._reader = record.log.reader(wake, after)

    @property
    def ended(self) -> bool:
        return self.parked or self._reader.at_end

    @property
    def has_more(self) -> bool:
        return self._reader.has_more

    def take(self) -> list[bytes]:
        """The next messages for the client; sets `answer` when the ending was among the events."""
        frames: list[bytes] = []
        for event in self._reader.take():
            frame = self._frame(event)
            if frame is not None:
                frames.append(frame)
        if self._asked and self._reader.at_end:
            frames += self.withdrawn()
        if self.record.open_questions and self._session.era is Era.MODERN and not self._reader.at_end:
            self._park()
        return frames

    def withdrawn(self) -> list[bytes]:
        """The notifications that what the client was asked for this call is off."""
        asked, self._asked = self._asked, []
        return [frame for key in asked if (frame := self._withdraw(key)) is not None]

    def close(self) -> None:
        self._reader.close()

    def _frame(self, event: CallEvent) -> bytes | None:
        match event:
            case Progress():
                return shape.progress_frame(self.token, event) if self.token is not None else None
            case Log():
                return shape.log_frame(event) if self._wants(event.level) else None
            case InputRequired():
                return self._ask(event) if self._session.era is Era.HANDSHAKE else None
            case InputReceived(key):
                return self._withdraw(key) if key in self._asked else None
            case Completed():
                self._complete(event)
            case Failed(error):
                self._fail(error)
            case Cancelled():
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
            self._asked.append(question.key)
        return frame

    def _withdraw(self, key: str) -> bytes | None:
        return self._asking.withdraw(self.record, key) if self._asking is not None else None

    def _park(self) -> None:
        """Answers with what is asked; the call goes on, and the client comes back for it."""
        wanted = {
            key: (open_.method, questions.for_era(open_.method, open_.params, open_.era, self._session.version, ""))
            for key, open_ in self.record.open_questions.items()
        }
        state = self._hub.park(self.record, self._reader.cursor)
        self.answer = result_frame(self.id, questions.input_required_result(wanted, state))
        self.parked = True

    def _complete(self, event: Completed) -> None:
        call = self.record.call
        if call.exported_uri is not None:
            event = Completed(shape.readdressed(event.result, call.params["uri"], call.exported_uri), event.era)
        try:
            result = shape.call_result(call.method, _marked(event), self._session.era)
        except RpcError as error:
            self._fail(error)
        else:
            self.answer = result_frame(self.id, *result)

    def _fail(self, error: RpcError) -> None:
        if error.code == URL_ELICITATION_REQUIRED and self._session.era is Era.MODERN:
            wanted = url_elicitations(error)
            if wanted and _can_open_urls(self._session):
                self.answer = result_frame(self.id, questions.input_required_result(wanted, None))
                return
        shaped = for_caller(error, self._session.era, self.record.call.upstream)
        self.error_code = shaped.code
        self.answer = error_frame(self.id, shaped.encoded())

    def _wants(self, level: str) -> bool:
        """A handshake client that set no level gets what the server chose to send; a modern one gets nothing."""
        wanted = self._session.log_level
        if wanted is None:
            return self._session.era is Era.HANDSHAKE
        return level_admits(wanted, level)


def _marked(done: Completed) -> Completed:
    """A modern server's `input_required`, its state marked as not the hub's own."""
    if done.era is Era.HANDSHAKE or bytes(memoryview(done.result)[: len(_COMPLETE)]) == _COMPLETE:
        return done
    members = raw_object(done.result) or {}
    state = members.get("requestState")
    if state is None or members.get("resultType") != _ASKS:
        return done
    return Completed(object_bytes({**members, "requestState": mark(msgspec.json.decode(state, type=str))}), done.era)


def _can_open_urls(session: Session) -> bool:
    mode = msgspec.Raw(b'{"mode":"url"}')
    return questions.can_answer(session.capabilities, session.version, "elicitation/create", mode) is None


def level_admits(wanted: str, level: str) -> bool:
    """Whether a message of `level` passes; one of no known level is never held back."""
    return level not in eras.LOG_LEVELS or eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(wanted)
