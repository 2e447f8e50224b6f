"""The events of a streamed response of OpenAI."""

from mcp_hub.formats.events import TextDelta, ThinkingDelta
from mcp_hub.formats.streams.reader import OutputReader, part
from mcp_hub.types import JsonObject


class OpenAiResponsesReader(OutputReader):
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
