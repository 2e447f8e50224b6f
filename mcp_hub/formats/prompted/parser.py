"""The parser of a model's text."""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final

from mcp_hub.formats.events import FinishReason, ModelEvent, OutputEnd, OutputStart
from mcp_hub.formats.prompted.characters import (
    Characters,
    MalformedCall,
    Steps,
    TruncatedCall,
)
from mcp_hub.formats.prompted.output import ParsedOutput
from mcp_hub.formats.prompted.table import Grammar, PromptFormat
from mcp_hub.schema import input_schema

_PARTS: Final = re.compile(r"\n|[ \t]+|`+|~+|[^\n \t`~]+")
_LEAST: Final = 3


class _Line(Enum):
    INDENT = auto()
    MARKS = auto()
    INFO = auto()
    TAIL = auto()
    REST = auto()


class _Fences:
    """Follows text as it passes."""

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


_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class PromptedParser:
    """Turns the text of one output into events: `feed` it as it arrives, then `close`.

    `tools` are MCP definitions; calls are numbered behind `id`. `is_thinking`: the prompt has opened the thinking.
    Never raises: mistakes of the model are events.
    """

    def __init__(
        self, format: PromptFormat, tools: Iterable[Mapping[str, Any]], id: str, *, is_thinking: bool = False
    ) -> None:
        self._format = format
        self._source = Characters()
        self._output = ParsedOutput({tool["name"]: input_schema(tool) for tool in tools}, id)
        self._output.add(OutputStart(id))
        self._fences = _Fences()
        self._is_at_start = True
        self._is_after_block = False
        bare = format.bare[0] if format.bare else ""
        self._tags = (*format.begins, *format.ends, *format.ignored, format.thinking[0])
        self._heads = frozenset(tag[0] for tag in self._tags)
        self._plain = re.compile(f"(?s:.)[^{re.escape(''.join(sorted(self._heads)) + bare)}]*")
        self._steps = self._message(is_thinking)
        next(self._steps)

    def feed(self, text: str) -> list[ModelEvent]:
        if text:
            self._source.feed(_SURROGATES.sub("\ufffd", text))
            next(self._steps, None)
        return self._output.take()

    def close(self, finish_reason: FinishReason = "stop") -> list[ModelEvent]:
        """The last events. `finish_reason` `stop` becomes `tool_calls` after calls, `interrupted` if one is cut off."""
        self._source.end()
        is_cut = self._finish()
        if finish_reason == "stop" and (is_cut or self._output.has_calls):
            finish_reason = "interrupted" if is_cut else "tool_calls"
        self._output.add(OutputEnd(finish_reason))
        return self._output.take()

    def _finish(self) -> bool:
        try:
            next(self._steps)
        except StopIteration as end:
            return bool(end.value)
        raise AssertionError("a parser waits for text that does not come")

    def _message(self, is_thinking: bool) -> Steps[bool]:
        if is_thinking:
            yield from self._think()
        while grammar := (yield from self._text()):
            try:
                yield from grammar(self._source, self._output)
            except MalformedCall as error:
                if self._source.is_holding:
                    self._pass(self._source.release())
                    continue
                self._output.fail("malformed_call", f"The call cannot be read: {error}. Write it again.")
                yield from self._drop_call()
            except TruncatedCall:
                return self._truncated()
            self._is_after_block = True
        return False

    def _text(self) -> Steps[Grammar | None]:
        """Passes on text until a call may begin; returns its parser."""
        source = self._source
        while char := (yield from source.peek()):
            if self._is_after_block and char in self._format.between:
                source.step()
            elif self._fences.is_code:
                self._pass(source.run(self._plain))
            elif self._format.bare and char == self._format.bare[0] and self._fences.is_line_start:
                source.hold("")
                return self._format.bare[1]
            elif char in self._heads:
                tag, is_whole = yield from source.match(self._tags)
                if is_whole and tag in self._format.begins:
                    source.hold(tag)
                    return self._format.begins[tag]
                if not is_whole or not (yield from self._is_consumed(tag)):
                    self._pass(tag)
            else:
                self._pass(source.run(self._plain))
        return None

    def _is_consumed(self, tag: str) -> Steps[bool]:
        """Thinking can only begin the output."""
        if tag == self._format.thinking[0] and self._is_at_start:
            yield from self._think()
            return True
        if tag in self._format.ignored:
            self._fences.restart()
            return True
        return tag in self._format.ends and self._is_after_block

    def _think(self) -> Steps[None]:
        end = self._format.thinking[1]
        plain = re.compile(f"[^{re.escape(end[0])}]+")
        while char := (yield from self._source.peek()):
            if char != end[0]:
                self._output.thinking(self._source.run(plain))
                continue
            begun, is_whole = yield from self._source.match((end,))
            if is_whole:
                self._is_after_block = True
                self._is_at_start = False
                return
            self._output.thinking(begun)

    def _pass(self, text: str) -> None:
        self._output.text(text)
        self._fences.passes(text)
        self._is_after_block = False
        self._is_at_start = self._is_at_start and text.isspace()

    def _drop_call(self) -> Steps[None]:
        end = self._format.ends[-1] if self._format.ends else "\n"
        skipped = re.compile(f"[^{re.escape(end[0])}]+")
        while char := (yield from self._source.peek()):
            if char != end[0]:
                self._source.run(skipped)
            elif (yield from self._source.match((end,)))[1]:
                return

    def _truncated(self) -> bool:
        if self._source.is_holding and self._format.bare and not self._output.is_call_known:
            self._pass(self._source.release())
            return False
        self._output.fail("truncated_call", "The text ends inside a call. Write the call again, whole.")
        return True
