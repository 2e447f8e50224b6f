"""The records of this package: what an export lost, an export, a call of a model."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from mcp_hub.types import JsonObject

T = TypeVar("T")

LossKind = Literal["described", "dropped", "widened", "renamed", "not_strict"]
"""`described`: a constraint became text of the description. `dropped`: an annotation is gone. `widened`: the schema
takes more than the original. `renamed`: a parameter has another name. `not_strict`: the tool is not enforced."""


class Loss(NamedTuple):
    """One thing that a format does not carry: where in the schema (a path of names), the kind, and what it was."""

    path: str
    kind: LossKind
    what: str


class Exported(NamedTuple):
    """Tools in a format: the members that go into a request, and by tool what they lost. Tools without a loss are
    not in `losses`."""

    body: JsonObject
    losses: dict[str, tuple[Loss, ...]]


class CallFault(NamedTuple):
    """A mistake in a call: a stable code of `mcp_hub.codes`, and a sentence that a model can act on."""

    code: str
    message: str


class ModelCall(msgspec.Struct, frozen=True):
    """A call that a model made.

    `id` is unique within a request; `arguments` are those for the tool, with its own names of parameters. `extra` are
    all other members of the call in its format (`caller`, `namespace`, `thoughtSignature`, …), which go back
    untouched. A call with a `fault` is not made: the fault is its result.
    """

    id: str
    name: str
    arguments: JsonObject
    extra: JsonObject = {}
    fault: CallFault | None = None


McpResult = dict[str, Any]
"""A result of MCP, decoded: `content`, `structuredContent`, `isError`."""


def json_value(value: Any) -> Any:
    """The value as JSON; objects of a provider's SDK (pydantic models) become what they stand for."""
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json", by_alias=True, exclude_unset=True)


def as_objects(values: Iterable[JsonObject], kind: type[T]) -> list[T]:
    """The values as objects of a provider's SDK: `as_objects(messages, types.Content)`.

    Types of google-genai make objects of them. Those of anthropic and openai for requests are dictionaries with known
    members, which the values are already: `kind` is for type checkers then. Raises what the type raises for values
    that do not fit.
    """
    make = getattr(kind, "model_validate", None)
    # a dictionary with known members is one for type checkers only
    return cast(list[T], [value if make is None else make(value) for value in values])
