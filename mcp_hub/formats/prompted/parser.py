"""The parser of a model's text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_hub.formats.prompted.characters import Characters, MalformedCall, Steps, match, read_tag, tag_of
from mcp_hub.formats.prompted.json_calls import other_family
from mcp_hub.formats.prompted.json_shapes import is_like_call
from mcp_hub.formats.prompted.output import ParsedOutput
from mcp_hub.formats.prompted.regions import (
    LINE,
    MAX_BLOCK,
    Outcome,
    bare_again,
    calls_only,
    dropped,
    element_again,
    head_of,
    inline_object,
    may_call,
    python_line,
    tag_in_code,
)
from mcp_hub.formats.prompted.table import Grammar, PromptFormat
from mcp_hub.formats.records import FinishReason, ModelEvent, OutputEnd, OutputStart
from mcp_hub.schema import input_schema

_SURROGATES: Final = re.compile("[\ud800-\udfff]")

_FENCE: Final = re.compile(r"(?P<mark>`{3,}|~{3,})[ \t]*[\w+-]*[ \t]*\n")
_MAX_START: Final = 400
"""Characters of a code block that say whether it is a call."""


@dataclass
class _State:
    """State of the parser. `is_open`: the end tag of a call may follow. `is_cut`: the output ends inside a call."""

    is_at_start: bool = True
    is_after_block: bool = False
    is_open: bool = False
    is_cut: bool = False
    was_cut: bool = False


class PromptedParser:
    """Turns one output's text into events: `feed` it as it arrives, then `close`.

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
        self._state = _State()
        self._tags = (*format.begins, *format.ends, *format.ignored, *format.around, format.thinking[0])
        self._heads = frozenset({"<", "[", *(tag[0] for tag in self._tags)})
        stops = "".join(sorted(self._heads)) + ("{" if self._reads_json else "")
        self._plain = re.compile(rf"\n[ \t]*|[^\n][^\n{re.escape(stops)}]*")
        self._steps = self._message(is_thinking)
        next(self._steps)

    def feed(self, text: str) -> list[ModelEvent]:
        if text:
            self._source.feed(_SURROGATES.sub("\ufffd", text))
            next(self._steps, None)
        return self._output.take()

    def close(self, finish_reason: FinishReason = "stop") -> list[ModelEvent]:
        """The last events. `finish_reason` `stop` becomes `tool_calls` after calls, `interrupted` if one is cut off."""
        self._state.was_cut = finish_reason in ("length", "interrupted")
        self._source.end()
        next(self._steps, None)
        if finish_reason == "stop" and (self._state.is_cut or self._output.has_calls):
            finish_reason = "interrupted" if self._state.is_cut else "tool_calls"
        self._output.add(OutputEnd(finish_reason))
        return self._output.take()

    def _message(self, is_thinking: bool) -> Steps[None]:
        if is_thinking:
            yield from self._think()
        while char := (yield from self._source.peek()):
            if self._state.is_after_block and char in self._format.between:
                self._source.step()
            elif self._output.fences.is_code:
                yield from self._in_code(char)
            elif self._output.fences.is_line_start and (begin := self._line_begin(char)):
                self._after((yield from begin))
            elif char == "{" and self._reads_json:
                self._after((yield from inline_object(self._source, self._output)))
            elif char in self._heads:
                yield from self._at_tag()
            else:
                self._pass(self._source.run(self._plain))

    def _in_code(self, char: str) -> Steps[None]:
        if char not in self._heads:
            self._pass(self._source.run(self._plain))
            return
        tag, _ = yield from read_tag(self._source, self._tags)
        if tag:
            yield from tag_in_code(self._source, self._output, self._format, tag)
        else:
            self._pass(self._source.run(self._plain))

    def _line_begin(self, char: str) -> Steps[Outcome] | None:
        """Calls that may begin with a line: a call without a tag, or a code block."""
        source, output, bare = self._source, self._output, self._format.bare
        if bare and char == bare[0] == "{":
            source.hold("")
            return self._read(bare[1], "")
        if char in "`~" and not (self._state.is_open and char in self._heads):
            return code_block(source, output, has_bare=bare is not None)
        if bare and (bare[0] == "[" or self._state.is_after_block) and (char.isalpha() or char == "_"):
            return python_line(source, output)
        return None

    @property
    def _reads_json(self) -> bool:
        return self._format.bare is not None and self._format.bare[0] == "{"

    def _at_tag(self) -> Steps[None]:
        is_line_start = self._output.fences.is_line_start
        tag, is_whole = yield from read_tag(self._source, self._tags)
        parsed_tag = tag_of(tag) if is_whole else None
        if is_whole and tag in self._format.begins:
            self._source.hold(tag)
            self._after((yield from self._read(self._format.begins[tag], tag)))
        elif is_whole and (yield from self._is_consumed(tag)):
            pass
        elif parsed_tag is not None and parsed_tag.kind != "end":
            self._source.hold(tag)
            self._after((yield from self._read(other_family, tag)))
        elif parsed_tag is not None and self._state.is_open:
            self._state.is_after_block, self._state.is_open = True, False
        elif tag[:1] == "[" and self._format.bare:
            self._source.give_back(tag)
            self._after((yield from self._list(is_line_start)))
        else:
            self._pass(tag or self._source.run(self._plain))

    def _list(self, is_line_start: bool) -> Steps[Outcome]:
        if self._reads_json or self._format.bare is None or not is_line_start:
            return (yield from inline_object(self._source, self._output))
        self._source.hold("")
        return (yield from self._read(self._format.bare[1], ""))

    def _is_consumed(self, tag: str) -> Steps[bool]:
        """Thinking can only begin the output."""
        if tag == self._format.thinking[0] and self._state.is_at_start:
            yield from self._think()
            return True
        if tag in self._format.ignored:
            self._output.fences.restart()
            self._state.is_after_block = True
            return True
        if tag in self._format.around:
            self._source.hold(tag)
            self._after((yield from self._read(other_family, tag)))
            return True
        is_end = tag in self._format.ends and (self._state.is_after_block or self._state.is_open)
        self._state.is_after_block |= is_end
        return is_end

    def _think(self) -> Steps[None]:
        """Calls in thinking that does not end are calls, if nothing follows them."""
        end = self._format.thinking[1]
        plain = re.compile(f"[^<{{{re.escape(end[0])}]+")
        self._state.is_at_start, is_over = False, False
        while not is_over and (yield from self._source.peek()):
            if piece := self._source.run(plain):
                self._output.thinking(piece)
                continue
            text, is_call, is_over = yield from self._begun_in_thinking(end)
            if is_call:
                text, is_over = yield from self._to_end(text)
                if not is_over and not self._state.was_cut and is_like_call(text, self._output.tools):
                    if text.rstrip()[-1:] in tuple(">}])`"):
                        self._source.give_back(text)
                        return
                    self._output.refuse("it stands in thinking that does not end")
            self._output.thinking(text)
        self._state.is_after_block = is_over

    def _begun_in_thinking(self, end: str) -> Steps[tuple[str, bool, bool]]:
        """A tag or brace in thinking, whether it begins a call, and whether the thinking ended there."""
        if (yield from self._source.peek()) == "{" and end[0] != "{":
            text = yield from head_of(self._source)
            return text, self._reads_json and may_call(text, self._output), False
        tag, is_whole = yield from read_tag(self._source, (end, *self._format.begins))
        if is_whole and tag == end:
            return "", False, True
        parsed_tag = tag_of(tag) if is_whole else None
        is_call = tag in self._format.begins or (parsed_tag is not None and parsed_tag.kind != "end")
        return tag, is_whole and is_call, False

    def _to_end(self, text: str) -> Steps[tuple[str, bool]]:
        """The text before the end of thinking, and whether it came."""
        end = self._format.thinking[1]
        plain = re.compile(f"[^{re.escape(end[0])}]+")
        pieces = [text]
        while (yield from self._source.peek()):
            if piece := self._source.run(plain):
                pieces.append(piece)
                continue
            tag, is_whole = yield from match(self._source, (end,))
            if is_whole:
                return "".join(pieces), True
            pieces.append(tag)
        return "".join(pieces), False

    def _pass(self, text: str) -> None:
        self._output.text(text)
        self._state.is_at_start = self._state.is_at_start and text.isspace()
        self._state.is_after_block = False

    def _read(self, grammar: Grammar, begin: str) -> Steps[Outcome]:
        """A call after `begin`, which is held."""
        source, output = self._source, self._output
        output.begin_region()
        outcome: Outcome = "read"
        try:
            yield from grammar(source, output)
        except (MalformedCall, EOFError) as error:
            is_cut = isinstance(error, EOFError)
            if output.give_up():
                yield from dropped(source, output, self._format, begin)
                self._state.is_cut |= is_cut
            elif begin:
                outcome = yield from element_again(
                    source, output, self._format, begin, is_open=self._state.is_open, is_cut=is_cut
                )
            else:
                outcome = yield from bare_again(source, output, self._format)
        source.drop()
        return outcome

    def _after(self, outcome: Outcome) -> None:
        state = self._state
        state.is_at_start = False
        state.is_cut |= outcome == "cut"
        state.is_after_block = outcome != "text"
        if outcome != "text":
            state.is_open = outcome == "read"


def code_block(source: Characters, output: ParsedOutput, *, has_bare: bool) -> Steps[Outcome]:
    """A code block that holds calls, and nothing else; any other stays text. `has_bare`: calls need no tags."""
    opening = yield from _line(source)
    fence = _FENCE.fullmatch(opening)
    content = ""
    while fence and len(content) < _MAX_START and sum(map(bool, map(str.strip, content.split("\n")[:-1]))) < 2:
        if not (line := (yield from _line(source))):
            break
        content += line
    if fence is None or not _begins_block(content, output, has_bare):
        marks = len(opening) - len(opening.lstrip(opening[0])) if fence is None else len(opening)
        source.give_back(opening[marks:] + content)
        output.text(opening[:marks])
        return "text"
    closing = re.compile(rf"[ \t]*{fence['mark']}[ \t]*\n?\Z")
    lines = content.splitlines(keepends=True)
    while not (lines and closing.fullmatch(lines[-1])) and len(content) < MAX_BLOCK:
        if not (line := (yield from _line(source))):
            break
        lines.append(line)
        content += line
    is_closed = bool(closing.fullmatch(lines[-1]))
    if calls := calls_only("".join(lines[:-1] if is_closed else lines), output):
        output.begin_region()
        output.complete(calls)
        return "read"
    source.give_back(content)
    output.text(opening)
    return "text"


def _line(source: Characters) -> Steps[str]:
    line = ""
    while (yield from source.peek()) and not line.endswith("\n") and len(line) < MAX_BLOCK:
        line += source.run(LINE, MAX_BLOCK - len(line))
    return line


def _begins_block(content: str, output: ParsedOutput, has_bare: bool) -> bool:
    text = content.lstrip()
    if tag := re.match(r"<[^<>\n]+>|\[\w+\]", text):
        parsed_tag = tag_of(tag[0])
        return parsed_tag is not None and parsed_tag.kind != "end"
    return has_bare and may_call(text, output)
