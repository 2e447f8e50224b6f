"""The requests of two extensions about durable streams.

`io.modelcontextprotocol/tasks` (SEP-2663), for modern clients: a task is a call without its request; its id is the
durable stream's. Committed events give its state, so every hub shows the same.

`dev.mcp-hub/streams.read`: stored events behind a cursor. `{stream, cursor, minEvents, maxEvents, waitMs}` →
`{events, cursor, truncated, closed}`. `truncated`: earlier events are no longer kept; `closed`: the ending was read.
A request that waits gathers `minEvents` for a moment, else as many as it takes.
"""

import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.clock import wall_time
from mcp_hub.errors import (
    EventsGone,
    InvalidParams,
    RpcError,
    StoreError,
    StoreUnavailable,
    UnknownStream,
    method_not_found,
)
from mcp_hub.events import Cancelled, Completed, Failed
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.protocol.meta import STREAMS, TASKS, declares
from mcp_hub.protocol.shape import tasks as task_shape
from mcp_hub.protocol.shape.questions import can_answer, for_version
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.protocol.shape.tasks import TaskState
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, JsonObject, RawObject, Status

Answer = Callable[[Session, RawObject], Coroutine[object, object, bytes]]
"""Answers a request by its params without `_meta`. Raises `RpcError`."""
READ: Final = f"{STREAMS}.read"
_MOST_EVENTS: Final = 1000
_MOST_WAIT: Final = 60_000
"""Milliseconds. More of either is not refused, but not granted."""
_LARGEST: Final = 2**53 - 1
_CURSOR: Final = re.compile("0|[1-9][0-9]{0,14}")
"""One way only to write each, as in the specification."""


class _TaskRequests:
    """Answers `tasks/*`. A foreign task counts as unknown."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub

    async def get(self, session: Session, params: RawObject) -> bytes:
        """The current state. The time without a client begins again."""
        stream = await self._stream(session, params)
        self._renew(stream)
        return task_shape.answered(await detailed_task(self._hub, session, stream))

    async def update(self, session: Session, params: RawObject) -> bytes:
        """Answers open questions; ignores other responses."""
        responses = task_shape.task_responses(params)
        stream = await self._stream(session, params)
        self._renew(stream)
        questions = await stream.questions() if responses else {}
        for key in questions.keys() & responses.keys():
            await stream.answer(key, responses[key])
        return task_shape.ACKNOWLEDGED

    async def cancel(self, session: Session, params: RawObject) -> bytes:
        """Cancels the call. Idempotent."""
        await (await self._stream(session, params)).cancel("by tasks/cancel")
        return task_shape.ACKNOWLEDGED

    async def _stream(self, session: Session, params: RawObject) -> StreamHandle:
        return await self._hub.durable.open(
            session.caller.principal, task_shape.task_id(params), session.caller.profile
        )

    def _renew(self, stream: StreamHandle) -> None:
        if stream.is_orphan:
            stream.let_go()


def task_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The extension's methods by name."""
    tasks = _TaskRequests(hub)
    answers: dict[str, Answer] = {"tasks/get": tasks.get, "tasks/update": tasks.update, "tasks/cancel": tasks.cancel}
    return {method: _for_declared(method, answer) for method, answer in answers.items()}


def _for_declared(method: str, answer: Answer) -> Answer:
    async def answered(session: Session, params: RawObject) -> bytes:
        if session.era is not Era.MODERN:
            raise method_not_found(f"Method not found: {method}")
        if not declares(session.capabilities, session.era, TASKS):
            raise task_shape.missing_tasks()
        try:
            return await answer(session, params)
        except StoreError as problem:
            raise StoreUnavailable(f"the task cannot be read: {problem.public}") from None

    return answered


def task_of(row: StreamInfo, age: float = 0.0) -> TaskState:
    """The members of every task; `age` in seconds. A running call is kept from its end on."""
    retention = _promised(age, row.ttl) if row.expires is None else max(row.expires - row.created, row.ttl)
    message = None if row.has_ended else row.message
    status: Status = "completed" if row.status == "tool_error" else row.status
    return TaskState(
        id=row.id, status=status, created=row.created, updated=row.updated, kept=retention, message=message, age=age
    )


def _promised(age: float, ttl: float) -> float:
    """Seconds from creation for which a running call is kept even if it ended now, in steps of half its retention.

    At most that, so that nobody comes too late; at least half the retention ahead.
    """
    step = ttl / 2
    return ttl + (age // step * step if step > 0 else age)


def _age(stream: StreamHandle) -> float:
    """Seconds, until its end, by the monotonic clock if the call began here."""
    row, record = stream.info, stream.record
    if row.has_ended:
        return max(row.updated - row.created, 0.0)
    if record is None or row.epoch > 1:
        return max(wall_time() - row.created, 0.0)
    return anyio.current_time() - record.times.started


async def detailed_task(hub: HubPort, session: Session, stream: StreamHandle) -> JsonObject:
    """The extension's `DetailedTask`. Raises `UnknownStream`, `StoreError`."""
    row = stream.info
    task = task_of(row, _age(stream))
    if row.status == "input_required":
        return await _asking(session, stream, task)
    if not row.has_ended:
        return task.members
    match await ending_of(stream):
        case Completed() as done:
            return _completed(hub, session, row, task, done)
        case Failed(error):
            return _failed(session, row, task, error)
        case Cancelled(reason):
            return msgspec.structs.replace(task, message=reason).members


async def _asking(session: Session, stream: StreamHandle, task: TaskState) -> JsonObject:
    asks = partial(can_answer, session.capabilities, session.version)
    questions = {
        key: question
        for key, question in (await stream.questions()).items()
        if asks(question.method, question.params) is None
    }
    if not questions:  # all are answered, which is about to be written, or people are asked in place of the client
        return msgspec.structs.replace(task, status="working").members
    version = session.version
    requests = {
        key: (each.method, for_version(each.method, each.params, version, "")) for key, each in questions.items()
    }
    return task_shape.with_requests(task, requests)


async def ending_of(stream: StreamHandle) -> Completed | Failed | Cancelled:
    """The last event. Raises `UnknownStream`, `StoreError`."""
    try:
        event = decoded(await stream.ending())[1]
    except ValueError as problem:
        raise StoreError(str(problem)) from None
    if not isinstance(event, Completed | Failed | Cancelled):
        raise UnknownStream
    return event


def _completed(hub: HubPort, session: Session, row: StreamInfo, task: TaskState, completed: Completed) -> JsonObject:
    try:
        parts = result_for(hub, session, call_of(session, row), completed, cursor=row.last)
    except RpcError as error:
        return _failed(session, row, msgspec.structs.replace(task, status="failed"), error)
    return task_shape.with_result(task, b"".join(parts))


def _failed(session: Session, row: StreamInfo, task: TaskState, error: RpcError) -> JsonObject:
    return task_shape.with_error(task, for_caller(error, session.era, row.server, session.capabilities))


def call_of(session: Session, row: StreamInfo) -> Call:
    """The call, as its result needs it."""
    subject = msgspec.Raw(msgspec.json.encode(row.name))
    return Call(
        id=row.id,
        upstream=row.server,
        method=row.method,
        params={"uri" if row.method == "resources/read" else "name": subject},
        meta={},
        session=row.session,
        principal=row.principal,
        era=session.era,
        capabilities=session.capabilities,
    )


class _ReadParams(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    cursor: str | None = None
    minEvents: int | None = None
    maxEvents: int = _LARGEST
    waitMs: int = 0

    def after(self) -> int:
        """The cursor's event number. Raises `InvalidParams`."""
        text = self.cursor if self.cursor is not None else "0"
        if not _CURSOR.fullmatch(text):
            raise InvalidParams(f"params.cursor: {hide_head(text, 50)!r} is not a cursor of this stream")
        return int(text)

    @property
    def most(self) -> int:
        return min(self.maxEvents, _MOST_EVENTS)

    @property
    def seconds(self) -> float:
        return min(self.waitMs, _MOST_WAIT) / 1000

    @property
    def least(self) -> int:
        return 1 if not self.waitMs else self.most if self.minEvents is None else min(self.minEvents, self.most)


_decode = msgspec.json.Decoder(_ReadParams).decode


def stream_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The extension's methods by name."""

    async def read(session: Session, params: RawObject) -> bytes:
        if not declares(session.capabilities, session.era, STREAMS):
            raise method_not_found(f"Method not found: {READ}")
        try:
            return await _read(hub, session, _query(params))
        except StoreError as problem:
            raise StoreUnavailable(f"the stream cannot be read: {problem.public}") from None

    return {READ: read}


def _query(params: RawObject) -> _ReadParams:
    try:
        query = _decode(object_bytes(params))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"{READ}: {problem}") from None
    if query.maxEvents < 1:
        raise InvalidParams("params.maxEvents must be at least 1")
    if query.minEvents is not None and not 1 <= query.minEvents <= query.maxEvents:
        raise InvalidParams("params.minEvents must be at least 1, and at most params.maxEvents")
    if query.waitMs < 0:
        raise InvalidParams("params.waitMs must not be negative")
    return query


async def _read(hub: HubPort, session: Session, query: _ReadParams) -> bytes:
    after = query.after()
    stream = await hub.durable.open(session.caller.principal, query.stream, session.caller.profile, after)
    was_orphan = stream.is_orphan
    is_truncated = False
    try:
        while True:
            try:
                following = Following(stream, after)
                try:
                    lines = await following.page(query.most, query.seconds, query.least)
                    return _result(session, lines, following, is_truncated)
                finally:
                    following.close()
            except EventsGone as gone:
                after, is_truncated = gone.earliest - 1, True
    finally:
        stream.let_go(was_orphan=was_orphan)


def _result(session: Session, lines: list[bytes], following: Following, is_truncated: bool) -> bytes:
    head = b'"resultType":"complete",' if session.era is Era.MODERN else b""
    truncated, closed = map(msgspec.json.encode, (is_truncated, following.closed))
    fields = b",".join(lines), following.cursor, truncated, closed
    return b'{%b"events":[%b],"cursor":"%d","truncated":%b,"closed":%b}' % (head, *fields)
