"""The life of a call as a table: which event may follow in which status. Sans-I/O.

Statuses are those of the tasks extension of 2026-07-28 (`io.modelcontextprotocol/tasks`).
"""

from enum import StrEnum
from typing import Final

from mcp_hub.errors import HubError
from mcp_hub.events import (
    Attempt,
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Reset,
    Started,
    ToolCall,
    ToolResult,
)


class CallStatus(StrEnum):
    """The status of a call."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IllegalEvent(HubError):
    """An event that the call's status does not allow; the status is unchanged."""


_W, _Q = CallStatus.WORKING, CallStatus.INPUT_REQUIRED
_NEXT: Final[dict[type[CallEvent], CallStatus | None]] = {
    Progressed: None,
    Delta: None,
    Log: None,
    ToolCall: None,
    ToolResult: None,
    Attempt: None,
    Reset: None,
    InputRequired: _Q,
    Completed: CallStatus.COMPLETED,
    Failed: CallStatus.FAILED,
    Cancelled: CallStatus.CANCELLED,
}
"""Status of a running call after an event; None: unchanged. By type alone: an enum's hash is a call of its own."""


def advance(status: CallStatus | None, event: CallEvent) -> CallStatus:
    """The status after `event`; None is the status before the first one.

    Raises `IllegalEvent`: anything after an ending, anything before `Started`, an answer to no question.
    """
    kind = type(event)
    if status is _W or status is _Q:
        if kind in _NEXT:
            return _NEXT[kind] or status
        if isinstance(event, InputReceived) and status is _Q:
            return _Q if event.remaining else _W
    elif status is None and kind is Started:
        return _W
    raise IllegalEvent(f"{kind.__name__} cannot follow in status {status}")
