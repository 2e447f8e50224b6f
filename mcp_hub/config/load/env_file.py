"""Files of variables (`envFile`): `NAME=value` lines, with `export`, quotes and comments as shells have them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.load.interpolate import Unresolved, expand_home, read_text

_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*?)\s*")
_SINGLE: Final = re.compile(r"'([^']*)'\s*(?:#.*)?")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def variables_of(text: str, env: Mapping[str, str], base: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables in the file at `text`, and warnings about it. Raises `Unresolved`; no message has a value."""
    read = read_text(text, env, base)
    found: dict[str, str] = {}
    for number, line in enumerate(read.text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            place = f"{base / expand_home(text, env)}:{number}"
            raise Unresolved("file_unreadable", f"{place}: expected NAME=value. Correct the line, or begin it with #")
        found[matched[1]] = _value(matched[2])
    return found, read.warnings


def _value(text: str) -> str:
    if quoted := _SINGLE.fullmatch(text):
        return quoted[1]
    if quoted := _DOUBLE.fullmatch(text):
        return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), quoted[1])
    return re.split(r"\s+#", text, maxsplit=1)[0] if not text.startswith("#") else ""
