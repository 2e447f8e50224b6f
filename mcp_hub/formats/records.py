"""Records: losses, exports, calls of a model."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar, cast

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
    """Members of a request, and losses by tool."""

    body: JsonObject
    losses: dict[str, tuple[LossInfo, ...]]


class CallFault(NamedTuple):
    """A mistake in a call: a code of `mcp_hub.codes`, and a sentence for the model."""

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
