"""Tasks (SEP-2663) as modern clients see them. Pure.

Times are Unix seconds and durations seconds; on the wire ISO 8601 and milliseconds.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import MISSING_CAPABILITY
from mcp_hub.protocol.meta import TASKS
from mcp_hub.protocol.shape.questions import Question, input_members, take_retry
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.types import JsonObject, RawJson, RawObject

NOTICE: Final = "notifications/tasks"
ACKNOWLEDGED: Final = b'{"resultType":"complete"}'
"""The answer to `tasks/update` and `tasks/cancel`."""

_POLL: Final = 1000
_LONGEST_POLL: Final = 10_000
"""Milliseconds between two polls of a young and an old task: a tenth of the age, so that a result is hardly late."""
_LONGEST: Final = 2**53 - 1
"""Milliseconds: the largest integer that every JSON library reads exactly (RFC 8259 §6); a record may say more."""


class TaskState(msgspec.Struct, frozen=True):
    """A task's `age` in seconds; readable for `kept` seconds after its creation."""

    id: str
    status: str
    created: float
    updated: float
    kept: float
    message: str | None = None
    age: float = 0.0

    @property
    def members(self) -> JsonObject:
        """Members of every task."""
        members: JsonObject = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": timestamp(self.created),
            "lastUpdatedAt": timestamp(self.updated),
            "ttlMs": max(1, int(min(self.kept * 1000, _LONGEST))),
            "pollIntervalMs": int(min(max(self.age * 100, _POLL), _LONGEST_POLL)),
        }
        if self.message is not None:
            members["statusMessage"] = self.message
        return members


def created(task: TaskState) -> bytes:
    """`CreateTaskResult`, in place of the result."""
    return object_bytes({"resultType": "task", **task.members})


def answered(detailed: JsonObject) -> bytes:
    """The result of `tasks/get`."""
    return object_bytes({"resultType": "complete", **detailed})


def with_result(task: TaskState, result: RawJson) -> JsonObject:
    """`CompletedTask`."""
    return {**task.members, "result": msgspec.Raw(bytes(result))}


def with_error(task: TaskState, error: RpcError) -> JsonObject:
    """`FailedTask`; `error` is as the client may see it."""
    failed = msgspec.structs.replace(task, message=error.message)
    return {**failed.members, "error": msgspec.Raw(bytes(error.encoded()))}


def with_requests(task: TaskState, questions: Mapping[str, Question]) -> JsonObject:
    """`InputRequiredTask`; params must be in modern form."""
    return {**task.members, "inputRequests": input_members(questions)}


def missing_tasks() -> RpcError:
    """The error for a client without the extension."""
    data: JsonObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    return RpcError(f"missing required client capability: {TASKS}", code=MISSING_CAPABILITY, data=data)


class _Named(msgspec.Struct):
    taskId: str


def task_id(params: RawObject) -> str:
    """Raises `InvalidParams`."""
    try:
        return msgspec.json.decode(object_bytes(params), type=_Named).taskId
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"params.taskId: {problem}") from None


def task_responses(params: RawObject) -> RawObject:
    """Answers by key. Raises `InvalidParams`."""
    responses, _ = take_retry(dict(params))
    if responses is None:
        raise InvalidParams("params.inputResponses is required: an object of responses by their keys in inputRequests")
    return responses
