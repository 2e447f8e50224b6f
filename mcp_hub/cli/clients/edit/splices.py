"""Parts of a text to replace, and the manners of a text: its line ends and its indentation."""

import re
from collections.abc import Iterable

import msgspec

_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)


class CannotEdit(Exception):
    """The text cannot be edited safely; the message is a sentence for people."""


class Splice(msgspec.Struct, frozen=True, order=True):
    """The characters from `start` to `end`, to be replaced by `text`."""

    start: int
    end: int
    text: str = ""


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """The text with all of them, which must not overlap, done."""
    for one in sorted(splices, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def newline_of(text: str) -> str:
    """The line end of the text: that of its first line."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def indent_of(text: str) -> str:
    """The first indentation in the text; without any, two blanks."""
    found = _INDENT.search(text)
    return found[1] if found else "  "


def line_start(text: str, place: int) -> int:
    """The start of the line with this place."""
    return text.rfind("\n", 0, place) + 1


def line_end(text: str, place: int) -> int:
    """The end of the line with this place, behind its line end."""
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1
