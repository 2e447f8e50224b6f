"""Calls in a model's answer as calls of tools, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.arguments import ArgumentNames, checked, read_arguments
from mcp_hub.formats.providers import FACTS, Format
from mcp_hub.formats.records import CallFault, ModelCall, json_value
from mcp_hub.types import JsonObject

MAX_CALLS: Final = 64
"""The most calls in one request."""
NO_ID: Final = "mcp_hub_no_id"
"""The member of `extra` for an id that the hub made: Gemini may send none."""


def read_calls(body: object, out_of: Format, tools: Iterable[JsonObject] | None = None) -> tuple[ModelCall, ...]:
    """The calls in a model's response, message, list of items, or item; SDK objects are accepted.

    With `tools`, parameters get their own names, and another tool is the fault `unknown_tool`. Calls that the provider
    executes are left out.

    Raises: FormatRefused: `invalid_calls`, `too_many_calls`, `duplicate_call_id`.
    """
    items = _call_items(json_value(body), out_of)
    if len(items) > MAX_CALLS:
        raise FormatRefused("too_many_calls", f"{len(items)} calls; one request takes {MAX_CALLS}. Split it.")
    schemas = None if tools is None else {tool["name"]: tool.get("inputSchema") for tool in tools}
    calls = tuple(_restored(_READ[out_of](item, at), out_of, schemas) for at, item in enumerate(items))
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise FormatRefused("duplicate_call_id", f'two calls have the id "{call.id}". Give each its own.')
        seen.add(call.id)
    return calls


def write_calls(calls: Sequence[ModelCall], into: Format, tools: Iterable[JsonObject] = ()) -> list[JsonObject]:
    """The message items that make these calls; `tools` give parameters the format's names."""
    schemas = {tool["name"]: tool.get("inputSchema") for tool in tools}
    items = []
    for call in calls:
        arguments = call.arguments
        if call.name in schemas and into in FACTS:
            arguments = ArgumentNames(schemas[call.name], FACTS[into].plain).for_provider(arguments)
        extra = {key: value for key, value in call.extra.items() if key != NO_ID}
        items.append(_WRITE[into](call, arguments, extra))
    return items


def restored(call: ModelCall, out_of: Format, input_schema: object) -> ModelCall:
    """The call with the tool's own parameter names."""
    if call.fault is not None or out_of not in FACTS:
        return call
    return msgspec.structs.replace(call, arguments=argument_names(out_of, input_schema).restored(call.arguments))


def argument_names(out_of: Format, input_schema: object) -> ArgumentNames:
    """A tool's parameter names in a format."""
    facts = FACTS[out_of]
    return ArgumentNames(input_schema, facts.strict or facts.plain)


def _restored(call: ModelCall, out_of: Format, schemas: Mapping[str, object] | None) -> ModelCall:
    if schemas is None:
        return call
    if call.name not in schemas:
        reason = f'The tool "{call.name}" does not exist here. Use one of the tools that you were given.'
        return msgspec.structs.replace(call, fault=CallFault("unknown_tool", reason))
    return restored(call, out_of, schemas[call.name])


_INSIDE: Final = {
    Format.MCP: ("calls",),
    Format.ANTHROPIC: ("content",),
    Format.OPENAI: ("choices", "message", "tool_calls"),
    Format.OPENAI_RESPONSES: ("output",),
    Format.GEMINI: ("candidates", "content", "parts"),
}
"""Members on the way from a response to its items."""
_IS_CALL: Final[dict[Format, Callable[[JsonObject], bool]]] = {
    Format.MCP: lambda item: "name" in item,
    Format.ANTHROPIC: lambda item: item.get("type") == "tool_use",
    Format.OPENAI: lambda item: item.get("type", "function") == "function" and "function" in item,
    Format.OPENAI_RESPONSES: lambda item: item.get("type") == "function_call",
    Format.GEMINI: lambda item: item.get("functionCall") is not None or isinstance(item.get("name"), str),
}


def _call_items(body: Any, out_of: Format) -> list[JsonObject]:
    items = [body] if isinstance(body, dict) else body
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FormatRefused("invalid_calls", f"the body is not what a model answers in the format {out_of}.")
    for member in _INSIDE[out_of]:
        items = [inner for item in items for inner in _inner(item, member)]
    return [item for item in items if isinstance(item, dict) and _IS_CALL[out_of](item)]


def _inner(item: object, member: str) -> list[Any]:
    if not isinstance(item, dict) or member not in item:
        return [item]
    inside = item[member]
    if inside is None or isinstance(inside, str):
        return []
    return inside if isinstance(inside, list) else [inside]


def _text(item: JsonObject, member: str, out_of: Format) -> str:
    value = item.get(member)
    if not isinstance(value, str) or not value:
        raise FormatRefused("invalid_calls", f'a call of the format {out_of} lacks "{member}".')
    return value


def _call(call_id: str, name: str, arguments: JsonObject | CallFault, extra: JsonObject) -> ModelCall:
    if isinstance(arguments, CallFault):
        return ModelCall(id=call_id, name=name, arguments={}, extra=extra, fault=arguments)
    return ModelCall(call_id, name, arguments, extra)


def _extra_members(item: JsonObject, *taken: str) -> JsonObject:
    return {key: value for key, value in item.items() if key not in taken}


def _read_mcp(item: JsonObject, at: int) -> ModelCall:
    has_id = isinstance(item.get("id"), str)
    extra = {**_extra_members(item, "id", "name", "arguments"), **({} if has_id else {NO_ID: True})}
    name = _text(item, "name", Format.MCP)
    return _call(item["id"] if has_id else f"call_{at}", name, checked(item.get("arguments", {})), extra)


def _read_anthropic(item: JsonObject, at: int) -> ModelCall:
    input_ = item.get("input", {})
    arguments = _decoded(input_)
    extra = _extra_members(item, "type", "id", "name", "input")
    return _call(_text(item, "id", Format.ANTHROPIC), _text(item, "name", Format.ANTHROPIC), arguments, extra)


def _read_openai(item: JsonObject, at: int) -> ModelCall:
    function = item["function"] if isinstance(item["function"], dict) else {}
    arguments = _decoded(function.get("arguments"))
    extra = _extra_members(item, "type", "id", "function")
    return _call(_text(item, "id", Format.OPENAI), _text(function, "name", Format.OPENAI), arguments, extra)


def _read_responses(item: JsonObject, at: int) -> ModelCall:
    extra = _extra_members(item, "type", "call_id", "name", "arguments")
    call_id = _text(item, "call_id", Format.OPENAI_RESPONSES)
    return _call(call_id, _text(item, "name", Format.OPENAI_RESPONSES), _decoded(item.get("arguments")), extra)


def _decoded(arguments: object) -> JsonObject | CallFault:
    return read_arguments(arguments) if isinstance(arguments, str) else checked({} if arguments is None else arguments)


def _read_gemini(item: JsonObject, at: int) -> ModelCall:
    call = item.get("functionCall", item)  # a call alone, as in `response.function_calls` of the SDK
    call = call if isinstance(call, dict) else {}
    extra = (_extra_members(item, "functionCall") if call is not item else {}) | _extra_members(
        call, "id", "name", "args"
    )
    has_id = isinstance(call.get("id"), str) and call["id"] != ""
    extra = extra if has_id else {**extra, NO_ID: True}
    name = _text(call, "name", Format.GEMINI)
    arguments = call.get("args")
    arguments = checked({} if arguments is None else arguments)
    return _call(call["id"] if has_id else f"call_{at}", name, arguments, extra)


_READ: Final = {
    Format.MCP: _read_mcp,
    Format.ANTHROPIC: _read_anthropic,
    Format.OPENAI: _read_openai,
    Format.OPENAI_RESPONSES: _read_responses,
    Format.GEMINI: _read_gemini,
}


def _id(call: ModelCall) -> JsonObject:
    return {} if NO_ID in call.extra else {"id": call.id}


def _encoded(arguments: JsonObject) -> str:
    return msgspec.json.encode(arguments).decode()


def _write_mcp(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {**_id(call), "name": call.name, "arguments": arguments, **extra}


def _write_anthropic(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments, **extra}


def _write_openai(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    function = {"name": call.name, "arguments": _encoded(arguments)}
    return {"type": "function", "id": call.id, "function": function, **extra}


def _write_responses(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _encoded(arguments), **extra}


def _write_gemini(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"functionCall": {**_id(call), "name": call.name, "args": arguments}, **extra}


_WRITE: Final = {
    Format.MCP: _write_mcp,
    Format.ANTHROPIC: _write_anthropic,
    Format.OPENAI: _write_openai,
    Format.OPENAI_RESPONSES: _write_responses,
    Format.GEMINI: _write_gemini,
}
