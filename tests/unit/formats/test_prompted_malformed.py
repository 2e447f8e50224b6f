"""Calls that break their format: they mean what their text says, or are told to be written again; never lost."""

import json
from typing import Any

import pytest

from mcp_hub.formats.prompted import FORMATS, PromptedParser
from mcp_hub.formats.prompted.characters import MalformedCall
from mcp_hub.formats.prompted.loose_json import read_value
from mcp_hub.formats.records import ModelEvent, OutputError, TextDelta, ToolCallEnd, ToolCallStart
from tests.unit.formats.malformed_families import CALLS
from tests.unit.formats.malformed_texts import CLOCK, EURO, JSON, NOW, TOOLS, Call, note, tag
from tests.unit.formats.prompted_texts import characters, parsed


def calls_of(events: list[ModelEvent]) -> list[Call]:
    names = {event.id: event.name for event in events if isinstance(event, ToolCallStart)}
    return [(names[event.id], json.loads(event.arguments)) for event in events if isinstance(event, ToolCallEnd)]


def errors_of(events: list[ModelEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, OutputError)]


@pytest.mark.parametrize(("format", "text", "calls"), CALLS)
def test_a_malformed_call_means_what_it_says(format: str, text: str, calls: list[Call] | None) -> None:
    events = parsed(format, text, tools=TOOLS)
    found, errors = calls_of(events), errors_of(events)
    if calls is None:
        assert errors and all(call == CLOCK for call in found)
    else:
        assert (found, errors) == (calls, [])
    assert parsed(format, text, characters, tools=TOOLS) == events


def test_there_are_texts_of_every_format() -> None:
    assert {format for format, _, _ in CALLS} == FORMATS.keys() - {"function_call"}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_reads_the_calls_of_every_other_one(format: str) -> None:
    """But those without tags that begin a line only where the format has such calls too."""
    for other in FORMATS.values():
        if other.begins and other.name not in ("gpt-oss", "kimi-k3"):
            text = other.call("convert", {"amount": 3, "source": "GBP"})
            assert calls_of(parsed(format, text, tools=TOOLS)) == [EURO], (other.name, text)


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_call_is_never_made(format: str) -> None:
    """Every beginning of a call is text, a mistake, or the whole call."""
    text = FORMATS[format].call("save-note", {"title": "t", "text": 'a "b" <c>', "tags": ["x", "y"], "meta": {"k": 1}})
    whole = calls_of(parsed(format, text, tools=TOOLS))
    assert [name for name, _ in whole] == ["save-note"]
    for end in range(len(text)):
        assert calls_of(parsed(format, text[:end], tools=TOOLS)) in ([], whole)


DELETED = "{}[]\"':,<>/="


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_a_character_less_or_more_never_makes_another_call(format: str) -> None:
    """Marks that a model forgets or writes twice: the same call, or a mistake."""
    text = FORMATS[format].call("save-note", {"title": "t", "text": "a b", "pinned": True})
    whole = calls_of(parsed(format, text, tools=TOOLS))
    for place, char in enumerate(text):
        if char in DELETED:
            twice = [text[:place] + char + text[place:]] if char not in "<>" else []  # which may be part of a value
            for changed in (text[:place] + text[place + 1 :], *twice):
                found = calls_of(parsed(format, changed, tools=TOOLS))
                assert found in ([], whole), changed


def test_arguments_that_are_passed_on_bind() -> None:
    """What was passed on is not taken back: the call goes on as it, or fails."""
    parser = PromptedParser(FORMATS["hermes"], TOOLS, "m")
    events = parser.feed('<tool_call>{"name": "save-note", "arguments": {"title": "t", "text": "a ')
    events += parser.feed('"b" c", "pinned": True,}}</tool_call>')
    events += parser.close()
    assert calls_of(events) == [note('a "b" c', pinned=True)]
    chunks = "".join(
        event.arguments for event in events if hasattr(event, "arguments") and event.type == "tool_call_chunk"
    )
    assert json.loads(chunks) == calls_of(events)[0][1]


def test_a_call_in_thinking_that_is_cut_off_is_not_made() -> None:
    parser = PromptedParser(FORMATS["hermes"], TOOLS, "m")
    events = parser.feed(f"<think>Maybe\n{tag(JSON)}") + parser.close("length")
    assert calls_of(events) == []


def test_a_call_that_is_followed_by_more_thinking_is_not_made() -> None:
    events = parsed("hermes", f"<think>Maybe\n{tag(JSON)}\nor rather not", tools=TOOLS)
    assert (calls_of(events), errors_of(events)) == ([], ["malformed_call"])


def test_a_mistake_costs_one_call() -> None:
    wrong = tag('{"name": "convert", "arguments": {"amount": }}')
    text = f"{tag(NOW)}\n{wrong}\n{tag(NOW)}\nDone."
    events = parsed("hermes", text, tools=TOOLS)
    assert (calls_of(events), errors_of(events)) == ([CLOCK, CLOCK], ["malformed_call"])
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["Done."]


def test_text_behind_a_call_inside_its_tag_stays_text_without_the_end_tag() -> None:
    events = parsed("hermes", tag(f"{NOW}\nThat is all."), tools=TOOLS)
    assert calls_of(events) == [CLOCK]
    assert "".join(event.delta for event in events if isinstance(event, TextDelta)) == "That is all.\n"


def test_two_tools_that_are_alike_are_not_mixed_up() -> None:
    tools = [{"name": "get_file"}, {"name": "get-file"}, {"name": "Get"}]
    for name, found in (("get_file", "get_file"), ("get-file", "get-file"), ("GET", "Get"), ("Get_File", None)):
        events = parsed("hermes", tag(f'{{"name": "{name}", "arguments": {{}}}}'), tools=tools)
        assert [name for name, _ in calls_of(events)] == [found] * (found is not None)


def test_a_mistake_says_what_was_expected() -> None:
    (error,) = [
        event
        for event in parsed("hermes", tag('{"name": "convert", "amounts": 3}'), tools=TOOLS)
        if isinstance(event, OutputError)
    ]
    assert (
        error.message
        == 'The call of "convert" cannot be read: expected "arguments" of convert, found "amounts". Write it again.'
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 1, b: .5, \"c\": 0x1F,}", {"a": 1, "b": 0.5, "c": 31}),
        ("['it''s']", None),
        ("{'a': 'x' 'b': 'y'}", {"a": "x", "b": "y"}),
        ('{"a": "x" b: 1}', {"a": "x", "b": 1}),
        ('{"a": "1", "b": "say \\"x\\" "y""}', {"a": "1", "b": 'say "x" "y"'}),
        ("{a: `x\ny`}", {"a": "x\ny"}),
        ("[1, 2, 3", [1, 2, 3]),
        ("[1, 2,", None),
        ("[1,,2]", None),
        ("{a: [1, {b: 2", {"a": [1, {"b": 2}]}),
        ("{a: 1 // one\n, /* two */ b: 2 # three\n}", {"a": 1, "b": 2}),
        ("{a: 01-02-2003}", None),
        ("{a: 1e5, b: -1.5E-3}", {"a": 1e5, "b": -1.5e-3}),
        ("{a: nan}", None),
        ("{a: undefined}", None),
        ("{a: {}, b: []}", {"a": {}, "b": []}),
        ("{,a: 1}", None),
        ("{a: 1: 2}", None),
        ("{a b: 1}", None),
        ("[" * 60 + "]" * 60, None),
    ],
)
def test_a_value_has_one_reading_or_none(text: str, value: Any) -> None:
    try:
        found = json.loads(read_value(text)[0])
    except (MalformedCall, EOFError):
        found = None
    assert found == value
