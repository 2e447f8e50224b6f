"""The normalised events of a model's output.

`OutputStart`, then text, thinking and tool calls, then one `OutputEnd`. A call is `ToolCallStart`, raw `ToolCallChunk`s
and `ToolCallEnd`, which may interleave by `id`. `OutputError` may occur anywhere.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "interrupted"]
"""The reason why output ended; `interrupted` if the stream broke off."""


@dataclass(frozen=True, slots=True)
class OutputStart:
    """Output begins; `id` is the provider's, or the reader's."""

    type: ClassVar[str] = "start"
    id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer."""

    type: ClassVar[str] = "text"
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of the model's thinking."""

    type: ClassVar[str] = "thinking"
    delta: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins; `name` is as the model wrote it."""

    type: ClassVar[str] = "tool_call_start"
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """More raw arguments."""

    type: ClassVar[str] = "tool_call_chunk"
    id: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A call is complete; `arguments` is a JSON object as text."""

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
    """A mistake in the output: a code of `mcp_hub.codes`, and a sentence for the model.

    `id`: the call that it ends, if any.
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
    """The event with its `type`, without None."""
    fields = ((name, getattr(event, name)) for name in event.__slots__)
    return {"type": event.type, **{name: value for name, value in fields if value is not None}}
