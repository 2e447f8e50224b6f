"""The formats of OpenAI: chat completions and the Responses API."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_hub.formats.events import FinishReason, TextDelta, ThinkingDelta
from mcp_hub.formats.provider import (
    Answered,
    CallResults,
    OutputReader,
    Provider,
    decoded,
    definition_of,
    encoded,
    extra_members,
    labels,
    model_call,
    part_in,
    parts_in,
    text_member,
)
from mcp_hub.formats.records import McpResult, ModelCall
from mcp_hub.formats.results import TAKEN, MediaPart, block_of, data_url, file_name, parts_of, read_result, text_of
from mcp_hub.formats.schemas import dialects
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject

# -- tools


def _write_chat_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    return {"type": "function", "function": {**labels(definition), "parameters": schema, "strict": is_strict}}


def _read_chat_tools(tools: list[JsonObject]) -> list[JsonObject]:
    functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
    return [definition_of(tool, tool.get("parameters")) for tool in functions]


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


def _read_chat_call(item: JsonObject, at: int) -> ModelCall:
    function = item["function"] if isinstance(item["function"], dict) else {}
    arguments = decoded(function.get("arguments"))
    extra = extra_members(item, "type", "id", "function")
    return model_call(text_member(item, "id", "openai"), text_member(function, "name", "openai"), arguments, extra)


def _write_chat_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    function = {"name": call.name, "arguments": encoded(arguments)}
    return {"type": "function", "id": call.id, "function": function, **extra}


def _read_call(item: JsonObject, at: int) -> ModelCall:
    extra = extra_members(item, "type", "call_id", "name", "arguments")
    call_id = text_member(item, "call_id", "openai-responses")
    return model_call(call_id, text_member(item, "name", "openai-responses"), decoded(item.get("arguments")), extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": encoded(arguments), **extra}


# -- results

_FAILED: Final = "Error:"
_MADE: Final = "Success:"
"""Marks before a text: the APIs have no member for errors. A result whose own words look like a mark gets the other."""


def _write_chat_results(answered: Answered) -> list[JsonObject]:
    messages: list[JsonObject] = []
    attachments: list[JsonObject] = []
    for call, result in answered:
        parts = parts_of(result, TAKEN["openai"])
        media = [part for part in parts if isinstance(part, MediaPart)]
        texts = [part for part in parts if isinstance(part, str)]
        texts += [f"[{part.name}: {part.media_type}, in the next message]" for part in media]
        content = _with_mark(result, "\n".join(texts))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        if media:
            attachments.append({"type": "text", "text": f"From the result of the call {call.id} of {call.name}:"})
            attachments += map(_chat_media, media)
    return [*messages, {"role": "user", "content": attachments}] if attachments else messages


def _chat_media(part: MediaPart) -> JsonObject:
    match part.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        case "audio":
            form = "wav" if part.media_type == "audio/wav" else "mp3"
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}
        case _:
            return {"type": "file", "file": {"filename": file_name(part), "file_data": data_url(part)}}


def _mark(result: McpResult, text: str) -> str | None:
    if result.get("isError"):
        return _FAILED
    return _MADE if text.lstrip().lower().startswith((_FAILED.lower(), _MADE.lower())) else None


def _with_mark(result: McpResult, text: str) -> str:
    mark = _mark(result, text)
    return text if mark is None else f"{mark} {text}"


def _write_results(answered: Answered) -> list[JsonObject]:
    return [_item(call, result) for call, result in answered]


def _item(call: ModelCall, result: McpResult) -> JsonObject:
    parts = parts_of(result, TAKEN["openai-responses"])
    structured = result.get("structuredContent")
    output: str | list[JsonObject]
    if any(isinstance(part, MediaPart) for part in parts):
        mark = _mark(result, text_of(parts[:1]))
        output = [_content(part) for part in ([] if mark is None else [mark]) + parts]
    elif structured is not None and not result.get("isError"):
        output = msgspec.json.encode(structured).decode()  # the value that `output_schema` describes
    else:
        output = _with_mark(result, text_of(parts))
    echoed = {key: call.extra[key] for key in ("caller", "namespace") if call.extra.get(key) is not None}
    return {"type": "function_call_output", "call_id": call.id, "output": output, **echoed}


def _content(part: str | MediaPart) -> JsonObject:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.kind == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    return {"type": "input_file", "filename": file_name(part), "file_data": data_url(part)}


def _read_chat_results(messages: Sequence[JsonObject]) -> CallResults:
    return [
        (message["tool_call_id"], _read_result(message["content"])) for message in messages if message["role"] == "tool"
    ]


def _read_result(output: str | list[JsonObject]) -> McpResult:
    parts = ([{"type": "text", "text": output}] if output else []) if isinstance(output, str) else output
    content = [_read_content(part) for part in parts]
    text = str(content[0].get("text", "")) if content else ""
    mark = next((mark for mark in (_FAILED, _MADE) if text.startswith(mark)), None)
    if mark is None:
        return read_result(content, False)
    text = text.removeprefix(mark).removeprefix(" ")
    return read_result([{"type": "text", "text": text}, *content[1:]] if text else content[1:], mark == _FAILED)


def _read_content(part: JsonObject) -> JsonObject:
    url = part.get("image_url") or part.get("file_data")
    if isinstance(url, str) and url.startswith("data:"):
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return block_of(media_type, data, part.get("filename"))
    return {"type": "text", "text": part.get("text", "")}


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    items = [item for item in messages if item["type"] == "function_call_output"]
    return [(item["call_id"], _read_result(item["output"])) for item in items]


# -- streams

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "interrupted",
}


class _ChatReader(OutputReader):
    """Reads the first of `choices`. A call without an index, or with a used index and another id, is a new one."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[int, str] = {}

    def _read(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._fail(part_in(chunk, "error").get("message"))
            self._end("interrupted")
            return
        self._start(chunk.get("id"))
        for choice in parts_in(chunk, "choices"):
            if choice.get("index", 0) == 0:
                self._read_choice(choice)

    def _read_choice(self, choice: JsonObject) -> None:
        delta = part_in(choice, "delta")
        self._say(ThinkingDelta, delta.get("reasoning_content") or delta.get("reasoning"))
        self._say(TextDelta, delta.get("content"))
        self._say(TextDelta, delta.get("refusal"))
        for number, call in enumerate(parts_in(delta, "tool_calls")):
            self._read_call(call, number)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._end(_REASONS.get(reason, "stop"))

    def _read_call(self, call: JsonObject, number: int) -> None:
        index, call_id, function = call.get("index"), call.get("id"), part_in(call, "function")
        at = index if isinstance(index, int) else number
        name = function.get("name")
        is_new = at not in self._open or (isinstance(call_id, str) and call_id not in ("", self._ids.get(at)))
        if is_new and name:
            extra = {key: value for key, value in call.items() if key not in ("index", "id", "type", "function")}
            self._begin_call(at, call_id, name, extra)
            self._ids[at] = call_id if isinstance(call_id, str) else ""
        self._add_arguments(at, function.get("arguments"))


class _Reader(OutputReader):
    """Reads `response.*` events."""

    def _read(self, chunk: JsonObject) -> None:
        key = chunk.get("output_index")
        at = key if isinstance(key, int) else -1
        match chunk.get("type"):
            case "response.created" | "response.in_progress":
                self._start(part_in(chunk, "response").get("id"))
            case "response.output_text.delta" | "response.refusal.delta":
                self._say(TextDelta, chunk.get("delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._say(ThinkingDelta, chunk.get("delta"))
            case "response.output_item.added":
                self._begin_item(at, part_in(chunk, "item"))
            case "response.function_call_arguments.delta":
                self._add_arguments(at, chunk.get("delta"))
            case "response.output_item.done":
                self._end_item(at, part_in(chunk, "item"))
            case _:
                self._read_ending(chunk)

    def _read_ending(self, chunk: JsonObject) -> None:
        response = part_in(chunk, "response")
        match chunk.get("type"):
            case "response.completed":
                self._end("stop")
            case "response.incomplete":
                reason = part_in(response, "incomplete_details").get("reason")
                self._end("length" if reason == "max_output_tokens" else "interrupted")
            case "response.failed":
                self._fail(part_in(response, "error").get("message"))
                self._end("interrupted")
            case "error":
                self._fail(chunk.get("message") or part_in(chunk, "error").get("message"))
                self._end("interrupted")

    def _begin_item(self, at: int, item: JsonObject) -> None:
        if item.get("type") == "function_call":
            self._begin_call(at, item.get("call_id"), item.get("name"), _item_extra(item))
            self._add_arguments(at, item.get("arguments"))

    def _end_item(self, at: int, item: JsonObject) -> None:
        if item.get("type") != "function_call":
            return
        if at not in self._open:
            self._begin_call(at, item.get("call_id"), item.get("name"), {})
        self._add_extra(at, _item_extra(item))
        if not self._has_arguments(at):
            self._add_arguments(at, item.get("arguments"))
        self._end_call(at)


def _item_extra(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key not in ("type", "call_id", "name", "arguments")}


_NAMES: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

OPENAI: Final = Provider(
    names=_NAMES,
    plain=dialects.OPENAI,
    strict=dialects.OPENAI_STRICT,
    most_tools=128,
    write_tool=_write_chat_tool,
    read_tools=_read_chat_tools,
    inside=("choices", "message", "tool_calls"),
    is_call=lambda item: item.get("type", "function") == "function" and "function" in item,
    read_call=_read_chat_call,
    write_call=_write_chat_call,
    write_results=_write_chat_results,
    read_results=_read_chat_results,
    reader=_ChatReader,
)
"""Chat completions. Names as of 2026-11-24."""

RESPONSES: Final = Provider(
    names=_NAMES,
    plain=dialects.OPENAI,
    strict=dialects.OPENAI_STRICT,
    most_tools=128,
    has_groups=True,
    write_tool=_write_tool,
    read_tools=_read_tools,
    for_programs=_for_programs,
    inside=("output",),
    is_call=lambda item: item.get("type") == "function_call",
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
    write_search=_write_search,
    read_search=_read_search,
    write_found=_write_found,
)
"""The Responses API. Names as of 2026-11-24."""
