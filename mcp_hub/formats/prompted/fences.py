"""Fenced code blocks of Markdown, in which nothing is a call (CommonMark §4.5, at any indentation)."""

import re
from enum import Enum, auto
from typing import Final

_PARTS: Final = re.compile(r"\n|[ \t]+|`+|~+|[^\n \t`~]+")
_LEAST: Final = 3


class _Line(Enum):
    INDENT = auto()
    MARKS = auto()
    INFO = auto()
    TAIL = auto()
    REST = auto()


class Fences:
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
