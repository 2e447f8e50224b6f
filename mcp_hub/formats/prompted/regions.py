"""Calls that break their format, and calls without one: their ends and outcomes.

A call ends with its end tag, before the next call's tag, or with its bracket or fence.
"""

import re
from typing import Final, Literal, TypeAlias

from mcp_hub.formats.prompted.characters import (
    MAX_HEAD,
    MAX_KEPT,
    Characters,
    MalformedCall,
    Steps,
    read_tag,
    skip_over,
    tag_of,
)
from mcp_hub.formats.prompted.json_shapes import are_known, has_arguments, is_call_key, is_like_call, names_a_tool
from mcp_hub.formats.prompted.output import MAX_NAME, ParsedOutput
from mcp_hub.formats.prompted.readings import Calls, read_calls
from mcp_hub.formats.prompted.table import PromptFormat

Outcome: TypeAlias = Literal["read", "text", "outer", "cut"]
"""Calls or their errors were added; text was; it was a tag around calls; the output ends inside a call."""

_INNER: Final = ("function", "invoke", "dsmlinvoke", "antmlinvoke")
"""Words of elements inside others."""
_WEAK: Final = ("tool", "tools", "function", "functions", "invoke")
"""Words of tags that stand in other texts too."""
_MAX_ENDS: Final = 16
"""Tags that a string may contain before it is taken for one that does not end."""
MAX_BLOCK: Final = 1 << 16
_MAXLINES: Final = 1 << 12
_NOT_TAG: Final = re.compile(r"[^<\[]+")
LINE: Final = re.compile(r"[^\n]+|\n")
_NAME: Final = re.compile(r"[\w.-]+")
_HEAD: Final = re.compile(r"""(?:\{|\[\s*\{)\s*["'“‘„]?(?P<key>[\w .-]+)""")
_PYTHON: Final = re.compile(r"\s*\[?\s*(?:\w+\s*=\s*)?(?:await\s+)?(?:print\s*\(\s*)?(?P<name>[\w.-]+)\s*\(")
_WRAPPERS: Final = re.compile(r"print|(?:default_api|functions|tools)\..*")
_PLAIN_TAG: Final = re.compile(r"<\w+>|\[")
_ELEMENT: Final = re.compile(r"\s*(?:\{|\[\s*\{|</?(?:function|invoke|parameter|arg_))")
_QUOTED: Final = {quote: re.compile(rf"[^\\{quote}]+") for quote in "\"'`"}
_STRING: Final = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""")
_COMMENT: Final = re.compile(r"//|/\*|#")
_CODE: Final = re.compile(r"[^\"'`\\(){}\[\]]+")
_CLOSING: Final = {"{": "}", "[": "]", "(": ")"}
_TO_LINE_END: Final = re.compile(r"[^\n]+")


def element_again(
    source: Characters, output: ParsedOutput, format: PromptFormat, begin: str, *, is_open: bool, is_cut: bool
) -> Steps[Outcome]:
    """Reads a call after the tag `begin` again, as a whole.

    `is_open`: an end tag may come. `is_cut`: its format would read on.
    """
    recorded = source.rewind()
    if recorded is None:
        output.refuse("it is longer than 4 MiB")
        yield from dropped(source, output, format, begin)
        return "read"
    region = _Region(source, output, format, begin if recorded.startswith(begin) else "")
    skip_over(source, len(region.begin))
    return (yield from region.read(is_open, 0 if is_cut else len(recorded)))


class _Region:
    """The text of a call with tags, as far as it is consumed."""

    def __init__(self, source: Characters, output: ParsedOutput, format: PromptFormat, begin: str) -> None:
        self._source = source
        self._output = output
        self._format = format
        tag = tag_of(begin)
        self._is_weak = tag is not None and tag.word in _WEAK and tag.kind != "named"
        self._is_named = tag.kind == "named" if tag else not begin.endswith((">", "]", "｜", "[")) and bool(begin)
        self._start = 0 if self._is_named else len(begin)
        self._ended: int | None = None
        self._is_text = False
        self.begin = self.text = begin

    def read(self, is_open: bool, position: int) -> Steps[Outcome]:
        """`position`: where its format gave up."""
        error: MalformedCall | EOFError = MalformedCall()
        tag = ""
        budget = MAX_KEPT
        for _ in range(_MAX_ENDS):
            self.text += tag
            tag = yield from self.to_tag()
            budget -= len(self.text)
            begins = bool(tag) and self.begins(tag)
            is_outer = self._body.strip() in ("", "assistant") and self.begin and not self._output.has_begun
            if is_outer and (begins or is_open):
                self._source.give_back(tag)
                return "outer"
            if self._is_text or (self._is_weak and not self._is_data()):
                break
            try:
                return self._done(*self._calls(self.text, is_ended=bool(tag)), tag)
            except (MalformedCall, EOFError) as matched:
                error = matched
            if self._ended is None and tag and not begins:
                self._ended = len(self.text)
            if not tag or budget < 0 or isinstance(error, MalformedCall) or (begins and self._ended is not None):
                break
        self.text += tag
        if isinstance(error, EOFError):
            text = self.text[: self._ended]
            try:
                calls, end = self._calls(text, is_ended=self._ended is not None, is_last=True)
                return self._done(calls, end, "")
            except (MalformedCall, EOFError) as matched:
                error = matched
        return (yield from self._failed(error, is_open, position))

    def to_tag(self, limit: int = MAX_KEPT) -> Steps[str]:
        """Adds text before a tag that ends or begins a call; returns that tag, empty at the end.

        Text without a call ends after `MAX_HEAD` characters.
        """
        tags = (
            *self._format.begins,
            *(end for end in self._format.ends if end[0] != "`"),
            *self._format.ignored,
            *self._format.around,
        )
        heads = re.compile(rf"[^{re.escape(''.join({'<', '[', *(tag[0] for tag in tags)}))}]+")
        is_checked = False
        while len(self.text) < limit and (yield from self._source.peek()):
            piece = self._source.run(heads, limit if is_checked else MAX_HEAD - len(self.text))
            if not piece:
                piece, is_whole = yield from read_tag(self._source, tags)
                if is_whole and self._is_boundary(piece):
                    return piece
            self.text += piece
            if not is_checked and len(self.text) >= MAX_HEAD:
                is_checked = True
                if not self.is_call():
                    self._is_text = True
                    break
        return ""

    @property
    def _body(self) -> str:
        return self.text[len(self.begin) :]

    def _is_data(self) -> bool:
        body = self._body.lstrip()
        name = _NAME.match(body)
        is_named = name is not None and name[0] in self._output.tools and body[name.end() :].lstrip()[:1] == "{"
        return body[:1] in ("{", "[", "`", "<") or is_named

    def is_call(self) -> bool:
        """Whether unreadable text looks like a tool's call."""
        body = self.text[self._start :]
        is_object = not self.begin or _ELEMENT.match(self.text, len(self.begin)) is not None
        if self._is_weak:
            return self._is_data() and is_like_call(body, self._output.tools)
        if self._ended is not None and names_a_tool(body, self._output.tools):
            return True
        is_token = self.begin in self._format.begins and not _PLAIN_TAG.match(self.begin)
        return is_object or is_like_call(body, self._output.tools) or (is_token and "{" in body)

    def begins(self, tag: str) -> bool:
        matched = tag_of(tag)
        return tag in self._format.begins if matched is None else matched.kind != "end"

    def _is_boundary(self, tag: str) -> bool:
        matched = tag_of(tag)
        if tag in self._format.begins and self.begin not in self._format.begins and not self._body.strip():
            return True
        if matched is None:
            return self._is_named or tag.endswith((">", "]", "｜"))
        if matched.word in _INNER:
            return self._is_named
        return matched.kind == "end" or matched.word not in _WEAK

    def _calls(self, text: str, *, is_ended: bool, is_last: bool = False) -> tuple[Calls, int]:
        return read_calls(text, self._start, self._output.tools, is_ended=is_ended, is_last=is_last)

    def _done(self, calls: Calls, end: int, tag: str) -> Outcome:
        self._source.give_back(self.text[end:] + tag)
        if calls:
            self._output.complete(calls)
            return "read"
        self._output.text(self.text[:end])
        return "text"

    def _failed(self, error: MalformedCall | EOFError, is_open: bool, position: int) -> Steps[Outcome]:
        tail = self._body
        if not self._output.has_begun and not self.is_call() and (tail.strip() or self._is_text):
            self._source.give_back(tail)
            if is_open:  # a begin tag in place of an end tag
                return "outer"
            self._output.text(self.begin or self._source.step())
            return "text"
        if isinstance(error, EOFError) and self._ended is None:
            self._output.refuse()
            return "cut"
        self._output.refuse(str(error) or "a string or an element does not end")
        self._source.give_back(tail)
        skip_over(self._source, position - len(self.begin))
        yield from dropped(self._source, self._output, self._format, self.begin)
        return "read"


def dropped(source: Characters, output: ParsedOutput, format: PromptFormat, begin: str) -> Steps[None]:
    """Skips a failed call: to its end tag, or to the end of the line if it has no tags."""
    if not begin and format.bare:
        while (yield from source.peek()) not in ("", "\n"):
            source.run(_TO_LINE_END)
        source.step()
        return
    region = _Region(source, output, format, begin)
    while (yield from source.peek()):
        region.text = ""
        tag = yield from region.to_tag()
        if region.begins(tag) and (region.text.rstrip(" \t")[-1:] or "\n") in "}])>\n":
            source.give_back(tag)
            return
        if tag and not region.begins(tag):
            return


def bare_again(source: Characters, output: ParsedOutput, format: PromptFormat) -> Steps[Outcome]:
    """Reads a held call without a tag again, at the start of a line."""
    begun = output.has_begun
    recorded = source.rewind()
    if not begun and not (yield from _may_begin(source, output, recorded or "")):
        return "text"
    text, is_closed = yield from _balanced(source, output, MAX_KEPT)
    try:
        calls, end = read_calls(text, 0, output.tools, is_ended=is_closed, is_last=True)
        if calls and (begun or are_known(calls, output.tools)):
            source.give_back(text[end:])
            output.complete(calls)
            return "read"
        is_call, error = bool(calls) and begun, Exception()
    except (MalformedCall, EOFError) as matched:
        is_call, error = is_like_call(text, output.tools), matched
    if not begun and not is_call:
        output.text(text)
        return "text"
    if isinstance(error, EOFError):
        output.refuse()
        return "cut"
    output.refuse(str(error))
    yield from dropped(source, output, format, "")
    return "read"


def _may_begin(source: Characters, output: ParsedOutput, recorded: str) -> Steps[bool]:
    """Whether text without a tag begins like a call, else it is consumed as text. `recorded`: read before."""
    head = yield from head_of(source)
    if may_call(head, output):
        source.give_back(head)
        return True
    output.text(head)
    if tail := recorded[len(head) :]:  # it was read already
        skip_over(source, len(tail))
        output.text(tail)
    return False


def head_of(source: Characters) -> Steps[str]:
    """Brackets and a quote, and the name or key behind them, or its beginning."""
    if not (yield from source.peek()):
        return ""
    head = source.step()
    between = tuple(" \t\r\n\"'“‘„" + ("{" if head == "[" else ""))
    while (yield from source.peek()) in between and len(head) < MAX_NAME:
        head += source.step()
    head += yield from _key(source)
    if head[0] == "[" and (yield from source.peek()) == "(":
        head += source.step()
    return head


def may_call(text: str, output: ParsedOutput) -> bool:
    """Whether a text begins like a call without a tag."""
    if head := _HEAD.match(text):
        return is_call_key(head["key"].strip(), output.tools)
    return (call := _PYTHON.match(text)) is not None and _is_callable(call["name"], output)


def _is_callable(name: str, output: ParsedOutput) -> bool:
    return name in output.tools or _WRAPPERS.fullmatch(name) is not None


def _balanced(source: Characters, output: ParsedOutput, limit: int) -> Steps[tuple[str, bool]]:
    """The text from a bracket to the one that closes it, and whether it came; less if it is not a call."""
    pieces, closing, size, last = list[str](), list[str](), 0, ""
    while (char := (yield from source.peek())) and size < limit:
        if size >= MAX_HEAD and size - len(pieces[-1]) < MAX_HEAD and not is_like_call("".join(pieces), output.tools):
            break
        if char == '"' or (char in _QUOTED and last in tuple("([{,:=")):
            piece = yield from _quoted(source, limit)
        else:
            piece = source.run(_CODE, (MAX_HEAD if size < MAX_HEAD else limit) - size) or source.step()
        pieces.append(piece)
        size += len(piece)
        last = piece.rstrip()[-1:] or last
        if char in _CLOSING:
            closing.append(_CLOSING[char])
        elif char in ")]}" and (not closing or closing.pop() != char or not closing):
            return "".join(pieces), True
    return "".join(pieces), False


def _quoted(source: Characters, limit: int) -> Steps[str]:
    quote = source.step()
    pieces, size = [quote], 0
    while (char := (yield from source.peek())) and size < limit:
        piece = source.run(_QUOTED[quote], limit - size) or source.step()
        if char == "\\" and (yield from source.peek()):
            piece += source.step()
        pieces.append(piece)
        size += len(piece)
        if char == quote:
            break
    return "".join(pieces)


def inline_object(source: Characters, output: ParsedOutput) -> Steps[Outcome]:
    """An object behind other text of its line: a call, if nothing but the end of the line follows."""
    head = yield from head_of(source)
    if not may_call(head, output):
        output.text(head)
        return "text"
    source.give_back(head)
    return (yield from _alone(source, output, 0))


def _key(source: Characters) -> Steps[str]:
    key = ""
    while (yield from source.peek()) and len(key) < MAX_NAME:
        piece = source.run(_NAME, MAX_NAME - len(key))
        if not piece:
            break
        key += piece
    return key


def python_line(source: Characters, output: ParsedOutput) -> Steps[Outcome]:
    """A Python call on its own line."""
    name = yield from _key(source)
    if _is_callable(name, output) and (yield from source.peek()) == "(":
        source.give_back(name)
        return (yield from _alone(source, output, _MAXLINES))
    output.text(name)
    return "text"


def _alone(source: Characters, output: ParsedOutput, limit: int) -> Steps[Outcome]:
    """A readable call without a tag that ends its line; its other lines count up to `limit`."""
    text, _ = ("", False) if not limit else (yield from _balanced(source, output, limit))
    while (yield from source.peek()) not in ("", "\n") and len(text) < MAX_BLOCK:
        text += source.run(LINE, MAX_BLOCK - len(text))
    is_whole = _COMMENT.search(_STRING.sub("", text)) is None
    is_whole &= text.lstrip("[ \n\t")[:1] != "{" or has_arguments(text)
    calls = calls_only(text.rstrip(" .,;\t"), output) if is_whole else []
    if not calls:
        output.text(text)
        return "text"
    output.begin_region()
    output.complete(calls)
    return "read"


def calls_only(text: str, output: ParsedOutput) -> Calls:
    """The calls of a text that is nothing else; none if it is."""
    try:
        calls, end = read_calls(text, 0, output.tools, is_ended=True, is_last=True)
    except (MalformedCall, EOFError):
        return []
    return calls if not text[end:].strip() and are_known(calls, output.tools) else []


def tag_in_code(source: Characters, output: ParsedOutput, format: PromptFormat, tag: str) -> Steps[None]:
    """A tag in a code block is text; a call behind it is a mistake."""
    matched = tag_of(tag)
    if tag not in format.begins and (matched is None or matched.kind == "end" or matched.word in _WEAK):
        output.text(tag)
        return
    region = _Region(source, output, format, tag)
    end = yield from region.to_tag(MAX_HEAD)
    output.text(region.text)
    source.give_back(end)
    if region.is_call():
        output.begin_region()
        output.refuse("it stands in a code block with other text")
