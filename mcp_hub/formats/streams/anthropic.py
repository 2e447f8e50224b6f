"""The events of a streamed message of Anthropic."""

from typing import Final

import msgspec

from mcp_hub.formats.events import FinishReason, TextDelta, ThinkingDelta
from mcp_hub.formats.streams.reader import OutputReader, part
from mcp_hub.types import JsonObject

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "interrupted",
    "refusal": "interrupted",
}


class AnthropicReader(OutputReader):
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
                self._reason = _REASONS.get(part(chunk, "delta").get("stop_reason") or "end_turn", "stop")
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
