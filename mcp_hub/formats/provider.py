"""The form of a format, and shared members of chunks, of tools and of calls."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.formats.arguments import checked, read_arguments
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import NO_ID, SENT_ID, CallFault, McpResult, ModelCall
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject


def part_in(value: object, member: str) -> JsonObject:
    """A member that is an object, else an empty one."""
    entry = value.get(member) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}


def parts_in(value: object, member: str) -> list[JsonObject]:
    """The objects in a member that is a list."""
    entries = value.get(member) if isinstance(value, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


NOTHING_FOUND: Final = "No tool fits. Search again with other words."

Answered: TypeAlias = Sequence[tuple[ModelCall, McpResult]]
"""Calls with their results."""
CallResults: TypeAlias = list[tuple[Any, McpResult]]
"""Results by the id of their call; Gemini: or its name."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A format's limits, and functions that write and read its tools, calls, results and streams.

    A field without a default has to be there for every format.
    """

    names: re.Pattern[str]
    """Names of tools and groups."""
    plain: Dialect
    strict: Dialect | None = None
    """The subset that the provider enforces; None: nothing."""
    budget: tuple[int, int, int] | None = None
    """Strict tools of a request, their optional parameters, and those with alternatives."""
    most_tools: int = 0
    """Tools of a request; 0: no limit."""
    has_groups: bool = False

    write_tool: Callable[[JsonObject, Node, bool], JsonObject]
    """A tool from its definition, its schema, and whether that is enforced."""
    read_tools: Callable[[list[JsonObject]], list[JsonObject]]
    """The definitions of all functions in `tools` of a request."""
    around: str = ""
    """The member that all tools of a request are in; empty: they are the request's."""
    end: JsonObject = {}
    """Members of the last tool of those that a provider caches."""
    for_programs: Callable[[JsonObject, JsonObject], None] | None = None
    """Changes a tool, by its definition, so that the model's code may call it; None: no format for that."""

    inside: tuple[str, ...]
    """Members on the way from a response to its items."""
    is_call: Callable[[JsonObject], bool]
    was_cut: Callable[[JsonObject], bool] = lambda container: False
    """Whether a response, or what it has on the way to its items, says that the output was cut off at its limit."""
    is_bare: Callable[[JsonObject], bool] = lambda item: False
    """Whether the arguments of a call at the end of such an output may be lost."""
    read_call: Callable[[JsonObject, int], ModelCall]
    """A call from its item and its number. Raises: Rejected (`invalid_calls`)."""
    write_call: Callable[[ModelCall, JsonObject, JsonObject], JsonObject]
    """An item from a call, its arguments, and other members."""
    write_results: Callable[[Answered], list[JsonObject]]
    read_results: Callable[[Sequence[JsonObject]], CallResults]
    """May raise KeyError, TypeError and AttributeError for what is not in the format."""
    reader: type[OutputReader] | None
    """Reads streamed output; None for MCP."""

    write_search: Callable[[JsonObject, Node], JsonObject] | None = None
    """The search tool from its definition and schema; None: like any tool."""
    read_search: Callable[[JsonObject], JsonObject] | None = None
    """A call of the search tool as that of any; None: it is one."""
    write_found: (
        Callable[[Sequence[JsonObject], ModelCall | None, list[JsonObject], Callable[[], list[JsonObject]]], JsonObject]
        | None
    ) = None
    """The answer to a search: from the definitions, the call, its messages with a text, and what makes deferred tools.

    None: the provider does not defer tools, and gets them with its next request.
    """

    write_inline: Callable[[list[JsonObject], list[JsonObject]], JsonObject] | None = None
    """The answer to a search by which the model gets the tools, which the request does not list; None: it cannot.

    From the tools and the messages that answer the call.
    """


def text_member(item: JsonObject, member: str, out_of: str) -> str:
    """A text of a call. Raises: Rejected (`invalid_calls`) where it is missing or empty."""
    value = item.get(member)
    if not isinstance(value, str) or not value:
        raise Rejected("invalid_calls", f'a call of the format {out_of} lacks "{member}".')
    return value


def model_call(call_id: str, name: str, arguments: JsonObject | CallFault, extra: JsonObject) -> ModelCall:
    """A call, or one with a fault in place of arguments."""
    if isinstance(arguments, CallFault):
        return ModelCall(id=call_id, name=name, arguments={}, extra=extra, fault=arguments)
    return ModelCall(call_id, name, arguments, extra)


def extra_members(item: JsonObject, *taken: str) -> JsonObject:
    return {key: value for key, value in item.items() if key not in taken}


def decoded(arguments: object) -> JsonObject | CallFault:
    """Arguments that a provider sends as JSON or as an object."""
    return read_arguments(arguments) if isinstance(arguments, str) else checked({} if arguments is None else arguments)


def encoded(arguments: JsonObject) -> str:
    return msgspec.json.encode(arguments).decode()


def id_members(call: ModelCall) -> JsonObject:
    """The id, unless the hub made it."""
    return {} if NO_ID in call.extra else {"id": sent_id(call)}


def sent_id(call: ModelCall) -> str:
    """The id by which the provider knows the call."""
    sent: str = call.extra.get(SENT_ID, call.id)
    return sent


def labels(definition: JsonObject) -> JsonObject:
    """The name and description of a tool."""
    description = definition.get("description") or definition.get("title")
    return {"name": definition["name"], **({"description": description} if description else {})}


def definition_of(tool: JsonObject, schema: Node | None, output: Node | None = None) -> JsonObject:
    """MCP's definition of a tool with a name and a description."""
    description = {"description": tool["description"]} if "description" in tool else {}
    returned = {} if output is None else {"outputSchema": output}
    return {"name": tool["name"], **description, "inputSchema": schema or {"type": "object"}, **returned}
