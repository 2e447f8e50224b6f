"""The life of a call as a table: which event may follow in which status. Sans-I/O.

Statuses are those of the tasks extension of 2026-07-28 (`io.modelcontextprotocol/tasks`).
"""

from enum import StrEnum
from typing import Final

from mcp_hub.errors import HubError
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progress,
    Started,
)

__all__ = ["CallStatus", "IllegalEvent", "advance", "has_ended"]


class CallStatus(StrEnum):
    """Where a call is in its life."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IllegalEvent(HubError):
    """An event that the call's status does not allow; the status is unchanged."""


_W, _Q = CallStatus.WORKING, CallStatus.INPUT_REQUIRED
_TABLE: Final[dict[tuple[CallStatus | None, type[CallEvent]], CallStatus]] = {
    (None, Started): _W,
    (_W, Progress): _W,
    (_W, Delta): _W,
    (_W, Log): _W,
    (_W, InputRequired): _Q,
    (_W, Completed): CallStatus.COMPLETED,
    (_W, Failed): CallStatus.FAILED,
    (_W, Cancelled): CallStatus.CANCELLED,
    (_Q, Progress): _Q,
    (_Q, Delta): _Q,
    (_Q, Log): _Q,
    (_Q, InputRequired): _Q,
    (_Q, InputReceived): _W,
    (_Q, Completed): CallStatus.COMPLETED,
    (_Q, Failed): CallStatus.FAILED,
    (_Q, Cancelled): CallStatus.CANCELLED,
}


def advance(status: CallStatus | None, event: CallEvent) -> CallStatus:
    """The status after `event`; None is the status before the first one.

    Raises `IllegalEvent`: anything after an ending, anything before `Started`, an answer to no question.
    """
    try:
        after = _TABLE[status, type(event)]
    except KeyError:
        raise IllegalEvent(f"{type(event).__name__} cannot follow in status {status}") from None
    return _Q if type(event) is InputReceived and event.remaining else after


def has_ended(status: CallStatus | None) -> bool:
    """Whether no event may follow."""
    return status is not None and status is not _W and status is not _Q
