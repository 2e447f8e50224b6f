"""The format of OpenAI's Responses API."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_hub.formats.openai import NAMES, read_marked, result_mark, with_mark
from mcp_hub.formats.provider import (
    Answered,
    CallResults,
    Provider,
    decoded,
    definition_of,
    encoded,
    extra_members,
    labels,
    model_call,
    part_in,
    parts_in,
    sent_id,
    text_member,
)
from mcp_hub.formats.reader import CUT_OFF, OutputReader
from mcp_hub.formats.records import FinishReason, McpResult, ModelCall, TextDelta, ThinkingDelta
from mcp_hub.formats.results import MediaPart, data_url, file_name, parts_of, sole_structure, text_of
from mcp_hub.formats.schemas import dialects
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject

# -- tools


def _write_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    output = {"output_schema": definition["outputSchema"]} if "outputSchema" in definition else {}
    return {"type": "function", **labels(definition), "parameters": schema, "strict": is_strict, **output}


def _read_tools(tools: list[JsonObject]) -> list[JsonObject]:
    listed = [
        function for tool in tools for function in (tool["tools"] if tool.get("type") == "namespace" else (tool,))
    ]
    functions = [tool for tool in listed if tool.get("type") == "function"]
    return [definition_of(tool, tool.get("parameters"), tool.get("output_schema")) for tool in functions]


def _for_programs(tool: JsonObject, definition: JsonObject) -> None:
    tool["allowed_callers"] = ["direct", "programmatic"]


def _write_search(definition: JsonObject, schema: Node) -> JsonObject:
    description = definition.get("description", "")
    return {"type": "tool_search", "execution": "client", "description": description, "parameters": schema}


def _read_search(item: JsonObject) -> JsonObject:
    is_search = item.get("type") == "tool_search_call"
    return {**item, "type": "function_call", "name": "tool_search"} if is_search else item


def _write_found(
    tools: Sequence[JsonObject],
    call: ModelCall | None,
    messages: list[JsonObject],
    deferred: Callable[[], list[JsonObject]],
) -> JsonObject:
    return {
        "type": "tool_search_output",
        "call_id": None if call is None else call.id,
        "execution": "client",
        "status": "completed" if call is None or call.fault is None else "incomplete",
        "tools": deferred(),
    }


# -- calls

_SEARCH: Final = "tool_search_call"
_TAKEN_OUT: Final = ("call_id", "name", "arguments")


def _read_call(item: JsonObject, at: int) -> ModelCall:
    extra = extra_members(item, "type", *_TAKEN_OUT)
    call_id = text_member(item, "call_id", "openai-responses")
    arguments = CUT_OFF if item.get("status") == "incomplete" else decoded(item.get("arguments"))
    return model_call(call_id, text_member(item, "name", "openai-responses"), arguments, extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    if extra.get("type") == _SEARCH:
        return {"call_id": sent_id(call), "arguments": arguments, **extra}
    written = {"call_id": sent_id(call), "name": call.name, "arguments": encoded(arguments)}
    return {"type": "function_call", **written, **extra}


# -- results


def _write_results(answered: Answered) -> list[JsonObject]:
    return [_item(call, result) for call, result in answered]


def _item(call: ModelCall, result: McpResult) -> JsonObject:
    parts = parts_of(result, "openai-responses")
    output: str | list[JsonObject]
    if any(isinstance(part, MediaPart) for part in parts):
        mark = result_mark(result, text_of(parts[:1]))
        output = [_content(part) for part in ([] if mark is None else [mark]) + parts]
    elif (structured := sole_structure(result, () if _is_for_program(call) else parts)) is not None:
        output = msgspec.json.encode(structured).decode()  # the value that `output_schema` describes
    else:
        output = with_mark(result, text_of(parts))
    echoed = {key: call.extra[key] for key in ("caller", "namespace") if call.extra.get(key) is not None}
    return {"type": "function_call_output", "call_id": sent_id(call), "output": output, **echoed}


def _is_for_program(call: ModelCall) -> bool:
    caller = call.extra.get("caller")
    return isinstance(caller, dict) and caller.get("type") == "program"


def _content(part: str | MediaPart) -> JsonObject:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    return {"type": "input_file", "filename": file_name(part), "file_data": data_url(part)}


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    items = [item for item in messages if item["type"] == "function_call_output"]
    return [(item["call_id"], read_marked(item["output"])) for item in items]


# -- streams


class _Reader(OutputReader):
    """Reads `response.*` events. A search that the client makes is a call of `tool_search`."""

    _has_stops = True

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[object, int] = {}
        self._seen: set[str] = set()

    def _key(self, chunk: JsonObject) -> int:
        index = chunk.get("output_index")
        if isinstance(index, int):
            return index
        item_id = chunk.get("item_id") or part_in(chunk, "item").get("id")
        return self._keys.setdefault(item_id, -1 - len(self._keys)) if isinstance(item_id, str) else -1

    def _read(self, chunk: JsonObject) -> None:
        at = self._key(chunk)
        match chunk.get("type"):
            case "response.created" | "response.in_progress":
                self._start(part_in(chunk, "response").get("id"))
            case "response.output_text.delta":
                self._say(TextDelta, chunk.get("delta"))
            case "response.refusal.delta":
                self._refuse(chunk.get("delta"))
            case "response.refusal.done" if not self._has_refused:
                self._refuse(chunk.get("refusal"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._say(ThinkingDelta, chunk.get("delta"))
            case "response.output_item.added":
                self._begin_item(at, part_in(chunk, "item"))
            case "response.function_call_arguments.delta":
                self._add_arguments(at, chunk.get("delta"))
            case "response.function_call_arguments.done":
                self._repeat_arguments(at, chunk.get("arguments"))
            case "response.output_item.done":
                self._end_item(at, part_in(chunk, "item"))
            case _:
                self._read_ending(chunk)

    def _refuse(self, text: object) -> None:
        self._has_refused = True
        self._say(TextDelta, text)

    def _read_ending(self, chunk: JsonObject) -> None:
        response = part_in(chunk, "response")
        match chunk.get("type"):
            case "response.completed":
                self._finish(response, "stop")
            case "response.incomplete":
                reason = part_in(response, "incomplete_details").get("reason")
                self._finish(response, "length" if reason == "max_output_tokens" else "interrupted")
            case "response.failed":
                self._fail(part_in(response, "error").get("message"))
            case "error":
                self._fail(chunk.get("message") or part_in(chunk, "error").get("message"))

    def _finish(self, response: JsonObject, reason: FinishReason) -> None:
        """The response repeats each item: those without events are read here."""
        keys = {call.id: key for key, call in self._open.items()}
        for index, item in enumerate(parts_in(response, "output")):
            call_id = str(item.get("call_id"))
            if call_id in keys or call_id not in self._seen:
                self._end_item(keys.get(call_id, index), item)
        self._end(reason)

    def _begin_item(self, at: int, item: JsonObject) -> None:
        if item.get("type") == "function_call":
            self._note(item)
            call_id, name = item.get("call_id"), item.get("name")
            self._begin_call(at, call_id, name, extra_members(item, "type", *_TAKEN_OUT), waits=not (call_id and name))
            self._repeat_arguments(at, item.get("arguments"))

    def _note(self, item: JsonObject) -> None:
        if isinstance(item.get("call_id"), str):
            self._seen.add(item["call_id"])

    def _end_item(self, at: int, item: JsonObject) -> None:
        is_search = item.get("type") == _SEARCH and item.get("execution") != "server"
        if item.get("type") != "function_call" and not (is_search and isinstance(item.get("call_id"), str)):
            return
        if at not in self._open:
            name = "tool_search" if is_search else item.get("name")
            self._begin_call(at, item.get("call_id"), name, {}, waits=True)
        self._note(item)
        call = self._open[at]
        extra = extra_members(item, *(("type",) if not is_search else ()), *_TAKEN_OUT)
        call.learn(str(item.get("call_id") or ""), "" if call.name else str(item.get("name") or ""), extra)
        self._repeat_arguments(at, item.get("arguments"))
        match item.get("status"):
            case "incomplete":
                self._end_call(at, is_broken=True)
            case "completed":
                self._end_call(at, is_whole=True)
            case _:
                self._stop_call(at)


RESPONSES: Final = Provider(
    names=NAMES,
    plain=dialects.OPENAI,
    strict=dialects.OPENAI_STRICT,
    most_tools=128,
    has_groups=True,
    write_tool=_write_tool,
    read_tools=_read_tools,
    for_programs=_for_programs,
    inside=("output",),
    is_call=lambda item: item.get("type") == "function_call",
    was_cut=lambda item: part_in(item, "incomplete_details").get("reason") == "max_output_tokens",
    is_bare=lambda item: item.get("arguments") in (None, "", {}),
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
    write_search=_write_search,
    read_search=_read_search,
    write_found=_write_found,
)
"""Names as of 2026-11-24."""
