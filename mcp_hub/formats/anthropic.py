"""The format of Anthropic's Messages API."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_hub.formats.provider import (
    NOTHING_FOUND,
    Answered,
    CallResults,
    Provider,
    decoded,
    definition_of,
    extra_members,
    labels,
    model_call,
    part_in,
    sent_id,
    text_member,
)
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import FinishReason, ModelCall, TextDelta, ThinkingDelta
from mcp_hub.formats.results import PICTURES, MediaPart, block_of, parts_of, read_result
from mcp_hub.formats.schemas import dialects
from mcp_hub.formats.schemas.dialects import STRICT_OPTIONAL, STRICT_TOOLS, STRICT_UNIONS
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.formats.schemas.nodes import text_of as schema_text
from mcp_hub.types import JsonObject

# -- tools

_INLINE: Final = "inline-tools-2026-09-15"
"""The beta of tools that a message defines (anthropic 2.14.0, `BetaRequestToolAdditionBlockParam`, 2026-11-29)."""


def _write_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    return {**labels(definition), "input_schema": schema, **({"strict": True} if is_strict else {})}


def _read_tools(tools: list[JsonObject]) -> list[JsonObject]:
    return [definition_of(tool, tool["input_schema"]) for tool in tools if "input_schema" in tool]


def _for_programs(tool: JsonObject, definition: JsonObject) -> None:
    tool["allowed_callers"] = ["direct", "code_execution_20260521"]
    if "outputSchema" in definition:
        returned = schema_text(definition["outputSchema"])
        tool["description"] = f"{tool.get('description', '')}\n\nReturns JSON: {returned}".strip()


def _write_found(
    tools: Sequence[JsonObject],
    call: ModelCall | None,
    messages: list[JsonObject],
    deferred: Callable[[], list[JsonObject]],
) -> JsonObject:
    content: list[JsonObject] = [{"type": "tool_reference", "tool_name": tool["name"]} for tool in tools]
    content = content or [{"type": "text", "text": NOTHING_FOUND}]
    if call is None:
        return {"content": content}
    block: JsonObject = messages[0]["content"][0]
    return block if call.fault is not None else {**block, "content": content}


def _write_inline(tools: list[JsonObject], messages: list[JsonObject]) -> JsonObject:
    added = [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}} for tool in tools]
    return {"messages": [*messages, *([{"role": "system", "content": added}] if added else [])], "betas": [_INLINE]}


# -- calls


def _read_call(item: JsonObject, at: int) -> ModelCall:
    input_ = item.get("input", {})
    arguments = decoded(input_)
    extra = extra_members(item, "type", "id", "name", "input")
    return model_call(text_member(item, "id", "anthropic"), text_member(item, "name", "anthropic"), arguments, extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": sent_id(call), "name": call.name, "input": arguments, **extra}


# -- results


def _write_results(answered: Answered) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    media: list[JsonObject] = []
    for call, result in answered:
        parts = parts_of(result, "anthropic")
        block: JsonObject = {"type": "tool_result", "tool_use_id": sent_id(call)}
        if result.get("isError"):  # takes texts only: media come behind all results
            apart = [part for part in parts if isinstance(part, MediaPart)]
            parts = [part if isinstance(part, str) else f"[{part.name}: {part.media_type}, below]" for part in parts]
            if apart:
                media.append(_block(f"From the result of the call {call.id} of {call.name}:"))
                media += map(_block, apart)
            block["is_error"] = True
        block |= {"content": [_block(part) for part in parts]} if parts else {}
        block |= {key: call.extra[key] for key in ("toolset_name",) if call.extra.get(key) is not None}
        blocks.append(block)
    return [{"role": "user", "content": [*blocks, *media]}] if blocks else []


def _block(part: str | MediaPart) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.media_type in PICTURES:
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name}


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    blocks = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    return [(block["tool_use_id"], read_result(_content(block), block.get("is_error"))) for block in blocks]


def _content(block: JsonObject) -> list[JsonObject]:
    content = block.get("content", [])
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        block_of(part["source"]["media_type"], part["source"]["data"], part.get("title"))
        if part.get("source", {}).get("type") == "base64"
        else {"type": "text", "text": part["text"] if part["type"] == "text" else msgspec.json.encode(part).decode()}
        for part in content
    ]


# -- streams

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "interrupted",
    "refusal": "interrupted",
}


class _Reader(OutputReader):
    """Reads `message_start`, `content_block_*`, `message_delta`, `message_stop` and `error`.

    Broken JSON of eager arguments is the fault `invalid_arguments`.
    """

    _has_stops = True

    def __init__(self) -> None:
        super().__init__()
        self._reason: FinishReason = "stop"

    def _read(self, chunk: JsonObject) -> None:
        key = chunk.get("index")
        at = key if isinstance(key, int) else -1
        match chunk.get("type"):
            case "message_start":
                self._start(part_in(chunk, "message").get("id"))
            case "content_block_start":
                self._begin_block(at, part_in(chunk, "content_block"))
            case "content_block_delta":
                self._extend(at, part_in(chunk, "delta"))
            case "content_block_stop":
                self._stop_call(at)
            case "message_delta":
                reason = part_in(chunk, "delta").get("stop_reason")
                self._reason = _REASONS.get(reason, "stop") if isinstance(reason, str) else self._reason
            case "message_stop":
                self._end(self._reason)
            case "error":
                self._fail(part_in(chunk, "error").get("message"))

    def _begin_block(self, at: int, block: JsonObject) -> None:
        match block.get("type"):
            case "text":
                self._say(TextDelta, block.get("text"))
            case "thinking":
                self._say(ThinkingDelta, block.get("thinking"))
            case "tool_use":
                extra = {key: value for key, value in block.items() if key not in ("type", "id", "name", "input")}
                self._begin_call(at, block.get("id"), block.get("name"), extra)
                self._repeat_arguments(at, block.get("input"))

    def _extend(self, at: int, delta: JsonObject) -> None:
        match delta.get("type"):
            case "text_delta":
                self._say(TextDelta, delta.get("text"))
            case "thinking_delta":
                self._say(ThinkingDelta, delta.get("thinking"))
            case "input_json_delta":
                self._add_arguments(at, delta.get("partial_json"))


ANTHROPIC: Final = Provider(
    names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    plain=dialects.ANTHROPIC,
    strict=dialects.ANTHROPIC_STRICT,
    budget=(STRICT_TOOLS, STRICT_OPTIONAL, STRICT_UNIONS),
    write_tool=_write_tool,
    read_tools=_read_tools,
    end={"cache_control": {"type": "ephemeral"}},
    for_programs=_for_programs,
    inside=("content",),
    is_call=lambda item: item.get("type") == "tool_use",
    was_cut=lambda message: _REASONS.get(str(message.get("stop_reason"))) == "length",
    is_bare=lambda item: True,  # "input" may be a part of it
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
    write_found=_write_found,
    write_inline=_write_inline,
)
"""Names as of 2026-11-24."""
