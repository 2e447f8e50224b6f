"""The life of a call as a table: which event may follow in which status. Sans-I/O.

Statuses are those of the tasks extension of 2026-07-28 (`io.modelcontextprotocol/tasks`). `input_required` joins the
table with the question events.
"""

from enum import StrEnum
from typing import Final

from mcp_hub.errors import HubError
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, Log, Progress, Started

__all__ = ["CallStatus", "IllegalEvent", "advance", "has_ended"]


class CallStatus(StrEnum):
    """Where a call is in its life."""

    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class IllegalEvent(HubError):
    """An event that the call's status does not allow; the status is unchanged."""


_W = CallStatus.WORKING
_TABLE: Final[dict[tuple[CallStatus | None, type[CallEvent]], CallStatus]] = {
    (None, Started): _W,
    (_W, Progress): _W,
    (_W, Delta): _W,
    (_W, Log): _W,
    (_W, Completed): CallStatus.COMPLETED,
    (_W, Failed): CallStatus.FAILED,
    (_W, Cancelled): CallStatus.CANCELLED,
}


def advance(status: CallStatus | None, event: CallEvent) -> CallStatus:
    """The status after `event`; None is the status before the first one.

    Raises `IllegalEvent`: anything after an ending, anything before `Started`.
    """
    try:
        return _TABLE[status, type(event)]
    except KeyError:
        raise IllegalEvent(f"{type(event).__name__} cannot follow in status {status}") from None


def has_ended(status: CallStatus | None) -> bool:
    """Whether no event may follow."""
    return status is not None and status is not _W
