"""Calls in a model's answer, MCP results as messages that answer them, and back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.formats.arguments import ArgumentNames
from mcp_hub.formats.providers import FORMATS, PROVIDERS, Format
from mcp_hub.formats.reader import CUT_OFF
from mcp_hub.formats.records import LEGACY, NO_ID, SENT_ID, CallFault, McpResult, ModelCall, json_value
from mcp_hub.types import JsonObject

_RESULTS: Final = ("function_result", "function_call_output")
"""Items beside those of calls, in a whole conversation."""
MAX_CALLS: Final = 64
"""The most calls in one request."""


def read_calls(body: object, out_of: Format, tools: Iterable[JsonObject] | None = None) -> tuple[ModelCall, ...]:
    """The calls in a model's response, message, list of items, or item; SDK objects are accepted.

    With `tools`, parameters get their own names, and another tool is the fault `unknown_tool`. Calls that the provider
    executes, and those whose results are there, are left out. The last call of an output that was cut off has a fault,
    if its arguments may be lost.

    Raises: Rejected: `invalid_calls`, `too_many_calls`, `duplicate_call_id`.
    """
    items, is_cut = _call_items(json_value(body), out_of)
    if len(items) > MAX_CALLS:
        raise Rejected("too_many_calls", f"{len(items)} calls; one request takes {MAX_CALLS}. Split it.")
    schemas = None if tools is None else {tool["name"]: tool.get("inputSchema") for tool in tools}
    entry = FORMATS[out_of]
    calls = tuple(_restored(entry.read_call(item, at), out_of, schemas) for at, item in enumerate(items))
    if is_cut and calls[-1].fault is None and entry.is_bare(items[-1]):
        calls = (*calls[:-1], msgspec.structs.replace(calls[-1], arguments={}, fault=CUT_OFF))
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise Rejected("duplicate_call_id", f'two calls have the id "{call.id}". Give each its own.')
        seen.add(call.id)
    return calls


def write_calls(calls: Sequence[ModelCall], into: Format, tools: Iterable[JsonObject] = ()) -> list[JsonObject]:
    """The message items that make these calls; `tools` give parameters the format's names."""
    schemas = {tool["name"]: tool.get("inputSchema") for tool in tools}
    items = []
    for call in calls:
        arguments = call.arguments
        if call.name in schemas and into in PROVIDERS:
            arguments = ArgumentNames(schemas[call.name], PROVIDERS[into].plain).for_provider(arguments)
        extra = {key: value for key, value in call.extra.items() if key not in (NO_ID, SENT_ID, LEGACY)}
        items.append(FORMATS[into].write_call(call, arguments, extra))
    return items


def restored(call: ModelCall, out_of: Format, input_schema: object) -> ModelCall:
    """The call with the tool's own parameter names."""
    if call.fault is not None or out_of not in PROVIDERS:
        return call
    return msgspec.structs.replace(call, arguments=argument_names(out_of, input_schema).restored(call.arguments))


def argument_names(out_of: Format, input_schema: object) -> ArgumentNames:
    """A tool's parameter names in a format."""
    provider = PROVIDERS[out_of]
    return ArgumentNames(input_schema, provider.strict or provider.plain)


def _restored(call: ModelCall, out_of: Format, schemas: Mapping[str, object] | None) -> ModelCall:
    if schemas is None:
        return call
    if call.name not in schemas:
        reason = f'The tool "{call.name}" does not exist here. Use one of the tools that you were given.'
        return msgspec.structs.replace(call, fault=CallFault("unknown_tool", reason))
    return restored(call, out_of, schemas[call.name])


def _call_items(body: Any, out_of: Format) -> tuple[list[JsonObject], bool]:
    """The calls, and whether the output was cut off in the last one."""
    items = [body] if isinstance(body, dict) else body
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Rejected("invalid_calls", f"the body is not what a model answers in the format {out_of}.")
    entry = FORMATS[out_of]
    was_cut, answered = False, _answered(items)
    for member in entry.inside:
        was_cut = was_cut or any(isinstance(item, dict) and entry.was_cut(item) for item in items)
        items = [inner for item in items for inner in _inner(item, member, entry.is_call)]
        answered |= _answered(items)
    calls = [item for item in items if isinstance(item, dict) and entry.is_call(item)]
    calls = [item for item in calls if str(item.get("call_id", item.get("id"))) not in answered]
    return calls, was_cut and bool(calls) and items[-1] is calls[-1]


def _answered(items: Sequence[object]) -> set[str]:
    return {str(item.get("call_id")) for item in items if isinstance(item, dict) and item.get("type") in _RESULTS}


def _inner(item: object, member: str, is_call: Callable[[JsonObject], bool]) -> list[Any]:
    if not isinstance(item, dict) or member not in item:
        return [item]
    inside = item[member]
    if not inside or isinstance(inside, str):
        return [item] if is_call(item) else []
    return inside if isinstance(inside, list) else [inside]


# -- results


def error_result(message: str) -> McpResult:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def write_results(calls: Sequence[ModelCall], results: Mapping[str, McpResult], into: Format) -> list[JsonObject]:
    """The messages (Responses API: items) that answer the calls, in order.

    `results` by call id; a fault answers its call. Media that a format cannot carry becomes text; OpenAI Chat gets
    images, audio and files in a user message.

    Raises: Rejected: `unknown_call`, `missing_result`.
    """
    stray = sorted(results.keys() - {call.id for call in calls})
    if stray:
        raise Rejected("unknown_call", f'there is no call with the id "{stray[0]}".')
    lacking = [call.id for call in calls if call.fault is None and call.id not in results]
    if lacking:
        raise Rejected("missing_result", f'the call "{lacking[0]}" has no result. An error is one, too.')
    answered = [(call, results[call.id] if call.fault is None else error_result(call.fault.message)) for call in calls]
    return FORMATS[into].write_results(answered)


def read_results(messages: Sequence[object], out_of: Format) -> list[tuple[str, McpResult]]:
    """The results in messages or items, with call ids (Gemini: or names); SDK objects are accepted.

    Raises: Rejected: `invalid_results`.
    """
    try:
        return [(str(call_id), result) for call_id, result in FORMATS[out_of].read_results(json_value(messages))]
    except (KeyError, TypeError, AttributeError) as error:
        raise Rejected("invalid_results", f"these are not results of the format {out_of}: {error!r}") from error
