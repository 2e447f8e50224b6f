"""Readers of providers' streamed output, and the reader for a format."""

import re
from typing import Any, Final

import msgspec

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.calls import NO_ID
from mcp_hub.formats.events import FinishReason, TextDelta, ThinkingDelta
from mcp_hub.formats.output_reader import OutputReader, part, parts
from mcp_hub.formats.providers import Format
from mcp_hub.formats.schemas.nodes import MAX_DEPTH
from mcp_hub.types import JsonObject

_ANTHROPIC_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "interrupted",
    "refusal": "interrupted",
}


class _AnthropicReader(OutputReader):
    """Reads `message_start`, `content_block_*`, `message_delta`, `message_stop` and `error`.

    Broken JSON of eager arguments is the fault `invalid_arguments`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reason: FinishReason = "stop"

    def _read(self, chunk: JsonObject) -> None:
        key = chunk.get("index")
        at = key if isinstance(key, int) else -1
        match chunk.get("type"):
            case "message_start":
                self._start(part(chunk, "message").get("id"))
            case "content_block_start":
                self._begin_block(at, part(chunk, "content_block"))
            case "content_block_delta":
                self._extend(at, part(chunk, "delta"))
            case "content_block_stop":
                self._end_call(at)
            case "message_delta":
                self._reason = _ANTHROPIC_REASONS.get(part(chunk, "delta").get("stop_reason") or "end_turn", "stop")
            case "message_stop":
                self._end(self._reason)
            case "error":
                self._fail(part(chunk, "error").get("message"))
                self._end("interrupted")

    def _begin_block(self, at: int, block: JsonObject) -> None:
        match block.get("type"):
            case "text":
                self._say(TextDelta, block.get("text"))
            case "thinking":
                self._say(ThinkingDelta, block.get("thinking"))
            case "tool_use":
                extra = {key: value for key, value in block.items() if key not in ("type", "id", "name", "input")}
                self._begin_call(at, block.get("id"), block.get("name"), extra)
                if block.get("input"):
                    self._add_arguments(at, msgspec.json.encode(block["input"]).decode())

    def _extend(self, at: int, delta: JsonObject) -> None:
        match delta.get("type"):
            case "text_delta":
                self._say(TextDelta, delta.get("text"))
            case "thinking_delta":
                self._say(ThinkingDelta, delta.get("thinking"))
            case "input_json_delta":
                self._add_arguments(at, delta.get("partial_json"))


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,5})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_MOST_ITEMS: Final = 10_000


class _PartialArguments:
    """Arguments so far."""

    def __init__(self) -> None:
        self.value: JsonObject = {}

    def add(self, partial: JsonObject) -> None:
        """Appends text to text. A path that leads nowhere is ignored."""
        steps = _steps(partial.get("jsonPath"))
        if not steps:
            return
        container: Any = self.value
        for step, following in zip(steps, steps[1:], strict=False):
            container = _entered(container, step, [] if isinstance(following, int) else {})
        new = next((partial[name] for name in _VALUES if partial.get(name) is not None), None)
        old = _entered(container, steps[-1], new)
        if isinstance(old, str) and isinstance(new, str) and old is not new:
            _set(container, steps[-1], old + new)


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
    return steps


def _entered(container: Any, step: str | int, new: Any) -> Any:
    if isinstance(container, dict) and isinstance(step, str):
        return container.setdefault(step, new)
    if isinstance(container, list) and isinstance(step, int) and step < _MOST_ITEMS:
        if step >= len(container):
            container.extend([None] * (step - len(container)))
            container.append(new)
        elif container[step] is None:
            container[step] = new
        return container[step]
    return None


def _set(container: Any, step: str | int, value: Any) -> None:
    container[step] = value


_GEMINI_REASONS: Final[dict[str, FinishReason]] = {"STOP": "stop", "MAX_TOKENS": "length"}
_BAD_CALLS: Final = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")


class _GeminiReader(OutputReader):
    """Reads the first of `candidates`. Arguments of `partialArgs` are one chunk when complete."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._partial: _PartialArguments | None = None

    def _read(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._fail(part(chunk, "error").get("message"))
            self._end("interrupted")
            return
        self._start(chunk.get("responseId"))
        for candidate in parts(chunk, "candidates"):
            if candidate.get("index", 0) != 0:
                continue
            for piece in parts(part(candidate, "content"), "parts"):
                self._read_part(piece)
            reason = candidate.get("finishReason")
            if isinstance(reason, str):
                self._finish(reason, candidate.get("finishMessage"))
        if part(chunk, "promptFeedback").get("blockReason"):
            self._end("interrupted")

    def _finish(self, reason: str, message: object) -> None:
        if reason in _BAD_CALLS:
            self._fail(message or reason)
        self._complete()
        self._end(_GEMINI_REASONS.get(reason, "interrupted"))

    def _read_part(self, piece: JsonObject) -> None:
        if isinstance(piece.get("functionCall"), dict):
            self._read_call(piece, piece["functionCall"])
        else:
            self._say(ThinkingDelta if piece.get("thought") else TextDelta, piece.get("text"))

    def _read_call(self, piece: JsonObject, call: JsonObject) -> None:
        if self._partial is None:
            extra = {key: value for key, value in piece.items() if key != "functionCall"}
            has_id = isinstance(call.get("id"), str) and call["id"] != ""
            self._begin_call(
                self._count, call.get("id"), call.get("name"), {**extra, **({} if has_id else {NO_ID: True})}
            )
            self._partial = _PartialArguments()
        self._partial.value.update(part(call, "args"))
        for partial in parts(call, "partialArgs"):
            self._partial.add(partial)
        if not call.get("willContinue"):
            self._complete()

    def _complete(self) -> None:
        if self._partial is not None:
            self._add_arguments(self._count, msgspec.json.encode(self._partial.value).decode())
            self._end_call(self._count)
            self._partial = None
            self._count += 1


_OPENAI_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "interrupted",
}


class _OpenAiChatReader(OutputReader):
    """Reads the first of `choices`. A call without an index, or with a used index and another id, is a new one."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: dict[int, str] = {}

    def _read(self, chunk: JsonObject) -> None:
        if "error" in chunk:
            self._fail(part(chunk, "error").get("message"))
            self._end("interrupted")
            return
        self._start(chunk.get("id"))
        for choice in parts(chunk, "choices"):
            if choice.get("index", 0) == 0:
                self._read_choice(choice)

    def _read_choice(self, choice: JsonObject) -> None:
        delta = part(choice, "delta")
        self._say(ThinkingDelta, delta.get("reasoning_content") or delta.get("reasoning"))
        self._say(TextDelta, delta.get("content"))
        self._say(TextDelta, delta.get("refusal"))
        for number, call in enumerate(parts(delta, "tool_calls")):
            self._read_call(call, number)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._end(_OPENAI_REASONS.get(reason, "stop"))

    def _read_call(self, call: JsonObject, number: int) -> None:
        index, call_id, function = call.get("index"), call.get("id"), part(call, "function")
        at = index if isinstance(index, int) else number
        name = function.get("name")
        is_new = at not in self._open or (isinstance(call_id, str) and call_id not in ("", self._ids.get(at)))
        if is_new and name:
            extra = {key: value for key, value in call.items() if key not in ("index", "id", "type", "function")}
            self._begin_call(at, call_id, name, extra)
            self._ids[at] = call_id if isinstance(call_id, str) else ""
        self._add_arguments(at, function.get("arguments"))


class _OpenAiResponsesReader(OutputReader):
    """Reads `response.*` events."""

    def _read(self, chunk: JsonObject) -> None:
        key = chunk.get("output_index")
        at = key if isinstance(key, int) else -1
        match chunk.get("type"):
            case "response.created" | "response.in_progress":
                self._start(part(chunk, "response").get("id"))
            case "response.output_text.delta" | "response.refusal.delta":
                self._say(TextDelta, chunk.get("delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._say(ThinkingDelta, chunk.get("delta"))
            case "response.output_item.added":
                self._begin_item(at, part(chunk, "item"))
            case "response.function_call_arguments.delta":
                self._add_arguments(at, chunk.get("delta"))
            case "response.output_item.done":
                self._end_item(at, part(chunk, "item"))
            case _:
                self._read_ending(chunk)

    def _read_ending(self, chunk: JsonObject) -> None:
        response = part(chunk, "response")
        match chunk.get("type"):
            case "response.completed":
                self._end("stop")
            case "response.incomplete":
                reason = part(response, "incomplete_details").get("reason")
                self._end("length" if reason == "max_output_tokens" else "interrupted")
            case "response.failed":
                self._fail(part(response, "error").get("message"))
                self._end("interrupted")
            case "error":
                self._fail(chunk.get("message") or part(chunk, "error").get("message"))
                self._end("interrupted")

    def _begin_item(self, at: int, item: JsonObject) -> None:
        if item.get("type") == "function_call":
            self._begin_call(at, item.get("call_id"), item.get("name"), _extra(item))
            self._add_arguments(at, item.get("arguments"))

    def _end_item(self, at: int, item: JsonObject) -> None:
        if item.get("type") != "function_call":
            return
        if at not in self._open:
            self._begin_call(at, item.get("call_id"), item.get("name"), {})
        self._add_extra(at, _extra(item))
        if not self._has_arguments(at):
            self._add_arguments(at, item.get("arguments"))
        self._end_call(at)


def _extra(item: JsonObject) -> JsonObject:
    return {key: value for key, value in item.items() if key not in ("type", "call_id", "name", "arguments")}


_READERS: dict[Format, type[OutputReader]] = {
    Format.ANTHROPIC: _AnthropicReader,
    Format.OPENAI: _OpenAiChatReader,
    Format.OPENAI_RESPONSES: _OpenAiResponsesReader,
    Format.GEMINI: _GeminiReader,
}


def output_reader(out_of: Format) -> OutputReader:
    """A reader for one output. Raises: FormatRefused (`unknown_format`), also for MCP."""
    if out_of not in _READERS:
        raise FormatRefused("unknown_format", f'the format "{out_of}" has no streams. Use that of a provider.')
    return _READERS[out_of]()
