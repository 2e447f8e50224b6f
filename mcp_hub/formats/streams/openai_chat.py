"""The events of a streamed chat completion."""

from typing import Final

from mcp_hub.formats.events import FinishReason, TextDelta, ThinkingDelta
from mcp_hub.formats.streams.reader import OutputReader, part, parts
from mcp_hub.types import JsonObject

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "interrupted",
}


class OpenAiChatReader(OutputReader):
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
            self._end(_REASONS.get(reason, "stop"))

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
