"""Streamed output of a model, read into events and calls.

A call is made with the arguments that the model wrote, or not at all: what is cut off, comes in two versions or belongs
to no call is a fault.
"""

from typing import Any, ClassVar, Final

import msgspec

from mcp_hub.formats.arguments import MAX_BYTES, read_arguments
from mcp_hub.formats.records import (
    SENT_ID,
    CallFault,
    FinishReason,
    ModelCall,
    ModelEvent,
    OutputEnd,
    OutputError,
    OutputStart,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
    json_value,
)
from mcp_hub.types import JsonObject

CUT_OFF: Final = CallFault("invalid_arguments", "The call was cut off. Make it again, with all its arguments.")
_TWO_VERSIONS: Final = CallFault(
    "invalid_arguments", "The arguments came in two versions. The tool was not called. Make the call again."
)
_TOO_LARGE: Final = CallFault("arguments_too_large", f"The arguments have more than {MAX_BYTES} characters. Send less.")
_NAMELESS: Final = CallFault("malformed_call", "The call does not name a tool. Make it again, with a name.")


class _Open:
    __slots__ = ("extra", "fault", "id", "is_started", "is_stopped", "name", "size", "texts", "whole")

    def __init__(self, call_id: str, name: str, extra: JsonObject) -> None:
        self.id = call_id
        self.name = name
        self.extra = extra
        self.texts: list[str] = []
        self.size = 0
        self.whole = ""
        """All arguments, as the provider repeats them."""
        self.fault: CallFault | None = None
        self.is_started = self.is_stopped = False

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are an object, to which no text can be added."""
        ends = bool(self.texts) and self.texts[-1].rstrip().endswith("}")
        return ends and not isinstance(read_arguments(self.text), CallFault)

    def is_other(self, call_id: str, name: str, text: str, *, has_slot: bool) -> bool:
        """Whether a chunk begins another call. `has_slot`: it names this call's place."""
        if call_id and self.id and call_id != self.id:
            return True
        if not name or not self.name or (name == self.name and not self.is_whole):
            return False
        if not self.texts:
            return name != self.name and not has_slot  # with a place: more of the name
        return name != self.name or text.strip() not in ("", self.text)

    def learn(self, call_id: str, name: str, extra: JsonObject) -> None:
        """Adds what a later chunk says: before the start an id and more of the name."""
        if not self.is_started:
            self.id = self.id or call_id
            self.name += name if name != self.name else ""
        self.extra = {**self.extra, **extra}

    def is_same(self, call: "_Open") -> bool:
        """Whether a start is this call's once more, before its arguments."""
        return bool(call.id) and not self.size and (self.id, self.name) == (call.id, call.name)

    def is_repeated(self, name: str, text: str) -> bool:
        """Whether a chunk is the whole call once more."""
        return bool(name) and self.is_whole and text == self.text


class OutputReader:
    """Reads one output of a model, with `_read` for a provider's chunks."""

    _has_stops: ClassVar[bool] = False
    """Whether the provider ends each call by a chunk of its own."""

    def __init__(self) -> None:
        self._events: list[ModelEvent] = []
        self._open: dict[int, _Open] = {}
        self._calls: list[ModelCall] = []
        self._ids: set[str] = set()
        self._strays: set[int] = set()
        """Keys whose arguments came before their call."""
        self._has_started = self._has_ended = self._has_refused = False

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
            self._end("interrupted", is_broken=True)
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
            self._settle()
            self._emit(kind(text))

    # -- calls

    def _begin_call(self, key: int, call_id: object, name: object, extra: JsonObject, *, waits: bool = False) -> _Open:
        """`waits`: the start comes with the first arguments, since id and name may still come."""
        call = _Open(call_id if isinstance(call_id, str) else "", name if isinstance(name, str) else "", extra)
        earlier = self._open.get(key)
        if earlier is not None and not earlier.is_stopped and earlier.is_same(call):
            return earlier
        self._settle()
        self._end_call(key)
        self._open[key] = call
        if key in self._strays:
            call.fault = CUT_OFF
        if not waits:
            self._start_call(call)
        return call

    def _start_call(self, call: _Open) -> None:
        if call.is_started:
            return
        call.is_started = True
        sent, number = call.id, len(self._ids)
        call.id = sent or f"call_{number}"
        while call.id in self._ids:
            number += 1
            call.id = f"{sent or 'call'}_{number}"
        if sent in self._ids:
            call.extra = {**call.extra, SENT_ID: sent}
            call.fault = CallFault("duplicate_call_id", f'Two calls have the id "{sent}". Make this one again.')
        self._ids.add(call.id)
        self._emit(ToolCallStart(call.id, call.name))
        if call.texts:
            self._emit(ToolCallChunk(call.id, call.text))

    def _add_arguments(self, key: int, value: object) -> None:
        """Text, or a value in its place. The call breaks above the limit."""
        call, text = self._open.get(key), as_text(value)
        if call is None:
            self._strays |= {key} if text else set()
            return
        if not text:
            if call.texts and call.name:
                self._start_call(call)
            return
        call.size += len(text)
        if call.size > MAX_BYTES:
            return
        call.texts.append(text)
        if call.is_started:
            self._emit(ToolCallChunk(call.id, text))
        elif call.name:
            self._start_call(call)

    def _repeat_arguments(self, key: int, value: object) -> None:
        call, text = self._open.get(key), as_text(value)
        if call is not None and text.strip() not in ("", "{}"):
            call.whole = text

    def _stop_call(self, key: int) -> None:
        """Without arguments a call may have been cut off: what follows tells."""
        call = self._open.get(key)
        if call is not None and (call.size or call.whole):
            self._end_call(key)
        elif call is not None:
            call.is_stopped = True

    def _settle(self) -> None:
        """More output follows: stopped calls were not cut off."""
        for key in [key for key, call in self._open.items() if call.is_stopped]:
            self._end_call(key)

    def _end_call(self, key: int, *, is_broken: bool = False, is_whole: bool = False) -> None:
        """`is_whole`: the provider says so; else a call without arguments may have lost them."""
        call = self._open.get(key)
        if call is None:
            return
        self._complete(key, call)
        del self._open[key]
        self._start_call(call)
        text = call.text or "{}"
        arguments = read_arguments(text)
        if call.fault is not None:
            arguments = call.fault
        elif not call.name:
            arguments = _NAMELESS
        elif call.size > MAX_BYTES:
            arguments = _TOO_LARGE
        elif is_broken or (self._has_stops and not (is_whole or call.is_stopped or call.size or call.whole)):
            arguments = CUT_OFF
        if isinstance(arguments, CallFault):
            self._calls.append(ModelCall(id=call.id, name=call.name, arguments={}, extra=call.extra, fault=arguments))
            self._emit(OutputError(*arguments, id=call.id))
        else:
            self._calls.append(ModelCall(call.id, call.name, arguments, call.extra))
            self._emit(ToolCallEnd(call.id, text))

    def _complete(self, key: int, call: _Open) -> None:
        text = call.text
        if not call.whole or call.whole == text or call.size > MAX_BYTES:
            return
        if call.whole.startswith(text):
            self._add_arguments(key, call.whole[len(text) :])
        elif read_arguments(text) != read_arguments(call.whole):
            call.fault = _TWO_VERSIONS

    # -- the end

    def _fail(self, message: object) -> None:
        self._report(message)
        self._end("interrupted", is_broken=True)

    def _report(self, message: object) -> None:
        reason = message if isinstance(message, str) and message else "the provider says no more"
        self._emit(OutputError("output_failed", f"The provider reported an error: {reason}"))

    def _end(self, reason: FinishReason, *, is_broken: bool = False) -> None:
        """A refusal ends as a filtered output: `interrupted`. Calls with whole arguments stand.

        `is_broken`: the stream broke off, and open calls with it.
        """
        self._start(None)
        if self._has_refused and reason in ("stop", "tool_calls"):
            reason = "interrupted"
        is_cut = reason in ("length", "interrupted")
        for key, call in list(self._open.items()):
            self._end_call(key, is_broken=is_broken or (is_cut and not call.is_whole and not call.whole))
        self._has_ended = True
        self._emit(OutputEnd("tool_calls" if reason == "stop" and self._calls else reason))


def as_text(value: object) -> str:
    """Arguments as text, also where a server sends the object itself; an empty one says nothing yet."""
    if isinstance(value, str):
        return value
    return "" if value in (None, {}) else msgspec.json.encode(value).decode()
