"""The format of Gemini's Interactions API."""

from collections.abc import Callable, Sequence
from typing import Final

from mcp_hub.formats.gemini import GEMINI
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
    parts_in,
    sent_id,
    text_member,
)
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import FinishReason, ModelCall, TextDelta, ThinkingDelta
from mcp_hub.formats.results import MediaPart, block_of, parts_of, read_result, text_of
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.types import JsonObject

# -- tools


def _write_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    tool = labels(definition)
    tool.setdefault("description", definition["name"])
    return {"type": "function", **tool, "parameters": schema}


def _read_tools(tools: list[JsonObject]) -> list[JsonObject]:
    functions = [tool for tool in tools if tool.get("type") == "function"]
    return [definition_of(tool, tool.get("parameters")) for tool in functions]


def _write_search(definition: JsonObject, schema: Node) -> JsonObject:
    return {"type": "tool_search", "execution": "client", **labels(definition), "parameters": schema}


def _write_found(
    tools: Sequence[JsonObject],
    call: ModelCall | None,
    messages: list[JsonObject],
    deferred: Callable[[], list[JsonObject]],
) -> JsonObject:
    if call is not None and call.fault is not None:
        return messages[0]
    functions = [{key: value for key, value in tool.items() if key != "defer_loading"} for tool in deferred()]
    result: list[JsonObject] | str = functions or NOTHING_FOUND
    if call is None:
        return {"result": result}
    return {"type": "function_result", "call_id": sent_id(call), "name": call.name, "result": result}


# -- calls


def _read_call(item: JsonObject, at: int) -> ModelCall:
    extra = extra_members(item, "type", "id", "name", "arguments")
    call_id, name = (text_member(item, member, "gemini-interactions") for member in ("id", "name"))
    return model_call(call_id, name, decoded(item.get("arguments")), extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"type": "function_call", "id": sent_id(call), "name": call.name, "arguments": arguments, **extra}


# -- results


def _write_results(answered: Answered) -> list[JsonObject]:
    steps = []
    for call, result in answered:
        parts = parts_of(result, "gemini-interactions")
        has_media = any(isinstance(part, MediaPart) for part in parts)
        step: JsonObject = {"type": "function_result", "call_id": sent_id(call), "name": call.name}
        step["result"] = [_content(part) for part in parts] if has_media else text_of(parts)
        step |= {"is_error": True} if result.get("isError") else {}
        steps.append(step)
    return steps


def _content(part: str | MediaPart) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = "document" if part.kind == "file" else part.kind
    return {"type": kind, "data": part.data, "mime_type": part.media_type}


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    steps = [step for step in messages if step["type"] == "function_result"]
    return [(step["call_id"], read_result(_read_contents(step["result"]), step.get("is_error"))) for step in steps]


def _read_contents(result: str | list[JsonObject]) -> list[JsonObject]:
    parts = ([{"type": "text", "text": result}] if result else []) if isinstance(result, str) else result
    return [
        {"type": "text", "text": part["text"]} if part["type"] == "text" else block_of(part["mime_type"], part["data"])
        for part in parts
    ]


# -- streams

_REASONS: Final[dict[str, FinishReason]] = {
    "completed": "stop",
    "requires_action": "stop",
    "incomplete": "length",
    "budget_exceeded": "length",
}


class _Reader(OutputReader):
    """Reads `interaction.*` and `step.*` events."""

    _has_stops = True

    def __init__(self) -> None:
        super().__init__()
        self._status = ""

    def _read(self, chunk: JsonObject) -> None:
        key = chunk.get("index")
        at = key if isinstance(key, int) else -1
        match chunk.get("event_type"):
            case "interaction.created":
                self._start(part_in(chunk, "interaction").get("id"))
            case "step.start":
                self._begin_step(at, part_in(chunk, "step"))
            case "step.delta":
                self._extend(at, part_in(chunk, "delta"))
            case "step.stop":
                self._stop_call(at)
            case "interaction.status_update":
                self._status = str(chunk.get("status"))
            case "interaction.completed":
                status = part_in(chunk, "interaction").get("status")
                self._finish(status if isinstance(status, str) else self._status)
            case "error":
                self._fail(part_in(chunk, "error").get("message"))

    def _begin_step(self, at: int, step: JsonObject) -> None:
        match step.get("type"):
            case "function_call":
                extra = extra_members(step, "type", "id", "name", "arguments")
                self._begin_call(at, step.get("id"), step.get("name"), extra)
                self._repeat_arguments(at, step.get("arguments"))
            case "model_output":
                for part in parts_in(step, "content"):
                    self._say(TextDelta, part.get("text"))
            case "thought":
                for part in parts_in(step, "summary"):
                    self._say(ThinkingDelta, part.get("text"))

    def _extend(self, at: int, delta: JsonObject) -> None:
        match delta.get("type"):
            case "text":
                self._say(TextDelta, delta.get("text"))
            case "thought_summary":
                self._say(ThinkingDelta, part_in(delta, "content").get("text"))
            case "arguments_delta":
                self._add_arguments(at, delta.get("arguments"))

    def _finish(self, status: str) -> None:
        if status == "failed":
            self._fail("the interaction failed")
        else:
            self._end(_REASONS.get(status, "interrupted"))


INTERACTIONS: Final = Provider(
    names=GEMINI.names,
    plain=GEMINI.plain,
    write_tool=_write_tool,
    read_tools=_read_tools,
    inside=("steps",),
    is_call=lambda item: item.get("type") == "function_call",
    was_cut=lambda interaction: _REASONS.get(str(interaction.get("status"))) == "length",
    is_bare=lambda item: not item.get("arguments"),
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
    write_search=_write_search,
    write_found=_write_found,
)
"""Members of google-genai 3.6.1 (`google.genai.interactions`), 2026-11-29; names and keywords as of `gemini`."""
