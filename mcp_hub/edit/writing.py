"""Plain data as YAML text. Pure."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import yaml

from mcp_hub.masking import visible
from mcp_hub.types import JsonObject

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


class Manner(Enum):
    """The owner of the file, which sets the style of new entries."""

    HUB = "hub"
    """Texts without quotes where YAML allows it, behind the other entries; JSON has an entry on one line."""
    CLIENT = "client"
    """Texts in quotes, which every reader takes for texts, with escapes for what nobody sees; before the other entries.

    An empty mapping is `{}`."""


class Word(str):
    """A text that is written without quotes although YAML may read it as a flag: `on`."""


def flow(value: object, manner: Manner = Manner.HUB) -> str:
    """The value on one line."""
    match value:
        case dict():
            return f"{{{', '.join(f'{_key(key, manner)}: {flow(item, manner)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(flow(item, manner) for item in value)}]"
        case str():
            return _text(value, manner, is_plain=manner is Manner.HUB and "{" not in value and "}" not in value)
        case _:
            return _number(value)


def entry(key: str, value: object, indent: int, step: int, manner: Manner = Manner.HUB) -> list[str]:
    """A pair in block style: its lines, without line ends."""
    head = f"{' ' * indent}{_key(key, manner)}:"
    match value:
        case dict() if value:
            inner = (entry(name, item, indent + step, step, manner) for name, item in value.items())
            return [head, *(line for lines in inner for line in lines)]
        case list() if value and len(head) + 1 + len(flow(value, manner)) > _WIDTH:
            return [head, *(f"{' ' * (indent + step)}- {flow(item, manner)}" for item in value)]
        case str() if manner is Manner.HUB:
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
    is_plain = _WORD.fullmatch(key) is not None if manner is Manner.CLIENT else "{" not in key and "}" not in key
    return _text(key, manner, is_plain=is_plain)


def _text(text: str, manner: Manner, *, is_plain: bool) -> str:
    if is_plain and _PLAIN.fullmatch(text) and not text.endswith(":") and (isinstance(text, Word) or _is_text(text)):
        return str(text)
    quoted = _HIDDEN.sub(lambda match: _escape(match[0]), json.dumps(text, ensure_ascii=False))
    if manner is Manner.HUB or visible(quoted) == quoted:
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
