"""Replacements in a text, its line ends and indentation, and plain data as YAML text. Pure."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

import msgspec
import yaml

from mcp_hub.masking import visible
from mcp_hub.types import JsonObject

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
    """The text's first indentation, or two blanks."""
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
    """`present` with line changes from `base` to `changed`; None for a conflict or too many lines."""
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


STEP: Final = 2
"""Blanks by which a file indents that does not have an indentation yet."""
_WIDTH: Final = 100
"""Columns that a list on one line may take, before each item gets a line."""
_PLAIN: Final = re.compile(r"-{0,2}[A-Za-z0-9_/.~$][A-Za-z0-9_/.~$@:=+%{}-]*")
"""Texts that may stand without quotes, if YAML takes them for texts then. `{` and `}` not in flow style."""
_HIDDEN: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON writes as they are, and YAML does not take."""
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Keys that may stand without quotes in every file."""


Manner = Literal["hub", "client"]
"""The owner of the file, which sets the style of new entries.

`hub`: texts without quotes where YAML allows it, behind the other entries; JSON has an entry on one line. `client`:
texts in quotes, which every reader takes for texts, with escapes for what nobody sees; before the other entries; an
empty mapping is `{}`.
"""


class Word(str):
    """A text that is written without quotes although YAML may read it as a flag: `on`."""


def flow(value: object, manner: Manner = "hub") -> str:
    """The value on one line."""
    match value:
        case dict():
            return f"{{{', '.join(f'{_key(key, manner)}: {flow(item, manner)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(flow(item, manner) for item in value)}]"
        case str():
            return _text(value, manner, is_plain=manner == "hub" and "{" not in value and "}" not in value)
        case _:
            return _number(value)


def entry(key: str, value: object, indent: int, step: int, manner: Manner = "hub") -> list[str]:
    """A pair in block style: lines without line ends."""
    head = f"{' ' * indent}{_key(key, manner)}:"
    match value:
        case dict() if value:
            inner = (entry(name, item, indent + step, step, manner) for name, item in value.items())
            return [head, *(line for lines in inner for line in lines)]
        case list() if value and len(head) + 1 + len(flow(value, manner)) > _WIDTH:
            return [head, *(f"{' ' * (indent + step)}- {flow(item, manner)}" for item in value)]
        case str() if manner == "hub":
            return [f"{head} {_text(value, manner, is_plain=True)}"]
        case _:
            return [f"{head} {flow(value, manner)}"]


def nested(path: Sequence[str], members: Mapping[str, object]) -> JsonObject:
    """The members, inside one mapping for each key."""
    tree = dict(members)
    for key in reversed(path):
        tree = {key: tree}
    return tree


def _key(key: str, manner: Manner) -> str:
    is_plain = _WORD.fullmatch(key) is not None if manner == "client" else "{" not in key and "}" not in key
    return _text(key, manner, is_plain=is_plain)


def _text(text: str, manner: Manner, *, is_plain: bool) -> str:
    if is_plain and _PLAIN.fullmatch(text) and not text.endswith(":") and (isinstance(text, Word) or _is_text(text)):
        return str(text)
    quoted = _HIDDEN.sub(lambda match: _escape(match[0]), json.dumps(text, ensure_ascii=False))
    if manner == "hub" or visible(quoted) == quoted:
        return quoted
    return "".join(char if visible(char) == char else _escape(char) for char in quoted)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _is_text(text: str) -> bool:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:  # `...` ends a document
        return False
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str" and node.value == text


def _number(value: object) -> str:
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} cannot be written")
    if not math.isfinite(value):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    written = str(value)
    return written if "." in written else written.replace("e", ".0e")  # which YAML takes for a number then
