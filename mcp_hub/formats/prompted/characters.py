"""A model's text for parsers, which wait only for the next character: every split gives the same events."""

import re
from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[None, None, _Result]
"""A parser: it stops for more text, and returns what it has read."""

BLANKS: Final = " \t\r\n"
_MAX_HEAD: Final = 1024  # characters that are held back until it is known whether they begin a call
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_ANY: Final = re.compile(r"(?s:.)")


class MalformedCall(Exception):
    """A call breaks its format; held characters are text."""


class TruncatedCall(Exception):
    """The text ends inside a call."""


class Characters:
    """The text; each character is consumed once.

    Between `hold` and `release` consumed text is kept. Above a bound `MalformedCall` is raised.
    """

    def __init__(self, text: str = "", *, is_whole: bool = False) -> None:
        self._text = text
        self._position = 0
        self._is_whole = is_whole
        self._buffer: list[str] | None = None
        self._room = 0

    def feed(self, text: str) -> None:
        """Adds text, when all before it is consumed."""
        self._text = text
        self._position = 0

    def end(self) -> None:
        self._is_whole = True

    def hold(self, consumed: str) -> None:
        """Keeps `consumed`, and what follows."""
        self._buffer = [consumed]
        self._room = _MAX_HEAD

    def release(self) -> str:
        """Returns the kept text."""
        buffered, self._buffer = self._buffer or [], None
        return "".join(buffered)

    @property
    def is_holding(self) -> bool:
        return self._buffer is not None

    def run(self, pattern: re.Pattern[str]) -> str:
        """Consumes matching characters at hand. `pattern` must match each prefix of a match."""
        end = len(self._text) if self._buffer is None else min(len(self._text), self._position + self._room)
        matched = pattern.match(self._text, self._position, end)
        if matched is None:
            return ""
        self._position = matched.end()
        if self._buffer is not None:
            self._buffer.append(matched[0])
            self._room -= len(matched[0])
            if self._room == 0:
                raise MalformedCall
        return matched[0]

    def step(self) -> str:
        return self.run(_ANY)

    def peek(self) -> Steps[str]:
        """The next character; empty at the end."""
        while self._position == len(self._text) and not self._is_whole:
            yield
        return self._text[self._position : self._position + 1]

    def need(self) -> Steps[str]:
        """The next character. Raises: TruncatedCall at the end."""
        char = yield from self.peek()
        if not char:
            raise TruncatedCall
        return char

    def skip(self) -> Steps[str]:
        """Consumes white space; returns the next character."""
        while True:
            char = yield from self.peek()
            if not char or char not in BLANKS:
                return char
            self.run(_BLANKS)

    def skip_to(self, chars: str = "") -> Steps[str]:
        """Consumes white space; returns the next character, one of `chars` if given.

        Raises: MalformedCall, TruncatedCall.
        """
        yield from self.skip()
        char = yield from self.need()
        if chars and char not in chars:
            raise MalformedCall(f"expected {' or '.join(chars)}, found {char}")
        return char

    def match(self, tags: tuple[str, ...]) -> Steps[tuple[str, bool]]:
        """Consumes the longest beginning of a tag; returns it, and whether it is whole.

        No tag may begin with another, or repeat its first character.
        """
        begun = ""
        while begun not in tags:
            char = yield from self.peek()
            if not char or not any(tag.startswith(begun + char) for tag in tags):
                return begun, False
            begun += self.step()
        return begun, True


def expect(source: Characters, tag: str) -> Steps[None]:
    """Consumes `tag`. Raises: MalformedCall, TruncatedCall."""
    if tag:
        _, is_whole = yield from source.match((tag,))
        if not is_whole:
            yield from source.need()
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
