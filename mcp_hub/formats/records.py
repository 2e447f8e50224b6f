"""Records: losses, exports, calls of a model, and the normalised events of its output.

Output is `OutputStart`, then text, thinking and tool calls, then one `OutputEnd`. A call is `ToolCallStart`, raw
`ToolCallChunk`s and `ToolCallEnd`, which may interleave by `id`. `OutputError` may occur anywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.types import JsonObject

T = TypeVar("T")

NO_ID: Final = "mcp_hub_no_id"
"""The member of `extra` for an id that the hub made: Gemini may send none."""
SENT_ID: Final = "mcp_hub_sent_id"
"""The member of `extra` for the provider's id of a call, where another call has the same."""
LEGACY: Final = "mcp_hub_legacy"
"""The member of `extra` for a `function_call` of OpenAI's first API of functions."""


class Exported(NamedTuple):
    """Members of a request; losses by tool."""

    body: JsonObject
    losses: dict[str, tuple[LossInfo, ...]]


class CallFault(NamedTuple):
    """A code of `mcp_hub.codes`, and a sentence for the model."""

    code: str
    message: str


class ModelCall(msgspec.Struct, frozen=True):
    """A call that a model made; its `id` is unique within a request.

    `arguments` have the tool's own names. `extra`: other members (`caller`, `namespace`, `thoughtSignature`, …),
    returned untouched. A call with a `fault` is not made.
    """

    id: str
    name: str
    arguments: JsonObject
    extra: JsonObject = {}
    fault: CallFault | None = None


McpResult = JsonObject
"""A result of MCP, decoded: `content`, `structuredContent`, `isError`."""


def json_value(value: Any) -> Any:
    """The value as JSON; pydantic models of an SDK are dumped."""
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True, exclude_unset=True)


def as_objects(values: Iterable[JsonObject], kind: type[T]) -> list[T]:
    """The values as objects of a provider's SDK: `as_objects(messages, types.Content)`.

    Dictionaries of anthropic and openai stay. Raises what the type raises.
    """
    make = getattr(kind, "model_validate", None)
    # a dictionary with known members is one for type checkers only
    return cast(list[T], [value if make is None else make(value) for value in values])


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
    """A code of `mcp_hub.codes`, and a sentence for the model.

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
