"""A model's text as parsers read it: pulled character by character or run by run, wherever it was split.

Parsers are generators that stop only where no character is at hand. Nothing that they decide depends on how much text
has arrived beyond the character that they look at, so every split of a text gives the same events.
"""

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
    """A call breaks the rules of its format; the message says how. While characters are held, they are text."""


class NotACall(MalformedCall):
    """The characters that are held are text."""


class TruncatedCall(Exception):
    """The text ended inside a call."""


class Characters:
    """The text, of which each character is consumed once.

    Between `hold` and `release` what is consumed is kept, so that it can still become text. That is bounded: where
    the bound is reached, `NotACall` is raised.
    """

    def __init__(self, text: str = "", *, is_whole: bool = False) -> None:
        self._text = text
        self._position = 0
        self._is_whole = is_whole
        self._buffer: list[str] | None = None
        self._room = 0

    def feed(self, text: str) -> None:
        """More text, when all before it is consumed."""
        self._text = text
        self._position = 0

    def end(self) -> None:
        """No more text follows."""
        self._is_whole = True

    def hold(self, consumed: str) -> None:
        """Keep what is consumed from now on, after `consumed`."""
        self._buffer = [consumed]
        self._room = _MAX_HEAD

    def release(self) -> str:
        """Stop keeping, and return what was kept."""
        buffered, self._buffer = self._buffer or [], None
        return "".join(buffered)

    @property
    def is_holding(self) -> bool:
        """Whether it is still open if a call has begun."""
        return self._buffer is not None

    def run(self, pattern: re.Pattern[str]) -> str:
        """Consume the characters at hand that match, which may be none. The pattern matches each prefix of a match."""
        end = len(self._text) if self._buffer is None else min(len(self._text), self._position + self._room)
        matched = pattern.match(self._text, self._position, end)
        if matched is None:
            return ""
        self._position = matched.end()
        if self._buffer is not None:
            self._buffer.append(matched[0])
            self._room -= len(matched[0])
            if self._room == 0:
                raise NotACall
        return matched[0]

    def step(self) -> str:
        """Consume the character that was looked at."""
        return self.run(_ANY)

    def peek(self) -> Steps[str]:
        """The next character, empty at the end of the text."""
        while self._position == len(self._text) and not self._is_whole:
            yield
        return self._text[self._position : self._position + 1]

    def need(self) -> Steps[str]:
        """The next character, where the text must not end.

        Raises: TruncatedCall.
        """
        char = yield from self.peek()
        if not char:
            raise TruncatedCall
        return char

    def skip(self) -> Steps[str]:
        """Consume white space. Returns the character after it, empty at the end."""
        while True:
            char = yield from self.peek()
            if not char or char not in BLANKS:
                return char
            self.run(_BLANKS)

    def skip_to(self, chars: str = "") -> Steps[str]:
        """Consume white space. Returns the character after it, which must be one of `chars` if they are given.

        Raises: MalformedCall, TruncatedCall.
        """
        yield from self.skip()
        char = yield from self.need()
        if chars and char not in chars:
            raise MalformedCall(f"expected {' or '.join(chars)}, found {char}")
        return char

    def match(self, tags: tuple[str, ...]) -> Steps[tuple[str, bool]]:
        """Consume as many characters as begin one of `tags`: they, and whether they are all of it.

        No tag may begin with another one, nor repeat its first character: then what has failed contains no other tag.
        """
        begun = ""
        while begun not in tags:
            char = yield from self.peek()
            if not char or not any(tag.startswith(begun + char) for tag in tags):
                return begun, False
            begun += self.step()
        return begun, True


def expect(source: Characters, tag: str) -> Steps[None]:
    """Consume `tag`.

    Raises: MalformedCall, TruncatedCall.
    """
    if tag:
        _, is_whole = yield from source.match((tag,))
        if not is_whole:
            yield from source.need()
            raise MalformedCall(f"expected {tag}")


def all_of(source: Characters, pattern: re.Pattern[str], limit: int) -> Steps[str]:
    """Consume characters that match until one does not.

    Raises: MalformedCall, if there are more than `limit`.
    """
    pieces: list[str] = []
    count = 0
    while (yield from source.peek()) and (piece := source.run(pattern)):
        count += len(piece)
        if count <= limit:
            pieces.append(piece)
    if count > limit:
        raise MalformedCall(f"a name is longer than {limit} characters")
    return "".join(pieces)
