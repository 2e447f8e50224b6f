"""Replacements in a text, and its line ends and indentation."""

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final

import msgspec

_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)

_MOST_LINES: Final = 20_000
"""Lines between the first and the last change: comparing takes a second for so many."""


KEPT_TEXTS: Final = 2
"""Texts whose places are remembered, while many entries go from one into the other."""


class CannotEdit(Exception):
    """The text cannot be edited safely."""


class Splice(msgspec.Struct, frozen=True, order=True):
    """A part of a text, and its replacement."""

    start: int
    end: int
    text: str = ""


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """The text with all replacements, which must not overlap."""
    for splice in sorted(splices, reverse=True):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


def joined(edits: Iterable[Sequence[Splice]]) -> list[Splice]:
    """Several edits of one text as one; removals may overlap."""
    inserted: dict[int, str] = {}
    gone: list[tuple[int, int]] = []
    for splice in (splice for edit in edits for splice in edit):
        if splice.text:
            inserted[splice.start] = inserted.get(splice.start, "") + splice.text
        if splice.end > splice.start:
            gone.append((splice.start, splice.end))
    merged_splices: list[Splice] = []
    for start, end in sorted(gone):
        if merged_splices and start <= merged_splices[-1].end:
            merged_splices[-1] = Splice(merged_splices[-1].start, max(end, merged_splices[-1].end))
        else:
            merged_splices.append(Splice(start, end))
    return [*merged_splices, *(Splice(index, index, text) for index, text in inserted.items())]


def newline_of(text: str) -> str:
    """The line end of the first line."""
    end = text.find("\n")
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def indent_of(text: str) -> str:
    """The first indentation in the text, or two blanks."""
    indent = _INDENT.search(text)
    return indent[1] if indent else "  "


def line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def line_end(text: str, index: int) -> int:
    """The index behind the line end; `index` itself if a line begins there."""
    if index > 0 and text[index - 1] == "\n":
        return index
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def merged(base: str, changed: str, present: str) -> str | None:
    """`present` with the line changes from `base` to `changed`; None for a conflict or too many lines."""
    lines, old, new = (text.splitlines(keepends=True) for text in (present, base, changed))
    there, changes = _line_numbers(old, lines), _opcodes(old, new)
    if there is None or changes is None:
        return None
    for begin, end, first, last in reversed(changes):
        part = _part(there[begin:end]) if begin < end else _gap(there, begin, len(lines))
        if part is None:
            return None
        lines[slice(*part)] = new[first:last]
    return "".join(lines)


def _part(numbers: Sequence[int | None]) -> tuple[int, int] | None:
    first = numbers[0]
    if first is None or list(numbers) != [*range(first, first + len(numbers))]:
        return None
    return first, first + len(numbers)


def _gap(numbers: Sequence[int | None], line: int, size: int) -> tuple[int, int] | None:
    above = -1 if line == 0 else numbers[line - 1]
    below = size if line == len(numbers) else numbers[line]
    index = above + 1 if above is not None else below
    return None if index is None else (index, index)


def _line_numbers(old: Sequence[str], lines: Sequence[str]) -> list[int | None] | None:
    changes = _opcodes(old, lines)
    if changes is None:
        return None
    numbers: list[int | None] = []
    shift = 0
    for begin, end, _, last in changes:
        numbers += range(len(numbers) + shift, begin + shift)
        numbers += [None] * (end - begin)
        shift = last - end
    return [*numbers, *range(len(numbers) + shift, len(old) + shift)]


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]] | None:
    """Differing parts: `old[a:b]` became `new[c:d]`. None for too many lines."""
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    shorter = min(len(old), len(new)) - head
    tail = next((i for i in range(shorter) if old[-1 - i] != new[-1 - i]), shorter)
    old_lines, new_lines = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(old_lines), len(new_lines)) > _MOST_LINES:
        return None
    opcodes = SequenceMatcher(None, old_lines, new_lines).get_opcodes()
    return [(a + head, b + head, c + head, d + head) for kind, a, b, c, d in opcodes if kind != "equal"]
