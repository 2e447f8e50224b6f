"""The states of a call (tasks extension of 2026-07-28) as a table. Sans-I/O."""

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
from mcp_hub.types import Status

_W: Final = "working"
_Q: Final = "input_required"
_UNCHANGED: Final = (Progressed, Delta, Log, ToolCall, ToolResult, Attempt, Reset)
_NEXT: Final[dict[type[CallEvent], Status | None]] = {
    **dict.fromkeys(_UNCHANGED),
    InputRequired: _Q,
    Completed: "completed",
    Failed: "failed",
    Cancelled: "cancelled",
}
"""The status after an event; None: unchanged."""
WORKING_NEXT: Final = {kind: status or _W for kind, status in _NEXT.items()}
"""The status after each event that may follow while a call is working."""


def advance(status: Status | None, event: CallEvent) -> Status:
    """The status after `event`; None precedes the first one. Raises `ValueError` for an event that may not follow."""
    kind = type(event)
    if status == _W or status == _Q:
        if kind in _NEXT:
            return _NEXT[kind] or status
        if isinstance(event, InputReceived) and status == _Q:
            return _Q if event.remaining else _W
    elif status is None and kind is Started:
        return _W
    raise ValueError(f"{kind.__name__} cannot follow in status {status}")
