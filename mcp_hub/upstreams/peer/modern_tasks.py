"""Tasks that a modern server makes of calls. Source: `io.modelcontextprotocol/tasks` (SEP-2663)."""

import re
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import RpcError
from mcp_hub.events import Progressed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.extensions import without_mark
from mcp_hub.protocol.jsonrpc import rpc_errors
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.types import Era, JsonObject, RawJson
from mcp_hub.upstreams.peer.input_questions import InputQuestions
from mcp_hub.upstreams.peer.task_poll import RELATED, ServerTask, TaskConnection, TaskHandle, TaskPoll

_TASK: Final = re.compile(rb'"task"')
_COMPLETE: Final = msgspec.Raw(b'"complete"')
_CAN_BE_TASKS: Final = frozenset({"tools/call"})
"""Requests that a server may make a task of (SEP-2663, "Supported Methods")."""


def made_task(call: Call, channel: CallChannel, result: RawJson) -> "ModernTask | None":
    """The task in a result, if it is one. Raises `RpcError` for a bad task."""
    if _TASK.search(result) is None or bytes((raw_object(result) or {}).get("resultType", b"")) != b'"task"':
        return None
    who, data = f'server "{call.upstream}"', {"upstream": {"server": call.upstream}, "outcome": "unknown"}
    if call.method not in _CAN_BE_TASKS:
        raise RpcError(f"{who} answered {call.method} with a task, which is not allowed.", data=data)
    try:
        task = msgspec.json.decode(result, type=ServerTask)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(f"{who} made a task that cannot be read: {exc}", data=data) from None
    return ModernTask(call, channel, task.handle(Era.MODERN), task)


class ModernTask(TaskPoll):
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
                self.channel.touch()

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
