"""The form of a format, and what several share: readers of streams, members of calls."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.formats.arguments import MAX_BYTES, checked, read_arguments
from mcp_hub.formats.events import (
    FinishReason,
    ModelEvent,
    OutputEnd,
    OutputError,
    OutputStart,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
)
from mcp_hub.formats.records import CallFault, McpResult, ModelCall, json_value
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject


class _Open:
    __slots__ = ("extra", "id", "name", "size", "texts")

    def __init__(self, call_id: str, name: str, extra: JsonObject) -> None:
        self.id = call_id
        self.name = name
        self.extra = extra
        self.texts: list[str] = []
        self.size = 0


class OutputReader:
    """Reads one output of a model, with `_read` for a provider's chunks."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._open: dict[int, _Open] = {}
        self._calls: list[ModelCall] = []
        self._has_started = self._has_ended = False

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The ended calls, with the provider's parameter names."""
        return tuple(self._calls)

    def feed(self, chunk: object) -> list[ModelEvent]:
        """The events of the next chunk; none after the end."""
        value = json_value(chunk)
        if not self._has_ended and isinstance(value, dict):
            self._read(value)
        return self._taken()

    def close(self) -> list[ModelEvent]:
        """The last events; open calls are broken."""
        if not self._has_ended:
            self._end("interrupted")
        return self._taken()

    def _read(self, chunk: JsonObject) -> None:
        raise NotImplementedError

    def _taken(self) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events

    def _emit(self, event: ModelEvent) -> None:
        self._events.append(event)

    def _start(self, output_id: object) -> None:
        if not self._has_started:
            self._has_started = True
            self._emit(OutputStart(output_id if isinstance(output_id, str) else ""))

    def _say(self, kind: Any, text: object) -> None:
        if isinstance(text, str) and text:
            self._emit(kind(text))

    def _begin_call(self, key: int, call_id: object, name: object, extra: JsonObject) -> None:
        if key in self._open:
            self._end_call(key)
        number = len(self._calls) + len(self._open)
        identifier = call_id if isinstance(call_id, str) and call_id else f"call_{number}"
        self._open[key] = call = _Open(identifier, name if isinstance(name, str) else "", extra)
        self._emit(ToolCallStart(call.id, call.name))

    def _add_arguments(self, key: int, text: object) -> None:
        """Above the limit the call is broken."""
        call = self._open.get(key)
        if call is None or not isinstance(text, str) or not text:
            return
        call.size += len(text)
        if call.size <= MAX_BYTES:
            call.texts.append(text)
            self._emit(ToolCallChunk(call.id, text))

    def _end_call(self, key: int, *, is_broken: bool = False) -> None:
        call = self._open.pop(key, None)
        if call is None:
            return
        text = "".join(call.texts) or "{}"
        arguments = read_arguments(text)
        if call.size > MAX_BYTES:
            message = f"The arguments have more than {MAX_BYTES} characters. Send less."
            arguments = CallFault("arguments_too_large", message)
        elif is_broken:
            arguments = CallFault("invalid_arguments", "The call was cut off. Make it again, with all its arguments.")
        if isinstance(arguments, CallFault):
            self._calls.append(ModelCall(id=call.id, name=call.name, arguments={}, extra=call.extra, fault=arguments))
            self._emit(OutputError(*arguments, id=call.id))
        else:
            self._calls.append(ModelCall(call.id, call.name, arguments, call.extra))
            self._emit(ToolCallEnd(call.id, text))

    def _has_arguments(self, key: int) -> bool:
        return key in self._open and self._open[key].size > 0

    def _add_extra(self, key: int, extra: JsonObject) -> None:
        if key in self._open:
            self._open[key].extra |= extra

    def _fail(self, message: object) -> None:
        reason = message if isinstance(message, str) and message else "the provider says no more"
        self._emit(OutputError("output_failed", f"The provider reported an error: {reason}"))

    def _end(self, reason: FinishReason) -> None:
        self._start(None)
        is_broken = reason == "interrupted"
        for key in list(self._open):
            self._end_call(key, is_broken=is_broken)
        self._has_ended = True
        self._emit(OutputEnd("tool_calls" if reason == "stop" and self._calls else reason))


def part_in(value: object, member: str) -> JsonObject:
    """A member that is an object, else an empty one."""
    entry = value.get(member) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}


def parts_in(value: object, member: str) -> list[JsonObject]:
    """The objects in a member that is a list."""
    entries = value.get(member) if isinstance(value, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


NO_ID: Final = "mcp_hub_no_id"
"""The member of `extra` for an id that the hub made: Gemini may send none."""
NOTHING_FOUND: Final = "No tool fits. Search again with other words."

Answered: TypeAlias = Sequence[tuple[ModelCall, McpResult]]
"""Calls with their results."""
CallResults: TypeAlias = list[tuple[Any, McpResult]]
"""Results by the id of their call; Gemini: or its name."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A format: its limits, and the functions that write and read its tools, calls, results and streams.

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
    return {} if NO_ID in call.extra else {"id": call.id}


def labels(definition: JsonObject) -> JsonObject:
    """The name and description of a tool."""
    description = definition.get("description") or definition.get("title")
    return {"name": definition["name"], **({"description": description} if description else {})}


def definition_of(tool: JsonObject, schema: Node | None, output: Node | None = None) -> JsonObject:
    """MCP's definition of a tool with a name and a description."""
    description = {"description": tool["description"]} if "description" in tool else {}
    returned = {} if output is None else {"outputSchema": output}
    return {"name": tool["name"], **description, "inputSchema": schema or {"type": "object"}, **returned}
