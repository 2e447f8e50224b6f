"""The tasks extension towards modern clients: the requests about a task.

A task is a call that continues without its request; its id is that of the call's durable stream. Handshake clients have
no tasks. Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663).
"""

from collections.abc import Awaitable, Callable, Mapping

from mcp_hub.errors import MethodNotFound, RpcError, StoreError
from mcp_hub.fronts.mcp.task_state import detailed_task
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.protocol.shape import tasks as task_shape
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, RawObject


class TaskRequests:
    """Answers `tasks/get`, `tasks/update` and `tasks/cancel`. An unknown task and a foreign one get the same answer."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub

    async def get(self, session: Session, params: RawObject) -> bytes:
        """The task as it is now. A client that looks at it wants it to continue."""
        stream = await self._stream(session, params)
        self._renew(stream)
        return task_shape.answered(await detailed_task(self._hub, session, stream))

    async def update(self, session: Session, params: RawObject) -> bytes:
        """Answers what the task asks; responses to anything else are ignored."""
        responses = task_shape.task_responses(params)
        stream = await self._stream(session, params)
        self._renew(stream)
        asked = await stream.questions() if responses else {}
        for key in asked.keys() & responses.keys():
            await stream.answer(key, responses[key])
        return task_shape.ACKNOWLEDGED

    async def cancel(self, session: Session, params: RawObject) -> bytes:
        """Ends the call; for one that has ended already the answer is the same."""
        await (await self._stream(session, params)).cancel("by tasks/cancel")
        return task_shape.ACKNOWLEDGED

    async def _stream(self, session: Session, params: RawObject) -> StreamHandle:
        return await self._hub.stream(session.caller.principal, task_shape.task_id(params))

    def _renew(self, stream: StreamHandle) -> None:
        """Its client is there, so the time that the call may continue without one begins again."""
        if stream.is_orphan:
            stream.let_go()


Answer = Callable[[Session, RawObject], Awaitable[bytes]]
"""Answers a request by its params without `_meta`. Raises `RpcError`."""


def task_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The methods of the extension, by name, for those who declared it."""
    tasks = TaskRequests(hub)
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
            raise RpcError(f"the task cannot be read: {problem}") from None

    return answered
