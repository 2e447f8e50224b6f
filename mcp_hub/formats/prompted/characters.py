"""A model's text for parsers, which wait only for the next character: every split gives the same events; and its tags.

Tags are known by words, despite other bars, case, blanks, dashes or name space: `<TOOL_CALL>`, `<|tool_call|>`,
`<tool-call >` and `<minimax:tool_call>` are `<tool_call>`.
"""

import re
import sys
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias, TypeVar

from mcp_hub.globs import late
from mcp_hub.masking import hide_head

_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[None, None, _Result]
"""A parser: it stops for more text, and returns what it has read."""

BLANKS: Final = " \t\r\n"
MAX_HEAD: Final = 1024
"""Characters that are held back until it is known whether they begin a call."""
MAX_KEPT: Final = 1 << 22
"""Characters of a call that can be read a second time."""
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_ANY: Final = re.compile(r"(?s:.)")
_EVERYTHING: Final = re.compile(r"(?s:.)*")
_MOST_SHOWN: Final = 40


class MalformedCall(Exception):
    """A call breaks its format; held characters are text. Where the text ends inside a call, `EOFError` is raised."""


class Characters:
    """The text; each character is consumed once, or again after `rewind`.

    From `hold` on consumed text is kept, up to `MAX_KEPT`. Until `release` more than `MAX_HEAD` characters raise
    `MalformedCall`.
    """

    def __init__(self, text: str = "", *, is_whole: bool = False) -> None:
        self._text = text
        self._position = 0
        self._is_whole = is_whole
        self._recorded: list[str] | None = None
        self._recorded_room = 0
        self._room = 0
        self.is_holding = False

    def feed(self, text: str) -> None:
        """Adds text, when all before it is consumed."""
        self._text = text
        self._position = 0

    def end(self) -> None:
        self._is_whole = True

    def hold(self, consumed: str) -> None:
        """Keeps `consumed`, and what follows: it may be text."""
        self.keep(consumed)
        self._room = MAX_HEAD
        self.is_holding = True

    def release(self) -> None:
        """The kept characters are a call."""
        self.is_holding = False

    def keep(self, consumed: str = "") -> None:
        """Keeps only `consumed`, and what follows."""
        self._recorded, self._recorded_room = [consumed], MAX_KEPT

    def rewind(self) -> str | None:
        """Gives back kept text, to be consumed again; None if too long."""
        recorded = None if self._recorded is None else "".join(self._recorded)
        self._recorded, self.is_holding = None, False
        self.give_back(recorded or "")
        return recorded

    def drop(self) -> None:
        """The kept text is done with."""
        self._recorded, self.is_holding = None, False

    def give_back(self, text: str) -> None:
        """Puts `text` first; if kept, it was consumed character by character."""
        if self._recorded is not None:
            del self._recorded[len(self._recorded) - len(text) :]
            self._recorded_room += len(text)
            self._room += len(text)
        start = self._position - len(text)
        if start >= 0 and self._text.startswith(text, start):  # nothing is copied
            self._position = start
        else:
            self._text = text + self._text[self._position :]
            self._position = 0

    def run(self, pattern: re.Pattern[str], limit: int = sys.maxsize) -> str:
        """Consumes matching characters at hand. `pattern` must match each prefix of a match."""
        end = min(len(self._text), self._position + (min(limit, self._room) if self.is_holding else limit))
        matched = pattern.match(self._text, self._position, end)
        if matched is None:
            return ""
        self._position = matched.end()
        if self._recorded is not None:
            self._keep_piece(matched[0])
        return matched[0]

    def _keep_piece(self, piece: str) -> None:
        assert self._recorded is not None
        self._recorded.append(piece)
        self._recorded_room -= len(piece)
        if self._recorded_room < 0:
            self._recorded = None
        if self.is_holding:
            self._room -= len(piece)
            if self._room == 0:
                raise MalformedCall

    def step(self) -> str:
        return self.run(_ANY)

    def peek(self) -> Steps[str]:
        """The next character; empty at the end."""
        while self._position == len(self._text) and not self._is_whole:
            yield
        return self._text[self._position : self._position + 1]


def need(source: Characters) -> Steps[str]:
    """The next character. Raises: EOFError at the end."""
    char = yield from source.peek()
    if not char:
        raise EOFError
    return char


def skip(source: Characters) -> Steps[str]:
    """Consumes white space; the next character."""
    while True:
        char = yield from source.peek()
        if not char or char not in BLANKS:
            return char
        source.run(_BLANKS)


def skip_to(source: Characters, chars: str = "") -> Steps[str]:
    """Consumes white space; the next character, one of `chars` if given.

    Raises: MalformedCall, EOFError.
    """
    yield from skip(source)
    char = yield from need(source)
    if chars and char not in chars:
        raise MalformedCall(f"expected {' or '.join(chars)}, found {char}")
    return char


def skip_over(source: Characters, count: int) -> None:
    """Consumes that many characters, which are at hand."""
    source.run(_EVERYTHING, max(0, count))


def match(source: Characters, tags: tuple[str, ...]) -> Steps[tuple[str, bool]]:
    """Consumes the longest beginning of a tag; also returns whether it is whole.

    No tag may begin with another.
    """
    begun = ""
    while begun not in tags:
        char = yield from source.peek()
        if not char or not any(tag.startswith(begun + char) for tag in tags):
            return _first_part(source, begun, {tag[0] for tag in tags}), False
        begun += source.step()
    return begun, True


def _first_part(source: Characters, begun: str, heads: Collection[str]) -> str:
    end = next((index for index, char in enumerate(begun) if index and char in heads), len(begun))
    if end < len(begun):
        source.give_back(begun[end:])
    return begun[:end]


def shown(text: str) -> str:
    """The beginning of a text, for a message."""
    return hide_head(" ".join(text.split()), _MOST_SHOWN)


def expect(source: Characters, tag: str) -> Steps[None]:
    """Consumes `tag`. Raises: MalformedCall, EOFError."""
    if tag:
        _, is_whole = yield from match(source, (tag,))
        if not is_whole:
            yield from need(source)
            raise MalformedCall(f"expected {tag}")


def all_of(source: Characters, pattern: re.Pattern[str], limit: int) -> Steps[str]:
    """Consumes matching characters. Raises: MalformedCall above `limit`."""
    pieces: list[str] = []
    count = 0
    while (yield from source.peek()) and (piece := source.run(pattern)):
        count += len(piece)
        if count <= limit:
            pieces.append(piece)
    if count > limit:
        raise MalformedCall(f"a name is longer than {limit} characters")
    return "".join(pieces)


_OUTER: Final = (
    "tool call|tool calls|function call|function calls|function|functions|tool|tools|tool use|tool uses|use tool|"
    "tool request|tool code|minimax:tool call|seed:tool call|longcat tool call|antml:function calls|"
    "start function call|DSML｜tool calls|DSML｜function calls|DSML｜calls|tool call begin|tool calls begin|"
    "tool call section begin|tool calls section begin|tool call start|tool calls start"
).split("|")
_NAMED: Final = "function|invoke|tool|tool call|function call|antml:invoke|DSML｜invoke".split("|")
"""Words of tags that name the tool."""
_ENDING: Final = (
    "tool call end|tool calls end|tool call section end|tool calls section end|end function call|end tool request"
).split("|")
_GAP: Final = r"[_▁ -]?"
_MORE: Final = r"(?:[ \t]*=|[ \t]+(?:name|tool|tool[_-]?name|function)[ \t]*=|[ \t]+[\"'])[^<>\n]{0,200}"
_LONGEST: Final = 256


def _items(words: str) -> list[str]:
    return [{" ": _GAP, "｜": "[|｜]{1,2}"}.get(char, re.escape(char)) for char in words]


def _begun(items: Sequence[str]) -> str:
    return items[0] + (f"(?:{_begun(items[1:])})?" if len(items) > 1 else "")


def _any(words: Iterable[str]) -> str:
    return "|".join("".join(_items(word)) for word in sorted(words, key=len, reverse=True))


_ALL: Final = {*_OUTER, *_NAMED, *_ENDING}
_MARKS: Final = r"<[ /|｜]{0,5}"
_WHOLE: Final = late(
    rf"(?i)<(?P<marks>[ /|｜]{{0,5}})(?:(?P<word>{_any(_ALL)})(?P<bar>[ \t|｜/]{{0,3}})|(?P<named>{_any(_NAMED)})"
    rf"(?P<more>{_MORE}))>|\[(?P<square>/?)tool[_ ]?calls?\]"
)
_PART: Final = late(
    rf"(?i){_MARKS}(?:(?:{_any(_ALL)})[ \t|｜/]{{0,3}}|(?:{_any(_NAMED)}){_MORE}"
    rf"|(?:{_any(_NAMED)})[ \t]+(?:{'|'.join(map(_begun, ('name', 'tool_name', 'function')))})?[ \t]*"
    rf"|{'|'.join(_begun(_items(word)) for word in sorted(_ALL))})?|\[/?(?:{_begun(['t', *'ool', '[_ ]?', *'calls'])})?"
)
_LEFT: Final = "<["


@dataclass(frozen=True)
class _Tag:
    """A written tag; `named`: with the tool's name."""

    text: str
    kind: Literal["begin", "named", "end"]
    word: str


def tag_of(text: str) -> _Tag | None:
    """The tag that `text` is, if it is one."""
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        return None
    word = re.sub(r"[^a-z]", "", (whole["word"] or whole["named"] or "toolcalls").lower())
    marks, bar = whole["marks"] or "", whole["bar"] or ""
    closes = "/" in marks or whole["square"] == "/" or word.endswith("end") or word.startswith("end")
    if closes or (set(bar) & set("|｜") and not marks.strip()):
        return _Tag(text, "end", word)
    return _Tag(text, "named" if whole["named"] else "begin", word)


@lru_cache(maxsize=256)
def beginnings(tags: tuple[str, ...]) -> re.Pattern[str]:
    """All beginnings of the tags."""
    return re.compile("|".join(_begun([re.escape(char) for char in tag]) for tag in tags))


def read_tag(source: Characters, tags: tuple[str, ...]) -> Steps[tuple[str, bool]]:
    """Consumes a tag of `tags` or any family, or its longest beginning; also returns whether it is whole.

    No tag of `tags` may begin with another.
    """
    begun, heads, exact = "", {*_LEFT, *(tag[0] for tag in tags)}, beginnings(tags)
    while begun not in tags and not (begun[-1:] in (">", "]") and tag_of(begun)):
        char = yield from source.peek()
        if not char or not (exact.fullmatch(begun + char) or _may_begin(begun + char)):
            return _first_part(source, begun, heads), False
        begun += source.step()
    return begun, True


def _may_begin(text: str) -> bool:
    if text[0] not in _LEFT or len(text) > _LONGEST:
        return False
    return tag_of(text) is not None if text[-1] in ">]" else _PART.fullmatch(text) is not None


_ELEMENTS: Final = (
    "tool[_ -]?response|function[_ -]?results?|think(?:ing)?|arg[_ -]?key|arg[_ -]?value|response|result|"
    "parameter|escape|(?:start|end)[_ ]function[_ ]response|(?:start|end)_of_turn"
)
_SQUARE: Final = "TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|INST|SYSTEM_PROMPT|ARGS|CALL_ID|THINK"
_TAGS: Final = late(
    rf"(?i:<(?=[ /|｜]{{0,5}}(?:{_any(_ALL)})(?:[ \t|｜/]{{0,3}}>|{_MORE})))"
    rf"|(?i:</?(?={_ELEMENTS})(?=\w+ ?[>=]|\w+ name))|</?s>"
    r"|<(?=/?[|｜]{1,2}[^|｜<>\s]{1,64}[|｜>])|<(?=\w{1,64}\|>)"
    rf"|(?i:\[(?=/?tool[_ ]?calls?\]))|\[(?=/?(?:{_SQUARE})\])|(?<=functools)\["
    r"|(?m:^)#(?=# Return of )"
)
"""Tags of the formats, and those with which chat templates mark turns."""
_REFERENCES: Final = {"<": "&lt;", "[": "&#91;", "#": "&#35;"}


def escaped_json(text: str) -> str:
    return _TAGS.sub(lambda tag: f"\\u{ord(tag[0][0]):04x}{tag[0][1:]}", text)


def escaped_text(text: str) -> str:
    return _TAGS.sub(lambda tag: _REFERENCES[tag[0][0]] + tag[0][1:], text)
