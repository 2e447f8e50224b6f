"""Texts of models in every format, and the events that they are."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mcp_hub.formats.prompted import FORMATS, PromptedParser
from mcp_hub.formats.records import (
    ModelEvent,
    OutputEnd,
    OutputError,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
)
from tests.unit.formats.prompted_families import FAMILIES, NOW, WEATHER, plain

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "name": "get_weather",
        "description": "The weather of a city.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "units": {"enum": ["c", "f"]},
                "note": {"type": ["string", "null"]},
                "exact": {"type": "boolean"},
                "place": {"$ref": "#/$defs/place"},
                "any": {},
            },
            "required": ["city"],
            "$defs": {"place": {"type": "object", "properties": {"at": {"type": "array"}}}},
        },
    },
    {"name": "now", "inputSchema": {"type": "object"}},
    {"name": "git.log", "inputSchema": {"type": "object", "properties": {"n": {"type": "number"}}}},
]

Split = Callable[[str], Iterable[str]]


def whole(text: str) -> list[str]:
    return [text]


def characters(text: str) -> list[str]:
    return list(text)


def parsed(
    format: str,
    text: str,
    split: Split = whole,
    tools: Iterable[Mapping[str, Any]] = TOOLS,
    is_thinking: bool = False,
) -> list[ModelEvent]:
    """The events of a text with adjacent pieces put together, its start left out."""
    parser = PromptedParser(FORMATS[format], tools, "m", is_thinking=is_thinking)
    events = [event for piece in split(text) for event in parser.feed(piece)]
    return list(merged([*events, *parser.close()]))[1:]


def merged(events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
    """The same events with adjacent pieces of one thing put together."""
    last: ModelEvent | None = None
    for event in events:
        match last, event:
            case TextDelta(delta=first), TextDelta(delta=second):
                last = TextDelta(first + second)
            case ThinkingDelta(delta=first), ThinkingDelta(delta=second):
                last = ThinkingDelta(first + second)
            case ToolCallChunk(id=one, arguments=first), ToolCallChunk(id=other, arguments=second) if one == other:
                last = ToolCallChunk(one, first + second)
            case _, _:
                if last is not None:
                    yield last
                last = event
    if last is not None:
        yield last


def short(events: Iterable[ModelEvent]) -> list[Any]:
    """Text as it is; thinking as `("thinking", …)`; a call as name and arguments, or name and code of its error.

    Chunks must be the arguments of the end, and every call that begins must end.
    """
    found: list[Any] = []
    names: dict[str, str] = {}
    chunks: dict[str, str] = {}
    for event in events:
        match event:
            case TextDelta(delta=delta):
                found.append(delta)
            case ThinkingDelta(delta=delta):
                found.append(("thinking", delta))
            case ToolCallStart(id=id, name=name):
                names[id] = name
            case ToolCallChunk(id=id, arguments=arguments):
                chunks[id] = chunks.get(id, "") + arguments
            case ToolCallEnd(id=id, arguments=arguments):
                assert arguments == chunks[id]
                found.append((names.pop(id), arguments))
            case OutputError(code=code, id=of):
                found.append((names.pop(of) if of else None, code))
            case OutputEnd(finish_reason=reason):
                found.append(reason)
    assert not names
    return found


CASES: Final[Mapping[str, list[tuple[str, list[Any]]]]] = {
    "function_call": [
        ('<function_call>{"name": "now", "arguments": {}}</function_call>', [NOW, "tool_calls"]),
        ('<function_call>{"name": "now"}', [NOW, "tool_calls"]),
        plain("Use <function_call> like this."),
        plain("a < b <function> <function_cal"),
    ],
    "hermes": [
        ("", ["stop"]),
        plain("Hello."),
        (
            'One moment.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>\nDone.',
            ["One moment.\n", ("get_weather", WEATHER), "Done.", "tool_calls"],
        ),
        (
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n<tool_call>\n'
            '{"arguments": {"city": "Bern"}, "name": "get_weather"}\n</tool_call>',
            [NOW, ("get_weather", WEATHER), "tool_calls"],
        ),
        (
            '<tool_call>{"name":"git.log","arguments":{"n":{"a":"}]{[\\"</tool_call><tool_call>"}}}</tool_call>',
            [("git.log", '{"n":{"a":"}]{[\\"</tool_call><tool_call>"}}'), "tool_calls"],
        ),
        (
            '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"B\\u00e9\\"}"}</tool_call>',
            [("get_weather", '{"city": "Bé"}'), "tool_calls"],
        ),
        ('<tool_call>{"name": "now", "arguments": null}</tool_call>', [NOW, "tool_calls"]),
        ('<tool_call>{"id": 7, "name": "no\\u0077"}</tool_call>', [NOW, "tool_calls"]),
        (
            '<tool_call>{"id": 7, "extra": {"arguments": [1]}, "name": "no\\u0077"}</tool_call>',
            [(None, "malformed_call"), "stop"],
        ),
        (
            '<tool_call>{"name": "get_weather", "arguments": {"city": "a\nb\tc"}}</tool_call>',
            [("get_weather", '{"city": "a\\nb\\tc"}'), "tool_calls"],
        ),
        (
            '<tool_call>{"name": "get_weather", "arguments": {"city": "東京 🗼 \\ud83d\\uddfc"}}</tool_call>',
            [("get_weather", '{"city": "東京 🗼 \\ud83d\\uddfc"}'), "tool_calls"],
        ),
        (
            '<think>\nShall I <tool_call>{"name": "now"}</tool_call>?\n</think>\n\nNo.',
            [("thinking", '\nShall I <tool_call>{"name": "now"}</tool_call>?\n'), "No.", "stop"],
        ),
        (' <think></think><tool_call>{"name": "now"}</tool_call>', [" ", NOW, "tool_calls"]),
        plain("The tag <think> is text, </think> too."),
        (
            '```\n<tool_call>{"name": "now"}</tool_call>\n```\n<tool_call>{"name": "now"}</tool_call>',
            [NOW, NOW, "tool_calls"],
        ),
        (
            '  ~~~~ xml\n~~~\n<tool_call>{"name": "now"}\n```\n<tool_call>{"name": "now"}',
            [
                *('  ~~~~ xml\n~~~\n<tool_call>{"name": "now"}\n```\n', (None, "malformed_call")),
                *('<tool_call>{"name": "now"}', (None, "malformed_call"), "stop"),
            ],
        ),
        plain("```\n<tool_call>\n```"),
        ('```not a fence``` <tool_call>{"name": "now"}</tool_call>', ["```not a fence``` ", NOW, "tool_calls"]),
        ('x ``` <tool_call>{"name": "now"}</tool_call>', ["x ``` ", NOW, "tool_calls"]),
        plain("`<tool_call>` begins a call, `</tool_call>` ends it."),
        (
            '<tool_call>{"name": "nope", "arguments": {"a": "</tool_call>"}}</tool_call>ok',
            [("nope", "unknown_tool"), "ok", "stop"],
        ),
        (
            '<tool_call>{"name": "now", "arguments": {"a": [1}}, "b": "<tool_call>"}</tool_call>ok',
            [("now", "malformed_call"), "ok", "stop"],
        ),
        ('<tool_call>{"name": "now", "arguments": {a: 1}}</tool_call>ok', [("now", '{"a": 1}'), "ok", "tool_calls"]),
        (
            '<tool_call>{"name": "now", "arguments": {"a": "\\ud800"}}</tool_call>ok',
            [("now", "invalid_arguments"), "ok", "stop"],
        ),
        ('<tool_call>{"name": "now", "arguments": [1]}</tool_call>ok', [("now", "malformed_call"), "ok", "stop"]),
        ('<tool_call>{"name": "now", "arguments": "[1]"}</tool_call>ok', [("now", "malformed_call"), "ok", "stop"]),
        ('<tool_call>{"arguments": {"a": 1}}</tool_call>ok', [(None, "malformed_call"), "ok", "stop"]),
        (
            '<tool_call>{"name": "now", "arguments": {"a": 1}, "parameters": {"b": 2}}</tool_call>ok',
            [("now", "malformed_call"), "ok", "stop"],
        ),
        ('<tool_call>{"name": 3}</tool_call>ok', [(None, "malformed_call"), "ok", "stop"]),
        ('<tool_call>{"name": "now", "arguments": {"a": "b', [("now", "truncated_call"), "interrupted"]),
        ("Hm <tool_call>\n", ["Hm ", (None, "truncated_call"), "interrupted"]),
        ('<tool_call>{"name": "now"}</tool_call><tool_call>{"na', [NOW, (None, "truncated_call"), "interrupted"]),
    ],
    "qwen3-coder": [
        (
            "Look:\n<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n3\n"
            "</parameter>\n</function>\n</tool_call>",
            ["Look:\n", ("get_weather", '{"city": "Bern", "days": 3}'), "tool_calls"],
        ),
        (
            "<function=now>\n</function>\n</tool_call>\n<tool_call><function=now></function></tool_call>",
            [NOW, NOW, "tool_calls"],
        ),
        (
            '<tool_call>\n<function=get_weather>\n<parameter=city>\n\nline "one"\n</para\n<b> \\\n\n</parameter>\n'
            "<parameter=note>\nnull\n</parameter>\n<parameter=units>\nc\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
            '<parameter=place>\n{"at": [1, "x"]}\n</parameter>\n'
            "<parameter=any>\n007\n</parameter>\n</function>\n</tool_call>",
            [
                (
                    "get_weather",
                    '{"city": "\\nline \\"one\\"\\n</para\\n<b> \\\\\\n", "note": null, "units": "c", "exact": true, '
                    '"place": {"at": [1, "x"]}, "any": "007"}',
                ),
                "tool_calls",
            ],
        ),
        (
            "<tool_call><function=get_weather><parameter=city></parameter><parameter=note>12</parameter></function></tool_call>",
            [("get_weather", '{"city": "", "note": "12"}'), "tool_calls"],
        ),
        (
            "<tool_call><function=now><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>.",
            [("now", "malformed_call"), ".", "stop"],
        ),
        ("<tool_call><function=now>oops</function></tool_call>.", [(None, "malformed_call"), ".", "stop"]),
        (
            "<tool_call><function=now><parameter=a>1</parameter>oops</function></tool_call>.",
            [("now", "malformed_call"), ".", "stop"],
        ),
        (
            "<tool_call><function=nope><parameter=a>1</parameter></function></tool_call>.",
            [("nope", "unknown_tool"), ".", "stop"],
        ),
        ("<tool_call><function=now><parameter=a>1</param", [("now", "truncated_call"), "interrupted"]),
        plain("Write `<function=name>` and `<tool_call>`."),
    ],
    "glm": [
        (
            "<think>Hm</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>北京 <x></arg_value>\n"
            "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now</tool_call>",
            [("thinking", "Hm"), ("get_weather", '{"city": "北京 <x>", "days": 2}'), NOW, "tool_calls"],
        ),
        (
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>\nB\n</arg_value></tool_call>",
            [("get_weather", '{"city": "\\nB\\n"}'), "tool_calls"],
        ),
        ("<tool_call>now\n<arg_key>a</arg_key><arg_value>1", [("now", "truncated_call"), "interrupted"]),
        plain("A <tool_call> is text."),
    ],
    "llama": [
        ('{"name": "get_weather", "parameters": {"city": "Bern"}}', [("get_weather", WEATHER), "tool_calls"]),
        (
            '<|python_tag|>{"type": "function", "name": "now", "parameters": {}}; '
            '{"name": "now", "arguments": {}}<|eom_id|>',
            [NOW, NOW, "tool_calls"],
        ),
        ('Sure. <|python_tag|>{"name": "now"}', ["Sure. ", NOW, "tool_calls"]),
        ('Sure:\n  {"name": "now"}\nand more', ["Sure:\n  ", NOW, "and more", "tool_calls"]),
        plain('{"name": "Bob", "age": 3}'),
        plain('{"name": "Bob"}'),
        ('{"name": "nope", "parameters": {"a": 1}} x', [("nope", "unknown_tool"), "x", "stop"]),
        ('See {"name": "now", "parameters": {}}', ["See ", NOW, "tool_calls"]),
        plain('See {"name": "now", "parameters": {}} there'),
        plain('{"output": "{\\"name\\": \\"now\\"}"}'),
        ('```json\n{"name": "now", "parameters": {}}\n```', [NOW, "tool_calls"]),
        plain('```json\n{"name": "now", "parameters": {}}\n// why\nlet x;\n```'),
        ('{\n{"name": "now"}', ["{\n", NOW, "tool_calls"]),
        ('{"parameters": {"city": "Bern"}, "name": "get_weather"}', [("get_weather", WEATHER), "tool_calls"]),
        ('{"name": "now", "par', [("now", "truncated_call"), "interrupted"]),
        plain('{"name": "no'),
        ('{"name": "now", "parameters": {"a": ]}}\n.', [("now", "malformed_call"), ".", "stop"]),
        plain('{"name": "' + "n" * 2000 + '"}'),
    ],
    "pythonic": [
        (
            '[get_weather(city="Bern", days=3), now()]',
            [("get_weather", '{"city": "Bern", "days": 3}'), NOW, "tool_calls"],
        ),
        (
            "<|python_start|>[get_weather(city='a, \\'b\\' )]}', exact=True, note=None, "
            "place={'at': [1.5, -2, (), \"x\"]})]<|python_end|>",
            [
                (
                    "get_weather",
                    '{"city": "a, \'b\' )]}", "exact": true, "note": null, "place": {"at": [1.5, -2, [], "x"]}}',
                ),
                "tool_calls",
            ],
        ),
        (
            '[get_weather(city="""a "b" "c" \n\\n""" \'c\', note=\'\', any="\\d\\x41\\u00e9")]',
            [("get_weather", '{"city": "a \\"b\\" \\"c\\" \\n\\nc", "note": "", "any": "\\\\dAé"}'), "tool_calls"],
        ),
        ('[get_weather("Bern", 2)]\nThere.', [("get_weather", '{"city": "Bern", "days": 2}'), "There.", "tool_calls"]),
        ("[git.log( n = +1_0 , ) , ]", [("git.log", '{"n": 10}'), "tool_calls"]),
        plain("[x] done\n[now](http://a) [now()] there"),
        ("Well: [now()]", ["Well: ", NOW, "tool_calls"]),
        plain("[link(3)](http://a)"),
        ("[nope(a=1), nope2(3), now()]", [("nope", "unknown_tool"), ("nope2", "unknown_tool"), NOW, "tool_calls"]),
        ('[now(a=__import__("os").system("x"))]\n.', [("now", "malformed_call"), ".", "stop"]),
        ('[now(a=f"{1}")]\n.', [("now", "malformed_call"), ".", "stop"]),
        ('[now(a=b"x")]\n.', [("now", "malformed_call"), ".", "stop"]),
        ("[now(a=1e999)]\n.", [("now", "malformed_call"), ".", "stop"]),
        ("[now(a={1: 2})]\n.", [("now", "malformed_call"), ".", "stop"]),
        ('[now(**{"a": 1})]\n.', [("now", "malformed_call"), ".", "stop"]),
        ("[now(1)]\n.", [("now", "malformed_call"), ".", "stop"]),
        ("[now(a=1, a=2)]\n.", [("now", "malformed_call"), ".", "stop"]),
        ("[now(a=[1)]\n.", [("now", "malformed_call"), ".", "stop"]),
        ("[now(a=1 # )\n)]\n.", [("now", "malformed_call"), ".", "stop"]),
        ('[now(a="b', [("now", "truncated_call"), "interrupted"]),
        plain("[nope(a"),
    ],
    "mistral": [
        (
            '[TOOL_CALLS] [{"name": "now", "arguments": {}}, '
            '{"name": "get_weather", "arguments": {"city": "Bern"}, "id": "abc"}]',
            [NOW, ("get_weather", WEATHER), "tool_calls"],
        ),
        (
            'Ok. [TOOL_CALLS]get_weather{"city": "Bern"}[TOOL_CALLS]now{}',
            ["Ok. ", ("get_weather", WEATHER), NOW, "tool_calls"],
        ),
        ("[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}", [NOW, NOW, "tool_calls"]),
        (
            '[THINK]Hm [TOOL_CALLS]now{}[/THINK][TOOL_CALLS]{"name": "now"}',
            [("thinking", "Hm [TOOL_CALLS]now{}"), NOW, "tool_calls"],
        ),
        plain("[TOOL_CALLS] is a tag, [TOOL_RESULTS] too, [x"),
        ('[TOOL_CALLS] [{"name": "now"} {"name": "now"}]', [NOW, NOW, "tool_calls"]),
        ('[TOOL_CALLS] [{"name": "now"}, {"name": 5}]', [NOW, (None, "malformed_call"), "tool_calls"]),
        ('[TOOL_CALLS]now{"a": ', [("now", "truncated_call"), "interrupted"]),
    ],
    "deepseek": [
        (
            "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>get_weather"
            '<｜tool▁sep｜>{"city": "Bern"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            ["Hi", NOW, ("get_weather", WEATHER), "tool_calls"],
        ),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
            'get_weather\n```json\n{"city": "Bern"}\n```'
            "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            [("get_weather", WEATHER), NOW, "tool_calls"],
        ),
        ('<｜tool▁call▁begin｜>now<｜tool▁sep｜>{"a"', [("now", "truncated_call"), "interrupted"]),
        (
            "```\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}\n``` x <｜tool",
            ["```\n<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}\n``` x <｜tool", (None, "malformed_call"), "stop"],
        ),
    ],
    "kimi": [
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
            '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "Bern"}<|tool_call_end|>'
            "<|tool_calls_section_end|>",
            [NOW, ("get_weather", WEATHER), "tool_calls"],
        ),
        ("<|tool_call_begin|>git.log<|tool_call_argument_begin|> {}", [("git.log", "{}"), "tool_calls"]),
        plain("<|tool_call_begin|> is a tag"),
    ],
    **FAMILIES,
}
