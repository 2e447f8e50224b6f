"""A durable stream over REST: committed events, status and outcome. Results and errors are shown as stored.

SSE has id (number), event (type) and data (line), and ends with `closed`; NDJSON has the lines; JSON is a page
(long-poll).
"""

from collections.abc import Coroutine, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from mcp_hub.aio import Block, call_later
from mcp_hub.call import StreamInfo
from mcp_hub.errors import HubError, HubStopping
from mcp_hub.events import said_of_cancel
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpResponse
from mcp_hub.fronts.rest.exchange import RestRequest
from mcp_hub.fronts.rest.problem import Problem, ended_in, problem_for
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.calls import FailedCall, QuestionInfo, StreamStatus
from mcp_hub.protocol.shape.stream_events import timestamp
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
        self._is_over = False

    def close(self) -> None:
        call_later(_LAST_EVENTS, self._end)

    def _end(self) -> None:
        self._is_over = True
        for watched in self._open:
            watched.give_up()

    async def connected(self, request: RestRequest, work: Coroutine[None, None, T]) -> T:
        """Works while the client is there. Raises `ClientGone`, or `HubStopping` after `close`."""
        if self._is_over:
            work.close()
            raise _stopping()
        watched = Block(request.watch)
        with watched:
            self._open.add(watched)
            try:
                return await work
            finally:
                self._open.discard(watched)
        raise _stopping() if self._is_over else ClientGone()


def _stopping() -> HubStopping:
    return HubStopping("the hub is stopping")


def kind_of(line: bytes) -> bytes:
    """The type of a stored event."""
    start = line.index(b'"type":"') + 8
    return line[start : line.index(b'"', start)]


async def send_sse(following: Following, response: HttpResponse, lines: Sequence[bytes] = ()) -> None:
    """Sends `lines`, taken last, and the rest of the stream. Raises `ClientGone`."""
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
