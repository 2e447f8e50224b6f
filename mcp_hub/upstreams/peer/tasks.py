"""Tools of handshake servers that run only as tasks (2025-11-25, basic/utilities/tasks)."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import HubRestarted, RpcError
from mcp_hub.protocol.extensions import without_mark
from mcp_hub.protocol.jsonrpc.envelope import raw_object, read_as
from mcp_hub.types import Era, JsonObject, RawJson
from mcp_hub.upstreams.peer.modern_tasks import ModernTask
from mcp_hub.upstreams.peer.task_poll import RELATED, ServerTask, TaskConnection, TaskHandle, TaskPoll

Asker = tuple[Call, CallChannel]

_TTL: Final = msgspec.Raw(b'{"ttl":21600000}')
"""Milliseconds to keep a task: the default limit of calls."""
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class _Created(msgspec.Struct):
    task: ServerTask


class _ToolTask(msgspec.Struct):
    class Execution(msgspec.Struct):
        taskSupport: str = "forbidden"

    name: str
    execution: Execution


def as_task(call: Call) -> Call:
    return msgspec.structs.replace(call, params={**call.params, "task": _TTL})


class _HandshakeTask(TaskPoll):
    """Fetching the result also lets the server ask."""

    def __init__(
        self, call: Call, channel: CallChannel, handle: TaskHandle, pause: float = 0, status: str = "working"
    ) -> None:
        super().__init__(call, channel, handle, pause)
        self._status = status

    async def _follow(self, line: TaskConnection) -> RawJson:
        while self._status == "working":
            await self._look_again(line)
        result = await (self._read(line, "tasks/result") if self._status in _ENDED else self._result(line))
        return without_mark(result, RELATED)

    async def _look_again(self, line: TaskConnection) -> None:
        await anyio.sleep(self._pause)
        before, self._status = self._status, (await self._look(line)).status
        if self._status == "working" or self._status != before:  # a task that still waits is not news
            self.channel.touch()

    async def _result(self, line: TaskConnection) -> RawJson:
        outcome: RawJson | RpcError
        async with anyio.create_task_group() as looks:
            looks.start_soon(self._look_on, line)
            try:
                outcome = await self._read(line, "tasks/result")
            except RpcError as error:
                outcome = error
            looks.cancel_scope.cancel()
        if isinstance(outcome, RpcError):
            raise outcome
        return outcome

    async def _look_on(self, line: TaskConnection) -> None:
        while self._status not in _ENDED:
            with suppress(RpcError):
                await self._look_again(line)


class ServerTasks:
    """The tasks at one server.

    `outlive`: they outlive the connection. `required`: tools that run only as tasks. `are_left`: cancelled calls leave
    them to another hub.
    """

    def __init__(self, *, outlive: bool) -> None:
        self.outlive = outlive
        self.required: frozenset[str] = frozenset()
        self.are_left = False
        self._by_id: dict[str, Asker] = {}
        self._by_token: dict[int, Asker] = {}

    def learn(self, capabilities: JsonObject, tools: Iterable[bytes]) -> None:
        offered: object = capabilities
        for key in ("tasks", "requests", "tools", "call"):
            offered = offered.get(key) if isinstance(offered, dict) else None
        may_run = [read_as(raw, _ToolTask) for raw in tools if offered is not None and b'"taskSupport"' in raw]
        self.required = frozenset(
            tool.name for tool in may_run if tool is not None and tool.execution.taskSupport == "required"
        )

    def leave(self) -> None:
        self.are_left = True

    def needs_task(self, call: Call) -> bool:
        return call.method == "tools/call" and msgspec.json.decode(call.params["name"]) in self.required

    def asker(self, params: RawJson) -> Asker | None:
        """The call whose task a message names."""
        if not self._by_id or RELATED.encode() not in bytes(params):
            return None
        meta = raw_object((raw_object(params) or {}).get("_meta", msgspec.UNSET)) or {}
        task = read_as(meta.get(RELATED, b""), ServerTask)
        return self._by_id.get(task.taskId) if task is not None else None

    def askers(self) -> Iterable[Asker]:
        """Oldest first."""
        return self._by_id.values()

    def reporter(self, token: int) -> Asker | None:
        """The call whose task has this progress token."""
        return self._by_token.get(token)

    async def run(self, call: Call, channel: CallChannel, answer: RawJson, token: int, line: TaskConnection) -> RawJson:
        """Follows the task in the `answer`. Raises `RpcError`."""
        created = read_as(answer, _Created)
        if created is None:
            return answer  # it was answered without a task after all
        server_task = created.task
        task = _HandshakeTask(
            call=call,
            channel=channel,
            handle=server_task.handle(Era.HANDSHAKE),
            pause=server_task.pause,
            status=server_task.status,
        )
        self._by_token[token] = call, channel
        try:
            return await self.follow(task, line)
        finally:
            del self._by_token[token]

    async def follow(self, task: TaskPoll, line: TaskConnection) -> RawJson:
        id_ = task.handle.task
        self._by_id[id_] = task.call, task.channel
        try:
            return await task.follow(line)
        finally:
            self._by_id.pop(id_, None)


def taken_up(call: Call, channel: CallChannel, state: RawJson) -> TaskPoll:
    """The task in another hub's `state`. Raises `HubRestarted`."""
    try:
        handle = msgspec.json.decode(state, type=TaskHandle)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise HubRestarted(
            f'server "{call.upstream}": the stored state of this call cannot be read, so it cannot be continued: {exc}',
            data={"upstream": {"server": call.upstream}, "outcome": "unknown"},
        ) from None
    return (ModernTask if handle.era is Era.MODERN else _HandshakeTask)(call, channel, handle)
