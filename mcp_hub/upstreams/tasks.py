"""Tools of handshake servers that run only as tasks: the hub makes the task, follows it and answers an ordinary call.

Messages about a task name it, so a question of one is attributed exactly, whatever else is in flight. Source:
specification 2025-11-25, basic/utilities/tasks; protocol.md §3, "2025-11-25 tasks upstream".
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio
import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.protocol.envelope import object_bytes, raw_object
from mcp_hub.types import JsonObject, RawJson, RawObject
from mcp_hub.upstreams.base import Call, CallChannel

__all__ = ["Tasks", "required_tasks"]

Asker = tuple[Call, CallChannel]
Relay = Callable[[Call, CallChannel, Callable[[int], None]], Awaitable[Completed]]
"""Sends a call and tells with which progress token it went; its result."""
Ask = Callable[[str, RawObject], Awaitable[RawJson]]
"""Sends a request of the hub's own; its result."""

_RELATED: Final = "io.modelcontextprotocol/related-task"
_TTL: Final = msgspec.Raw(b'{"ttl":21600000}')
"""Milliseconds that the server is asked to keep a task: the longest that a call may take by default."""
_POLL: Final = (0.1, 1.0, 30.0)
"""Seconds between two looks at a task: at least, where the server names no interval, at most."""


class _Task(msgspec.Struct):
    taskId: str
    status: str = "working"
    pollInterval: float | None = None


class _Created(msgspec.Struct):
    task: _Task


class _ToolTask(msgspec.Struct):
    class Execution(msgspec.Struct):
        taskSupport: str = "forbidden"

    name: str
    execution: Execution


def required_tasks(capabilities: JsonObject, tools: Iterable[bytes]) -> frozenset[str]:
    """The names of the tools that can be called as tasks only; none if the server does not take such calls."""
    offered: object = capabilities
    for key in ("tasks", "requests", "tools", "call"):
        offered = offered.get(key) if isinstance(offered, dict) else None
    found: set[str] = set()
    for raw in tools if offered is not None else ():
        if b'"taskSupport"' in raw:
            try:
                tool = msgspec.json.decode(raw, type=_ToolTask)
            except (msgspec.DecodeError, RecursionError):
                continue
            if tool.execution.taskSupport == "required":
                found.add(tool.name)
    return frozenset(found)


class Tasks:
    """The tasks that run at one server for calls of the hub's clients."""

    def __init__(self) -> None:
        self._by_id: dict[str, Asker] = {}
        self._by_token: dict[int, Asker] = {}

    def asker(self, params: RawJson) -> Asker | None:
        """The call whose task a message names, if it names one."""
        if not self._by_id or _RELATED.encode() not in bytes(params):
            return None
        meta = raw_object((raw_object(params) or {}).get("_meta", msgspec.Raw(b"{}"))) or {}
        try:
            return self._by_id.get(msgspec.json.decode(meta[_RELATED], type=_Task).taskId)
        except (KeyError, msgspec.DecodeError, RecursionError):
            return None

    def reporter(self, token: int) -> Asker | None:
        """The call whose task still reports progress under this token."""
        return self._by_token.get(token)

    async def run(self, call: Call, channel: CallChannel, relay: Relay, ask: Ask) -> RawJson:
        """Runs a call as a task to its result. A caller that gives up cancels the task.

        Raises `RpcError`: the server's, or for a task that it lost track of.
        """
        call = msgspec.structs.replace(call, params={**call.params, "task": _TTL})
        tokens: list[int] = []
        done = await relay(call, channel, tokens.append)
        try:
            task = msgspec.json.decode(done.result, type=_Created).task
        except (msgspec.DecodeError, RecursionError):
            return done.result  # it was answered without a task after all
        named: RawObject = {"taskId": msgspec.Raw(object_bytes(task.taskId))}
        (token,) = tokens
        self._by_id[task.taskId] = self._by_token[token] = call, channel
        try:
            await _ended(task, named, channel, ask)
            return _without_task(await ask("tasks/result", named))
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(1, shield=True):
                await _cancel(named, ask)
            raise
        finally:
            del self._by_id[task.taskId], self._by_token[token]


async def _ended(task: _Task, named: RawObject, channel: CallChannel, ask: Ask) -> None:
    """Returns when the result can be fetched, or when fetching it is how the server gets to ask."""
    while task.status == "working":
        least, usual, most = _POLL
        await anyio.sleep(max(least, min((task.pollInterval or usual * 1000) / 1000, most)))
        try:
            task = msgspec.json.decode(await ask("tasks/get", named), type=_Task)
        except msgspec.DecodeError as exc:
            raise RpcError(f"tasks/get was answered with no task: {exc}") from None
        channel.heard()


async def _cancel(named: RawObject, ask: Ask) -> None:
    try:
        await ask("tasks/cancel", named)
    except RpcError:
        pass  # it has ended in the meantime


def _without_task(result: RawJson) -> RawJson:
    """The result without the mark that means something on this hop only."""
    members = raw_object(result) or {}
    meta = raw_object(members["_meta"]) if "_meta" in members else None
    if meta is None or _RELATED not in meta:
        return result
    del meta[_RELATED]
    return object_bytes({**{k: v for k, v in members.items() if k != "_meta"}, **({"_meta": meta} if meta else {})})
