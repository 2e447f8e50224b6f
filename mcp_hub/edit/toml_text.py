"""Tables of TOML by their places in the text, which must be valid TOML.

A table that the entry is written as is found with its sub-tables; an entry that is written in another way (inline or by
dotted keys) is refused.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from mcp_hub.edit.splices import KEPT_TEXTS, CannotEdit, Splice, newline_of
from mcp_hub.edit.writing import Manner
from mcp_hub.types import JsonObject

_TEXT: Final = r'"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\''
_BLANK: Final = re.compile(r"[ \t]*+(?:#[^\n]*+)?+(?:\r?\n|$)|\Z")
_HEADER: Final = re.compile(rf"[ \t]*+\[(?:{_TEXT}|[^\"'#\n\]])*+\]\]?")
_KEY: Final = re.compile(rf"(?:{_TEXT}|[^\"'#\n=])++=")
_PART: Final = re.compile(
    rf'"""(?:\\.|[^\\])*?"{{3,5}}|\'\'\'.*?\'{{3,5}}|{_TEXT}|#[^\n]*+|[\[{{]|[\]}}]|\n|[^"\'#\[\]{{}}\n]++', re.DOTALL
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class TomlTable(msgspec.Struct):
    """A table from its header to its last key, line end included; comments behind that are not part of it."""

    path: tuple[str, ...]
    start: int
    end: int


def put(text: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> list[Splice]:
    """Sets the one table below that of the path. Raises `CannotEdit`."""
    (name, value), *others = members.items()
    if others or not isinstance(value, dict):
        raise CannotEdit("only a table can be set in TOML")
    newline, path = newline_of(text), (*above, name)
    sections = list(_listed(text))
    table = rendered(path, value, newline)
    if own := _own(sections, path):
        ends_line = text[own[0].start : own[0].end].endswith("\n")
        first = Splice(own[0].start, own[0].end, table + newline if ends_line else table)
        return [first, *(Splice(one.start, one.end) for one in own[1:])]
    kin = [one for one in sections if one.path[: len(above)] == path[:-1]]
    place = kin[-1].end if kin else len(text)
    if not text.strip():
        return [Splice(place, place, table + newline)]
    if text[:place].endswith("\n"):
        return [Splice(place, place, newline + table + newline)]
    return [Splice(place, place, newline + newline + table)]  # the last line of the text has no line end: nor has ours


def remove(text: str, path: Sequence[str]) -> list[Splice]:
    """Removes the table at the path, which exists, and the empty line above it. Raises `CannotEdit`."""
    own = _own(list(_listed(text)), path)
    if not own:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    splices = []
    for one in own:
        before = text[: one.start]
        is_open = not text[: one.end].endswith("\n")  # the last line of the file, without a line end
        start = one.start
        for _ in range(2 if is_open else 1):
            if before.endswith("\n\n") or before.endswith("\n\r\n") or is_open and before.endswith("\n"):
                before = before[:-2] if before.endswith("\r\n") else before[:-1]
        start = len(before)
        splices.append(Splice(start, one.end))
    return splices


def copy(text: str, path: Sequence[str], source: str) -> list[Splice]:
    """Inserts the table at the path with its sub-tables as `source` writes it, behind the table that it followed there.

    Raises `CannotEdit`.
    """
    newline = newline_of(text)
    listed, sections = list(_listed(source)), list(_listed(text))
    own = _own(listed, path)
    if not own:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    first = listed.index(own[0])
    is_whole = listed[first : first + len(own)] == own
    parts = [source[own[0].start : own[-1].end]] if is_whole else [source[one.start : one.end] for one in own]
    table = newline.join(part.replace("\r\n", "\n").rstrip("\n").replace("\n", newline) + newline for part in parts)
    ends = {one.path: one.end for one in sections}
    above = [ends[one.path] for one in listed[:first] if one.path in ends]
    if not above and sections:
        return [Splice(sections[0].start, sections[0].start, table + newline)]
    place = above[-1] if above else len(text)
    if not text[:place].strip():
        return [Splice(place, place, table)]
    if text[:place].endswith("\n"):
        return [Splice(place, place, newline + table)]
    return [Splice(place, place, newline + newline + table.removesuffix(newline))]


def line_of(text: str, path: Sequence[str]) -> int:
    """The line, from 1, on which the table at the path begins. Raises `CannotEdit`."""
    own = _own(list(_listed(text)), path)
    if not own:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    return text.count("\n", 0, own[0].start) + 1


def _own(sections: Sequence[TomlTable], path: Sequence[str]) -> list[TomlTable]:
    return [one for one in sections if one.path[: len(path)] == tuple(path)]


@lru_cache(maxsize=KEPT_TEXTS)
def _listed(text: str) -> tuple[TomlTable, ...]:
    return tuple(_sections(text))


def _sections(text: str) -> Iterator[TomlTable]:
    """The tables in the order of the text, without what stands above the first header."""
    current: TomlTable | None = None
    place = 0
    while place < len(text):
        blank = _BLANK.match(text, place)
        if blank is not None and blank.end() > place:
            place = blank.end()
            continue
        header = _HEADER.match(text, place)
        if header is not None:
            if current is not None:
                yield current
            end = _end_of_value(text, header.end())
            current = TomlTable(_path(header[0]), place, end)
        else:
            key = _KEY.match(text, place)
            if key is None:
                raise CannotEdit(f"line {text.count(chr(10), 0, place) + 1} is not understood")
            end = _end_of_value(text, key.end())
            if current is not None:
                current.end = end
        place = end
    if current is not None:
        yield current


def _end_of_value(text: str, place: int) -> int:
    """The place behind the line on which a value, or a comment behind a header, ends."""
    depth = 0
    while place < len(text):
        found = _PART.match(text, place)
        if found is None:
            raise CannotEdit(f"line {text.count(chr(10), 0, place) + 1} is not understood")
        place = found.end()
        depth += (found[0] in ("[", "{")) - (found[0] in ("]", "}"))
        if found[0] == "\n" and depth <= 0:
            break
    return place


def _path(header: str) -> tuple[str, ...]:
    path = []
    data: object = tomllib.loads(header)
    while isinstance(data, dict | list) and data:
        if isinstance(data, list):
            data = data[0]
        else:
            ((key, data),) = data.items()
            path.append(key)
    return tuple(path)


def rendered(path: Sequence[str], value: JsonObject, newline: str) -> str:
    """The lines of the table, without a line end at the end."""
    return newline.join(
        [f"[{'.'.join(map(_key, path))}]", *(f"{_key(key)} = {_value(one)}" for key, one in value.items())]
    )


def _value(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """A basic string: that of JSON, but for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
