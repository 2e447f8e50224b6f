"""The tasks extension towards modern clients: the requests about a task, and the answer that makes a call one.

A task is a call that goes on without its request: its id is that of the call's durable stream. Handshake clients have
no tasks, whatever they declare. Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663); streams.md §2. Not
here: what is told of a task (`task_state`), and by itself (`task_notices`).
"""

from collections.abc import Awaitable, Callable, Mapping

from mcp_hub.errors import Busy, MethodNotFound, RpcError, StoreError
from mcp_hub.fronts.mcp.task_state import detailed_task, task_of
from mcp_hub.hub import CallRecord, HubPort, StreamHandle
from mcp_hub.logs import get_logger
from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.shape import tasks as task_shape
from mcp_hub.sessions.session import Session
from mcp_hub.types import OWN, Era, RawObject

__all__ = ["TaskAnswer", "TaskRequests", "task_answer", "task_methods"]

log = get_logger(__name__)


class TaskAnswer:
    """`CreateTaskResult` in place of the result of a call that takes longer than `after`. A `Substitute`."""

    __slots__ = ("_hub", "_record", "_session", "_stream", "after")

    def __init__(self, hub: HubPort, session: Session, record: CallRecord, after: float) -> None:
        self.after = after
        self._hub = hub
        self._session = session
        self._record = record
        self._stream: StreamHandle

    def prepare(self, ready: Callable[[], None]) -> None:
        """`ready` once the task could be asked for: its first event is committed."""
        if self._record.log.ended:
            return
        try:
            self._stream = self._hub.durable.detach(self._record)
        except Busy as busy:
            log.info("task_refused", call_id=self._record.call.id, reason=str(busy))
            return
        self._stream.on_stored(ready)

    def answer(self) -> bytes:
        """From here on nobody waits for the call; whoever asks after it keeps it going."""
        self._hub.leave(self._session, self._record)
        return task_shape.created(task_of(self._stream.info))


def task_answer(hub: HubPort, session: Session, record: CallRecord) -> TaskAnswer | None:
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


class TaskRequests:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`. An unknown task and a foreign one are told alike."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub

    async def get(self, session: Session, params: RawObject) -> bytes:
        """What the task is now. Whoever looks at it wants it to go on."""
        stream = await self._stream(session, params)
        self._renew(session, stream)
        return task_shape.answered(await detailed_task(self._hub, session, stream))

    async def update(self, session: Session, params: RawObject) -> bytes:
        """Answers what the task asks; responses to anything else are ignored."""
        responses = task_shape.task_responses(params)
        stream = await self._stream(session, params)
        self._renew(session, stream)
        asked = await stream.questions() if responses else {}
        for key in asked.keys() & responses.keys():
            await stream.answer(key, responses[key])
        return task_shape.ACKNOWLEDGED

    async def cancel(self, session: Session, params: RawObject) -> bytes:
        """Has the call ended; of one that has ended already this is told all the same."""
        await (await self._stream(session, params)).cancel("by tasks/cancel")
        return task_shape.ACKNOWLEDGED

    async def _stream(self, session: Session, params: RawObject) -> StreamHandle:
        return await self._hub.stream(session.caller.principal, task_shape.task_id(params))

    def _renew(self, session: Session, stream: StreamHandle) -> None:
        """Its client is there, so the time that the call may go on without one begins anew."""
        if stream.is_orphan:
            self._hub.let_go(session, stream)


_Answer = Callable[[Session, RawObject], Awaitable[bytes]]


def task_methods(hub: HubPort) -> Mapping[str, Callable[[Session, RawObject, RequestMeta], Awaitable[bytes]]]:
    """The methods of the extension, by name, for those who declared it."""
    tasks = TaskRequests(hub)
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
