"""A task that a server runs for a call, polled until it ends. Another hub can continue it (`TaskHandle`)."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Self

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import Busy, HttpRefused, HubRestarted, RpcError, UpstreamLost, UpstreamUnavailable
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_hub.types import Era, JsonObject, RawJson, RawObject

Ask = Callable[[str, RawObject], Awaitable[RawJson]]
"""Sends a request of the hub's own; its result. Raises `RpcError`."""

RELATED: Final = "io.modelcontextprotocol/related-task"
_POLL: Final = (0.1, 1.0, 30.0)
"""Seconds between two polls: at least, by default, at most."""
_MISSES: Final = 20
"""Failed polls in a row, about 8 minutes in all."""
_GOODBYE: Final = 1.0
"""Seconds that a server has to take note of a cancellation."""
_PASSING: Final = (408, 425, 429)
"""Statuses below 500 by which a server says that it may answer when it is asked again."""
_UNKNOWN: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND})
"""Codes by which servers refuse an unknown task."""
_TO_THE_SECOND: Final = len("2026-07-28T10:00:00")


class ServerTask(msgspec.Struct):
    """A task in either era's form; absent members are empty."""

    taskId: str
    status: str = "working"
    createdAt: str | None = None
    pollInterval: float | None = None
    pollIntervalMs: float | None = None
    statusMessage: msgspec.Raw = msgspec.Raw(b"")
    inputRequests: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def pause(self) -> float:
        """Seconds until the next poll."""
        least, usual, longest = _POLL
        return max(least, min((self.pollIntervalMs or self.pollInterval or usual * 1000) / 1000, longest))

    def handle(self, era: Era) -> "TaskHandle":
        return TaskHandle(era, self.taskId, self.createdAt)


class TaskHandle(msgspec.Struct, frozen=True):
    """Data to continue a task. `created` shows whether a restarted server reused the id."""

    era: Era
    task: str
    created: str | None = None


class TaskConnection(msgspec.Struct, frozen=True):
    """A connection for tasks. `is_outlived`: they outlive it; `is_left`: they outlive cancelled calls."""

    ask: Ask
    is_open: Callable[[], bool]
    is_outlived: bool
    is_left: Callable[[], bool]


class TaskLeft(UpstreamLost):
    """The connection is lost; another can follow the task."""

    def __init__(self, task: "TaskPoll", why: str) -> None:
        super().__init__(why, data=task.error_data({"outcome": "unknown"}))
        self.task = task


class TaskPoll(ABC):
    """A task and its call. `pause`: seconds until the first poll."""

    _is_earlier = False

    def __init__(self, call: Call, channel: CallChannel, handle: TaskHandle, pause: float = 0.0) -> None:
        self.call = call
        self.channel = channel
        self.handle = handle
        self._named: RawObject = {"taskId": msgspec.Raw(object_bytes(handle.task))}
        self._pause = pause
        channel.continuable(msgspec.json.encode(handle))

    def error_data(self, more: JsonObject) -> JsonObject:
        return {"upstream": {"server": self.call.upstream, "task": self.handle.task}, **more}

    async def follow(self, line: TaskConnection) -> RawJson:
        """The call's result. Cancellation cancels the task.

        Raises `RpcError`, also `TaskLeft`; `HubRestarted` if the server does not know an earlier hub's task.
        """
        try:
            return await self._follow(line)
        except anyio.get_cancelled_exc_class():
            if not (line.is_left() or self.channel.survives):
                await self._cancel(line)
            raise

    @abstractmethod
    async def _follow(self, line: TaskConnection) -> RawJson:
        """Follows the task in its era."""

    async def _cancel(self, line: TaskConnection) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True), suppress(RpcError):
            await line.ask("tasks/cancel", self._named)

    async def _look(self, line: TaskConnection) -> ServerTask:
        raw = await self._read(line, "tasks/get", _UNKNOWN)
        prefix = f'server "{self.call.upstream}" answered tasks/get'
        try:
            task = msgspec.json.decode(raw, type=ServerTask)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise RpcError(f"{prefix} without a task: {exc}", data=self.error_data({})) from None
        if task.taskId != self.handle.task:
            raise RpcError(f"{prefix} with another task.", data=self.error_data({}))
        if None not in (task.createdAt, self.handle.created) and _second(task.createdAt) != _second(
            self.handle.created
        ):
            raise self.unknown("it has another task by that id")
        self._pause = task.pause
        return task

    async def _read(self, line: TaskConnection, method: str, unknown: frozenset[int] = frozenset()) -> RawJson:
        """Repeats the request while that may help."""
        pause, misses = _POLL[1], 0
        while True:
            try:
                return await line.ask(method, self._named)
            except RpcError as error:
                if error.raw is not None and error.code in unknown:
                    raise self.unknown(error.message) from None
                if not self._may_repeat(line, error) or misses == _MISSES:
                    raise
            await anyio.sleep(pause)
            pause, misses = min(2 * pause, _POLL[2]), misses + 1

    def _may_repeat(self, line: TaskConnection, error: RpcError) -> bool:
        """Raises `TaskLeft`."""
        if isinstance(error, HttpRefused):
            return error.status >= 500 or error.status in _PASSING
        if not isinstance(error, UpstreamLost | UpstreamUnavailable | Busy):
            return False
        if not line.is_open() and line.is_outlived:
            raise TaskLeft(self, error.message) from None
        return line.is_open()

    def taken_up(self) -> Self:
        """The task, which an earlier hub has followed."""
        self._is_earlier = True
        return self

    def unknown(self, why: str) -> UpstreamLost | HubRestarted:
        """The error of a task that its server does not have."""
        reason = (
            f'server "{self.call.upstream}" does not know task {hide_head(self.handle.task, 100)} of this call: {why}'
        )
        return self.not_continued(reason) if self._is_earlier else UpstreamLost(reason, data=self._unknown_outcome)

    def not_continued(self, reason: str) -> HubRestarted:
        """The error of an earlier hub's task."""
        message = f"The hub was restarted and cannot continue the call: {reason}"
        return HubRestarted(message, data=self._unknown_outcome)

    @property
    def _unknown_outcome(self) -> JsonObject:
        return self.error_data({"outcome": "unknown"})


def _second(stamp: str | None) -> str:
    """Servers may store a time less exactly."""
    return (stamp or "")[:_TO_THE_SECOND]
