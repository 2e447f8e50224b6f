"""Tool search: a model's call of the search tool, and the answer."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.calls import read_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import CallFault, ModelCall, json_value
from mcp_hub.formats.results import write_results
from mcp_hub.formats.tools import ToolGroup, check_groups, export, grouped
from mcp_hub.types import JsonObject

_NOTHING: Final = "No tool fits. Search again with other words."


class SearchArguments(msgspec.Struct):
    """The arguments of the search tool."""

    query: str
    server: str | None = None
    limit: int | None = None


def read_search(call: object, out_of: Format) -> ModelCall:
    """A model's call of the search tool; SDK objects are accepted. Raises: FormatRefused: `invalid_calls`."""
    item = json_value(call)
    if out_of is Format.OPENAI_RESPONSES and isinstance(item, dict) and item.get("type") == "tool_search_call":
        item = {**item, "type": "function_call", "name": "tool_search"}
    calls = read_calls(item, out_of)
    if len(calls) != 1:
        raise FormatRefused("invalid_calls", f"call has to be one call of the search tool, in the format {out_of}.")
    (search_call,) = calls
    if search_call.fault is not None:
        return search_call
    try:
        if msgspec.convert(search_call.arguments, SearchArguments, strict=False).query.strip():
            return search_call
        problem = "the query is empty"
    except msgspec.ValidationError as error:
        problem = str(error)
    fault = CallFault("invalid_arguments", f"{problem}. Give query: what the tool is needed for, in a few words.")
    return msgspec.structs.replace(search_call, fault=fault)


def write_found(
    tools: Sequence[JsonObject],
    into: Format,
    call: ModelCall | None = None,
    *,
    is_strict: bool = False,
    groups: Mapping[str, ToolGroup] | None = None,
) -> JsonObject:
    """The answer to a search with these tools, the best first; `call` is the model's, if any. Raises: FormatRefused.

    Anthropic takes references, the Responses API definitions; elsewhere tools go into the next request.
    """
    if groups is not None:
        check_groups(groups, into)
    match into:
        case Format.ANTHROPIC:
            return _anthropic(tools, call)
        case Format.OPENAI_RESPONSES:
            exported = [
                {**tool, "defer_loading": True} for tool in export(tools, into, is_strict=is_strict).body["tools"]
            ]
            return {
                "type": "tool_search_output",
                "call_id": None if call is None else call.id,
                "execution": "client",
                "status": "completed" if call is None or call.fault is None else "incomplete",
                "tools": exported if groups is None else grouped(exported, groups),
            }
        case _:
            answer = export(tools, into, is_strict=is_strict).body
            return answer if call is None else {**answer, "messages": _answered(call, tools, into)}


def _anthropic(tools: Sequence[JsonObject], call: ModelCall | None) -> JsonObject:
    content: list[JsonObject] = [{"type": "tool_reference", "tool_name": tool["name"]} for tool in tools]
    content = content or [{"type": "text", "text": _NOTHING}]
    if call is None:
        return {"content": content}
    block: JsonObject = _answered(call, tools, Format.ANTHROPIC)[0]["content"][0]
    return block if call.fault is not None else {**block, "content": content}


def _answered(call: ModelCall, tools: Sequence[JsonObject], into: Format) -> list[JsonObject]:
    text = f"You can call these tools now: {', '.join(tool['name'] for tool in tools)}" if tools else _NOTHING
    result = {call.id: {"content": [{"type": "text", "text": text}]}} if call.fault is None else {}
    return write_results([call], result, into)
