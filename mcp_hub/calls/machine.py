"""The states of a call (tasks extension of 2026-07-28) as a table. Sans-I/O."""

from enum import StrEnum
from typing import Final

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
    """A call's status."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_W, _Q = CallStatus.WORKING, CallStatus.INPUT_REQUIRED
_UNCHANGED: Final = (Progressed, Delta, Log, ToolCall, ToolResult, Attempt, Reset)
_NEXT: Final[dict[type[CallEvent], CallStatus | None]] = {
    **dict.fromkeys(_UNCHANGED),
    InputRequired: _Q,
    Completed: CallStatus.COMPLETED,
    Failed: CallStatus.FAILED,
    Cancelled: CallStatus.CANCELLED,
}
"""The status after an event; None: unchanged."""
WORKING_NEXT: Final = {kind: status or _W for kind, status in _NEXT.items()}
"""The status after each event that may follow while a call is working."""


def advance(status: CallStatus | None, event: CallEvent) -> CallStatus:
    """The status after `event`; None precedes the first one. Raises `ValueError` for an event that may not follow."""
    kind = type(event)
    if status is _W or status is _Q:
        if kind in _NEXT:
            return _NEXT[kind] or status
        if isinstance(event, InputReceived) and status is _Q:
            return _Q if event.remaining else _W
    elif status is None and kind is Started:
        return _W
    raise ValueError(f"{kind.__name__} cannot follow in status {status}")
