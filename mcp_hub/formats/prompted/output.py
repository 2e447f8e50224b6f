"""The events of one output: ids, limits, joined pieces."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_hub.formats.events import (
    ModelEvent,
    OutputError,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
)
from mcp_hub.types import JsonObject

MAX_ARGUMENTS: Final = 1 << 20
"""Bytes of the arguments of a call."""
MAX_DEPTH: Final = 50
"""Objects and arrays inside each other."""
MAX_NAME: Final = 256
"""Characters of a name; a call with a longer one is malformed."""
_NUMBERED: Final = re.compile(r":\d{1,9}\Z")

Tools = Mapping[str, Mapping[str, object]]
"""Names → input schemas."""


class ParsedOutput:
    """Collects the events of one output."""

    def __init__(self, tools: Tools, id: str) -> None:
        self._tools = tools
        self._id = id
        self._calls = 0
        self._events: list[ModelEvent] = []
        self._make: Callable[[str], ModelEvent] = TextDelta
        self._pieces: list[str] = []
        self._call: ParsedCall | None = None
        self._has_ended_calls = False

    @property
    def has_calls(self) -> bool:
        return self._has_ended_calls

    @property
    def is_call_known(self) -> bool:
        return self._call is not None and not self._call.is_over and self._call.is_known

    def take(self) -> list[ModelEvent]:
        self._flush()
        events, self._events = self._events, []
        return events

    def text(self, delta: str) -> None:
        self.extend(TextDelta, delta)

    def thinking(self, delta: str) -> None:
        self.extend(ThinkingDelta, delta)

    def call(self, name: str | None = None) -> "ParsedCall":
        self._call = ParsedCall(self, self._tools, name)
        return self._call

    def fail(self, code: str, message: str) -> None:
        """Ends the open call with an error, or adds one of no call."""
        if self._call is not None and not self._call.is_over:
            self._call.fail(code, message)
        else:
            self.add(OutputError(code, message))

    def new_id(self) -> str:
        """The next call's id."""
        self._calls += 1
        return f"{self._id}_{self._calls}"

    def extend(self, make: Callable[[str], ModelEvent], delta: str) -> None:
        """Adds a piece of an event."""
        if delta:
            if make != self._make:
                self._flush()
                self._make = make
            self._pieces.append(delta)

    def add(self, event: ModelEvent) -> None:
        self._flush()
        self._events.append(event)
        self._has_ended_calls |= isinstance(event, ToolCallEnd)

    def _flush(self) -> None:
        if self._pieces:
            self._events.append(self._make("".join(self._pieces)))
            self._pieces = []


class ParsedCall:
    """A call: its start, its arguments, and exactly one ending, maybe an error.

    Arguments before the name wait for it.
    """

    def __init__(self, output: ParsedOutput, tools: Tools, name: str | None) -> None:
        self._output = output
        self._tools = tools
        self._id = ""
        self._pieces: list[str] = []
        self._size = 0
        self.name = name
        self.is_over = False

    @property
    def has_arguments(self) -> bool:
        return self._size > 0

    def set_name(self, name: str) -> None:
        """Names a call whose arguments may have come before; the first name counts."""
        if self.name is None:
            self.name = name

    @property
    def is_known(self) -> bool:
        return self._resolved() is not None

    @property
    def schema(self) -> Mapping[str, object]:
        name = self._resolved()
        return {} if name is None else self._tools[name]

    def begin(self) -> None:
        if self._id or self.is_over:
            return
        name = self._resolved()
        self._start(name)
        if name is None:
            self.fail("unknown_tool", f'There is no tool "{self.name}". Call only tools that are listed.')
        else:
            self._output.extend(self._chunk, "".join(self._pieces))

    def arguments(self, delta: str) -> None:
        """Adds text of the arguments."""
        if self.is_over:
            return
        room = MAX_ARGUMENTS - self._size
        encoded = delta.encode()
        self._size += len(encoded)
        chunk = delta if len(encoded) <= room else encoded[:room].decode(errors="ignore")
        self._pieces.append(chunk)
        if self._id:
            self._output.extend(self._chunk, chunk)
        if len(encoded) > room:
            self.too_large()

    def too_large(self, subject: str = "") -> None:
        """Fails: the arguments, or `subject` of them, are over the limit."""
        limit = subject or f"{MAX_ARGUMENTS >> 20} MiB"
        self.fail("arguments_too_large", f"The arguments of {self._title} are larger than {limit}. Send less.")

    def too_deep(self) -> None:
        self.fail(
            "arguments_too_deep", f"The arguments of {self._title} nest deeper than {MAX_DEPTH} levels. Flatten them."
        )

    def fail(self, code: str, message: str) -> None:
        """Ends the call with an error, once."""
        if not self.is_over:
            self.is_over = True
            if not self._id and self.name is not None:
                self._start(self._resolved())
            self._output.add(OutputError(code, message, self._id or None))

    def finish(self) -> None:
        """Ends the call. A missing name and invalid arguments become errors; nothing is raised."""
        if self.name is None:
            self.fail("malformed_call", 'The call does not have a "name". Write it again with the name of a tool.')
        self.begin()
        if not self._pieces:
            self.arguments("{}")
        if self.is_over:
            return
        arguments = "".join(self._pieces)
        try:
            msgspec.json.decode(arguments, type=JsonObject)
        except (msgspec.DecodeError, RecursionError) as error:
            self.fail("invalid_arguments", f"The arguments of {self._title} are not a JSON object: {error}.")
        else:
            self.is_over = True
            self._output.add(ToolCallEnd(self._id, arguments))

    @property
    def _title(self) -> str:
        return "a call" if self.name is None else f'"{self.name}"'

    def _start(self, name: str | None) -> None:
        self._id = self._output.new_id()
        self._output.add(ToolCallStart(self._id, name or self.name or ""))

    def _chunk(self, arguments: str) -> ModelEvent:
        return ToolCallChunk(self._id, arguments)

    def _resolved(self) -> str | None:
        """Some models write `functions.NAME:0`."""
        name = self.name or ""
        if name not in self._tools:
            name = _NUMBERED.sub("", name.strip().removeprefix("functions."))
        return name if name in self._tools else None
