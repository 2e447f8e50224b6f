"""One call's messages to its client: events from the log, shaped for its era, then the response."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from mcp_hub.call import EarlyOutput, Question, Reader
from mcp_hub.errors import (
    CallCancelled,
    EventsGone,
    Fenced,
    HubError,
    RpcError,
    StoreError,
    StoreUnavailable,
    owner_lost,
)
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    is_by_client,
    said_of_cancel,
)
from mcp_hub.fronts.mcp.client_requests import CallQuestions, ClientRequests
from mcp_hub.fronts.mcp.results import Partials, marked, result_for
from mcp_hub.fronts.mcp.tasks import task_of
from mcp_hub.hub import CallHandle, HubPort, RemoteCall, is_elsewhere
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import Frame, error_frame, response, result_frame
from mcp_hub.protocol.jsonrpc.rpc_errors import URL_ELICITATION_REQUIRED, for_caller, url_elicitations
from mcp_hub.protocol.meta import STREAMS, declares
from mcp_hub.protocol.shape import questions, results, tasks
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, JsonObject

_STARTED = 1
"""The first event of every log, which is not a message."""


_State = Literal["following", "due", "ended", "pending", "detached", "lost"]
"""The state of a response.

`due`: an early answer is given as soon as all that was said has been taken. `ended`: the call has ended; a cancelled
one has no answer. `pending`: a modern client must gather input first; the call waits for its retry. `detached`: the
early answer was given; the call continues. `lost`: events are gone or wait for the store; the client has to come back,
perhaps at another place, and the call continues.
"""
_FOLLOWS = ("following", "due")
_NEXT: Final[Mapping[_State, set[_State]]] = {
    "following": {"due", "ended", "pending", "lost"},
    "due": {"ended", "detached", "lost"},
}
"""Every other state ends the answer, until the client comes back (`CallResponder.follow`)."""


class CallResponder:
    """Follows one call for one request.

    The states `ENDED` (unless cancelled), `PENDING` and `DETACHED` set `answer`. `asking` reaches a handshake client.
    `by_cursor`: messages have cursors, and the durable stream is followed. `withdrawn`: earlier cancellations of
    questions.
    """

    __slots__ = (
        "_early", "_hub", "_is_back", "_partials", "_questions", "_reader", "_skipped", "_wake",
        "answer", "call", "error_code", "id", "session", "state", "token",
    )  # fmt: skip

    def __init__(
        self,
        hub: HubPort,
        id_: bytes,
        session: Session,
        call: CallHandle,
        token: bytes | None,
        wake: Callable[[], None],
        asking: ClientRequests | None = None,
        *,
        by_cursor: bool = False,
        withdrawn: list[bytes] | None = None,
    ) -> None:
        self.id = id_
        self.call = call
        self.token = token
        self.answer: Frame | None = None
        self.error_code: int | None = None
        self._hub = hub
        self.session = session
        self._questions = CallQuestions(call, asking, session.version, withdrawn)
        self.state: _State = "following"
        self._partials: Partials | None = None
        if token is not None and declares(session.capabilities, session.era, STREAMS):
            self._partials = Partials(
                token, call.call.id, call.after, hub.newest_progress(call.record) if call.after else None
            )
        self._is_back = False  # on another connection than that of its request
        self._skipped = 0  # events that are gone, of which the client does not know yet
        self._wake = wake
        is_stored = by_cursor or self._partials is not None
        self._reader = call.reader(wake, call.after or _STARTED, self._moves if is_stored else None)
        self._early = call.early_answer(self._due)

    def _moves(self, reader: Reader) -> None:
        self._reader = reader
        self._wake()

    @property
    def ended(self) -> bool:
        """Whether nothing follows; `answer` is set, if any."""
        return self.state not in _FOLLOWS

    @property
    def detached(self) -> bool:
        """Whether the early response was made."""
        return self.state == "detached"

    def _become(self, state: _State) -> None:
        assert state in _NEXT[self.state]
        self.state = state

    @property
    def has_more(self) -> bool:
        reader = self._reader
        if reader.has_more or self._can_detach or reader.failed is not None:
            return True
        return self._must_ask

    @property
    def is_behind(self) -> bool:
        """Whether events are being fetched."""
        return self._reader.is_behind

    @property
    def cursor(self) -> int:
        return self._reader.cursor

    def follow(self, wake: Callable[[], None], reader: Reader) -> None:
        """Continues for another connection, from `reader`."""
        self._reader.close()
        self._wake, self._reader = wake, reader
        self._is_back = True
        self.answer = self.error_code = None
        if reader.at_end:
            self.state = "ended"
        elif self.state != "due":
            self.state = "following"

    def take(self) -> list[bytes]:
        """The ending sets `answer`."""
        return [frame for _, frame in self.numbered()]

    def numbered(self, limit: int | None = None) -> list[tuple[int, bytes]]:
        """Messages of `limit` events with their numbers; 0 without one."""
        reader = self._reader
        seq = reader.cursor
        frames: list[tuple[int, bytes]] = []
        if self._partials is not None and reader.is_stored:
            frames = self._partial_frames(self._partials, reader, limit)
        else:
            for event in reader.take(limit):
                seq += 1
                if type(event) is not Progressed:
                    frame = self._frame(seq, event)
                else:
                    frame = self._progress(event) if self.token is not None else None
                if frame is not None:
                    frames.append((seq, frame))
        if self.ended:
            frames += [(0, frame) for frame in self.withdrawn()]
        elif reader.failed is not None:
            self._skip_lost(reader)
        elif self._can_detach:
            self._detach()
            frames += [(0, frame) for frame in self._questions.paused()]
        elif self._must_ask:
            self._hold()
        return frames

    def _partial_frames(self, partials: Partials, reader: Reader, limit: int | None) -> list[tuple[int, bytes]]:
        """Only an event's last message has its number."""
        seq = reader.cursor
        frames: list[tuple[int, bytes]] = []
        for entry in reader.take_entries(limit):
            seq += 1
            event = entry.read
            usual = self._frame(seq, event) if not isinstance(event, Progressed) else None
            partial = partials.frame(seq, entry.line, event)
            if partial is not None:
                frames.append((seq if usual is None else 0, partial))
            if usual is not None:
                frames.append((seq, usual))
        return frames

    def _skip_lost(self, reader: Reader) -> None:
        """Skips lost events, unless the client came back for them; or ends the wait for the store."""
        if isinstance(reader.failed, StoreError) and self._may_come_back:
            self._become("lost")
        elif not isinstance(reader.failed, EventsGone):
            self._become("ended")
            self._fail(_unreadable(reader.failed, self.call))
        elif self._is_back:
            self._become("lost")
        else:
            self._skipped += reader.skip()

    @property
    def _may_come_back(self) -> bool:
        """Whether the client has a place in a stream that only waits for its store."""
        stream = self.call.record.stream
        has_place = self._is_back or (self._partials is None and self._reader.is_stored and bool(self.call.stored))
        return has_place and (stream is None or stream.failed is None)

    def _due(self) -> None:
        if self.state == "following":
            self._become("due")
            self._wake()

    @property
    def _can_detach(self) -> bool:
        reader = self._reader
        return self.state == "due" and not (reader.has_more or reader.is_behind)

    def _detach(self) -> None:
        assert self._early is not None
        self._become("detached")
        self.answer = result_frame(self.id, _early_result(self.session, self._early.take()))

    @property
    def _must_ask(self) -> bool:
        """Whether only the client's input can continue the call."""
        if not self.call.open_questions or self.session.era is not Era.MODERN:
            return False
        reader = self._reader
        is_waiting = bool(self._client_questions) and not (self.ended or reader.has_more or reader.is_behind)
        if not (is_waiting and self._hub.is_known(self.call, self._wake, by_stream=self._partials is not None)):
            return False
        return not (reader.has_more or reader.is_behind)  # what came before is sent before

    @property
    def _client_questions(self) -> dict[str, Question]:
        asks = self.call.call.asks_client
        return {
            key: question
            for key, question in self.call.open_questions.items()
            if asks(question.method, question.params)
        }

    def withdrawn(self) -> list[bytes]:
        return self._questions.withdrawn()

    def pause(self) -> None:
        """Stops until `follow`. Idempotent."""
        self._reader.close()

    def close(self) -> None:
        """Idempotent."""
        if self._early is not None:
            self._early.close()
            self._early = None
        if self.state == "due":
            self.state = "following"
        self.pause()
        self._wake = nobody

    def drop_answer(self) -> None:
        """Leaves the response to the stream."""
        self.answer = None

    def _frame(self, seq: int, event: CallEvent) -> bytes | None:
        match event:
            case Completed():
                self._become("ended")
                self._complete(event)
            case Progressed():
                return self._progress(event) if self.token is not None else None
            case Log():
                return results.log_frame(event) if event.method or self._wants(event.level) else None
            case InputRequired():
                return self._ask(seq, event)
            case InputReceived(key):
                if isinstance(self.call, RemoteCall):
                    self.call.closed(key)
                return self._questions.answered(key)
            case Failed(error):
                self._become("ended")
                self._fail(error)
            case Cancelled(reason):
                self._become("ended")
                if not is_by_client(reason):
                    self._fail(CallCancelled(said_of_cancel(reason)))
            case _:
                pass  # started; deltas travel with the streams extension, or as messages that the hub made of them
        return None

    def _ask(self, seq: int, question: InputRequired) -> bytes | None:
        """The request to a handshake client. What another hub asks is open from here on."""
        if is_elsewhere(self.call) and not isinstance(self.call, RemoteCall):
            self.call = self._questions.moved()
        if isinstance(self.call, RemoteCall):
            self.call.opened(question, seq)
        return self._questions.ask(question) if self.session.era is Era.HANDSHAKE else None

    def _progress(self, event: Progressed) -> bytes:
        assert self.token is not None
        if self._skipped:
            event = msgspec.structs.replace(event, skipped=event.skipped + self._skipped)
            self._skipped = 0
        return results.progress_frame(self.token, event)

    def _hold(self) -> None:
        requests = {
            key: (open_.method, questions.for_version(open_.method, open_.params, self.session.version, ""))
            for key, open_ in self._client_questions.items()
        }
        try:
            state = self._hub.hold(self.call, self._reader.cursor)
        except RpcError as error:
            self._become("ended")
            self._fail(error)
            return
        self.answer = result_frame(self.id, questions.input_required_result(requests, state))
        self._become("pending")

    def _complete(self, event: Completed) -> None:
        call, reader = self.call.call, self._reader
        is_alone = (stored := self.call.stored) is None and self.call.record.stream is not None
        cursor = reader.cursor if reader.is_stored and not is_alone else stored  # how much the client has
        shared = call.method == "resources/read" and self._hub.is_public(self.session, self.call)
        try:
            parts = result_for(self._hub, self.session, call, event, cursor=cursor, shared=shared)
        except RpcError as error:
            self._fail(error)
        else:
            self.answer = response(self.id, *parts)

    def _fail(self, error: RpcError) -> None:
        if error.code == URL_ELICITATION_REQUIRED and self.session.era is Era.MODERN:
            elicitations = url_elicitations(error)
            if elicitations and _can_open_urls(self.session):
                self.answer = result_frame(self.id, questions.input_required_result(elicitations, None))
                return
        shaped = for_caller(error, self.session.era, self.call.call.upstream, self.session.capabilities)
        self.error_code = shaped.code
        self.answer = error_frame(self.id, shaped.encoded())

    def _wants(self, level: str) -> bool:
        """Without a level, handshake clients get every log message, modern ones none."""
        minimum = self.session.log_level
        if minimum is None:
            return self.session.era is Era.HANDSHAKE
        return eras.level_admits(minimum, level)


def _unreadable(problem: HubError | None, call: CallHandle) -> RpcError:
    """The error of a call whose events do not come."""
    data: JsonObject = {"upstream": {"server": call.call.upstream}, "outcome": "unknown"}
    if isinstance(problem, Fenced):
        return owner_lost("Another hub has taken this call over. Its outcome is unknown.", data)
    stream = call.record.stream
    if not isinstance(problem, StoreError) or stream is None or stream.failed is not None:
        return RpcError(f"the call's events cannot be read any more: {problem}")
    reason = "The store has not confirmed the call. Its outcome is unknown."
    return RpcError(reason, code=StoreUnavailable.code, symbol=StoreUnavailable.symbol, data=data)


def _early_result(session: Session, output: EarlyOutput) -> bytes:
    """A task, or the output until now."""
    row, cursor, text = output
    if text is None:
        return tasks.created(task_of(row))
    result = msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False})
    completed = marked(Completed(result), row.id, cursor, task_of(row).status)
    return b"".join(results.call_result("tools/call", completed, session.era))


def _can_open_urls(session: Session) -> bool:
    mode = msgspec.Raw(b'{"mode":"url"}')
    return questions.can_answer(session.capabilities, session.version, "elicitation/create", mode) is None


def nobody() -> None:
    """A `wake` without a follower."""
