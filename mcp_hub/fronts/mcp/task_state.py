"""The state of a task, read from its committed events, so that any hub on the same store shows the same.

A task is a call's durable stream under another name; nothing here changes it.
"""

import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Completed, Failed
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.protocol.questions import for_version
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.protocol.shape import tasks
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.protocol.shape.tasks import TaskState
from mcp_hub.sessions.session import Session
from mcp_hub.types import JsonObject


def task_of(row: StreamInfo) -> TaskState:
    """The members that every task has. A call that runs is kept from its end on, whenever that will be."""
    kept = row.expires - row.created if row.expires is not None else max(wall_time() - row.created, 0) + row.ttl
    message = None if row.has_ended else row.message
    return TaskState(row.id, row.status, row.created, row.updated, kept, message)


async def detailed_task(hub: HubPort, session: Session, stream: StreamHandle) -> JsonObject:
    """`DetailedTask` of the extension, for this client. Raises `UnknownStream`, `StoreError`."""
    row = stream.info
    task = task_of(row)
    if row.status == "input_required":
        return await _asking(session, stream, task)
    if not row.has_ended:
        return task.members
    match await _ending(stream):
        case Completed() as done:
            return _completed(hub, session, row, task, done)
        case Failed(error):
            return _failed(session, row, task, error)
        case Cancelled(reason):
            return msgspec.structs.replace(task, message=reason).members


async def _asking(session: Session, stream: StreamHandle, task: TaskState) -> JsonObject:
    asked = await stream.questions()
    if not asked:  # all are answered, which is about to be written
        return msgspec.structs.replace(task, status="working").members
    version = session.version
    wanted = {key: (each.method, for_version(each.method, each.params, version, "")) for key, each in asked.items()}
    return tasks.with_requests(task, wanted)


async def _ending(stream: StreamHandle) -> Completed | Failed | Cancelled:
    """The last event. Raises `UnknownStream` if it has been let go meanwhile, `StoreError`."""
    try:
        event = decoded(await stream.ending())[1]
    except ValueError as problem:
        raise StoreError(str(problem)) from None
    if not isinstance(event, Completed | Failed | Cancelled):
        raise UnknownStream
    return event


def _completed(hub: HubPort, session: Session, row: StreamInfo, task: TaskState, done: Completed) -> JsonObject:
    try:
        parts = result_for(hub, session, _call(session, row), done, cursor=row.last)
    except RpcError as error:
        return _failed(session, row, msgspec.structs.replace(task, status="failed"), error)
    return tasks.with_result(task, b"".join(parts))


def _failed(session: Session, row: StreamInfo, task: TaskState, error: RpcError) -> JsonObject:
    return tasks.with_error(task, for_caller(error, session.era, row.server, session.capabilities))


def _call(session: Session, row: StreamInfo) -> Call:
    """The call as far as its result is concerned."""
    asked = msgspec.Raw(msgspec.json.encode(row.name))
    return Call(
        id=row.id,
        upstream=row.server,
        method=row.method,
        params={"uri" if row.method == "resources/read" else "name": asked},
        meta={},
        session=row.session,
        principal=row.principal,
        era=session.era,
        capabilities=session.capabilities,
    )
