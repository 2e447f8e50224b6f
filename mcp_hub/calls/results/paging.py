"""Pages of a kept text, and lines that match a pattern of RE2. Pure; offsets are bytes of UTF-8.

Patterns run in linear time and within bounds (github.com/google/re2/wiki/Syntax).
"""

import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mcp_hub.calls.results.truncate import DENSE, Estimate, head_within
from mcp_hub.selection.patterns import compiled

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # ships no types

MARGIN: Final = DENSE - 1
"""Bytes before an offset that its character may need."""
MOST_MATCHES: Final = 100
"""Per answer."""

_WINDOW: Final = 64 << 10
"""Bytes searched at once; long lines overlap by `_OVERLAP`."""
_OVERLAP: Final = 4 << 10
_LINE: Final = 400
"""Bytes of a line shown."""
_BEFORE: Final = 3
"""One of so many shown bytes precedes the match."""
_CONTINUES: Final = 0xC0, 0x80


Matches = tuple[tuple[str, ...], int | None, bool]
"""Matches as `line:offset: text`; the offset that continues the search; whether it was out of time."""


def page(data: bytes, at: int, start: int, limit: int | None, tokens: int, estimate: Estimate) -> tuple[str, int, int]:
    """The page at byte `start` of `data`, which begins at `at`: its text, first byte and end.

    At most `limit` bytes and `tokens`, at least one character; ends at a near line border.
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
    return text, at + first, at + first + len(text.encode())


def _is_within(data: bytes, at: int) -> bool:
    return 0 < at < len(data) and data[at] & _CONTINUES[0] == _CONTINUES[1]


def _character(data: bytes, at: int) -> int:
    for _ in range(MARGIN):
        if not _is_within(data, at):
            break
        at -= 1
    return at


def grep(
    body: bytes, pattern: str, start: int, limit: int, tokens: int, estimate: Estimate, is_over: Callable[[], bool]
) -> Matches:
    """Matching lines from byte `start`, at most `limit` and `tokens`. Raises `InvalidParams`.

    Matches over 4 KiB in lines over 64 KiB may be missed.
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
                return tuple(lines), at, True
            end, after = self._window(at)
            match = self._match(at, end)
            if match is None:
                at = after
                continue
            line, after = self._excerpt(*match)
            tokens -= estimate(line) + 1
            if tokens < 0 or len(lines) == limit:
                return tuple(lines), at, False
            lines.append(line)
            at = after
        return tuple(lines), None, False

    def _window(self, at: int) -> tuple[int, int]:
        """End of the search from `at`, and the next start."""
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
        body = self._body
        match = self._regexp.search(body, at, end)
        if match is None or (match.start() == len(body) and body.endswith(b"\n")):  # no line begins there
            return None
        start, stop = match.span()
        return start, stop

    def _excerpt(self, start: int, stop: int) -> tuple[str, int]:
        """The line or its matching part, and where to continue."""
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
