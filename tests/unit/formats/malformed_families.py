"""Calls as small models misspell them in every family, as `malformed_texts` has those of Hermes."""

from typing import Final

from tests.unit.formats.malformed_texts import CLOCK, EURO, HERMES, JSON, NOW, Call, note, tag

CALLS: Final[list[tuple[str, str, list[Call] | None]]] = [
    *(("hermes", text, calls) for text, calls in HERMES),
    # elements
    (
        "qwen3-coder",
        "<tool_call><function=convert><parameter=amount>3<parameter=source>GBP</parameter></function></tool_call>",
        [EURO],
    ),
    (
        "qwen3-coder",
        "<tool_call>\n<function=convert>\n<parameter=source>\nGBP\n<parameter=amount>\n3\n</function>\n</tool_call>",
        [EURO],
    ),
    ("qwen3-coder", "<function=convert><parameter=amount>3</parameter><parameter=source>GBP</parameter>", None),
    (
        "qwen3-coder",
        "<tool_call><function=convert><parameter=amount>3</parameter><parameter=source>GBP</parameter></tool_call>",
        [EURO],
    ),
    ("qwen3-coder", '<tool_call><function=convert>{"amount": 3, "source": "GBP"}</function></tool_call>', [EURO]),
    (
        "qwen3-coder",
        (
            '<function name="convert"><parameter name="amount">3</parameter><parameter name="source">GBP<'
            "/parameter></function>"
        ),
        [EURO],
    ),
    (
        "qwen3-coder",
        (
            '<tool_call><function="convert"><parameter="amount">3</parameter><parameter="source">GBP</par'
            "ameter></function></tool_call>"
        ),
        [EURO],
    ),
    ("qwen3-coder", tag(JSON), [EURO]),
    ("qwen3-coder", "<tool_call>clock</tool_call>", [CLOCK]),
    ("qwen3-coder", "<tool_call><function=clock/></tool_call>", [CLOCK]),
    (
        "qwen3-coder",
        (
            "<tool_call><function=save-note><parameter=title>t</parameter><parameter=text>x</parameter><p"
            "arameter=tags>['a', \"b\"]</parameter></function></tool_call>"
        ),
        [note("x", tags=["a", "b"])],
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=save-note><parameter=title>t</parameter><parameter=text>x</parameter><p"
            "arameter=meta>{'a': True}</parameter></function></tool_call>"
        ),
        [note("x", meta={"a": True})],
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=save-note><parameter=title>t</parameter><parameter=text>x</parameter><p"
            "arameter=pinned>False</parameter></function></tool_call>"
        ),
        [note("x", pinned=False)],
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=save-note><parameter=title>t</parameter><parameter=text>a </parameter> "
            "b</parameter></function></tool_call>"
        ),
        None,
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=save-note><parameter=title>t</parameter><parameter=text>see <parameter="
            "x> and <tool_call>\n</parameter></function></tool_call>"
        ),
        [note("see <parameter=x> and <tool_call>")],
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=convert><parameter=amount>3</parameter><parameter=amount>4</parameter><"
            "/function></tool_call>"
        ),
        None,
    ),
    (
        "qwen3-coder",
        (
            "<tool_call><function=convert><parameter=amount>3</parameter><parameter=source>GBP\n</functio"
            "n>\n</tool_call>\nDone."
        ),
        [EURO],
    ),
    ("qwen3-coder", "<tool_call><function=convert><parameter=amount>3</parameter><parameter=source>GB", None),
    (
        "glm",
        (
            "<tool_call>convert<arg_key>amount</arg_key><arg_value>3<arg_key>source</arg_key><arg_value>G"
            "BP</arg_value></tool_call>"
        ),
        [EURO],
    ),
    (
        "glm",
        (
            "<tool_call>convert<arg_key>amount</arg_key><arg_value>3</arg_value><arg_key>source</arg_key>"
            "<arg_value>GBP</tool_call>"
        ),
        [EURO],
    ),
    ("glm", "<tool_call>convert<arg_key>amount</arg_key>\n3\n<arg_key>source</arg_key>\nGBP\n</tool_call>", None),
    ("glm", '<tool_call>convert{"amount": 3, "source": "GBP"}</tool_call>', [EURO]),
    ("glm", tag(f"[{JSON}]"), [EURO]),
    ("glm", "<tool_call>clock()</tool_call>", [CLOCK]),
    # a name and an object
    ("mistral", '[TOOL_CALLS] [{"name": "convert", "arguments": {"amount": 3, "source": "GBP",}}]', [EURO]),
    ("mistral", f"[TOOL_CALLS] [{JSON}, {NOW}", [EURO, CLOCK]),
    ("mistral", f"[TOOL_CALLS]{JSON}{NOW}", [EURO, CLOCK]),
    ("mistral", "[TOOL_CALLS]convert{'amount': 3, 'source': 'GBP'}", [EURO]),
    ("mistral", f"[TOOL_CALLS]\n```json\n[{JSON}]\n```", [EURO]),
    ("mistral", "[TOOL_CALLS]convert(amount=3, source='GBP')", [EURO]),
    ("mistral", f"[TOOL_CALLS] [{JSON}][/TOOL_CALLS] ok", [EURO]),
    ("mistral", f"[{JSON}]", [EURO]),
    ("mistral", '[TOOL_CALLS]convert[ARGS]{"amount": 3, "source": ', None),
    (
        "kimi",
        (
            "<|tool_call_begin|>functions.convert:0<|tool_call_argument_begin|>{'amount': 3, 'source': 'G"
            "BP'}<|tool_call_end|>"
        ),
        [EURO],
    ),
    ("kimi", '<|tool_call_begin|>convert{"amount": 3, "source": "GBP"}<|tool_call_end|>', [EURO]),
    ("kimi", f"<|tool_call_begin|>{JSON}<|tool_call_end|>", [EURO]),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_end|><|tool_calls_section_end|>",
        [CLOCK],
    ),
    (
        "deepseek",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>convert\n"
        "```json\n{'amount': 3, 'source': 'GBP'}\n```<｜tool▁call▁end｜>",
        [EURO],
    ),
    (
        "deepseek",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>convert\n{"amount": 3, "source": "GBP"}\n<｜tool▁call▁end｜>',
        [EURO],
    ),
    (
        "deepseek",
        (
            '<|tool_calls_begin|><|tool_call_begin|>convert<|tool_sep|>{"amount": 3, "source": "GBP"}<|to'
            "ol_call_end|><|tool_calls_end|>"
        ),
        [EURO],
    ),
    ("deepseek", tag(JSON), [EURO]),
    (
        "deepseek",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="clock">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        [CLOCK],
    ),
    # without tags
    ("llama", "{'name': 'convert', 'parameters': {'amount': 3, 'source': 'GBP'}}", [EURO]),
    ("llama", '{"name": "convert", "parameters": {"amount": 3, "source": "GBP"}', [EURO]),
    ("llama", '{"name": "convert", "params": {"amount": 3, "source": "GBP"}}', [EURO]),
    ("llama", '{"name": "clock", "parameters": {}}, {"name": "clock", "parameters": {}}', [CLOCK, CLOCK]),
    ("llama", '{"name": "clock", "parameters": {}}\n{"name": "clock", "parameters": {}}', [CLOCK, CLOCK]),
    ("llama", f"[{JSON}, {NOW}]", [EURO, CLOCK]),
    ("llama", '<function=convert>{"amount": 3, "source": "GBP"}</function>', [EURO]),
    ("llama", '<function="convert">{"amount": 3, "source": "GBP"}</function>', [EURO]),
    ("llama", '<|python_tag|>convert(amount=3, source="GBP")', [EURO]),
    ("llama", f"Sure: {JSON}", [EURO]),
    ("llama", f"<think>Pounds.\n{JSON}", [EURO]),
    ("llama", f"<think>Shall I\n{JSON}\n</think>No.", []),
    ("llama", '<function>convert{"amount": 3, "source": "GBP"}</function>', [EURO]),
    ("pythonic", "Sure: [convert(amount=3, source='GBP')]", [EURO]),
    ("pythonic", "[convert({'amount': 3, 'source': 'GBP'})]", [EURO]),
    (
        "glm",
        (
            "<tool_call>convert<arg_key>amount\n<arg_value>3</arg_value><arg_key>source\n<arg_value>GBP</"
            "arg_value></tool_call>"
        ),
        [EURO],
    ),
    ("deepseek", "<｜tool▁call▁begin｜>clock<｜tool▁sep｜><｜tool▁call▁end｜>", [CLOCK]),
    ("llama", '{"name": "convert", "parameters": {"amount": 3, "sour', None),
    ("llama", '{"name": "Bob", "parameters": 3}', []),
    ("pythonic", "convert(amount=3, source='GBP')", [EURO]),
    ("pythonic", "convert(3, 'GBP')\nclock()", [EURO, CLOCK]),
    ("pythonic", "convert(amount=3, source='GBP'), clock()", [EURO, CLOCK]),
    ("pythonic", "[convert(amount=3, source='GBP'); clock()]", [EURO, CLOCK]),
    ("pythonic", "[convert(amount=3, source='GBP')\nclock()]", [EURO, CLOCK]),
    ("pythonic", "[convert(amount=3, source='GBP')", [EURO]),
    ("pythonic", "```python\nconvert(amount=3, source='GBP')\n```", [EURO]),
    ("pythonic", "```tool_code\nprint(default_api.convert(amount=3, source='GBP'))\n```", [EURO]),
    ("pythonic", "```tool_code\nresult = convert(amount=3, source='GBP')\n```", [EURO]),
    ("pythonic", "convert(**{'amount': 3, 'source': 'GBP'})", [EURO]),
    ("pythonic", "[clock(), convert(amount=x, source='GBP')]", None),
    ("pythonic", f"[{JSON}]", [EURO]),
    ("pythonic", f"<tool_call>{JSON}</tool_call>", [EURO]),
    ("pythonic", "clock() tells the time.", []),
    ("pythonic", "[clock](https://example.org) is (a link)", []),
    # the newer families
    (
        "deepseek-v3.2",
        (
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="convert">\n{"amount": 3, "source": "GBP"}\n</｜DS'
            "ML｜invoke>\n</｜DSML｜function_calls>"
        ),
        [EURO],
    ),
    (
        "deepseek-v3.2",
        (
            '<|DSML|function_calls><|DSML|invoke name="convert"><|DSML|parameter name="amount" string="fa'
            'lse">3</|DSML|parameter><|DSML|parameter name="source" string="true">GBP</|DSML|parameter></'
            "|DSML|invoke></|DSML|function_calls>"
        ),
        [EURO],
    ),
    (
        "deepseek-v3.2",
        (
            '<｜DSML｜function_calls><｜DSML｜invoke name="convert"><｜DSML｜parameter name="amount">3</｜DSML｜p'
            'arameter><｜DSML｜parameter name="source">GBP</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function'
            "_calls>"
        ),
        [EURO],
    ),
    (
        "minimax",
        (
            '<tool_call><invoke name="convert"><parameter name="amount">3</parameter><parameter name="sou'
            'rce">GBP</parameter></invoke></tool_call>'
        ),
        [EURO],
    ),
    (
        "minimax",
        (
            '<minimax:tool_call><invoke name="convert"><parameter name="amount">3<parameter name="source"'
            ">GBP</parameter></invoke></minimax:tool_call>"
        ),
        [EURO],
    ),
    ("minimax", f"<minimax:tool_call>{JSON}</minimax:tool_call>", [EURO]),
    (
        "gpt-oss",
        "<|channel|>commentary to=functions.convert <|constrain|>json<|message|>{'amount': 3, 'source': 'GBP'}<|call|>",
        [EURO],
    ),
    (
        "gpt-oss",
        '<|start|>assistant<|channel|>commentary to=convert code<|message|>{"amount": 3, "source": "GBP"}',
        [EURO],
    ),
    ("gpt-oss", "<|channel|>commentary to=functions.clock<|message|><|call|>", [CLOCK]),
    ("gpt-oss", tag(JSON), [EURO]),
    ("gemma4", '<|tool_call>call:convert{"amount": 3, "source": "GBP"}<tool_call|>', [EURO]),
    ("gemma4", '<tool_call>call:convert{amount:3,source:<|"|>GBP<|"|>}</tool_call>', [EURO]),
    ("gemma4", "<|tool_call>convert(amount=3, source='GBP')<tool_call|>", [EURO]),
    ("gemma4", '<|tool_call>call:convert{amount:3,source:<|"|>GBP<tool_call|>', None),
    (
        "functiongemma",
        "<start_function_call>call:convert{amount:<escape>3<escape>,source:<escape>GBP<escape>}<end_function_call>",
        [("convert", {"amount": "3", "source": "GBP"})],
    ),
    ("functiongemma", "<start_function_call>call:clock{}", [CLOCK]),
    ("phi4", f"<|tool_call|>{JSON}<|/tool_call|>", [EURO]),
    ("phi4", f"functools[{JSON}, {NOW}]", [EURO, CLOCK]),
    ("phi4", f"<|tool_call|>[{JSON}", [EURO]),
    ("granite", f"<tool_call>[{JSON}]", [EURO]),
    ("granite", f"<|tool_call|>{JSON}", [EURO]),
    (
        "kimi-k3",
        (
            '<|open|>tools<|sep|><|open|>call tool="convert" index="1"<|sep|><|open|>json type="object"<|'
            'sep|>{"amount": 3, "source": "GBP"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
        ),
        [EURO],
    ),
    (
        "kimi-k3",
        (
            '<|open|>call tool="convert"<|sep|><|open|>argument key="amount" type="number"<|sep|>3<|close'
            '|>argument<|sep|><|open|>argument key="source"<|sep|>GBP<|close|>argument<|sep|><|close|>cal'
            "l<|sep|>"
        ),
        [EURO],
    ),
]
