"""Questions: which text becomes which value of a form, and the conversation with a person who types."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.cli.access.answering import elicited
from mcp_hub.cli.access.form import fields_of

pytestmark = pytest.mark.anyio

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
    with pytest.raises(ValueError, match=why):
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
        *((schema, None) for schema in ({**ONE, "default": "#00f"}, {**MANY, "default": 1}, {**MANY, "default": [1]})),
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
        except ValueError:
            pass
    assert fields_of(required) == [] or isinstance(required, dict)


class Person:
    """Types these lines, one for each prompt; then the input ends."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []

    def tell(self, text: str) -> None:
        self.shown.append(text)

    async def ask(self, prompt: str) -> str:
        self.shown.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    @property
    def text(self) -> str:
        return "\n".join(self.shown)


def form(*required: str, message: str = "Please", **properties: Any) -> dict[str, Any]:
    return {"message": message, "requestedSchema": {"properties": properties, "required": list(required)}}


NAME = {"type": "string", "title": "Your name", "description": "the full one"}


async def test_each_field_is_asked_for_until_it_fits_and_the_answer_is_shown() -> None:
    person = Person("", "Ann", "old", "7", "y")
    asked = form("name", name=NAME, age={"type": "integer"})
    assert await elicited(person, "fix_form", asked) == ("accept", {"name": "Ann", "age": 7})
    assert "It is required." in person.shown and "It has to be a whole number." in person.shown
    assert person.shown[0].startswith("fix_form asks") and "│ Please" in person.shown
    assert "│ Your name: the full one" in person.shown
    assert person.shown[-4:-1] == ["The answer:", "  Your name: Ann", "  age: 7"]
    assert person.lines == []


async def test_answer_may_be_the_default_and_is_edited_before_it_is_sent() -> None:
    person = Person("", "", "")
    asked = form("a", a={"type": "string", "default": "x"}, b={"type": "string"})
    assert await elicited(person, "t", asked) == ("accept", {"a": "x"})
    assert "a [x]: " in person.shown and "  b: (left out)" in person.shown
    person = Person("Anm", "7", "e", "Ann", "", "")
    asked = form("name", name=NAME, age={"type": "integer"})
    assert await elicited(person, "t", asked) == ("accept", {"name": "Ann", "age": 7})
    assert "age [7]: " in person.shown


@pytest.mark.parametrize("lines", [[], ["Ann"], ["Ann", "d"]])
async def test_end_of_input_and_d_decline(lines: list[str]) -> None:
    assert await elicited(Person(*lines), "t", form("name", name=NAME)) == ("decline", None)


async def test_consent_and_a_url_are_agreed_to_or_declined() -> None:
    assert await elicited(Person("", "y"), "t", form()) == ("accept", {})
    assert await elicited(Person("d"), "t", form()) == ("decline", None)
    assert await elicited(Person("d"), "t", {"mode": "url", "url": "https://a"}) == ("decline", None)


HOSTILE = "\x1b[2J\x9b1m\x07\u202e\rSend it?"


async def test_no_text_of_a_server_commands_the_terminal() -> None:
    choices = {"type": "string", "oneOf": [{"const": "a", "title": HOSTILE}], "default": "a"}
    text = {"type": "string", "title": HOSTILE, "description": HOSTILE, "pattern": HOSTILE, "default": HOSTILE}
    person = Person("", "", "d")
    await elicited(person, HOSTILE, form(message=f"{HOSTILE}\nCtrl-C", **{HOSTILE: choices, "b": text}))
    await elicited(person, HOSTILE, {"mode": "url", "url": f"https://a/{HOSTILE}", "message": HOSTILE})
    assert person.shown and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", person.text)
    assert "│ Ctrl-C" in person.text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org/a?b=c", "example.org"),
        ("https://bank.example@evil.example/", "evil.example"),
        ("https://ex\u0430mple.org/", "xn--exmple-4nf.org"),
        ("http://example.org", "example.org (not encrypted)"),
        ("https://evil.example\\@bank.example/", "(this is not a web address)"),
        *((url, "(this is not a web address)") for url in ("javascript:alert(1)", "https://[", "")),
        ("file://host/etc/passwd", "host (this is not a web address: file)"),
    ],
)
async def test_url_is_shown_whole_with_its_host_and_never_opened(url: str, host: str) -> None:
    person = Person("what", "y")
    asked = {"mode": "url", "url": url, "message": "Log in"}
    assert await elicited(person, "t", asked) == ("accept", None)
    assert f"│ Host: {host}" in person.shown
    [shown] = [line for line in person.shown if line.startswith("│ URL:")]
    assert shown.isascii() or shown[1:].isascii()
