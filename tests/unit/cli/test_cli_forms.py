"""The fields of a form: which text becomes which value, what is refused, and which defaults count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.cli.questions.form import Unfit, fields_of

TITLED = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
ONE = {"type": "string", "oneOf": TITLED}
MANY = {"type": "array", "items": {"anyOf": TITLED}, "minItems": 1}
PLAIN = {"type": "string", "enum": ["low", "high"]}
NAMED = {"type": "string", "enum": ["l", "h"], "enumNames": ["Low", "High"]}


def value(schema: dict[str, Any], text: str) -> object:
    [field] = fields_of({"properties": {"f": schema}})
    return field.value(text)


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        ({"type": "string"}, " a ", " a "),
        ({"type": "string", "format": "email"}, "a@b.c", "a@b.c"),
        ({"type": "string", "format": "uri"}, "https://a/b", "https://a/b"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00Z", "2026-07-28T12:00:00Z"),
        ({"type": "string", "format": "of the future"}, "a", "a"),
        ({"type": "integer"}, " 12 ", 12),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "3", 3),
        ({"type": "number", "minimum": 0, "maximum": 1}, "1", 1),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        (ONE, "2", "#0f0"),
        (ONE, "red", "#f00"),
        (ONE, "#f00", "#f00"),
        (PLAIN, "high", "high"),
        (PLAIN, "1", "low"),
        (NAMED, "High", "h"),
        ({"type": "string", "enum": ["2", "1"]}, "1", "1"),
        (MANY, "1, green, 1", ["#f00", "#0f0"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "b", ["b"]),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "-", []),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({}, "[1]", [1]),
    ],
)
def test_text_becomes_the_value_of_its_type(schema: dict[str, Any], text: str, wanted: object) -> None:
    found = value(schema, text)
    assert found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize(
    ("schema", "text", "why"),
    [
        ({"type": "string", "minLength": 2}, "a", "at least 2 characters"),
        ({"type": "string", "minLength": 1, "maxLength": 2}, "abc", "at least 1, at most 2 characters"),
        ({"type": "string", "format": "email"}, "a b", "an email address"),
        ({"type": "string", "format": "uri"}, "nothing", "a URI"),
        ({"type": "string", "format": "date"}, "28.7.2026", "a date"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T12:00:00", "a time"),
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "integer", "minimum": 3}, "2", "at least 3"),
        ({"type": "number"}, "NaN", "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "boolean"}, "maybe", "y or n"),
        (ONE, "3", "not one of the choices"),
        (MANY, "-", "at least 1 of them"),
        (MANY, "red, blue", "'blue' is not one of the choices"),
        ({"type": "object"}, "{", "JSON"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_the_reason(schema: dict[str, Any], text: str, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        value(schema, text)


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        ({"type": "string", "default": "a"}, "a"),
        ({"type": "integer", "default": 0}, 0),
        ({"type": "boolean", "default": False}, False),
        ({**ONE, "default": "#0f0"}, "#0f0"),
        ({**MANY, "default": ["#0f0"]}, ["#0f0"]),
        ({"type": "integer", "default": "many"}, None),
        ({"type": "string", "minLength": 3, "default": "a"}, None),
        ({**ONE, "default": "#00f"}, None),
        ({**MANY, "default": 1}, None),
        ({**MANY, "default": [1]}, None),
    ],
)
def test_default_counts_if_it_is_a_value_of_the_field(schema: dict[str, Any], default: object) -> None:
    [field] = fields_of({"properties": {"f": schema}})
    assert field.default == default


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
KEYS = ["type", "enum", "enumNames", "oneOf", "anyOf", "items", "default", "minimum", "maxLength", "title", "format"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON), JSON, st.text(min_size=1))
def test_no_schema_breaks_a_form(schema: dict[str, Any], required: Any, text: str) -> None:
    for field in fields_of({"properties": {"f": schema, "g": required}, "required": required}):
        assert field.default is None or field.typed(field.default) is not None
        assert isinstance(field.hint + field.title + field.description, str)
        try:
            field.value(text)
        except Unfit:
            pass
    assert fields_of(required) == [] or isinstance(required, dict)
