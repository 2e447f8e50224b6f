"""The form of an elicitation. Pure. A `pattern` is not checked: it could take forever.

Source: specification 2026-07-28, client/elicitation "Requested Schema".
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from mcp_hub.masking import hide_head
from mcp_hub.schema import parameters
from mcp_hub.types import JsonObject

_YES: Final = {"y": True, "yes": True, "true": True, "1": True, "n": False, "no": False, "false": False, "0": False}
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_NOTHING: Final = "-"
"""Typed for a choice of none."""
_EXAMPLES: Final = {
    "email": "an email address",
    "uri": "a URI, such as https://example.org/",
    "date": "a date, such as 2026-07-28",
    "date-time": "a time, such as 2026-07-28T12:00:00Z",
}


class _Choice(msgspec.Struct, frozen=True):
    value: str
    title: str


class Field(msgspec.Struct, frozen=True):
    """A field; `kind` is string, integer, number, boolean, one, many, or json for anything else."""

    name: str
    kind: str
    schema: JsonObject
    is_required: bool
    choices: Sequence[_Choice] = ()

    @property
    def title(self) -> str:
        return _text(self.schema, "title") or self.name

    @property
    def description(self) -> str:
        return _text(self.schema, "description")

    @property
    def is_numbered(self) -> bool:
        """Whether choices have numbers: none looks like one."""
        return not any(text.strip().isdecimal() for each in self.choices for text in (each.value, each.title))

    @property
    def hint(self) -> str:
        """The text that may be typed."""
        match self.kind:
            case "boolean":
                return "y or n"
            case "one":
                return "one of them"
            case "many":
                return f"several, with commas; {_NOTHING} for none{_bounds(self.schema, 'minItems', 'maxItems', '')}"
            case "json":
                return "JSON"
            case "string":
                parts = [_EXAMPLES.get(_text(self.schema, "format"), "")]
                parts.append(_bounds(self.schema, "minLength", "maxLength", " characters").removeprefix("; "))
                parts.append(f"pattern {pattern}" if (pattern := _text(self.schema, "pattern")) else "")
                return "; ".join(filter(None, parts))
        return f"{self.kind}{_bounds(self.schema, 'minimum', 'maximum', '')}"

    def value(self, text: str) -> object:
        """The value of a text that is not empty. Raises `ValueError`."""
        return _READERS[self.kind](self, text if self.kind == "string" else text.strip())

    def typed(self, value: object) -> str:
        """A value as typed."""
        if self.kind == "boolean" and isinstance(value, bool):
            return "y" if value else "n"
        titles = {each.value: each.title for each in self.choices}
        if isinstance(value, list) and self.kind == "many":
            return ", ".join(titles.get(each, str(each)) for each in value) or _NOTHING
        return titles.get(value, value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    @property
    def default(self) -> object:
        """The default, or None if it does not fit."""
        value = self.schema.get("default")
        if value is None:
            return None
        try:
            if self.kind == "many":
                return _items(self, [each if isinstance(each, str) else "" for each in cast(list[object], value)])
            fits = self.value(value if isinstance(value, str) else self.typed(value)) == value
        except (ValueError, TypeError):
            return None
        return value if fits else None


def fields_of(schema: object) -> list[Field]:
    return [
        _field(name, member if isinstance(member, dict) else {}, is_required)
        for name, member, is_required in parameters(schema)
    ]


def _field(name: str, schema: JsonObject, is_required: bool) -> Field:
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array" and (choices := _choices(items)):
        return Field(name=name, kind="many", schema=schema, is_required=is_required, choices=choices)
    if choices := _choices(schema):
        return Field(name=name, kind="one", schema=schema, is_required=is_required, choices=choices)
    is_known = isinstance(kind, str) and kind in ("string", "integer", "number", "boolean")
    return Field(name, str(kind) if is_known else "json", schema, is_required)


def _choices(schema: object) -> list[_Choice]:
    if not isinstance(schema, dict):
        return []
    titled = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(titled, list):
        named = [option for option in titled if isinstance(option, dict) and isinstance(option.get("const"), str)]
        return [_Choice(option["const"], _text(option, "title") or option["const"]) for option in named]
    values, names = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return []
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return [_Choice(value, str(title)) for value, title in zip(values, titles, strict=True)]


def _text(schema: JsonObject, key: str) -> str:
    value = schema.get(key)
    return value if isinstance(value, str) else ""


def _number(schema: JsonObject, key: str) -> float | None:
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bounds(schema: JsonObject, low: str, high: str, unit: str) -> str:
    lowest, highest = _number(schema, low), _number(schema, high)
    message = [
        f"at least {lowest:g}" if lowest is not None else "",
        f"at most {highest:g}" if highest is not None else "",
    ]
    return f"; {', '.join(filter(None, message))}{unit}" if any(message) else ""


def _check(size: float, schema: JsonObject, low: str, high: str, unit: str = "") -> None:
    lowest, highest = _number(schema, low), _number(schema, high)
    if (lowest is not None and size < lowest) or (highest is not None and size > highest):
        raise ValueError(f"It has to be {_bounds(schema, low, high, unit).removeprefix('; ')}.")


def _string(field: Field, text: str) -> str:
    _check(len(text), field.schema, "minLength", "maxLength", " characters")
    form = _text(field.schema, "format")
    if not _FORMATS.get(form, bool)(text):
        raise ValueError(f"It has to be {_EXAMPLES[form]}.")
    return text


def _has_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _has_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None and "T" in text.upper()
    except ValueError:
        return False


def _has_scheme(text: str) -> bool:
    try:
        return bool(urlsplit(text).scheme) and not re.search(r"\s", text)
    except ValueError:
        return False


_FORMATS: Final[Mapping[str, Callable[[str], object]]] = {
    "email": _EMAIL.fullmatch, "uri": _has_scheme, "date": _has_date, "date-time": _has_time,
}  # fmt: skip


def _integer(field: Field, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,100}", text):
        raise ValueError("It has to be a whole number.")
    _check(int(text), field.schema, "minimum", "maximum")
    return int(text)


def _real(field: Field, text: str) -> float:
    try:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,100}", text) else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("It has to be a number.")
    _check(number, field.schema, "minimum", "maximum")
    return number


def _boolean(field: Field, text: str) -> bool:
    if text.lower() not in _YES:
        raise ValueError("It has to be y or n.")
    return _YES[text.lower()]


def _choice_of(field: Field, text: str) -> str:
    """A choice by number, value, or title in any case."""
    if field.is_numbered and text.isdecimal() and 1 <= int(text[:9]) <= len(field.choices):
        return field.choices[int(text[:9]) - 1].value
    for each in field.choices:
        if text == each.value:
            return each.value
    for each in field.choices:
        if text.lower() in (each.value.lower(), each.title.lower()):
            return each.value
    raise ValueError(f"{hide_head(text, 50)!r} is not one of the choices.")


def _many(field: Field, text: str) -> list[str]:
    if text == _NOTHING:
        return _items(field, [])
    return _items(field, [_choice_of(field, part.strip()) for part in text.split(",") if part.strip()])


def _items(field: Field, values: list[str]) -> list[str]:
    if not {each.value for each in field.choices}.issuperset(values):
        raise ValueError("It has to be of the choices.")
    unique = list(dict.fromkeys(values))
    _check(len(unique), field.schema, "minItems", "maxItems", " of them")
    return unique


def _json(field: Field, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("It has to be JSON.") from None


_READERS: Final[Mapping[str, Callable[[Field, str], object]]] = {
    "string": _string, "integer": _integer, "number": _real, "boolean": _boolean,
    "one": _choice_of, "many": _many, "json": _json,
}  # fmt: skip
