"""The normalised events of model output, whichever provider's stream or text they are read from.

A stream is `OutputStart`, then text, thinking and tool calls as they come, then one `OutputEnd`. A tool call is
`ToolCallStart`, any number of `ToolCallChunk`, `ToolCallEnd`; the calls of one output may interleave, and `id` says
which one an event belongs to. The chunks of a call, joined, are the arguments as the model wrote them; those of
`ToolCallEnd` are whole. `OutputError` may stand anywhere and ends nothing by itself.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "interrupted"]
"""The reason why output ended; `interrupted` where the provider did not let it end or the stream broke off."""


@dataclass(frozen=True, slots=True)
class OutputStart:
    """Output begins; `id` is the provider's id of it, or one that the reader was given."""

    type: ClassVar[str] = "start"
    id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer."""

    type: ClassVar[str] = "text"
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More text of the model's thinking."""

    type: ClassVar[str] = "thinking"
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins; `name` is the tool as the model wrote it."""

    type: ClassVar[str] = "tool_call_start"
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """More characters of the arguments, as the model wrote them."""

    type: ClassVar[str] = "tool_call_chunk"
    id: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A call is complete; `arguments` is the text of a JSON object."""

    type: ClassVar[str] = "tool_call_end"
    id: str
    arguments: str


@dataclass(frozen=True, slots=True)
class OutputEnd:
    """Output ended; nothing follows."""

    type: ClassVar[str] = "end"
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class OutputError:
    """A mistake in the output: a stable code of `mcp_hub.codes`, and a sentence that a model can act on.

    `id` is that of the call that it ends in place of `ToolCallEnd`, None if it belongs to no call.
    """

    type: ClassVar[str] = "error"
    code: str
    message: str
    id: str | None = None


ModelEvent: TypeAlias = (
    OutputStart | TextDelta | ThinkingDelta | ToolCallStart | ToolCallChunk | ToolCallEnd | OutputEnd | OutputError
)
"""Any of them; `type` says which one."""


def as_json(event: ModelEvent) -> dict[str, str]:
    """The event as a JSON object: its `type` and its fields; a field that is None is left out."""
    fields = ((name, getattr(event, name)) for name in event.__slots__)
    return {"type": event.type, **{name: value for name, value in fields if value is not None}}
