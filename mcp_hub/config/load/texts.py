"""Reads text, `envFile` and TOML files within limits; faults are `ConfigError` with the line."""

import re
from collections.abc import Mapping
from errno import EFBIG
from os import stat_result
from pathlib import Path
from typing import Final, NamedTuple

from mcp_hub.config.findings import DataPath, Finding, on_one_line
from mcp_hub.config.load.interpolate import expand_home, read_text
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import read_file
from mcp_hub.globs import late

BYTE_ORDER_MARK: Final = "\ufeff"
NOT_UTF8: Final = "the text is not UTF-8. Save the file as UTF-8."
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_NAME: Final = late(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*")
_SINGLE: Final = late(r"'([^']*)'|`([^`]*)`")
_DOUBLE: Final = late(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_END: Final = late(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_BLANK: Final = late(r"[ \t]*(?:#[^\n]*)?")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_TABLE: Final = re.compile(r"\s*\[{1,2}\s*([^\[\]]+?)\s*\]")
_TABLE_KEY: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")
_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TWICE: Final = re.compile(r"overwrite|twice|Duplicate|immutable|Cannot declare")
"""Words in the parser's errors about duplicates."""
_MOST: Final = 50
"""Duplicate keys, and lines of one value."""
_WORK: Final = 4 << 20
"""Characters read again, once per duplicate key."""


class _TextFile(NamedTuple):
    """A file's text, and its state when read."""

    text: str
    stat: stat_result


def read_text_file(path: Path, largest: int, *, create: str = "") -> _TextFile:
    """UTF-8 of at most `largest` bytes (UTF-16 with byte order mark). Raises `ConfigError`; `create` is advice for a
    missing file.
    """
    data, state = read_bytes(path, largest, create=create)
    return _TextFile(decoded(data, str(path)), state)


def text_of(content: bytes) -> str:
    """UTF-8, or UTF-16 with byte order mark, which is removed. Raises `UnicodeDecodeError`."""
    return content.decode("utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig")


def read_bytes(path: Path, largest: int, *, create: str = "") -> tuple[bytes, stat_result]:
    """A file's bytes, at most `largest`, and its state. Raises `ConfigError`."""
    try:
        return read_file(path, largest)
    except OSError as problem:
        if problem.errno == EFBIG:
            raise ConfigError(ConfigFinding("config_too_large", f"larger than {largest} bytes", str(path))) from None
        if create and isinstance(problem, FileNotFoundError):
            raise ConfigError(
                ConfigFinding("config_not_found", f"the file does not exist. {create}", str(path))
            ) from None
        message = f"cannot be read: {problem.strerror or problem}"
        raise ConfigError(ConfigFinding("config_unreadable", message, str(path))) from None


def decoded(content: bytes, name: str) -> str:
    """The text of file `name`. Raises `ConfigError` with the line of the first bad byte."""
    try:
        return text_of(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(ConfigFinding("invalid_text", NOT_UTF8, name, line)) from None


def variables_of(text: str, env: Mapping[str, str], base: Path) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """An `envFile`'s variables, and warnings with codes. Raises `Unresolved`; no message has a value.

    Quoted values may span lines. UTF-8, UTF-16 with byte order mark, else Latin-1. Other lines are skipped with a
    warning.
    """
    read = read_text(text, env, base, decode=_decoded)
    path = base / expand_home(text, env)
    warnings = [("secret_readable", warning) for warning in read.warnings]
    variables, skipped = _parsed(re.sub(r"\r\n?", "\n", read.text))
    if skipped:
        places = ", ".join(map(str, skipped[:5])) + (", …" if len(skipped) > 5 else "")
        warnings.append(("line_skipped", f"{path}:{places}: expected NAME=value, so the line is skipped"))
    return variables, tuple(warnings)


def _decoded(content: bytes) -> str:
    try:
        return text_of(content)
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _parsed(text: str) -> tuple[dict[str, str], list[int]]:
    variables: dict[str, str] = {}
    skipped: list[int] = []
    at, line = 0, 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if (name := _NAME.match(text, at, end)) is not None:
            variables[name[1]], end = _value(text, name.end(), end)
        elif not _BLANK.fullmatch(text, at, end):
            skipped.append(line)
        line += text.count("\n", at, end) + 1
        at = end + 1
    return variables, skipped


def _value(text: str, start: int, end: int) -> tuple[str, int]:
    for pattern in (_SINGLE, _DOUBLE):
        quoted = pattern.match(text, start)
        after = None if quoted is None else _END.match(text, quoted.end())
        if quoted is not None and after is not None:
            inside = quoted[1] if quoted.lastindex in (None, 1) else quoted[2]
            if pattern is _DOUBLE:
                inside = re.sub(r"(?s)\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), inside)
            last = text.find("\n", quoted.end())
            return inside, len(text) if last < 0 else last
    plain = text[start:end].rstrip()
    return "" if plain.startswith("#") else re.split(r"\s+#", plain, maxsplit=1)[0], end


class _TomlData(NamedTuple):
    """Data, 1-based lines of tables, and an error per duplicate key, which is dropped."""

    data: dict[str, object]
    lines: dict[DataPath, int]
    findings: tuple[Finding, ...]


def toml_data(text: str, name: str) -> _TomlData:
    """The data of TOML text. Raises `ConfigError`, `ValueError` for a number that is too long, `RecursionError`."""
    import tomllib  # most hubs read no TOML

    lines, limit = text.split("\n"), min(_MOST, _WORK // max(1, len(text)))
    findings: list[Finding] = []
    first: ConfigFinding | None = None
    while True:
        try:
            data = tomllib.loads("\n".join(lines))
            return _TomlData(data, _tables(text), tuple(findings))
        except tomllib.TOMLDecodeError as error:
            problem = _problem(error, name)
        first = first or problem
        double = _blanked(lines, problem) if _TWICE.search(problem.message) and len(findings) < limit else None
        if double is None:
            raise ConfigError(first)
        findings.append(double)


def _problem(error: ValueError, name: str) -> ConfigFinding:
    position = _PLACE.search(str(error))
    line, column = (int(position[1]), int(position[2])) if position and position[1] else (None, None)
    message = f"not valid TOML: {on_one_line(_PLACE.sub('', str(error)))}. Correct the line."
    return ConfigFinding("invalid_toml", message, name, line=line, column=column)


def _blanked(lines: list[str], problem: ConfigFinding) -> Finding | None:
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
    import tomllib

    try:
        tomllib.loads("\n".join(lines))
    except ValueError as error:
        return "Duplicate" in str(error)
    return "=" in lines[0]


def _keys(line: str) -> tuple[str, ...]:
    table = _TABLE.match(line)
    return _parts(table[1]) if table else ()


def _parts(key: str) -> tuple[str, ...]:
    return tuple("".join(part) for part in _TABLE_KEY.findall(key.strip()))


def _tables(text: str) -> dict[DataPath, int]:
    return {keys: number for number, line in enumerate(text.splitlines(), 1) if (keys := _keys(line))}
