"""The format of OpenAI's chat completions."""

import re
from collections.abc import Sequence
from typing import Final

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
from mcp_hub.formats.reader import OutputReader, as_text
from mcp_hub.formats.records import LEGACY, NO_ID, FinishReason, McpResult, ModelCall, TextDelta, ThinkingDelta
from mcp_hub.formats.results import MediaPart, block_of, data_url, file_name, parts_of, read_result
from mcp_hub.formats.schemas import dialects
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject

# -- tools


def _write_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    return {"type": "function", "function": {**labels(definition), "parameters": schema, "strict": is_strict}}


def _read_tools(tools: list[JsonObject]) -> list[JsonObject]:
    functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
    return [definition_of(tool, tool.get("parameters")) for tool in functions]


# -- calls


def _is_call(item: JsonObject) -> bool:
    is_legacy = isinstance(item.get("function_call"), dict)
    return is_legacy or (item.get("type", "function") == "function" and "function" in item)


def _read_call(item: JsonObject, at: int) -> ModelCall:
    is_legacy = "function" not in item
    function = part_in(item, "function_call" if is_legacy else "function")
    arguments = decoded(function.get("arguments"))
    name = text_member(function, "name", "openai")
    if is_legacy:
        return model_call(f"call_{at}", name, arguments, {LEGACY: True, NO_ID: True})
    return model_call(text_member(item, "id", "openai"), name, arguments, extra_members(item, "type", "id", "function"))


def _is_bare(item: JsonObject) -> bool:
    function = part_in(item, "function") or part_in(item, "function_call")
    return function.get("arguments") in (None, "", {})


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    function = {"name": call.name, "arguments": encoded(arguments)}
    if LEGACY in call.extra:
        return {"function_call": function}
    return {"type": "function", "id": sent_id(call), "function": function, **extra}


# -- results

_FAILED: Final = "Error:"
_MADE: Final = "Success:"
"""Marks before a text: the APIs have no member for errors. A result whose own words look like a mark gets the other."""


def _write_results(answered: Answered) -> list[JsonObject]:
    messages: list[JsonObject] = []
    attachments: list[JsonObject] = []
    for call, result in answered:
        parts = parts_of(result, "openai")
        media = [part for part in parts if isinstance(part, MediaPart)]
        texts = [part for part in parts if isinstance(part, str)]
        texts += [f"[{part.name}: {part.media_type}, in the next message]" for part in media]
        content = with_mark(result, "\n".join(texts))
        who = _who(call)
        messages.append({**who, "content": content})
        if media:
            attachments.append({"type": "text", "text": f"From the result of the call {call.id} of {call.name}:"})
            attachments += map(_media, media)
    return [*messages, {"role": "user", "content": attachments}] if attachments else messages


def _who(call: ModelCall) -> JsonObject:
    if LEGACY in call.extra:
        return {"role": "function", "name": call.name}
    return {"role": "tool", "tool_call_id": sent_id(call)}


def _media(part: MediaPart) -> JsonObject:
    match part.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": data_url(part)}}
        case "audio":
            form = "wav" if part.media_type == "audio/wav" else "mp3"
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}
        case _:
            return {"type": "file", "file": {"filename": file_name(part), "file_data": data_url(part)}}


def result_mark(result: McpResult, text: str) -> str | None:
    """The mark that a result with this text needs."""
    if result.get("isError"):
        return _FAILED
    return _MADE if text.lstrip().lower().startswith((_FAILED.lower(), _MADE.lower())) else None


def with_mark(result: McpResult, text: str) -> str:
    """The text behind its mark, if it needs one."""
    mark = result_mark(result, text)
    return text if mark is None else f"{mark} {text}"


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    return [
        (message["tool_call_id"] if message["role"] == "tool" else message["name"], read_marked(message["content"]))
        for message in messages
        if message["role"] in ("tool", "function")
    ]


def read_marked(output: str | list[JsonObject]) -> McpResult:
    """A result from text or parts, without the mark."""
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


# -- streams

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "interrupted",
}


class _Reader(OutputReader):
    """Reads the first of `choices`.

    Servers that imitate the API leave out indexes and ids, use an index for several calls, split names, repeat what
    they sent, and send whole calls: a chunk continues the call that it can belong to, else it begins one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._slots: dict[int | str, int] = {}
        self._count = 0
        self._last = -1

    def _read(self, chunk: JsonObject) -> None:
        if "error" in chunk and chunk["error"] is not None:
            self._fail(part_in(chunk, "error").get("message"))
            return
        self._start(chunk.get("id"))
        for choice in parts_in(chunk, "choices"):
            if choice.get("index", 0) in (0, None):
                self._read_choice(choice)

    def _read_choice(self, choice: JsonObject) -> None:
        delta = part_in(choice, "delta") or part_in(choice, "message")  # of a server that does not stream
        self._say(ThinkingDelta, delta.get("reasoning_content") or delta.get("reasoning"))
        self._say(TextDelta, delta.get("content"))
        self._has_refused = self._has_refused or bool(delta.get("refusal"))
        self._say(TextDelta, delta.get("refusal"))
        calls = [call for call in parts_in(delta, "tool_calls") if call.get("type") in (None, "", "function")]
        for number, call in enumerate(calls):
            self._read_call(call, number if len(calls) > 1 else None)
        if not calls and isinstance(delta.get("function_call"), dict):
            self._read_call({"index": LEGACY, "function": delta["function_call"], LEGACY: True, NO_ID: True}, None)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._end(_REASONS.get(reason, "stop"))

    def _read_call(self, chunk: JsonObject, number: int | None) -> None:
        function = part_in(chunk, "function")
        call_id, name = _string(chunk.get("id")), _string(function.get("name"))
        arguments = as_text(function.get("arguments"))
        if not (call_id or name or arguments):
            return
        index = chunk.get("index")
        slot = index if isinstance(index, int | str) else number
        key = self._key(slot, call_id)
        call = self._open.get(key)
        if call is None or call.is_other(call_id, name, arguments, has_slot=slot is not None):
            key, self._count = self._count, self._count + 1
            extra = extra_members(chunk, "index", "id", "type", "function")
            call = self._begin_call(key, call_id, name, extra, waits=True)
        elif call.is_repeated(name, arguments):
            return
        else:
            call.learn(call_id, name, {})
        self._last = key
        if slot is not None:
            self._slots[slot] = key
        self._add_arguments(key, arguments)

    def _key(self, slot: int | str | None, call_id: str) -> int:
        if slot is not None:
            return self._slots.get(slot, -1)
        if not call_id:
            return self._last
        return next((key for key, call in self._open.items() if call.id == call_id), -1)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


NAMES: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")

OPENAI: Final = Provider(
    names=NAMES,
    plain=dialects.OPENAI,
    strict=dialects.OPENAI_STRICT,
    most_tools=128,
    write_tool=_write_tool,
    read_tools=_read_tools,
    inside=("choices", "message", "tool_calls"),
    is_call=_is_call,
    was_cut=lambda choice: choice.get("finish_reason") == "length",
    is_bare=_is_bare,
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
)
"""Names as of 2026-11-24."""
