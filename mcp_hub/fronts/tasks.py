"""The tasks extension towards modern clients: the requests about a task, and the answer that makes a call one.

A task is a call that goes on without its request: its id is that of the call's durable stream. Handshake clients have
no tasks, whatever they declare. Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663); streams.md §2. Not
here: what is told of a task (`task_state`), and by itself (`task_notices`).
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.stream import Stream, StreamReader
from mcp_hub.calls.writer import StreamWriter
from mcp_hub.errors import Busy, MethodNotFound, RpcError
from mcp_hub.fronts.task_state import detailed_task, open_questions, task_of
from mcp_hub.hub import Facade
from mcp_hub.protocol import task_shape
from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Session
from mcp_hub.stores.base import StoreError
from mcp_hub.types import OWN, Era, RawObject

__all__ = ["TaskAnswer", "Tasks", "task_answer", "task_methods"]

log = structlog.get_logger(__name__)


class TaskAnswer:
    """`CreateTaskResult` in place of the result of a call that takes longer than `after`. A `Substitute`."""

    __slots__ = ("_hub", "_reader", "_ready", "_record", "_session", "_writer", "after")

    def __init__(self, hub: Facade, session: Session, record: CallRecord, after: float) -> None:
        self.after = after
        self._hub = hub
        self._session = session
        self._record = record
        self._writer: StreamWriter
        self._reader: StreamReader
        self._ready: Callable[[], None]

    def prepare(self, ready: Callable[[], None]) -> None:
        """`ready` once the task could be asked for: its first event is committed."""
        if self._record.log.ended:
            return
        try:
            self._writer = self._hub.streams.detach(self._record)
        except Busy as busy:
            log.info("task_refused", call_id=self._record.call.id, reason=str(busy))
            return
        self._ready = ready
        if self._writer.stream.row.last:
            ready()
        else:
            self._reader = self._writer.stream.reader(self._look, 0)

    def _look(self) -> None:
        if self._reader.is_closed:
            return
        if self._writer.stream.row.last:
            self._ready()
        elif self._reader.failed is None:
            return
        self._reader.close()

    def answer(self) -> bytes:
        """From here on nobody waits for the call; whoever asks after it keeps it going."""
        self._hub.leave(self._session, self._record)
        return task_shape.created(task_of(self._writer.stream.row))


def task_answer(hub: Facade, session: Session, record: CallRecord) -> TaskAnswer | None:
    """For a client that takes tasks, unless the tool is to make none; the hub's own tools wait for other calls."""
    call = record.call
    if call.method != "tools/call" or call.upstream == OWN or not _takes_tasks(session):
        return None
    rule = hub.rules(record).task
    if rule == "never":
        return None
    return TaskAnswer(hub, session, record, hub.task_after if rule == "auto" else 0)


def _takes_tasks(session: Session) -> bool:
    return declares(session.capabilities, session.era, TASKS)


class Tasks:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`. An unknown task and a foreign one are told alike."""

    def __init__(self, hub: Facade) -> None:
        self._hub = hub

    async def get(self, session: Session, params: RawObject) -> bytes:
        """What the task is now. Whoever looks at it wants it to go on."""
        stream = await self._stream(session, params)
        self._renew(session, stream)
        return task_shape.answered(await detailed_task(self._hub, session, stream.row))

    async def update(self, session: Session, params: RawObject) -> bytes:
        """Answers what the task asks; responses to anything else are ignored."""
        responses = task_shape.task_responses(params)
        stream = await self._stream(session, params)
        self._renew(session, stream)
        asked = await open_questions(self._hub, stream.row) if responses else {}
        for key in asked.keys() & responses.keys():
            await self._hub.streams.answer(session.caller.principal, stream.row.id, key, responses[key])
        return task_shape.ACKNOWLEDGED

    async def cancel(self, session: Session, params: RawObject) -> bytes:
        """Has the call ended; of one that has ended already this is told all the same."""
        id_ = task_shape.task_id(params)
        await self._hub.streams.cancel(session.caller.principal, id_, "by tasks/cancel")
        return task_shape.ACKNOWLEDGED

    async def _stream(self, session: Session, params: RawObject) -> Stream:
        return await self._hub.streams.open(session.caller.principal, task_shape.task_id(params))

    def _renew(self, session: Session, stream: Stream) -> None:
        """Its client is there, so the time that the call may go on without one begins anew."""
        writer = self._hub.streams.owned(stream.row.id)
        if writer is not None and writer.orphaned_at is not None:
            self._hub.leave(session, writer.record)


_Answer = Callable[[Session, RawObject], Awaitable[bytes]]


def task_methods(hub: Facade) -> Mapping[str, Callable[[Session, RawObject, RequestMeta], Awaitable[bytes]]]:
    """The methods of the extension, by name, for those who declared it."""
    tasks = Tasks(hub)
    answers: dict[str, _Answer] = {
        "tasks/get": tasks.get,
        "tasks/update": tasks.update,
        "tasks/cancel": tasks.cancel,
    }
    return {method: _for_declared(method, answer) for method, answer in answers.items()}


def _for_declared(method: str, answer: _Answer) -> Callable[[Session, RawObject, RequestMeta], Awaitable[bytes]]:
    async def answered(session: Session, params: RawObject, meta: RequestMeta) -> bytes:
        if session.era is not Era.MODERN:
            raise MethodNotFound(f"Method not found: {method}")
        if not _takes_tasks(session):
            raise task_shape.missing_tasks()
        try:
            return await answer(session, params)
        except StoreError as problem:
            raise RpcError(f"the task cannot be read: {problem}") from None

    return answered
