"""The events of a streamed response of Gemini."""

import re
from typing import Any, Final

import msgspec

from mcp_hub.formats.calls import NO_ID
from mcp_hub.formats.events import FinishReason, TextDelta, ThinkingDelta
from mcp_hub.formats.schemas.nodes import MAX_DEPTH
from mcp_hub.formats.streams.reader import OutputReader, part, parts
from mcp_hub.types import JsonObject

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


_REASONS: Final[dict[str, FinishReason]] = {"STOP": "stop", "MAX_TOKENS": "length"}
_BAD_CALLS: Final = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")


class GeminiReader(OutputReader):
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
        self._end(_REASONS.get(reason, "interrupted"))

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
