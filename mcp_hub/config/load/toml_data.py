"""TOML to plain data, with the lines of its tables. A key that is there twice is left out and named, not an error."""

import re
import tomllib
from typing import Final, NamedTuple

from mcp_hub.config.findings import DataPath, Finding

_TABLE: Final = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]")
_TABLE_KEY: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")
_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TWICE: Final = re.compile(r"overwrite|twice|Duplicate|immutable|Cannot declare")
"""Words of the parser's errors about a key or table that is there already."""
_MOST: Final = 50
"""Double keys, and lines of one value: more of them is not a slip."""
_WORK: Final = 4 << 20
"""Characters that are read again, each time without one more double key."""


class TomlError(ValueError):
    """Text that is not TOML: the message without its place, and the line and column, if those are known."""

    def __init__(self, message: str, line: int | None, column: int | None) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class TomlData(NamedTuple):
    """The data, the 1-based lines of its tables, and an error for each double key, whose value is not in the data."""

    data: dict[str, object]
    lines: dict[DataPath, int]
    findings: tuple[Finding, ...]


def toml_data(text: str) -> TomlData:
    """The data of TOML text. Raises `TomlError`; `ValueError` for a number that is too long; `RecursionError`."""
    lines, most = text.split("\n"), min(_MOST, _WORK // max(1, len(text)))
    findings: list[Finding] = []
    first: TomlError | None = None
    while True:
        try:
            data = tomllib.loads("\n".join(lines))
            return TomlData(data, _tables(text), tuple(findings))
        except tomllib.TOMLDecodeError as error:
            problem = _problem(error)
        first = first or problem
        double = _blanked(lines, problem) if _TWICE.search(str(problem)) and len(findings) < most else None
        if double is None:
            raise first
        findings.append(double)


def _problem(error: tomllib.TOMLDecodeError) -> TomlError:
    place = _PLACE.search(str(error))
    line, column = (int(place[1]), int(place[2])) if place and place[1] else (None, None)
    return TomlError(_PLACE.sub("", str(error)), line, column)


def _blanked(lines: list[str], problem: TomlError) -> Finding | None:
    """The finding for the double key at the problem, whose lines are emptied; None if it is not clear which."""
    if problem.line is None or not 0 < problem.line <= len(lines):
        return None
    last = problem.line - 1
    if _TABLE.match(lines[last]):
        end = next((index for index in range(last + 1, len(lines)) if _TABLE.match(lines[index])), len(lines))
        start, path = last, _keys(lines[last])
    else:
        tried = range(last, max(-1, last - _MOST), -1)
        start = next((index for index in tried if _is_pair(lines[index : last + 1])), last)
        table = next((keys for index in range(start, -1, -1) if (keys := _keys(lines[index]))), ())
        end, path = last + 1, (*table, *_parts(lines[start].partition("=")[0]))
    if not any(lines[start:end]):
        return None
    lines[start:end] = [""] * (end - start)
    return Finding(path, "duplicate_key", "duplicate key. Remove one of them.", start + 1)


def _is_pair(lines: list[str]) -> bool:
    """Whether the lines are one key with its value, as far as the parser can read it."""
    try:
        tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        return "Duplicate" in str(error)
    except ValueError:
        return False
    return "=" in lines[0]


def _keys(line: str) -> tuple[str, ...]:
    table = _TABLE.match(line)
    return _parts(table[1]) if table else ()


def _parts(key: str) -> tuple[str, ...]:
    return tuple("".join(part) for part in _TABLE_KEY.findall(key.strip()))


def _tables(text: str) -> dict[DataPath, int]:
    return {keys: number for number, line in enumerate(text.splitlines(), 1) if (keys := _keys(line))}
