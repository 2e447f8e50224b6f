"""The base of readers of streamed output: open calls, limits, the one ending."""

from typing import Any

from mcp_hub.formats.arguments import MAX_BYTES, read_arguments
from mcp_hub.formats.events import (
    FinishReason,
    ModelEvent,
    OutputEnd,
    OutputError,
    OutputStart,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
)
from mcp_hub.formats.records import CallFault, ModelCall, json_value
from mcp_hub.types import JsonObject


class _Open:
    __slots__ = ("extra", "id", "name", "size", "texts")

    def __init__(self, call_id: str, name: str, extra: JsonObject) -> None:
        self.id = call_id
        self.name = name
        self.extra = extra
        self.texts: list[str] = []
        self.size = 0


class OutputReader:
    """Reads one output of a model, with `_read` for a provider's chunks."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._open: dict[int, _Open] = {}
        self._calls: list[ModelCall] = []
        self._has_started = self._has_ended = False

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The ended calls, with the provider's parameter names."""
        return tuple(self._calls)

    def feed(self, chunk: object) -> list[ModelEvent]:
        """The events of the next chunk; none after the end."""
        value = json_value(chunk)
        if not self._has_ended and isinstance(value, dict):
            self._read(value)
        return self._taken()

    def close(self) -> list[ModelEvent]:
        """The last events; open calls are broken."""
        if not self._has_ended:
            self._end("interrupted")
        return self._taken()

    def _read(self, chunk: JsonObject) -> None:
        raise NotImplementedError

    def _taken(self) -> list[ModelEvent]:
        events, self._events = self._events, []
        return events

    def _emit(self, event: ModelEvent) -> None:
        self._events.append(event)

    def _start(self, output_id: object) -> None:
        if not self._has_started:
            self._has_started = True
            self._emit(OutputStart(output_id if isinstance(output_id, str) else ""))

    def _say(self, kind: Any, text: object) -> None:
        if isinstance(text, str) and text:
            self._emit(kind(text))

    def _begin_call(self, key: int, call_id: object, name: object, extra: JsonObject) -> None:
        if key in self._open:
            self._end_call(key)
        number = len(self._calls) + len(self._open)
        identifier = call_id if isinstance(call_id, str) and call_id else f"call_{number}"
        self._open[key] = call = _Open(identifier, name if isinstance(name, str) else "", extra)
        self._emit(ToolCallStart(call.id, call.name))

    def _add_arguments(self, key: int, text: object) -> None:
        """Above the limit the call is broken."""
        call = self._open.get(key)
        if call is None or not isinstance(text, str) or not text:
            return
        call.size += len(text)
        if call.size <= MAX_BYTES:
            call.texts.append(text)
            self._emit(ToolCallChunk(call.id, text))

    def _end_call(self, key: int, *, is_broken: bool = False) -> None:
        call = self._open.pop(key, None)
        if call is None:
            return
        text = "".join(call.texts) or "{}"
        arguments = read_arguments(text)
        if call.size > MAX_BYTES:
            message = f"The arguments have more than {MAX_BYTES} characters. Send less."
            arguments = CallFault("arguments_too_large", message)
        elif is_broken:
            arguments = CallFault("invalid_arguments", "The call was cut off. Make it again, with all its arguments.")
        if isinstance(arguments, CallFault):
            self._calls.append(ModelCall(id=call.id, name=call.name, arguments={}, extra=call.extra, fault=arguments))
            self._emit(OutputError(*arguments, id=call.id))
        else:
            self._calls.append(ModelCall(call.id, call.name, arguments, call.extra))
            self._emit(ToolCallEnd(call.id, text))

    def _has_arguments(self, key: int) -> bool:
        return key in self._open and self._open[key].size > 0

    def _add_extra(self, key: int, extra: JsonObject) -> None:
        if key in self._open:
            self._open[key].extra |= extra

    def _fail(self, message: object) -> None:
        reason = message if isinstance(message, str) and message else "the provider says no more"
        self._emit(OutputError("output_failed", f"The provider reported an error: {reason}"))

    def _end(self, reason: FinishReason) -> None:
        self._start(None)
        is_broken = reason == "interrupted"
        for key in list(self._open):
            self._end_call(key, is_broken=is_broken)
        self._has_ended = True
        self._emit(OutputEnd("tool_calls" if reason == "stop" and self._calls else reason))


def part(value: object, member: str) -> JsonObject:
    """A member that is an object, else an empty one."""
    entry = value.get(member) if isinstance(value, dict) else None
    return entry if isinstance(entry, dict) else {}


def parts(value: object, member: str) -> list[JsonObject]:
    """The objects in a member that is a list."""
    entries = value.get(member) if isinstance(value, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
