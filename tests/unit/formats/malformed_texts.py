"""Calls as small models misspell them, and the calls that they mean: None where a model has to write again."""

from typing import Any, Final

Call = tuple[str, dict[str, Any]]

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "name": "convert",
        "inputSchema": {
            "type": "object",
            "properties": {
                "amount": {"type": "number"},
                "source": {"type": "string"},
                "target": {"enum": ["EUR", "USD"]},
            },
            "required": ["amount", "source"],
        },
    },
    {"name": "clock", "inputSchema": {"type": "object", "properties": {}}},
    {
        "name": "save-note",
        "inputSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "text": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "pinned": {"type": "boolean"},
                "meta": {"type": "object"},
            },
            "required": ["title", "text"],
        },
    },
    {
        "name": "run_query",
        "inputSchema": {
            "type": "object",
            "properties": {"input": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["input"],
        },
    },
]

EURO: Final[Call] = ("convert", {"amount": 3, "source": "GBP"})
CLOCK: Final[Call] = ("clock", {})


def note(text: str, **more: Any) -> Call:
    return ("save-note", {"title": "t", "text": text, **more})


def tag(body: str, name: str = "tool_call") -> str:
    return f"<{name}>\n{body}\n</{name}>"


JSON: Final = '{"name": "convert", "arguments": {"amount": 3, "source": "GBP"}}'
NOW: Final = '{"name": "clock", "arguments": {}}'

HERMES: Final[list[tuple[str, list[Call] | None]]] = [
    # commas, brackets and braces
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP",},}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3 "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert" "arguments": {"amount": 3, "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert",, "arguments": {"amount": 3, "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP"}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP"'), [EURO]),
    (
        tag('{"name": "save-note", "arguments": {"title": "t", "text": "x", "tags": ["a", "b"'),
        [note("x", tags=["a", "b"])],
    ),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP"}}}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP"}}]'), [EURO]),
    (tag('"name": "convert", "arguments": {"amount": 3, "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3}, "source": "GBP"}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3}}, "source": "GBP"}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": }}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source"}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3], "source": "GBP"}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3, ...}}'), None),
    # quotes
    (tag("{'name': 'convert', 'arguments': {'amount': 3, 'source': 'GBP'}}"), [EURO]),
    (tag("{'name': 'save-note', 'arguments': {'title': 't', 'text': 'it\\'s \"so\"'}}"), [note('it\'s "so"')]),
    (tag("{'name': 'save-note', 'arguments': {'title': 't', 'text': 'that's all'}}"), [note("that's all")]),
    (tag("{“name”: “convert”, “arguments”: {“amount”: 3, “source”: “GBP”}}"), [EURO]),
    (tag("{`name`: `convert`, `arguments`: {`amount`: 3, `source`: `GBP`}}"), [EURO]),
    (tag('{name: "convert", arguments: {amount: 3, source: "GBP"}}'), [EURO]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "a "b" c"}}'), [note('a "b" c')]),
    (
        tag('{"name": "save-note", "arguments": {"text": "say "a", then "b".", "title": "t"}}'),
        [note('say "a", then "b".')],
    ),
    (
        tag('{"name": "save-note", "arguments": {"title": "t", "text": "<p class="x">y</p>"}}'),
        [note('<p class="x">y</p>')],
    ),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "a 3" pipe"}}'), None),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "a" + "b"}}'), None),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "never closed}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": GBP}}'), None),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": """two\nlines"""}}'), [note("two\nlines")]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "two\nlines\there"}}'), [note("two\nlines\there")]),
    (tag("{&quot;name&quot;: &quot;clock&quot;, &quot;arguments&quot;: {}}"), [CLOCK]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "&quot;a&quot;",}}'), [note("&quot;a&quot;")]),
    # escapes
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "don\\\'t"}}'), [note("don't")]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "a\\_b \\*c\\*"}}'), [note("a_b *c*")]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "\\d+ \\w"}}'), [note("\\d+ \\w")]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "D:\\games\\new"}}'), None),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "\\x41\\U0001F5FC"}}'), [note("A🗼")]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "\\u12"}}'), None),
    # words, numbers, comments
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "x", "pinned": True}}'), [note("x", pinned=True)]),
    (tag('{"name": "save-note", "arguments": {"title": "t", "text": "x", "meta": None}}'), [note("x", meta=None)]),
    (tag('{"name": "convert", "arguments": {"amount": +3, "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 03, "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 0x3, "source": "GBP"}}'), [EURO]),
    (
        tag('{"name": "convert", "arguments": {"amount": .5, "source": "GBP"}}'),
        [("convert", {"amount": 0.5, "source": "GBP"})],
    ),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": 0123}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 1,000, "source": "GBP"}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 2 + 1, "source": "GBP"}}'), None),
    (tag('{"name": "convert", "arguments": {"amount": Infinity, "source": "GBP"}}'), None),
    (tag('{"name": "convert", // the tool\n"arguments": {"amount": 3, /* three */ "source": "GBP"}}'), [EURO]),
    (tag(f"{JSON} # converts"), [EURO]),
    (tag(f"# converts\n{JSON}"), [EURO]),
    (tag('{"name"="convert", "arguments"=>{"amount": 3; "source": "GBP"}}'), [EURO]),
    (tag('{"name": "convert", "arguments": {"amount": 3, "amount": 4, "source": "GBP"}}'), None),
    # keys
    *(
        (tag(f'{{"{key}": "convert", "arguments": {{"amount": 3, "source": "GBP"}}}}'), [EURO])
        for key in ("tool", "tool_name", "toolName", "function", "function_name", "action", "recipient_name")
    ),
    *(
        (tag(f'{{"name": "convert", "{key}": {{"amount": 3, "source": "GBP"}}}}'), [EURO])
        for key in ("args", "input", "params", "kwargs", "tool_input", "action_input", "parameter", "options")
    ),
    (tag('{"name": "convert", "amount": 3, "source": "GBP"}'), [EURO]),
    (tag('{"tool": "convert", "amount": 3, "source": "GBP", "thought": "pounds"}'), [EURO]),
    (tag('{"name": "convert", "amount": 3, "source": "GBP", "colour": "red"}'), None),
    (tag('{"name": "convert", "arguments": {"amount": 3, "source": "GBP"}, "parameters": {"amount": 4}}'), None),
    (tag('{"name": "convert", "args": {"amount": 3}, "input": {"source": "GBP"}}'), None),
    (tag('{"name": "convert", "tool": "clock", "arguments": {"amount": 3, "source": "GBP"}}'), None),
    (tag('{"name": "run_query", "input": "select 1", "limit": 5}'), [("run_query", {"input": "select 1", "limit": 5})]),
    (tag('{"name": "run_query", "input": {"input": "select 1"}}'), [("run_query", {"input": "select 1"})]),
    (tag('{"name": "convert", "arguments": "{\\"amount\\": 3, \\"source\\": \\"GBP\\"}"}'), [EURO]),
    (tag('{"name": "convert", "args": "{\'amount\': 3, \'source\': \'GBP\'}"}'), [EURO]),
    (tag('{"name": "convert", "arguments": [{"amount": 3, "source": "GBP"}]}'), [EURO]),
    (tag('{"name": "convert", "arguments": [3, "GBP"]}'), None),
    (tag('{"name": "convert", "arguments": "3 GBP"}'), None),
    (tag('{"name": "clock", "arguments": ""}'), [CLOCK]),
    (tag('{"name": "clock", "args": null}'), [CLOCK]),
    (tag('{"name": "clock", "arguments": []}'), [CLOCK]),
    (tag('{"type": "function", "function": {"name": "clock", "arguments": "{}"}}'), [CLOCK]),
    (tag('{"function": {"name": "convert", "parameters": {"amount": 3, "source": "GBP"}}}'), [EURO]),
    (tag(f'{{"tool_calls": [{JSON}, {NOW}]}}'), [EURO, CLOCK]),
    (tag(f'{{"function_call": {JSON}}}'), [EURO]),
    (tag(f'{{"tool": {JSON}}}'), [EURO]),
    (tag('{"convert": {"amount": 3, "source": "GBP"}}'), [EURO]),
    # names
    *(
        (tag(f'{{"name": "{name}", "arguments": {{}}}}'), [CLOCK])
        for name in ("functions.clock", "Clock", "clock()", " clock:0")
    ),
    (tag('{"name": "save_note", "arguments": {"title": "t", "text": "x"}}'), [note("x")]),
    # several calls
    (tag(f"{JSON}\n{NOW}"), [EURO, CLOCK]),
    (tag(f"{JSON}, {NOW}"), [EURO, CLOCK]),
    (tag(f"[{JSON}, {NOW}]"), [EURO, CLOCK]),
    (tag(f"[{JSON} {NOW}]"), [EURO, CLOCK]),
    (tag(f"[{JSON}, {NOW}"), [EURO, CLOCK]),
    (f"<tool_call>{JSON}<tool_call>{NOW}</tool_call>", [EURO, CLOCK]),
    (f"<tool_calls>\n{tag(JSON)}\n{tag(NOW)}\n</tool_calls>", [EURO, CLOCK]),
    (f"<tool_call>{JSON}</tool_call></tool_call>{tag(NOW)}", [EURO, CLOCK]),
    # around the object
    (tag(f"```json\n{JSON}\n```"), [EURO]),
    (tag(f"```\n{JSON}"), [EURO]),
    (tag(f"Now I convert: {JSON}"), [EURO]),
    (tag('convert\n{"amount": 3, "source": "GBP"}'), [EURO]),
    (tag('convert: {"amount": 3, "source": "GBP"}'), [EURO]),
    (tag('convert({"amount": 3, "source": "GBP"})'), [EURO]),
    (tag("convert(amount=3, source='GBP')"), [EURO]),
    (tag("clock"), [CLOCK]),
    (tag("convert"), None),
    (tag("convert amount=3 source=GBP"), None),
    (tag('name: convert\narguments: {"amount": 3, "source": "GBP"}'), [EURO]),
    (
        tag('{"name": "save-note", "arguments": {"title": "t", "text": "x", "tags": ("a", "b")}}'),
        [note("x", tags=["a", "b"])],
    ),
    (tag("\u200b" + JSON), [EURO]),
    (tag('\ufeff{"name": "clock"}'), [CLOCK]),
    # another family inside
    (
        tag(
            "<function=convert>\n<parameter=amount>\n3\n</parameter>\n<parameter=source>\nGBP\n</paramete"
            "r>\n</function>"
        ),
        [EURO],
    ),
    (
        tag(
            "convert\n<arg_key>amount</arg_key>\n<arg_value>3</arg_value>\n<arg_key>source</arg_key>\n<ar"
            "g_value>GBP</arg_value>"
        ),
        [EURO],
    ),
    (tag('<name>convert</name>\n<arguments>{"amount": 3, "source": "GBP"}</arguments>'), [EURO]),
    (tag("<convert><amount>3</amount><source>GBP</source></convert>"), [EURO]),
    (tag('call:convert{amount:3,source:<|"|>GBP<|"|>}'), [EURO]),
    # other tags
    *(
        (f"{begin}{JSON}{end}", [EURO])
        for begin, end in (
            ("<TOOL_CALL>", "</TOOL_CALL>"),
            ("<tool_call >", "</tool_call >"),
            ("< tool_call>", "< /tool_call>"),
            ("<tool-call>", "</tool-call>"),
            ("<toolcall>", "</toolcall>"),
            ("<|tool_call|>", "<|/tool_call|>"),
            ("<|tool_call|>", "<|tool_call_end|>"),
            ("<tool_use>", "</tool_use>"),
            ("<function_call>", "</function_call>"),
            ("<tools>", "</tools>"),
            ("<tool_call>", "</tool>"),
            ("<tool_call>", "</function_call>"),
            ("<tool_call>", "<tool_call>"),
            ("<tool_call>", ""),
            ("<minimax:tool_call>", "</minimax:tool_call>"),
            ("[TOOL_CALLS]", ""),
            ("[TOOL_CALLS] [", "]"),
            ("<|python_tag|>", ""),
        )
    ),
    ('<tool_call name="convert">{"amount": 3, "source": "GBP"}</tool_call>', [EURO]),
    ('<invoke name="clock"></invoke>', [CLOCK]),
    # without a tag, and in a fence
    (JSON, [EURO]),
    (f"I convert.\n{JSON}", [EURO]),
    (f"I convert. {JSON}", [EURO]),
    (f"```json\n{JSON}\n```", [EURO]),
    (f"```\n{tag(JSON)}\n```", [EURO]),
    (f"```tool_call\n{JSON}\n{NOW}\n```", [EURO, CLOCK]),
    (f"```xml\nSo:\n{tag(JSON)}\n```", None),
    # thinking
    (f"<think>Pounds, so\n{tag(JSON)}", [EURO]),
    (f"<think>Shall I {tag(JSON)}?</think>No.", []),
    (f"<think>\n{tag(JSON)}\n</think>\n{tag(NOW)}", [CLOCK]),
    # no call
    ("Write `<tool_call>` before a call.", []),
    ("Use <tool_call> when the clock is wrong.", []),
    ('{"name": "clock", "content": "12:00"}', []),
    ('{"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object"}}}', []),
    ('<tools>\n{"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}\n</tools>', []),
    ('Answer with {"name": "clock", "arguments": {}} if you need it.', []),
    ('The value is {"name": "Bob"}', []),
    ('So: {"name": "clock", "arguments": {}} // as in the manual {}', []),
    ("<tools>\n- {} clock {}\n</tools>", []),
    # cut off
    ('<tool_call>{"name": "convert", "arguments": {"amount": 3', None),
    ('<tool_call>{"name": "convert", "arguments": {"amount": 3, "source": "GB', None),
    ('<tool_call>{"name": "convert", "arg', None),
]
