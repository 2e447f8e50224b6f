"""The tasks extension, `io.modelcontextprotocol/tasks` (SEP-2663), for modern clients.

A task is a call without its request; its id is the durable stream's. Committed events give its state, so every hub
shows the same.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import anyio
import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.clock import wall_time
from mcp_hub.errors import MethodNotFound, RpcError, StoreError, StoreUnavailable, UnknownStream
from mcp_hub.events import Cancelled, Completed, Failed
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.protocol.shape import tasks as task_shape
from mcp_hub.protocol.shape.questions import can_answer, for_version
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.protocol.shape.tasks import TaskState
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, JsonObject, RawObject, Status


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
        """Answers open questions; other responses are ignored."""
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
        return await self._hub.stream(session.caller.principal, task_shape.task_id(params), session.caller.profile)

    def _renew(self, stream: StreamHandle) -> None:
        if stream.is_orphan:
            stream.let_go()


Answer = Callable[[Session, RawObject], Awaitable[bytes]]
"""Answers a request by its params without `_meta`. Raises `RpcError`."""


def task_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The extension's methods by name."""
    tasks = _TaskRequests(hub)
    answers: dict[str, Answer] = {"tasks/get": tasks.get, "tasks/update": tasks.update, "tasks/cancel": tasks.cancel}
    return {method: _for_declared(method, answer) for method, answer in answers.items()}


def _for_declared(method: str, answer: Answer) -> Answer:
    async def answered(session: Session, params: RawObject) -> bytes:
        if session.era is not Era.MODERN:
            raise MethodNotFound(f"Method not found: {method}")
        if not declares(session.capabilities, session.era, TASKS):
            raise task_shape.missing_tasks()
        try:
            return await answer(session, params)
        except StoreError as problem:
            raise StoreUnavailable(f"the task cannot be read: {problem.public}") from None

    return answered


def task_of(row: StreamInfo, age: float = 0.0) -> TaskState:
    """The members of every task; `age` in seconds. A running call is kept from its end on."""
    retention = age + row.ttl if row.expires is None else max(row.expires - row.created, row.ttl)
    message = None if row.has_ended else row.message
    status: Status = "completed" if row.status == "tool_error" else row.status
    return TaskState(
        id=row.id, status=status, created=row.created, updated=row.updated, kept=retention, message=message
    )


def _age(stream: StreamHandle) -> float:
    """Seconds, by the monotonic clock if the call began here."""
    row, record = stream.info, stream.record
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
