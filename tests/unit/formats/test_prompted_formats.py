"""Every format: calls alone, in parallel and in text; tags that do not count; mistakes."""

import ast
from itertools import permutations
from typing import Any

import pytest

from mcp_hub.formats.events import OutputEnd, OutputStart, TextDelta, ThinkingDelta, ToolCallChunk, ToolCallStart
from mcp_hub.formats.prompted import FORMATS, PromptedParser
from tests.unit.formats.prompted_texts import CASES, TOOLS, characters, parsed, short

EACH = [(format, text, events) for format, cases in CASES.items() for text, events in cases]


def test_every_format_has_texts() -> None:
    assert CASES.keys() == FORMATS.keys()


@pytest.mark.parametrize(("format", "text", "events"), EACH)
def test_a_text_gives_its_events(format: str, text: str, events: list[Any]) -> None:
    assert short(parsed(format, text)) == events
    assert parsed(format, text, characters) == parsed(format, text)


@pytest.mark.parametrize("format", FORMATS)
def test_no_tag_begins_or_contains_another_one(format: str) -> None:
    one = FORMATS[format]
    tags = [*one.begins, *one.ends, *one.ignored, one.thinking[0]]
    assert not [(tag, other) for tag, other in permutations(tags, 2) if tag.startswith(other)]
    repeating = [tag for tag in [*tags, one.thinking[1]] if tag[0] in tag[1:]]
    assert repeating in ([], ["```"])  # which no other tag begins like, and counts after a call only


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_that_is_written_is_read(format: str) -> None:
    arguments = {"city": 'a "b" <c>', "days": -3}
    found = short(parsed(format, "Well.\n" + FORMATS[format].call("get_weather", arguments)))
    assert found == ["Well.\n", ("get_weather", '{"city": "a \\"b\\" <c>", "days": -3}'), "tool_calls"]


def test_arguments_pass_through_as_they_arrive() -> None:
    parser = PromptedParser(FORMATS["hermes"], TOOLS, "m")
    assert parser.feed("") == [OutputStart("m")]
    assert parser.feed("So<") == [TextDelta("So")]
    assert parser.feed('tool_call>{"name": "now", "arguments": ') == []
    assert parser.feed('{"a') == [ToolCallStart("m_1", "now"), ToolCallChunk("m_1", '{"a')]
    assert parser.feed('": "</to') == [ToolCallChunk("m_1", '": "</to')]


def test_strings_of_tagged_parameters_pass_through_as_they_arrive() -> None:
    parser = PromptedParser(FORMATS["qwen3-coder"], TOOLS, "m")
    parser.feed("<function=get_weather><parameter=city>\n")
    assert parser.feed("one\ntwo") == [ToolCallChunk("m_1", "one\\ntwo")]
    assert parser.feed("\n</par") == []
    assert parser.feed("t") == [ToolCallChunk("m_1", "\\n</part")]


def test_python_arguments_pass_through_one_by_one() -> None:
    parser = PromptedParser(FORMATS["pythonic"], TOOLS, "m")
    parser.feed("[get_weather(city='Bern'")
    assert parser.feed(", days=") == [ToolCallChunk("m_1", '{"city": "Bern"')]


@pytest.mark.parametrize(
    "value", ['__import__("os")', "f'{x}'", "b'x'", "x", "1 if 1 else 2", "1 # x", "-(-1)", "[*x]"]
)
def test_only_literals_reach_the_parser_of_python(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast, "parse", lambda *_, **__: pytest.fail("it was parsed"))
    assert short(parsed("pythonic", f"[now(a={value})]"))[0] == ("now", "malformed_call")


def test_the_prompt_may_have_opened_the_thinking() -> None:
    events = parsed("hermes", 'Hm <tool_call></think>\n<tool_call>{"name": "now"}</tool_call>', is_thinking=True)
    assert short(events) == [("thinking", "Hm <tool_call>"), ("now", "{}"), "tool_calls"]


def test_the_reason_of_the_provider_is_kept() -> None:
    parser = PromptedParser(FORMATS["hermes"], TOOLS, "m")
    parser.feed('<tool_call>{"name": "now"}</tool_call>')
    assert parser.close("length")[-1] == OutputEnd("length")
    assert parser.feed("more") == []


def test_thinking_streams() -> None:
    parser = PromptedParser(FORMATS["hermes"], TOOLS, "m")
    parser.feed("<think>")
    assert parser.feed("a<") == [ThinkingDelta("a")]
    assert parser.feed("b") == [ThinkingDelta("<b")]


def test_half_a_character_is_replaced() -> None:
    assert short(parsed("hermes", "a\ud800b\udfff\ud83d\udd28")) == ["a\ufffdb\ufffd\ufffd\ufffd", "stop"]
