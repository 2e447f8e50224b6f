"""Calls that run as tasks at their server.

Sources: 2025-11-25, basic/utilities/tasks, for tools of handshake servers that run only as tasks; SEP-2663
(`io.modelcontextprotocol/tasks`) for modern servers.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import HubRestarted, RpcError
from mcp_hub.events import Progressed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc import rpc_errors
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.protocol.meta import without_mark
from mcp_hub.types import Era, JsonObject, RawJson
from mcp_hub.upstreams.peer.input_questions import InputQuestions
from mcp_hub.upstreams.peer.task_poll import RELATED, ServerTask, TaskConnection, TaskHandle, TaskPoll

_TASK: Final = re.compile(rb'"task"')
_COMPLETE: Final = msgspec.Raw(b'"complete"')
_CAN_BE_TASKS: Final = frozenset({"tools/call"})
"""Requests that a server may make a task of (SEP-2663, "Supported Methods")."""


def made_task(call: Call, channel: CallChannel, result: RawJson) -> "_ModernTask | None":
    """The task in a result, or None. Raises `RpcError` for a bad task."""
    if _TASK.search(result) is None or bytes((raw_object(result) or {}).get("resultType", b"")) != b'"task"':
        return None
    who, data = f'server "{call.upstream}"', {"upstream": {"server": call.upstream}, "outcome": "unknown"}
    if call.method not in _CAN_BE_TASKS:
        raise RpcError(f"{who} answered {call.method} with a task, which is not allowed.", data=data)
    try:
        task = msgspec.json.decode(result, type=ServerTask)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(f"{who} made a task that cannot be read: {exc}", data=data) from None
    return _ModernTask(call, channel, task.handle(Era.MODERN), task)


class _ModernTask(TaskPoll):
    """A task whose state has its questions and outcome; `first` is the initial one."""

    def __init__(self, call: Call, channel: CallChannel, handle: TaskHandle, first: ServerTask | None = None) -> None:
        is_working = first is not None and first.status == "working"
        super().__init__(call, channel, handle, first.pause if first is not None and is_working else 0.0)
        self._questions = InputQuestions(call, channel)
        self._last_message = b""
        self._steps = 0
        if first is not None and is_working:
            self._report(first)

    async def _follow(self, line: TaskConnection) -> RawJson:
        while True:
            with anyio.move_on_after(self._pause):
                await self._questions.answered()
            await self._hand_back(line)
            task = await self._look(line)
            if task.status not in ("working", "input_required"):
                self._questions.close()
                return self._outcome(task)
            self._report(task)
            await self._ask(line, task)
            if task.status == "working" or self._questions.are_answered:  # else it waits, perhaps forever
                self.channel.times.touch()

    async def _ask(self, line: TaskConnection, task: ServerTask) -> None:
        try:
            self._questions.take(task.inputRequests if task.status == "input_required" else None)
        except RpcError:
            await self._give_up(line)
            raise

    async def _hand_back(self, line: TaskConnection) -> None:
        try:
            answers = self._questions.answers()
        except RpcError:
            await self._give_up(line)
            raise
        if not answers:
            return
        responses = {"inputResponses": msgspec.Raw(object_bytes(answers))}
        try:
            await line.ask("tasks/update", {**self._named, **responses})
        except RpcError as error:
            if not self._may_repeat(line, error):
                self._questions.refused(answers, error)
        else:
            self._questions.taken(answers)

    async def _give_up(self, line: TaskConnection) -> None:
        self._questions.close()
        await self._cancel(line)

    def _report(self, task: ServerTask) -> None:
        message = bytes(task.statusMessage)
        if self.call.wants_progress and message[:1] == b'"' and message != self._last_message:
            self._last_message = message
            self._steps += 1
            self.channel.send(Progressed(self._steps, None, {"message": msgspec.Raw(message)}))

    def _outcome(self, task: ServerTask) -> RawJson:
        if task.status == "completed":
            members = raw_object(task.result) if task.result else None
            if members is None or members.get("resultType", _COMPLETE) != _COMPLETE:
                raise self._failed("was completed without a result that can be read", {})
            return without_mark(task.result, RELATED)
        if task.status == "failed" and bytes(task.error)[:1] == b"{":
            raise rpc_errors.from_wire(task.error)
        if task.status in ("failed", "cancelled"):
            ending = "was cancelled" if task.status == "cancelled" else "failed"
            raise self._failed(f"{ending}: {read_as(task.statusMessage, str) or 'the server does not say why'}", {})
        raise self._failed(f"is in the unknown state {hide_head(task.status, 100)!r}", {"outcome": "unknown"})

    def _failed(self, ending: str, data: JsonObject) -> RpcError:
        return RpcError(f'server "{self.call.upstream}": the task of this call {ending}', data=self.error_data(data))


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
            self.channel.times.touch()

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
        """Follows the task in `answer`. Raises `RpcError`."""
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
    return (_ModernTask if handle.era is Era.MODERN else _HandshakeTask)(call, channel, handle).taken_up()
