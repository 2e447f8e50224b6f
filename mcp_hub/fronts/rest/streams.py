"""Durable streams over REST: status, committed events, answers and cancellation, at any hub on the store.

SSE has id (number), event (type) and data (line), and ends with `closed`; NDJSON has the lines; JSON is a page
(long-poll).
"""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, TypeVar

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace
from starlette.responses import Response

from mcp_hub.aio import Block, call_later
from mcp_hub.call import OF_REST, StreamInfo
from mcp_hub.errors import HubError, HubStopping, InvalidParams, RpcError
from mcp_hub.events import said_of_cancel
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpResponse
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, NDJSON, Handlers, RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, ended_in, problem_for
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.rest.calls import (
    FailedCall,
    InputBody,
    QuestionInfo,
    RunningCall,
    StreamList,
    StreamPage,
    StreamStatus,
)
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.sessions.session import LOCAL, Caller
from mcp_hub.types import CallId

T = TypeVar("T")
_BATCH: Final = 256
"""Events that are written at once."""
_LAST_EVENTS: Final = 0.6
"""Seconds for endings to reach their followers while the hub stops; the server allows one."""


class Closing:
    """Ends responses when the hub stops; calls that run here end first."""

    def __init__(self) -> None:
        self._open: set[Block] = set()
        self.is_over = False

    def close(self) -> None:
        call_later(_LAST_EVENTS, self._end)

    def _end(self) -> None:
        self.is_over = True
        for watched in self._open:
            watched.give_up()

    async def connected(self, request: RestRequest, work: Coroutine[None, None, T]) -> T:
        """Works until the client leaves. Raises `ClientGone`, or `HubStopping` after `close`."""
        if self.is_over:
            work.close()
            raise _stopping()
        watched = Block(request.watch)
        with watched:
            self._open.add(watched)
            try:
                return await work
            finally:
                self._open.discard(watched)
        raise _stopping() if self.is_over else ClientGone()

    async def known(self, call: Coroutine[None, None, T]) -> T:
        """Begins a call. Raises `Problem` 502 if the server's time ends before that is known."""
        try:
            return await call
        except anyio.get_cancelled_exc_class():
            if not self.is_over:
                raise
            reason = "The hub is stopping. The outcome of this call is unknown."
            raise Problem(502, "hub_stopped", reason, outcome="unknown") from None


def _stopping() -> HubStopping:
    return HubStopping("the hub is stopping")


def kind_of(line: bytes) -> bytes:
    """The type of a stored event."""
    start = line.index(b'"type":"') + 8
    return line[start : line.index(b'"', start)]


async def send_sse(following: Following, response: HttpResponse, lines: Sequence[bytes] = ()) -> None:
    """Sends `lines`, taken last, and the rest. Raises `ClientGone`."""
    await response.start()
    is_silent = False
    try:
        while not following.closed:
            if lines or is_silent:
                await response.write(_events(following, lines) or sse.COMMENT)
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            is_silent = not lines
    except HubError as error:
        await response.end(b"event: problem\ndata: %b\n\n" % problem_for(error).encoded())
        return
    closed = msgspec.json.encode({"cursor": following.cursor, "status": following.status})
    await response.end(_events(following, lines) + b"event: closed\ndata: %b\n\n" % closed)


def _events(following: Following, lines: Sequence[bytes]) -> bytes:
    first = following.cursor - len(lines) + 1
    numbered = enumerate(lines, first)
    return b"".join(b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind_of(line), line) for seq, line in numbered)


async def send_ndjson(following: Following, response: HttpResponse) -> None:
    """Sends the stream; without an ending it is incomplete. Raises `ClientGone`."""
    await response.start()
    try:
        while not following.closed:
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            await response.write(b"".join(b"%b\n" % line for line in lines))
    except HubError:
        pass  # the client sees that the ending is missing, and learns the reason when it asks for it
    await response.end()


class _Ending(msgspec.Struct):
    result: Raw | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class _End(msgspec.Struct):
    data: _Ending


class _Error(msgspec.Struct):
    data: Raw


class _Origin(msgspec.Struct):
    tool: str


class _Start(msgspec.Struct):
    data: _Origin


def durable(hub: HubPort, stream: CallId) -> bool | UnsetType:
    """False if the stream ends with this hub."""
    return UNSET if hub.durable.survives(stream) else False


def info(hub: HubPort, row: StreamInfo) -> StreamStatus:
    """The status of this hub's stream."""
    return replace(status_of(row), durable=durable(hub, row.id))


def status_of(row: StreamInfo) -> StreamStatus:
    return StreamStatus(
        stream=row.id,
        status=row.status,
        method=row.method,
        name=row.name,
        server=row.server,
        created=timestamp(row.created),
        updated=timestamp(row.updated),
        first=row.first,
        last=row.last,
        expires=UNSET if row.expires is None else timestamp(row.expires),
        message=UNSET if row.message is None else row.message,
    )


async def detailed(hub: HubPort, stream: StreamHandle) -> StreamStatus:
    """The status with tool, questions and outcome. Raises `UnknownStream`, `StoreError`."""
    row = stream.info
    more: dict[str, object] = {}
    if row.last and row.first == 1:
        lines = await stream.lines(0, 1)
        if lines and kind_of(lines[0]) == b"start":
            more["tool"] = msgspec.json.decode(lines[0], type=_Start).data.tool
    if script := hub.script_of(row):
        more["script"] = hide(script)
    if row.status == "input_required":
        if questions := await open_questions(stream):
            more["questions"] = questions
        else:  # all are answered, which is about to be written
            more["status"] = "working"
    elif row.has_ended:
        line = await stream.ending()
        if kind_of(line) == b"error":
            more["error"] = msgspec.json.decode(line, type=_Error).data
        else:
            ending = msgspec.json.decode(line, type=_End).data
            more.update(result=ending.result, reason=ending.reason)
    return msgspec.structs.replace(info(hub, row), **more)


async def open_questions(stream: StreamHandle) -> list[QuestionInfo]:
    """Open questions, oldest first."""
    questions = await stream.questions()
    return [QuestionInfo(key, question.method, Raw(bytes(question.params))) for key, question in questions.items()]


def outcome(stream: str, line: bytes) -> Raw:
    """The result in an ending. Raises a failed call's `Problem`."""
    if kind_of(line) == b"error":
        failed = msgspec.json.decode(msgspec.json.decode(line, type=_Error).data, type=FailedCall)
        raise ended_in(stream, failed)
    ending = msgspec.json.decode(line, type=_End).data
    if ending.result is UNSET:
        reason = None if ending.reason is UNSET else ending.reason
        raise Problem(409, "cancelled", said_of_cancel(reason), stream=stream)
    return ending.result


_WAIT: Final = 25.0
_EVENTS, _MOST_EVENTS = 1000, 10_000
_STREAMS, _MOST_STREAMS = 100, 1000
_NDJSON_HEADERS: Final = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache, no-transform")]
_CURSOR: Final = re.compile(r"0*[0-9]{1,18}")


RunningView = Callable[[Caller, bool], Sequence[RunningCall]]
"""A caller's calls that run here and may have streams; with True, those over REST only."""


class _Streams:
    """Serves `/v1/streams`. `shows_all`: every caller is the hub's user. `running` returns a caller's calls."""

    def __init__(self, hub: HubPort, closing: Closing, running: RunningView, *, shows_all: bool) -> None:
        self._shows_all = shows_all
        self._running = running
        self._hub = hub
        self._closing = closing

    async def list_streams(self, request: RestRequest) -> Response:
        """The token's, within its profile; without tokens, those made over REST."""
        limit = request.count("limit", _STREAMS, _MOST_STREAMS)
        caller = request.caller
        is_open = caller.principal == LOCAL.principal and not self._shows_all
        is_part = is_open or caller.profile is not None
        rows = await self._hub.durable.newest(caller.principal, _MOST_STREAMS if is_part else limit, caller.profile)
        listed_rows = [row for row in rows if not is_open or row.session.startswith(OF_REST)][:limit]
        calls = {call.id: call for call in self._running(caller, is_open)}
        listed = [_waiting(info(self._hub, row), calls.pop(row.id, None)) for row in listed_rows]
        is_cut = len(listed_rows) == limit
        unlisted = [call for call in calls.values() if not (call.has_stream and is_cut)]
        return answer(StreamList(listed, len(unlisted), sum(bool(call.waits_for) for call in unlisted)))

    async def get_stream(self, request: RestRequest) -> Response:
        stream = await self._opened(request)
        stream.let_go()  # somebody is here: the time starts anew
        return answer(await detailed(self._hub, stream))

    async def _opened(self, request: RestRequest, after: int | None = None) -> StreamHandle:
        return await self._hub.durable.open(request.caller.principal, request.path["id"], request.caller.profile, after)

    async def cancel_stream(self, request: RestRequest) -> Response:
        """Idempotent."""
        row = await (await self._opened(request)).cancel("cancelled on request")
        return answer(info(self._hub, row), 200 if row.has_ended else 202)

    async def follow_stream(self, request: RestRequest) -> Response | None:
        """Events behind a cursor: JSON, NDJSON or SSE."""
        form = request.accepts(JSON, NDJSON, EVENT_STREAM)[-1]
        after = _cursor(request)
        wait, limit = request.seconds("wait", _WAIT), request.count("limit", _EVENTS, _MOST_EVENTS)
        stream = await self._opened(request, after)
        was_orphan = stream.is_orphan
        try:
            following = Following(stream, after)
        except InvalidParams as error:
            raise Problem(400, "invalid_cursor", str(error), last=stream.info.last) from None
        try:
            if form == JSON:
                return await self._closing.connected(request, self._page(following, limit, wait))
            if form == NDJSON:
                work = send_ndjson(following, request.streamed(_NDJSON_HEADERS))
            else:
                work = send_sse(following, request.streamed())
            await self._closing.connected(request, work)
            return None
        finally:
            following.close()
            stream.let_go(was_orphan=was_orphan)

    async def _page(self, following: Following, limit: int, wait: float) -> Response:
        lines = await following.page(limit, wait)
        is_kept = durable(self._hub, following.stream)
        page = StreamPage([Raw(line) for line in lines], following.cursor, following.closed, is_kept)
        return answer(page)

    async def answer_question(self, request: RestRequest) -> Response:
        """Answers an open question."""
        body = await request.shaped(InputBody)
        stream = await self._opened(request)
        questions = {question.key: question for question in await open_questions(stream)}
        if stream.info.has_ended:
            raise Problem(409, "stream_ended", "The call has ended and has no open questions.")
        if body.key not in questions:
            still = ", ".join(questions) or "none"
            raise Problem(404, "unknown_question", f"no question {hide_head(body.key, 100)!r} is open (open: {still})")
        row = await stream.answer(body.key, _outcome(body, questions[body.key]))
        return answer(info(self._hub, row), 202)


def _waiting(status: StreamStatus, call: RunningCall | None) -> StreamStatus:
    if call is None or not call.waits_for or status.has_ended:
        return status
    return replace(status, waits_for=call.waits_for, waits_since=timestamp(call.waits_since))


def _cursor(request: RestRequest) -> int:
    text = request.header("last-event-id")
    if text is None:
        text = request.query_params.get("after", "0")
    if not _CURSOR.fullmatch(text):
        raise Problem(400, "invalid_cursor", f"a cursor is the number of an event, not {hide_head(text, 50)!r}")
    return int(text.lstrip("0") or "0")  # Python reads no more than 4,300 digits, zeros included


def stream_handlers(hub: HubPort, closing: Closing, running: RunningView, *, shows_all: bool) -> Handlers:
    """`/v1/streams`."""
    served = _Streams(hub, closing, running, shows_all=shows_all)
    return {
        "listStreams": served.list_streams,
        "getStream": served.get_stream,
        "cancelStream": served.cancel_stream,
        "followStream": served.follow_stream,
        "answerQuestion": served.answer_question,
    }


def _outcome(body: InputBody, question: QuestionInfo) -> Raw | RpcError:
    """Raises `Problem` unless the body has one outcome."""
    outcomes = [name for name in ("action", "result", "error") if getattr(body, name) is not UNSET]
    if len(outcomes) != 1:
        raise _unfit("it needs exactly one of `action`, `result` and `error`")
    if body.content is not UNSET and body.action != "accept":
        raise _unfit("`content` goes with the action accept")
    if body.error is not UNSET:
        return RpcError(body.error.message, code=body.error.code)
    if body.result is not UNSET:
        if raw_object(body.result) is None:
            raise _unfit("`result` has to be an object")
        return Raw(bytes(body.result))
    if question.method != "elicitation/create":
        raise _unfit(f"{question.method} is answered with a `result` or an `error`")
    answer: dict[str, object] = {"action": body.action}
    if body.content is not UNSET:
        if raw_object(body.content) is None:
            raise _unfit("`content` has to be an object")
        answer["content"] = body.content
    return Raw(object_bytes(answer))


def _unfit(reason: str) -> Problem:
    return Problem(400, "invalid_body", f"the body does not fit: {reason}")
