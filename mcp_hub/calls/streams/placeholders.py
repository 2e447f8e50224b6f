"""Events that stand in a durable stream for one that cannot be written, or for a stored one that cannot be read.

Numbers stay without holes and every stream keeps its one ending, whatever upstreams and newer hubs put into events.
"""

from typing import Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Failed, Log, Started
from mcp_hub.masking import hide_head
from mcp_hub.protocol.shape.stream_events import decoded

UNWRITABLE: Final = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of encoding: half a character, an object that is not JSON, a number that is too large, too deep."""
_SHOWN: Final = 4096
"""Characters that are kept of a text that cannot be kept as it is."""


def unwritable(event: CallEvent, problem: Exception) -> CallEvent:
    """Can be written in place of an event that cannot: an ending for an ending, a log message for anything else."""
    why = _writable(str(problem))
    match event:
        case Completed():
            return Failed(RpcError(f"The call succeeded, but its result cannot be written: {why}"))
        case Cancelled(reason):
            return Cancelled(_writable(reason or why))
        case Failed(error):
            message = f"{_writable(error.message)} (the rest of this error cannot be written: {why})"
            is_unknown = (error.data or {}).get("outcome") == "unknown"
            data = {"outcome": "unknown"} if is_unknown else None
            return Failed(RpcError(message, code=error.code, data=data))
        case _:
            text = f"an event of this call ({type(event).__name__}) cannot be written: {why}"
            params = {"level": "warning", "logger": "mcp-hub", "data": text}
            return Log("warning", msgspec.json.encode(params))


def event_of(line: bytes) -> CallEvent:
    """The event of a stored line; one that cannot be read says nothing."""
    try:
        return decoded(line)[1]
    except ValueError:
        return Started()


def ending_of(row: StreamInfo, line: bytes) -> Ending:
    """The last event of a stream that has ended; one that cannot be read is still an ending."""
    event = event_of(line)
    if isinstance(event, Ending):
        return event
    if row.status == "cancelled":
        return Cancelled()
    reason = f"The call has ended ({row.status}). Its result cannot be read: a newer hub may have written it."
    return Failed(RpcError(reason))


def _writable(text: str) -> str:
    """The text with a `?` for each character that is none."""
    return hide_head(text, _SHOWN).encode("utf-8", "replace").decode()
