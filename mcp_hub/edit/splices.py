"""Parts of a text to replace, and the manners of a text: its line ends and its indentation."""

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


def joined(edits: Iterable[Sequence[Splice]]) -> list[Splice]:
    """Several edits of one text as one: insertions at one place in their order, and removals that may overlap."""
    inserted: dict[int, str] = {}
    gone: list[tuple[int, int]] = []
    for one in (one for edit in edits for one in edit):
        if one.text:
            inserted[one.start] = inserted.get(one.start, "") + one.text
        if one.end > one.start:
            gone.append((one.start, one.end))
    done: list[Splice] = []
    for start, end in sorted(gone):
        if done and start <= done[-1].end:
            done[-1] = Splice(done[-1].start, max(end, done[-1].end))
        else:
            done.append(Splice(start, end))
    return [*done, *(Splice(place, place, text) for place, text in inserted.items())]


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
    """The end of the line with this place, behind its line end; of a place that begins a line, of the line before."""
    if place > 0 and text[place - 1] == "\n":
        return place
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def merged(base: str, wanted: str, present: str) -> str | None:
    """`present` with the change that leads from `base` to `wanted`, both as lines.

    None where `present` differs from `base` in a line that goes, or on both sides of lines that come, and if there is
    too much to compare.
    """
    lines, old, new = (text.splitlines(keepends=True) for text in (present, base, wanted))
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
    """The lines from the first to the last, if all are there one after the other."""
    first = numbers[0]
    if first is None or list(numbers) != [*range(first, first + len(numbers))]:
        return None
    return first, first + len(numbers)


def _gap(numbers: Sequence[int | None], place: int, size: int) -> tuple[int, int] | None:
    """The place between two lines: behind the one above, or before the one below if only that is there."""
    above = -1 if place == 0 else numbers[place - 1]
    below = size if place == len(numbers) else numbers[place]
    index = above + 1 if above is not None else below
    return None if index is None else (index, index)


def _line_numbers(old: Sequence[str], lines: Sequence[str]) -> list[int | None] | None:
    """For each line of `old` its index in `lines`; None for one that was changed."""
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
    """The parts that differ: `old[a:b]` became `new[c:d]`. None for too many lines."""
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    most = min(len(old), len(new)) - head
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(left), len(right)) > _MOST_LINES:
        return None
    found = SequenceMatcher(None, left, right).get_opcodes()
    return [(a + head, b + head, c + head, d + head) for kind, a, b, c, d in found if kind != "equal"]
