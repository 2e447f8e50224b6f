"""Checks events from workers and streaming servers."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from mcp_hub.events import Delta, InputRequired, Log, Progressed, Reset, ToolCall, ToolResult
from mcp_hub.protocol.definitions.messages import repaired_params
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, one_line, raw_object, read_as
from mcp_hub.protocol.meta import STREAMS
from mcp_hub.types import RawJson, RawObject

Produced = Progressed | Delta | Log | ToolCall | ToolResult | InputRequired

_NOT_REST: Final = ("progress", "total", "progressToken")
_OF_SERVERS: Final = frozenset({"progress", "delta", "log", "tool-call", "tool-result"})
"""Types that are taken from a server's stream, beside `reset`. Questions come as messages of their own."""
_TAKEN_BACK: Final = "taken_back"
"""The reason of a reset of a server, whose own words stay there."""


class _Progress(msgspec.Struct):
    progress: int | float
    total: int | float | None = None
    message: str | None = None


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Delta(msgspec.Struct):
    content: list[_Block]
    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    channel: Literal["content", "aux"] = "content"


class _Log(msgspec.Struct):
    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    data: msgspec.Raw
    logger: str | None = None


class _ToolCall(msgspec.Struct):
    call: str
    name: str
    arguments: RawObject


class _ToolResult(msgspec.Struct):
    call: str
    content: list[_Block]
    isError: bool = False


class _Ask(msgspec.Struct):
    key: str
    method: Literal["elicitation/create", "sampling/createMessage", "roots/list"]
    params: RawObject


PRODUCED: Final[Mapping[str, type[_Progress | _Delta | _Log | _ToolCall | _ToolResult | _Ask]]] = {
    "progress": _Progress,
    "delta": _Delta,
    "log": _Log,
    "tool-call": _ToolCall,
    "tool-result": _ToolResult,
    "input-required": _Ask,
}
"""The types that others than the hub may make; those of the hub alone say when a call starts, ends or is repeated."""


def produced(kind: str, members: RawObject) -> Produced:
    """Raises `msgspec.DecodeError`, `UnicodeDecodeError`, `RecursionError`."""
    text = object_bytes(members)
    msgspec.json.decode(text)  # what the shape does not look at has to be JSON, too
    data = {name: bytes(value) for name, value in members.items()}
    match msgspec.json.decode(text, type=PRODUCED[kind]):
        case _Progress(progress, total):
            other_members = {name: msgspec.Raw(value) for name, value in data.items() if name not in _NOT_REST}
            return Progressed(progress, total, other_members or None)
        case _Delta(_, index, channel):
            return Delta(data["content"], index, channel)
        case _Log(level):
            return Log(level, text)
        case _ToolCall(call, name):
            return ToolCall(call, name, data["arguments"])
        case _ToolResult(call, _, is_error):
            return ToolResult(call, data["content"], is_error)
        case _Ask(key, method):
            return InputRequired(key, method, data["params"])


class _Reset(msgspec.Struct):
    discard_from: Annotated[int, msgspec.Meta(ge=1)]


class _Event(msgspec.Struct):
    type: str
    data: RawObject
    seq: Annotated[int, msgspec.Meta(ge=0)] = 0


_StreamId = Annotated[str, msgspec.Meta(max_length=128)]


class _Part(msgspec.Struct):
    events: list[_Event]
    stream: msgspec.Raw = msgspec.Raw(b"null")


class _Page(msgspec.Struct):
    events: list[_Event]
    truncated: bool = False


Numbered = tuple[int, Produced | Reset | None]
"""An event of a server with its number there, 0 without one; None stands for one that is not taken.

Partial content has its number, too, and a reset that from which on it is taken back.
"""


def of_server(meta: RawJson) -> tuple[str, list[Numbered]] | None:
    """The stream, if it has an id, and the events in a progress notification's `_meta` (docs/specification/streams.md
    §4), or None. An event that cannot be read is not taken.
    """
    members = raw_object(msgspec.Raw(bytes(meta)))
    part = read_as(members[STREAMS], _Part) if members is not None and STREAMS in members else None
    if part is None:
        return None
    events: list[Numbered] = []
    for event in part.events:
        try:
            events.append((event.seq, _event_of_server(event)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            events.append((event.seq, None))
    return read_as(part.stream, _StreamId) or "", events


def page_of_server(result: RawJson) -> tuple[list[Numbered], bool]:
    """The events of a `streams.read`, and whether earlier ones are gone.

    Raises `msgspec.DecodeError`, `UnicodeDecodeError`, `RecursionError`.
    """
    page = msgspec.json.decode(result, type=_Page)
    if any(event.seq == 0 for event in page.events):
        raise msgspec.ValidationError("an event has no number")
    return [(event.seq, _event_of_server(event)) for event in page.events], page.truncated


def taken_back(first: int) -> Reset:
    """Says that a server takes back partial content from this number of its stream on."""
    return Reset(0, _TAKEN_BACK, origin=first)


def _event_of_server(event: _Event) -> Produced | Reset | None:
    if event.type not in _OF_SERVERS and event.type != "reset":
        return None
    if event.type == "reset":
        return taken_back(msgspec.json.decode(object_bytes(event.data), type=_Reset).discard_from)
    data = {name: msgspec.Raw(one_line(bytes(value))) for name, value in event.data.items()}
    content = produced(event.type, repaired_params("notifications/message", data) if event.type == "log" else data)
    return msgspec.structs.replace(content, origin=event.seq) if isinstance(content, Delta) else content
