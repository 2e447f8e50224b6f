"""Reading on in a kept text: pages of it, and the lines that a pattern matches. Pure, over bytes of UTF-8.

Offsets are bytes from the start of the text. One page after the other, each from where the one before ended, is the
whole text.
"""

import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.calls.results.patterns import compiled
from mcp_hub.calls.results.truncate import DENSE, Estimate, head_within

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # ships no types

MARGIN: Final = DENSE - 1
"""Bytes before an offset that a page may need: those of the character that it is in."""
MOST_MATCHES: Final = 100
"""In one answer."""

_WINDOW: Final = 64 << 10
"""Bytes that are searched at once, or a line more; of a longer line that much, and again with the last `_OVERLAP`."""
_OVERLAP: Final = 4 << 10
_LINE: Final = 400
"""Bytes of a line that are shown, around the match where it is longer."""
_BEFORE: Final = 3
"""One of so many bytes shown is before the match."""
_CONTINUES: Final = 0xC0, 0x80


class TextPage(msgspec.Struct, frozen=True):
    """The text from byte `start` on, up to byte `end`."""

    text: str
    start: int
    end: int


class Matches(msgspec.Struct, frozen=True):
    """Lines that matched, each as `line:offset: text`; `next` is where to search on, None at the end.

    `is_slow`: the time was over before the end, or as much as can be shown, was found.
    """

    lines: tuple[str, ...]
    next: int | None
    is_slow: bool = False


def page(data: bytes, at: int, start: int, limit: int | None, tokens: int, estimate: Estimate) -> TextPage:
    """The page from byte `start` of a text whose bytes from `at` on are `data`, or from the start of the character.

    `limit` bytes, at most `tokens`, but one character at least. Ends at a line border if there is one nearby.
    """
    first = _character(data, start - at)
    text, _ = codecs.utf_8_decode(data[first:], "replace", False)
    count = head_within(text, tokens, estimate)
    if limit is not None:
        within, _ = codecs.utf_8_decode(data[first : first + limit], "replace", False)
        count = min(count, len(within))
    elif count < len(text) and (border := text.rfind("\n", count // 2, count)) >= 0:
        count = border + 1
    text = text[: max(count, 1)]
    return TextPage(text, at + first, at + first + len(text.encode()))


def _is_within(data: bytes, at: int) -> bool:
    return 0 < at < len(data) and data[at] & _CONTINUES[0] == _CONTINUES[1]


def _character(data: bytes, at: int) -> int:
    """The start of the character that has this byte."""
    for _ in range(MARGIN):
        if not _is_within(data, at):
            break
        at -= 1
    return at


def grep(
    body: bytes, pattern: str, start: int, limit: int, tokens: int, estimate: Estimate, is_over: Callable[[], bool]
) -> Matches:
    """The lines from byte `start` on that `pattern` matches, `limit` at most, in at most `tokens`.

    Of a line that is longer than can be shown, each place that matches is shown by itself. A match of more than 4 KiB
    in a line of more than 64 KiB may be missed. Raises `InvalidParams` for a pattern that is none or too large.
    """
    return _Search(body, compiled(pattern, "grep", by_line=True), min(_LINE, tokens // 2), is_over).run(
        start, limit, tokens, estimate
    )


class _Search:
    def __init__(self, body: bytes, regexp: "re2._Regexp", width: int, is_over: Callable[[], bool]) -> None:
        self._body = body
        self._regexp = regexp
        self._width = width
        self._is_over = is_over
        self._counted = 0
        self._line = 1

    def run(self, at: int, limit: int, tokens: int, estimate: Estimate) -> Matches:
        lines: list[str] = []
        at = _character(self._body, min(at, len(self._body)))
        while at < len(self._body):
            if self._is_over():
                return Matches(tuple(lines), at, is_slow=True)
            end, after = self._window(at)
            match = self._match(at, end)
            if match is None:
                at = after
                continue
            line, after = self._excerpt(*match)
            tokens -= estimate(line) + 1
            if tokens < 0 or len(lines) == limit:
                return Matches(tuple(lines), at)
            lines.append(line)
            at = after
        return Matches(tuple(lines), None)

    def _window(self, at: int) -> tuple[int, int]:
        """End of the search from `at`, and start of the next one if nothing matches."""
        border = self._body.find(b"\n", min(at + _WINDOW, len(self._body)), at + 2 * _WINDOW)
        if border >= 0:
            return border, border + 1
        if at + 2 * _WINDOW >= len(self._body):
            return len(self._body), len(self._body)
        border = self._body.rfind(b"\n", at, at + 2 * _WINDOW)
        if border >= 0:
            return border, border + 1
        end = _character(self._body, at + 2 * _WINDOW)
        return end, _character(self._body, end - _OVERLAP)

    def _match(self, at: int, end: int) -> tuple[int, int] | None:
        """The first between these; what is around them tells where a line begins and ends."""
        body = self._body
        match = self._regexp.search(body, at, end)
        if match is None or (match.start() == len(body) and body.endswith(b"\n")):  # no line begins there
            return None
        start, stop = match.span()
        return start, stop

    def _excerpt(self, start: int, stop: int) -> tuple[str, int]:
        """The line, or what is around the match in it, and where to search on."""
        body, width = self._body, self._width
        self._line += body.count(b"\n", self._counted, start)
        self._counted = start
        first = body.rfind(b"\n", max(start - width, 0), start) + 1 or max(start - width, 0)
        last = body.find(b"\n", start, start + width)
        last = min(start + width, len(body)) if last < 0 else last
        is_first = first == 0 or body[first - 1] == 0x0A
        is_last = last == len(body) or body[last] == 0x0A
        if is_first and is_last and last - first <= width:
            return f"{self._line}:{first}: {body[first:last].decode('utf-8', 'replace')}", last + 1
        first = _character(self._body, max(first, start - width // _BEFORE))
        last = _character(self._body, min(last, first + width))
        is_cut = first > 0 and body[first - 1] != 0x0A, last < len(body) and body[last] != 0x0A
        text = body[first:last].decode("utf-8", "replace")
        return f"{self._line}:{first}: {'…' * is_cut[0]}{text}{'…' * is_cut[1]}", self._next(max(stop, last, start + 1))

    def _next(self, at: int) -> int:
        while _is_within(self._body, at):
            at += 1
        return at
