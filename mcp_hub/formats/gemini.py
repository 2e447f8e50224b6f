"""The format of Gemini."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mcp_hub.formats.provider import (
    Answered,
    CallResults,
    Provider,
    decoded,
    definition_of,
    extra_members,
    id_members,
    labels,
    model_call,
    part_in,
    parts_in,
    text_member,
)
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import NO_ID, FinishReason, McpResult, ModelCall, TextDelta, ThinkingDelta
from mcp_hub.formats.results import MediaPart, block_of, parts_of, read_result, sole_structure, text_of
from mcp_hub.formats.schemas import dialects
from mcp_hub.formats.schemas.nodes import MAX_DEPTH, Node
from mcp_hub.types import JsonObject

# -- tools


def _write_tool(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    tool = labels(definition)
    tool.setdefault("description", definition["name"])
    output = {"responseJsonSchema": definition["outputSchema"]} if "outputSchema" in definition else {}
    return {**tool, "parametersJsonSchema": schema, **output}


def _read_tools(tools: list[JsonObject]) -> list[JsonObject]:
    functions = [function for tool in tools for function in tool.get("functionDeclarations", ())]
    return [definition_of(tool, tool.get("parametersJsonSchema"), tool.get("responseJsonSchema")) for tool in functions]


# -- calls


def _read_call(item: JsonObject, at: int) -> ModelCall:
    call = item.get("functionCall", item)  # a call alone, as in `response.function_calls` of the SDK
    call = call if isinstance(call, dict) else {}
    extra = (extra_members(item, "functionCall") if call is not item else {}) | extra_members(
        call, "id", "name", "args"
    )
    has_id = isinstance(call.get("id"), str) and call["id"] != ""
    extra = extra if has_id else {**extra, NO_ID: True}
    name = text_member(call, "name", "gemini")
    return model_call(call["id"] if has_id else f"call_{at}", name, decoded(call.get("args")), extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {"functionCall": {**id_members(call), "name": call.name, "args": arguments}, **extra}


# -- results

_STANDARD: Final = str.maketrans("-_", "+/")


def _write_results(answered: Answered) -> list[JsonObject]:
    parts = [{"functionResponse": _response(call, result)} for call, result in answered]
    return [{"role": "user", "parts": parts}] if parts else []


def _response(call: ModelCall, result: McpResult) -> JsonObject:
    parts = parts_of(result, "gemini")
    media = [part for part in parts if isinstance(part, MediaPart)]
    text = text_of(parts)
    structured = sole_structure(result, parts)
    if result.get("isError"):
        response: JsonObject = {"error": text}
    else:
        response = {"output": text if structured is None else structured}
    answer = {**id_members(call), "name": call.name, "response": response}
    if media:
        answer["parts"] = [{"inlineData": {"mimeType": part.media_type, "data": part.data}} for part in media]
    return answer


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    parts = [
        part["functionResponse"] for message in messages for part in message["parts"] if "functionResponse" in part
    ]
    return [(part.get("id", part["name"]), _read_result(part)) for part in parts]


def _read_result(part: JsonObject) -> McpResult:
    response = part["response"]
    is_error = "error" in response
    output = response["error"] if is_error else response.get("output", response)
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    content: list[JsonObject] = [{"type": "text", "text": text}] if text else []
    media = [part_media["inlineData"] for part_media in part.get("parts", ()) if "inlineData" in part_media]
    # objects of the SDK write bytes in the alphabet for URLs, which MCP does not have
    content += [block_of(part_media["mimeType"], part_media["data"].translate(_STANDARD)) for part_media in media]
    result = read_result(content, is_error)
    return {**result, "structuredContent": output} if isinstance(output, dict) and not is_error else result


# -- streams

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,5})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")


class _PartialArguments:
    """Arguments so far; `has_gap`: a part has no place, or contradicts an earlier one."""

    def __init__(self) -> None:
        self.value: JsonObject = {}
        self.has_gap = False

    def add(self, partial: JsonObject) -> None:
        """Appends text to text."""
        steps = _steps(partial.get("jsonPath"))
        name = next((name for name in _VALUES if partial.get(name) is not None), None)
        # null without its name: a name with None
        if not steps or (name is None and not any(name in partial for name in _VALUES)):
            self.has_gap = True
            return
        container: Any = self.value
        new = None if name in (None, "nullValue") else partial[name]
        starts: list[object] = [[] if isinstance(step, int) else {} for step in steps[1:]]
        for step, start in zip(steps, [*starts, "" if isinstance(new, str) else new], strict=True):
            if not _leads(container, step, start):
                self.has_gap = True
                return
            parent, container = container, container[step]
        if isinstance(container, str) and isinstance(new, str):
            parent[steps[-1]] += new
        elif type(container) is not type(new) or container != new:
            self.has_gap = True

    def update(self, arguments: JsonObject) -> None:
        self.has_gap = self.has_gap or any(self.value.get(key, value) != value for key, value in arguments.items())
        self.value.update(arguments)


def _steps(path: object) -> list[str | int]:
    if not isinstance(path, str) or not path.startswith("$"):
        return []
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) <= MAX_DEPTH:
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, index, single, double = step.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index is not None else name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    return steps if at == len(path) else []


def _leads(container: object, step: str | int, start: object) -> bool:
    """Whether a step leads to a member, or can add one, which is `start` then."""
    if isinstance(container, dict) and isinstance(step, str):
        container.setdefault(step, start)
        return True
    if not isinstance(container, list) or not isinstance(step, int) or step > len(container):
        return False
    container.extend([start] if step == len(container) else [])
    return True


_REASONS: Final[dict[str, FinishReason]] = {"STOP": "stop", "MAX_TOKENS": "length"}
_BAD_CALLS: Final = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")


class _Reader(OutputReader):
    """Reads the first of `candidates`. Arguments of `partialArgs` are one chunk when complete."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._partial: _PartialArguments | None = None

    def _read(self, chunk: JsonObject) -> None:
        if chunk.get("error") is not None:
            self._fail(part_in(chunk, "error").get("message"))
            return
        self._start(chunk.get("responseId"))
        for candidate in parts_in(chunk, "candidates"):
            if candidate.get("index", 0) != 0:
                continue
            for piece in parts_in(part_in(candidate, "content"), "parts"):
                self._read_part(piece)
            reason = candidate.get("finishReason")
            if isinstance(reason, str):
                self._finish(reason, candidate.get("finishMessage"))
        if part_in(chunk, "promptFeedback").get("blockReason"):
            self._finish("SAFETY", None)

    def _finish(self, reason: str, message: object) -> None:
        if self._has_ended:
            return
        if reason in _BAD_CALLS:
            self._report(message or reason)
        self._break_off()
        self._end(_REASONS.get(reason, "interrupted"))

    def _break_off(self) -> None:
        if self._partial is not None:
            self._partial = None
            self._end_call(self._count, is_broken=True)

    def _read_part(self, piece: JsonObject) -> None:
        if isinstance(piece.get("functionCall"), dict):
            self._read_call(piece, piece["functionCall"])
        else:
            self._say(ThinkingDelta if piece.get("thought") else TextDelta, piece.get("text"))

    def _read_call(self, piece: JsonObject, call: JsonObject) -> None:
        open_call = self._open.get(self._count)
        if open_call is not None and self._partial is not None:
            names = (call.get("id") or open_call.id, call.get("name") or open_call.name)
            if names != (open_call.id, open_call.name):
                self._break_off()
        if self._partial is None:
            self._count += 1
            extra = {key: value for key, value in piece.items() if key != "functionCall"}
            has_id = isinstance(call.get("id"), str) and call["id"] != ""
            extra |= {} if has_id else {NO_ID: True}
            self._begin_call(self._count, call.get("id"), call.get("name"), extra)
            self._partial = _PartialArguments()
        arguments = call.get("args")
        if isinstance(arguments, dict):
            self._partial.update(arguments)
        else:
            self._add_arguments(self._count, arguments)
        for partial in parts_in(call, "partialArgs"):
            self._partial.add(partial)
        if not call.get("willContinue"):
            if self._partial.value:
                self._add_arguments(self._count, self._partial.value)
            if self._partial.has_gap:
                self._break_off()
            self._partial = None
            self._stop_call(self._count)


GEMINI: Final = Provider(
    names=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"),
    plain=dialects.GEMINI,
    write_tool=_write_tool,
    read_tools=_read_tools,
    around="functionDeclarations",
    inside=("candidates", "content", "parts"),
    is_call=lambda item: item.get("functionCall") is not None or isinstance(item.get("name"), str),
    was_cut=lambda candidate: candidate.get("finishReason") == "MAX_TOKENS",
    is_bare=lambda item: not item.get("functionCall", item).get("args"),
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=_Reader,
)
"""Names as of 2026-11-24."""
