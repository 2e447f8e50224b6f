"""A stream as REST shows it. Results and errors are shown as stored."""

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.events import said_of_cancel
from mcp_hub.fronts.rest.follow import kind_of
from mcp_hub.fronts.rest.problem import Problem, ended_in
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.protocol.rest.problems import FailedCall
from mcp_hub.protocol.rest.streams import QuestionInfo, StreamStatus
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.types import CallId


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
    if row.status == "input_required":
        more["questions"] = await open_questions(stream)
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
