"""The events of one output: ids, limits, joined pieces; and where its text is code."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from mcp_hub.formats.records import (
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
_PREFIXED: Final = re.compile(r"(?i)\A(?:functions?|tools?|default_api)[.:/]")

Tools = Mapping[str, Mapping[str, object]]
"""Names → input schemas."""


_PARTS: Final = re.compile(r"\n|[ \t]+|`+|~+|[^\n \t`~]+")
_LEAST: Final = 3


class _Line(Enum):
    INDENT = auto()
    MARKS = auto()
    INFO = auto()
    TAIL = auto()
    REST = auto()


class _Fences:
    """Follows text as it passes: code blocks, and starts of lines."""

    def __init__(self) -> None:
        self._open = ("", 0)
        self._line = _Line.INDENT
        self._mark = ""
        self._count = 0

    @property
    def is_code(self) -> bool:
        """Whether the next character is in a code block."""
        begins = self._line is _Line.INFO or (self._line is _Line.MARKS and self._count >= _LEAST)
        return bool(self._open[0]) or begins

    @property
    def is_line_start(self) -> bool:
        return self._line is _Line.INDENT and not self._open[0]

    def restart(self) -> None:
        self._line, self._mark, self._count = _Line.INDENT, "", 0

    def passes(self, text: str) -> None:
        """Takes the next text."""
        position = 0
        while position < len(text):
            if self._line is _Line.REST:
                position = text.find("\n", position)
                if position < 0:
                    return
            part = _PARTS.match(text, position)
            assert part is not None
            self._part(part[0])
            position = part.end()

    def _part(self, part: str) -> None:
        if part == "\n":
            self._end_line()
        elif self._line in (_Line.INDENT, _Line.MARKS) and part[0] in "`~" and self._mark in ("", part[0]):
            self._line, self._mark = _Line.MARKS, part[0]
            self._count += len(part)
        else:
            self._line = self._after(part[0])

    def _after(self, char: str) -> _Line:
        is_blank = char in " \t"
        if self._line is _Line.INDENT and is_blank:
            return _Line.INDENT
        if self._line is _Line.MARKS and self._count >= _LEAST and not self._open[0]:
            return _Line.INFO
        if self._line is _Line.INFO and not (char == "`" == self._mark):
            return _Line.INFO
        if self._line in (_Line.MARKS, _Line.TAIL) and self._open[0] and is_blank:
            return _Line.TAIL
        return _Line.REST

    def _end_line(self) -> None:
        mark, count = self._open
        if not mark and self.is_code:
            self._open = (self._mark, self._count)
        elif mark and self._line in (_Line.MARKS, _Line.TAIL) and self._mark == mark and self._count >= count:
            self._open = ("", 0)
        self.restart()


class ParsedOutput:
    """Collects the events of one output."""

    def __init__(self, tools: Tools, id: str) -> None:
        self.tools = tools
        self._id = id
        self._calls = 0
        self._events: list[ModelEvent] = []
        self._make: Callable[[str], ModelEvent] = TextDelta
        self._pieces: list[str] = []
        self._call: ParsedCall | None = None
        self._silent: ParsedCall | None = None
        self.has_calls = False
        self.fences = _Fences()

    @property
    def has_begun(self) -> bool:
        """Whether a call of the region has events, and no ending."""
        return self._call is not None and not self._call.is_over and bool(self._call.id)

    def take(self) -> list[ModelEvent]:
        self._flush()
        events, self._events = self._events, []
        return events

    def text(self, delta: str) -> None:
        self.extend(TextDelta, delta)
        self.fences.passes(delta)

    def thinking(self, delta: str) -> None:
        self.extend(ThinkingDelta, delta)

    def call(self, name: str | None = None) -> "ParsedCall":
        self._call = ParsedCall(self, self.tools, name)
        return self._call

    def refuse(self, reason: str = "") -> None:
        """Ends the region's call with an error, or adds one of no call. Without a reason the text ends inside it."""
        call = self._call or self._silent
        if call is None or call.is_over:
            call = self.call()
        if reason:
            call.fail("malformed_call", f"{call.subject} cannot be read: {reason}. Write it again.")
        else:
            call.fail(
                "truncated_call",
                f"The text ends inside {call.subject[0].lower()}{call.subject[1:]}. Write it again, whole.",
            )

    def begin_region(self) -> None:
        """The last call is over for `fail` and `complete`."""
        self._call = self._silent = None

    def give_up(self) -> bool:
        """Whether the region's error is known; takes back a call without an event."""
        call = self._call
        if call is not None and not (call.id or call.is_over):
            self._call, self._silent = None, call if call.is_known else None
        return call is not None and call.is_over

    def complete(self, calls: Sequence[tuple[str, str]]) -> None:
        """The calls that the region means, by names and arguments; the first one may have begun."""
        begun = self._call if self.has_begun else None
        for name, arguments in calls:
            call = self.call(name)
            if begun is not None:
                call, begun = begun, None
                if not call.goes_on_as(name, arguments):
                    return
            else:
                call.arguments(arguments)
                call.finish()

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
        self.has_calls |= isinstance(event, ToolCallEnd)

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
        self.id = ""
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

    def goes_on_as(self, name: str, arguments: str) -> bool:
        """Ends the call with these arguments, if what is passed on begins them."""
        begun = "".join(self._pieces)
        if resolved(name, self._tools) != self._resolved() or not arguments.startswith(begun):
            self.fail("malformed_call", f"The call of {self._title} breaks off, and begins again. Write it again.")
            return False
        self.arguments(arguments[len(begun) :])
        self.finish()
        return True

    def begin(self) -> None:
        if self.id or self.is_over:
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
        if self.id:
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
            if not self.id and self.name is not None:
                self._start(self._resolved())
            self._output.add(OutputError(code, message, self.id or None))

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
            self._output.add(ToolCallEnd(self.id, arguments))

    @property
    def subject(self) -> str:
        return "The call" if self.name is None else f'The call of "{self.name}"'

    @property
    def _title(self) -> str:
        return "a call" if self.name is None else f'"{self.name}"'

    def _start(self, name: str | None) -> None:
        self.id = self._output.new_id()
        self._output.add(ToolCallStart(self.id, name or self.name or ""))

    def _chunk(self, arguments: str) -> ModelEvent:
        return ToolCallChunk(self.id, arguments)

    def _resolved(self) -> str | None:
        return resolved(self.name or "", self._tools)


def resolved(name: str, tools: Collection[str]) -> str | None:
    """The tool that a name means: itself, without what models write around it, or the only one that is alike."""
    if name in tools:
        return name
    name = _PREFIXED.sub("", _NUMBERED.sub("", name.strip().removesuffix("()")))
    if name in tools:
        return name
    like = _likeness(name)
    alike = [tool for tool in tools if _likeness(tool) == like]
    return alike[0] if len(alike) == 1 else None


def _likeness(name: str) -> str:
    return re.sub(r"[\s._:/-]+", "_", name.casefold())
