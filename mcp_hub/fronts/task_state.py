"""What is told of a task: read from its committed events, so any hub on the same store tells the same.

A task is a call's durable stream under another name; nothing here changes it.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from mcp_hub.calls.stored import fetched
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError, UnknownStream
from mcp_hub.events import Cancelled, Completed, Failed, InputRequired
from mcp_hub.fronts.results import result_for
from mcp_hub.hub import Facade
from mcp_hub.protocol import task_shape
from mcp_hub.protocol.questions import for_version
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.protocol.stream_events import decoded
from mcp_hub.protocol.task_shape import Task
from mcp_hub.sessions.session import Session
from mcp_hub.stores.base import StoreError, StreamRow
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.base import Call

__all__ = ["detailed_task", "open_questions", "task_of"]

_LOOK: Final = 256
"""Events that are looked through at once for what is asked."""


def task_of(row: StreamRow) -> Task:
    """The members that every task has. A call that runs is kept from its end on, whenever that will be."""
    kept = row.expires - row.created if row.expires is not None else max(wall_time() - row.created, 0) + row.ttl
    message = None if row.has_ended else row.message
    return Task(row.id, row.status, row.created, row.updated, kept, message)


async def open_questions(hub: Facade, row: StreamRow) -> Mapping[str, InputRequired]:
    """What the task asks, by key: what is committed, without what has just been answered.

    Raises `UnknownStream`, `StoreError`.
    """
    writer = hub.streams.owned(row.id)
    if writer is None or row.status != "input_required":
        return await hub.streams.questions(row)
    asked = await _asked_last(hub, row, writer.record.open_questions.keys())
    return {key: asked[key] for key in list(writer.record.open_questions) if key in asked}


async def _asked_last(hub: Facade, row: StreamRow, keys: Collection[str]) -> Mapping[str, InputRequired]:
    """The committed questions of these keys, looked for from the end: a call that waits says little else."""
    found: dict[str, InputRequired] = {}
    last = row.last
    while last >= row.first and not all(key in found for key in keys):
        at = start = max(row.first - 1, last - _LOOK)
        while at < last and (lines := await fetched(hub.streams.store, row.id, at, last - at)):
            events = (decoded(line)[1] for line in lines if b'"type":"input-required"' in line)
            found.update((event.key, event) for event in events if isinstance(event, InputRequired))
            at += len(lines)
        last = start
    return found


async def detailed_task(hub: Facade, session: Session, row: StreamRow) -> JsonObject:
    """`DetailedTask` of the extension, for this client. Raises `UnknownStream`, `StoreError`."""
    task = task_of(row)
    if row.status == "input_required":
        return await _asking(hub, session, row, task)
    if not row.has_ended:
        return task.members
    match await _ending(hub, row):
        case Completed() as done:
            return _completed(hub, session, row, task, done)
        case Failed(error):
            return _failed(session, row, task, error)
        case Cancelled(reason):
            return msgspec.structs.replace(task, message=reason).members


async def _asking(hub: Facade, session: Session, row: StreamRow, task: Task) -> JsonObject:
    asked = await open_questions(hub, row)
    if not asked:  # all are answered, which is about to be written
        return msgspec.structs.replace(task, status="working").members
    version = session.version
    wanted = {key: (each.method, for_version(each.method, each.params, version, "")) for key, each in asked.items()}
    return task_shape.with_requests(task, wanted)


async def _ending(hub: Facade, row: StreamRow) -> Completed | Failed | Cancelled:
    """The last event. Raises `UnknownStream` if it has been let go meanwhile, `StoreError`."""
    lines = await fetched(hub.streams.store, row.id, row.last - 1, 1)
    try:
        event = decoded(lines[-1])[1] if lines else None
    except ValueError as problem:
        raise StoreError(str(problem)) from None
    if not isinstance(event, Completed | Failed | Cancelled):
        raise UnknownStream
    return event


def _completed(hub: Facade, session: Session, row: StreamRow, task: Task, done: Completed) -> JsonObject:
    try:
        parts = result_for(hub, session, _call(session, row), done, cursor=row.last)
    except RpcError as error:
        return _failed(session, row, msgspec.structs.replace(task, status="failed"), error)
    return task_shape.with_result(task, b"".join(parts))


def _failed(session: Session, row: StreamRow, task: Task, error: RpcError) -> JsonObject:
    return task_shape.with_error(task, for_caller(error, session.era, row.server, session.capabilities))


def _call(session: Session, row: StreamRow) -> Call:
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
