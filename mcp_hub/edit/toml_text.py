"""Edits of tables in valid TOML; refuses entries that are inline or have dotted keys."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from mcp_hub.edit.writing import KEPT_TEXTS, CannotEdit, Manner, Splice, newline_of
from mcp_hub.types import JsonObject

_TEXT: Final = r'"(?:\\.|[^"\\\n])*+"|\'[^\'\n]*+\''
_BLANK: Final = re.compile(r"[ \t]*+(?:#[^\n]*+)?+(?:\r?\n|$)|\Z")
_HEADER: Final = re.compile(rf"[ \t]*+\[(?:{_TEXT}|[^\"'#\n\]])*+\]\]?")
_KEY: Final = re.compile(rf"(?:{_TEXT}|[^\"'#\n=])++=")
_PART: Final = re.compile(
    rf'"""(?:\\.|[^\\])*?"{{3,5}}|\'\'\'.*?\'{{3,5}}|{_TEXT}|#[^\n]*+|[\[{{]|[\]}}]|\n|[^"\'#\[\]{{}}\n]++', re.DOTALL
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class _TomlTable(msgspec.Struct):
    """A table from its header to its last key, without comments behind it."""

    path: tuple[str, ...]
    start: int
    end: int


def put(text: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> list[Splice]:
    """Sets one table below the path. Raises `CannotEdit`."""
    (name, value), *more = members.items()
    if more or not isinstance(value, dict):
        raise CannotEdit("only a table can be set in TOML")
    newline, path = newline_of(text), (*above, name)
    sections = list(_listed(text))
    top = text[: sections[0].start] if sections else text
    if above and re.search(rf"^[ \t]*[\"']?{re.escape(above[0])}[\"']?[ \t]*=[ \t]*\{{", top, re.MULTILINE):
        raise CannotEdit(f'"{above[0]}" is written in braces. Write it as tables, [{above[0]}.NAME], or leave it out')
    table = rendered(path, value, newline)
    if tables := _tables_at(sections, path):
        ends_line = text[tables[0].start : tables[0].end].endswith("\n")
        first = Splice(tables[0].start, tables[0].end, table + newline if ends_line else table)
        return [first, *(Splice(section.start, section.end) for section in tables[1:])]
    kin = [section for section in sections if section.path[: len(above)] == path[:-1]]
    index = kin[-1].end if kin else len(text)
    if not text.strip():
        return [Splice(index, index, table + newline)]
    if text[:index].endswith("\n"):
        return [Splice(index, index, newline + table + newline)]
    return [Splice(index, index, newline + newline + table)]  # the last line of the text has no line end: nor has ours


def remove(text: str, path: Sequence[str]) -> list[Splice]:
    """Removes a table and the empty line above. Raises `CannotEdit`."""
    tables = _tables_at(list(_listed(text)), path)
    if not tables:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    splices = []
    for section in tables:
        before = text[: section.start]
        is_open = not text[: section.end].endswith("\n")  # the last line of the file, without a line end
        start = section.start
        for _ in range(2 if is_open else 1):
            if before.endswith("\n\n") or before.endswith("\n\r\n") or is_open and before.endswith("\n"):
                before = before[:-2] if before.endswith("\r\n") else before[:-1]
        start = len(before)
        splices.append(Splice(start, section.end))
    return splices


def copy(text: str, path: Sequence[str], source: str) -> list[Splice]:
    """Inserts the table as `source` writes it, behind the same neighbour. Raises `CannotEdit`."""
    newline = newline_of(text)
    listed, sections = list(_listed(source)), list(_listed(text))
    tables = _tables_at(listed, path)
    if not tables:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    first = listed.index(tables[0])
    is_whole = listed[first : first + len(tables)] == tables
    parts = (
        [source[tables[0].start : tables[-1].end]]
        if is_whole
        else [source[section.start : section.end] for section in tables]
    )
    table = newline.join(part.replace("\r\n", "\n").rstrip("\n").replace("\n", newline) + newline for part in parts)
    ends = {section.path: section.end for section in sections}
    above = [ends[section.path] for section in listed[:first] if section.path in ends]
    if not above and sections:
        return [Splice(sections[0].start, sections[0].start, table + newline)]
    index = above[-1] if above else len(text)
    if not text[:index].strip():
        return [Splice(index, index, table)]
    if text[:index].endswith("\n"):
        return [Splice(index, index, newline + table)]
    return [Splice(index, index, newline + newline + table.removesuffix(newline))]


def line_of(text: str, path: Sequence[str]) -> int:
    """The line, from 1, on which the table begins. Raises `CannotEdit`."""
    tables = _tables_at(list(_listed(text)), path)
    if not tables:
        raise CannotEdit(f"the entry is not a table [{'.'.join(path)}] of its own")
    return text.count("\n", 0, tables[0].start) + 1


def _tables_at(sections: Sequence[_TomlTable], path: Sequence[str]) -> list[_TomlTable]:
    return [section for section in sections if section.path[: len(path)] == tuple(path)]


@lru_cache(maxsize=KEPT_TEXTS)
def _listed(text: str) -> tuple[_TomlTable, ...]:
    return tuple(_sections(text))


def _sections(text: str) -> Iterator[_TomlTable]:
    current: _TomlTable | None = None
    index = 0
    while index < len(text):
        blank = _BLANK.match(text, index)
        if blank is not None and blank.end() > index:
            index = blank.end()
            continue
        header = _HEADER.match(text, index)
        if header is not None:
            if current is not None:
                yield current
            end = _end_of_value(text, header.end())
            current = _TomlTable(_path(header[0]), index, end)
        else:
            key = _KEY.match(text, index)
            if key is None:
                raise CannotEdit(f"line {text.count(chr(10), 0, index) + 1} is not understood")
            end = _end_of_value(text, key.end())
            if current is not None:
                current.end = end
        index = end
    if current is not None:
        yield current


def _end_of_value(text: str, index: int) -> int:
    depth = 0
    while index < len(text):
        part = _PART.match(text, index)
        if part is None:
            raise CannotEdit(f"line {text.count(chr(10), 0, index) + 1} is not understood")
        index = part.end()
        depth += (part[0] in ("[", "{")) - (part[0] in ("]", "}"))
        if part[0] == "\n" and depth <= 0:
            break
    return index


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
    """The lines of the table, the last one open."""
    return newline.join(
        [f"[{'.'.join(map(_key, path))}]", *(f"{_key(key)} = {_value(member)}" for key, member in value.items())]
    )


def _value(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(member)}" for key, member in value.items()) + "}"
    return json.dumps(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
