"""Limits of calls, and that hostile text costs as much as any other of its length."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from mcp_hub.formats.prompted import FORMATS, PromptedParser
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_DEPTH
from mcp_hub.formats.records import OutputError, ToolCallChunk
from tests.unit.formats.prompted_texts import TOOLS, Split, characters, parsed, short, whole

BIG = "é" * (MAX_ARGUMENTS // 2)
NESTED = "[" * MAX_DEPTH + "]" * MAX_DEPTH

TOO_LARGE = [
    ("hermes", '<tool_call>{"name": "now", "arguments": {"a": "' + BIG + '</tool_call>"}}</tool_call>ok'),
    ("hermes", '<tool_call>{"arguments": {"a": "' + BIG + '</tool_call>"}, "name": "now"}</tool_call>ok'),
    ("qwen3-coder", f"<function=now><parameter=a>{BIG}é</parameter></function>ok"),
    ("glm", f"<tool_call>now<arg_key>a</arg_key><arg_value>{BIG}é</arg_value></tool_call>ok"),
    ("pythonic", f"[now(a='{BIG}', b='{BIG})]')]ok"),
    ("pythonic", f"[now(a=[{'1, ' * 30_000}])]ok"),
]
TOO_DEEP = [
    ("hermes", f'<tool_call>{{"name": "now", "arguments": {{"a": {NESTED}, "b": "</tool_call>"}}}}</tool_call>ok'),
    ("kimi", f'<|tool_call_begin|>now:0<|tool_call_argument_begin|>{{"a": {NESTED}}}<|tool_call_end|>ok'),
    ("qwen3-coder", f"<function=now><parameter=a>{NESTED}</parameter></function>ok"),
    ("pythonic", f"[now(a={NESTED})]ok"),
]


def text_of(format: str, value: str) -> str:
    """A call with one string of that many characters."""
    return FORMATS[format].call("get_weather", {"city": value})


@pytest.mark.parametrize(("format", "text"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_arguments_over_the_limit_end_their_call_and_nothing_else(format: str, text: str) -> None:
    halves = [text[: len(text) // 2], text[len(text) // 2 :]]
    events = parsed(format, text)
    name = None if text.startswith('<tool_call>{"arguments"') else "now"
    assert short(events) == [(name, "arguments_too_large"), "ok", "stop"]
    assert parsed(format, text, lambda _: halves) == events


@pytest.mark.parametrize("format", FORMATS)
def test_arguments_may_be_as_large_as_the_limit(format: str) -> None:
    ((_, empty), _) = short(parsed(format, text_of(format, "")))
    room = MAX_ARGUMENTS - len(empty)
    (call, reason) = short(parsed(format, text_of(format, "x" * room)))
    assert call[0] == "get_weather" and len(call[1]) == MAX_ARGUMENTS and reason == "tool_calls"
    assert short(parsed(format, text_of(format, "x" * (room + 1)))) == [("get_weather", "arguments_too_large"), "stop"]


def test_pieces_end_exactly_at_the_limit() -> None:
    events = parsed("hermes", '<tool_call>{"name": "now", "arguments": {"a": "' + "é" * MAX_ARGUMENTS)
    chunk = next(event for event in events if isinstance(event, ToolCallChunk))
    assert chunk.arguments.endswith("éé") and len(chunk.arguments.encode()) == MAX_ARGUMENTS - 1


@pytest.mark.parametrize(("format", "text"), TOO_DEEP)
def test_arguments_that_nest_too_deep_end_their_call_and_nothing_else(format: str, text: str) -> None:
    assert short(parsed(format, text)) == [("now", "arguments_too_deep"), "ok", "stop"]
    assert parsed(format, text, characters) == parsed(format, text)
    flatter = text.replace("[[", "[", 1).replace("]]", "]", 1)
    assert short(parsed(format, flatter))[1:] == ["ok", "tool_calls"]


def test_python_that_nests_too_deep_for_its_parser_is_too_deep() -> None:
    text = "[now(a=" + "[" * 500 + "]" * 500 + ")]ok"
    assert short(parsed("pythonic", text)) == [("now", "arguments_too_deep"), "ok", "stop"]


def test_names_are_bounded() -> None:
    text = '<tool_call>{"name": "' + "n</tool_call>" * 500 + '", "arguments": {}}</tool_call>ok'
    assert short(parsed("hermes", text)) == [(None, "malformed_call"), "ok", "stop"]
    assert parsed("hermes", text, characters) == parsed("hermes", text)


def test_white_space_after_a_tag_is_bounded() -> None:
    text = "<tool_call>" + " " * 5000 + "{}"
    assert short(parsed("hermes", text)) == [text, "stop"]


def test_a_message_for_the_model_names_the_tool() -> None:
    events = parsed("hermes", '<tool_call>{"name": "now", "arguments": {a}}</tool_call>')
    (error,) = [event for event in events if isinstance(event, OutputError)]
    assert error.id == "m_1" and '"now"' in error.message


HEADS = ["[now(a=", "[now(a=1", "[now("]
CHAINS = ["-", "not ", "()", "[]", "(", "{", "f'{", "lambda:", "a.", "1if 1else ", '""', "1_", "9", "\\", "#", "*"]


@pytest.mark.slow
@pytest.mark.first(len(CHAINS))
@pytest.mark.parametrize(
    ("head", "link"), [(HEADS[(at + n) % 3], link) for n in range(3) for at, link in enumerate(CHAINS)]
)
def test_no_python_is_too_hard_for_the_parser_of_python(head: str, link: str) -> None:
    assert short(parsed("pythonic", head + link * 20_000 + ")]"))[-1] in ("stop", "interrupted", "tool_calls")


HOSTILE: list[tuple[str, Callable[[int], str]]] = [
    *[("hermes", lambda n, one=one: one * n) for one in ("<", "<tool_call>", "<tool_cal", "`", "\n```", "\n~~~\n")],
    ("hermes", lambda n: "<tool_call>{" * n),
    ("hermes", lambda n: "<tool_call>" + " " * n),
    ("hermes", lambda n: '<tool_call>{"name": "now", "arguments": {"a": "' + '\\"' * n),
    ("hermes", lambda n: '<tool_call>{"name": "now", "arguments": ' + "[" * n),
    ("hermes", lambda n: '<tool_call>{"name": "now", "arguments": ]' + "</tool_cal" * n),
    ("hermes", lambda n: "<think>" + "</think" * n),
    ("hermes", lambda n: '<tool_call>{"name": "nope"}</tool_call>' * n),
    ("hermes", lambda n: "<think>" + "<tool_call>{" * n),
    ("hermes", lambda n: '\n```json\n{"name": "now", ' * n),
    ("hermes", lambda n: 'x {"name": "now", "arguments": {' * n),
    ("hermes", lambda n: '<tool_call>{"name": "now", "arguments": {"a": \'' + '" // x' * n),
    ("hermes", lambda n: "<tool_call>" + '{"name": "now",}' * n + "</tool_call>"),
    ("qwen3-coder", lambda n: "<function=now><parameter=a>" + "</function></tool_call>" * n),
    ("minimax", lambda n: '<minimax:tool_call><invoke name="now">' * n),
    ("gemma4", lambda n: "<|tool_call>call:now{" * n),
    ("gpt-oss", lambda n: "<|channel|>" * n),
    ("qwen3-coder", lambda n: "<function=now><parameter=a>" + "</parameter" * n),
    ("qwen3-coder", lambda n: "<function=now>" + "<parameter=a>\n" * n),
    ("glm", lambda n: "<tool_call>now" + "<arg_key>a</arg_key><arg_value></arg_value>" * n),
    ("llama", lambda n: '{"name": "\n' * n),
    ("llama", lambda n: '{"type": ' * n),
    ("llama", lambda n: '\n{"parameters": {"a": 1}' * n),
    ("pythonic", lambda n: "[now(" * n),
    ("pythonic", lambda n: "\n[nope(a" * n),
    ("pythonic", lambda n: "[now(a=" + "'''\"\"" * n),
    ("pythonic", lambda n: "[now(a='" + "\\" * n),
    ("mistral", lambda n: "[TOOL_CALLS]" * n),
    ("mistral", lambda n: "[TOOL_CALLS]now" * n),
    ("mistral", lambda n: "[TOOL_CALLS] [" + '{"name": "now"},' * n),
    ("deepseek", lambda n: "<｜tool▁call▁begin｜>now<｜tool▁sep｜>" * n),
    ("kimi", lambda n: "<|tool_call_begin|>now:0" * n),
]


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """The number of lines of the package that run inside."""
    steps = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "prompted" not in frame.f_code.co_filename:
            return None
        steps[0] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield steps
    finally:
        sys.settrace(before)


def steps_for(format: str, text: str, split: Split) -> int:
    parser = PromptedParser(FORMATS[format], TOOLS, "m")
    with counted_steps() as steps:
        for piece in split(text):
            parser.feed(piece)
        parser.close()
    return steps[0]


@pytest.mark.first(14)
@pytest.mark.slow
@pytest.mark.parametrize("split", [whole, characters])
@pytest.mark.parametrize(("format", "hostile"), HOSTILE, ids=range(len(HOSTILE)))
def test_steps_grow_no_faster_than_the_text(format: str, hostile: Callable[[int], str], split: Split) -> None:
    some, more = hostile(80), hostile(320)
    assert steps_for(format, more, split) < 5 * steps_for(format, some, split) + 2_000
