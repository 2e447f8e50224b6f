"""Text files that people and documents name, read with bounds; every fault is a `ConfigError` with its line.

Files of variables (`envFile`) have `NAME=value` lines, with `export`, quotes and comments as shells have them.
"""

import re
from collections.abc import Mapping
from os import stat_result
from pathlib import Path
from typing import Final, NamedTuple

from mcp_hub.config.load.interpolate import expand_home, read_text
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import FileTooLarge, read_file
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


class TextFile(NamedTuple):
    """The text of a file, and the state of the file when it was read."""

    text: str
    stat: stat_result


def read_text_file(path: Path, largest: int, *, create: str = "") -> TextFile:
    """A file of UTF-8 text of at most `largest` bytes, or of UTF-16 with a byte order mark; without that mark.

    `create` says how to make a file that does not exist. Raises `ConfigError`.
    """
    data, state = read_bytes(path, largest, create=create)
    return TextFile(decoded(data, str(path)), state)


def text_of(content: bytes) -> str:
    """UTF-8, or UTF-16 with a byte order mark, as Windows writes it; without that mark. Raises `UnicodeDecodeError`."""
    return content.decode("utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig")


def read_bytes(path: Path, largest: int, *, create: str = "") -> tuple[bytes, stat_result]:
    """The bytes of such a file. Raises `ConfigError`."""
    try:
        return read_file(path, largest)
    except FileTooLarge:
        raise ConfigError(ConfigFinding("config_too_large", f"larger than {largest} bytes", str(path))) from None
    except OSError as problem:
        if create and isinstance(problem, FileNotFoundError):
            raise ConfigError(
                ConfigFinding("config_not_found", f"the file does not exist. {create}", str(path))
            ) from None
        said = f"cannot be read: {problem.strerror or problem}"
        raise ConfigError(ConfigFinding("config_unreadable", said, str(path))) from None


def decoded(content: bytes, name: str) -> str:
    """The text of a file of that name. Raises `ConfigError` with the line of the first byte that is not text."""
    try:
        return text_of(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(ConfigFinding("invalid_text", NOT_UTF8, name, line)) from None


def variables_of(text: str, env: Mapping[str, str], base: Path) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """The variables in the file at `text`, and warnings about it, each with its code.

    A value in quotes may have several lines. The file is UTF-8, UTF-16 with a byte order mark, or else Latin-1. Lines
    that set no variable are skipped, with a warning. Raises `Unresolved`; no message has a value.
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
    """The variables, and the numbers of the lines that set none."""
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
    """The value that begins at `start`, and the end of its last line; `end` is that of its first."""
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
