"""The conversation about one question, with a person who types what the test says."""

import re
from typing import Any

import pytest

from mcp_hub.cli.questions.answering import elicited

pytestmark = pytest.mark.anyio


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


async def test_nothing_typed_means_the_default_or_nothing() -> None:
    person = Person("", "", "")
    asked = form("a", a={"type": "string", "default": "x"}, b={"type": "string"})
    assert await elicited(person, "t", asked) == ("accept", {"a": "x"})
    assert "a [x]: " in person.shown and "  b: (left out)" in person.shown


async def test_answer_can_be_edited_before_it_is_sent() -> None:
    person = Person("Anm", "7", "e", "Ann", "", "")
    asked = form("name", name=NAME, age={"type": "integer"})
    assert await elicited(person, "t", asked) == ("accept", {"name": "Ann", "age": 7})
    assert "age [7]: " in person.shown


@pytest.mark.parametrize("lines", [[], ["Ann"], ["Ann", "d"]])
async def test_end_of_input_and_d_decline(lines: list[str]) -> None:
    assert await elicited(Person(*lines), "t", form("name", name=NAME)) == ("decline", None)


async def test_form_without_fields_asks_for_consent() -> None:
    assert await elicited(Person("", "y"), "t", form()) == ("accept", {})
    assert await elicited(Person("d"), "t", form()) == ("decline", None)


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
        ("javascript:alert(1)", "(this is not a web address)"),
        ("file://host/etc/passwd", "host (this is not a web address: file)"),
        ("https://[", "(this is not a web address)"),
        ("", "(this is not a web address)"),
    ],
)
async def test_url_is_shown_whole_with_its_host_and_never_opened(url: str, host: str) -> None:
    person = Person("what", "y")
    asked = {"mode": "url", "url": url, "message": "Log in"}
    assert await elicited(person, "t", asked) == ("accept", None)
    assert f"│ Host: {host}" in person.shown
    [shown] = [line for line in person.shown if line.startswith("│ URL:")]
    assert shown.isascii() or shown[1:].isascii()


async def test_url_can_be_declined() -> None:
    assert await elicited(Person("d"), "t", {"mode": "url", "url": "https://a"}) == ("decline", None)
