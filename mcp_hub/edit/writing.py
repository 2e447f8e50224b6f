"""Plain data as YAML or JSON text, for one place of a file that is written by hand. Pure."""

import json
import math
import re
from typing import Final

import yaml

_WIDTH: Final = 100
"""Columns that a list on one line may take, before each item gets a line."""
_PLAIN: Final = re.compile(r"-{0,2}[A-Za-z0-9_/.~$][A-Za-z0-9_/.~$@:=+%{}-]*")
"""Texts that may stand without quotes, if YAML takes them for texts then. `{` and `}` not in flow style."""
_HIDDEN: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON writes as they are, and YAML does not take."""


class Word(str):
    """A text that YAML gets without quotes, though it may read it as a flag: `on`. The schema has to take both."""


def flow(value: object, *, as_json: bool = False) -> str:
    """The value on one line."""
    match value:
        case dict():
            pairs = (f"{_key(key, as_json)}: {flow(item, as_json=as_json)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(flow(item, as_json=as_json) for item in value)}]"
        case str():
            return _text(value, is_plain=not as_json and "{" not in value and "}" not in value)
        case _:
            return _other(value)


def entry(key: str, value: object, indent: int, step: int) -> list[str]:
    """A pair in block style: lines without their ends, of which the first begins with `indent` blanks."""
    head = f"{' ' * indent}{_key(key, as_json=False)}:"
    match value:
        case dict() if value:
            inner = (entry(name, item, indent + step, step) for name, item in value.items())
            return [head, *(line for lines in inner for line in lines)]
        case list() if value and not _fits(head, value):
            return [head, *(f"{' ' * (indent + step)}- {flow(item)}" for item in value)]
        case str():
            return [f"{head} {_text(value, is_plain=True)}"]
        case _:
            return [f"{head} {flow(value)}"]


def _fits(head: str, value: list[object]) -> bool:
    return len(head) + 1 + len(flow(value)) <= _WIDTH


def _key(key: str, as_json: bool) -> str:
    return _text(key, is_plain=not as_json and "{" not in key and "}" not in key)


def _text(text: str, *, is_plain: bool) -> str:
    if is_plain and _PLAIN.fullmatch(text) and not text.endswith(":") and (isinstance(text, Word) or _is_text(text)):
        return str(text)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def _is_text(text: str) -> bool:
    """Whether YAML takes it for a text, and not for a number, a date or a flag."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str" and node.value == text


def _other(value: object) -> str:
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if not isinstance(value, float):
        raise TypeError(f"{type(value).__name__} cannot be written")
    if not math.isfinite(value):
        return {"inf": ".inf", "-inf": "-.inf"}.get(str(value), ".nan")
    written = str(value)
    return written if "." in written else written.replace("e", ".0e")  # which YAML takes for a number then
