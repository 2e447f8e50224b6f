"""The formats: tags, parsers, and texts of calls and results.

Tags in texts of servers are escaped: a text cannot end its place in a prompt, or look like a call. Formats are those of
the models' chat templates, and of vLLM's parsers (`vllm/tool_parsers`, read in November 2026): `deepseek-v3.2`
deepseekv32 and the model's `encoding_dsv32.py`, `minimax` minimax_m2, `gpt-oss` openai and
https://cookbook.openai.com/articles/openai-harmony, `gemma4` gemma4, `functiongemma` functiongemma and
https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices, `phi4` phi4mini, `granite` granite
(Granite 4 writes as Hermes), `kimi-k3` kimi_k3 and the model's `encoding_k3.py`.
"""

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from mcp_hub.formats.prompted.characters import Characters, Steps, escaped_json, escaped_text
from mcp_hub.formats.prompted.json_calls import (
    bare_object,
    deepseek_call,
    kimi_call,
    listed_objects,
    mistral_calls,
    object_or_list,
    other_family,
    tagged_object,
)
from mcp_hub.formats.prompted.output import ParsedOutput
from mcp_hub.formats.prompted.pythonic_calls import pythonic_calls
from mcp_hub.formats.prompted.tagged_calls import (
    dsml_call,
    glm_call,
    harmony_message,
    invoke_call,
    qwen_call,
    qwen_function,
    xtml_call,
)

Grammar: TypeAlias = Callable[[Characters, ParsedOutput], Steps[None]]
Arguments: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class PromptFormat:
    """One way in which models write calls as text.

    `begins`: tags of calls, `around`: of what holds some. `bare`: a character at a line start that may begin a call,
    and its parser. `ends`, with `between`, are consumed after a call; `ignored` tags anywhere.
    """

    name: str
    models: str
    rule: str
    call: Callable[[str, Arguments], str]
    result: Callable[[str, str, bool, int], str]
    begins: Mapping[str, Grammar] = field(default_factory=dict)
    bare: tuple[str, Grammar] | None = None
    ends: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    between: str = " \t\r\n"
    thinking: tuple[str, str] = ("<think>", "</think>")


def _json(value: object) -> str:
    return escaped_json(json.dumps(value, ensure_ascii=False))


def _object(key: str) -> Callable[[str, Arguments], str]:
    return lambda name, arguments: _json({"name": name, key: arguments})


def _tagged_call(tag: str) -> Callable[[str, Arguments], str]:
    return lambda name, arguments: f"<{tag}>\n{_object('arguments')(name, arguments)}\n</{tag}>"


def _tagged_result(tag: str) -> Callable[[str, str, bool, int], str]:
    return lambda name, text, is_error, _: f"<{tag}>\n{_named_result(name, text, is_error)}\n</{tag}>"


def _named_result(name: str, text: str, is_error: bool) -> str:
    return _json({"name": name, "error" if is_error else "content": text})


def _output_object(name: str, text: str, is_error: bool, _: int) -> str:
    return _json({"error" if is_error else "output": text})


def _plain(text: str, is_error: bool) -> str:
    return escaped_text(f"Error: {text}" if is_error else text)


def _qwen(name: str, arguments: Arguments) -> str:
    parameters = "".join(f"<parameter={key}>\n{_bare_value(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def _glm(name: str, arguments: Arguments) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{_bare_value(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def _bare_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kimi(name: str, arguments: Arguments) -> str:
    call = f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def _deepseek(name: str, arguments: Arguments) -> str:
    call = f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"
    return f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"


def _invoke(begin: str, end: str, typed: bool) -> Callable[[str, Arguments], str]:
    """`begin` and `end` stand around the elements; `typed`: each says whether it is a string."""
    bar = "｜DSML｜" if typed else ""
    kinds = {True: ' string="true"', False: ' string="false"' if typed else ""}

    def call(name: str, arguments: Arguments) -> str:
        values = [
            (key, kinds[typed and isinstance(value, str)], _bare_value(value)) for key, value in arguments.items()
        ]
        elements = "".join(
            f'<{bar}parameter name="{key}"{kind}>{value}</{bar}parameter>\n' for key, kind, value in values
        )
        return f'{begin}\n<{bar}invoke name="{name}">\n{elements}</{bar}invoke>\n{end}'

    return call


def _harmony(name: str, arguments: Arguments) -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}<|call|>"


def _gemma(begin: str, quote: str, end: str) -> Callable[[str, Arguments], str]:
    return lambda name, arguments: f"{begin}call:{name}{_gemma_value(arguments, quote)}{end}"


def _gemma_value(value: object, quote: str) -> str:
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case Mapping():
            return "{" + ",".join(f"{key}:{_gemma_value(member, quote)}" for key, member in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(_gemma_value(item, quote) for item in value) + "]"
    return _json(value)


def _xtml(name: str, arguments: Arguments) -> str:
    elements = "".join(
        f'<|open|>argument key="{html.escape(key)}" type="{_xtml_type(value)}"<|sep|>{_bare_value(value)}'
        "<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="{html.escape(name)}" index="1"<|sep|>{elements}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def _xtml_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
    return "object" if isinstance(value, Mapping) else "array"


_INVOKE_RULE: Final = (
    "Write calls exactly as in the example: an invoke element for each call, a parameter element for each argument. "
    "Strings are written as they are, all other values as JSON."
)
_GEMMA_RULE: Final = "Write calls exactly as in the example, strings between their marks, all other values as JSON."
_ALL: Final = (
    PromptFormat(
        name="function_call",
        models="any model",
        rule="Write a call as a JSON object with `name` and `arguments` inside a function_call element. "
        "Several calls are several elements.",
        call=_tagged_call("function_call"),
        result=_tagged_result("function_result"),
        begins={"<function_call>": tagged_object},
        bare=("{", bare_object),
        ends=("</function_call>",),
        between=" \t\r\n,;",
    ),
    PromptFormat(
        name="hermes",
        models="Hermes, Qwen 2.5, Qwen 3, Granite 4",
        rule="Write a call as a JSON object with `name` and `arguments` inside a tool_call element. "
        "Several calls are several elements.",
        call=_tagged_call("tool_call"),
        result=_tagged_result("tool_response"),
        begins={"<tool_call>": tagged_object},
        bare=("{", bare_object),
        ends=("</tool_call>",),
        between=" \t\r\n,;",
    ),
    PromptFormat(
        name="qwen3-coder",
        models="Qwen3-Coder, Qwen 3.5",
        rule=(
            "Write a call as a tool_call element with a function element inside, and each argument as a parameter "
            "element. Strings are written as they are, all other values as JSON. Several calls are several tool_call "
            "elements."
        ),
        call=_qwen,
        result=lambda name, text, is_error, _: f"<tool_response>\n{_plain(text, is_error)}\n</tool_response>",
        begins={"<tool_call>": qwen_call, "<function=": qwen_function},
        ends=("</tool_call>",),
    ),
    PromptFormat(
        name="llama",
        models="Llama 3.1 to 4",
        rule=(
            "Write a call as a JSON object with `name` and `parameters`, at the start of a line and without a code "
            "block. Separate several calls by a semicolon."
        ),
        call=_object("parameters"),
        result=_output_object,
        bare=("{", bare_object),
        ignored=("<|python_tag|>", "<|eom_id|>", "<|eot_id|>"),
        between=" \t\r\n,;",
    ),
    PromptFormat(
        name="pythonic",
        models="Llama 3.2 and 4, Olmo 3, Gemma 3",
        rule=(
            "Write calls as a Python list of calls with named arguments and literal values, at the start of a line and "
            "without a code block. Several calls are several elements of the list."
        ),
        call=lambda name, arguments: f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]",
        result=_output_object,
        bare=("[", pythonic_calls),
        ignored=("<|python_start|>", "<|python_end|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    PromptFormat(
        name="mistral",
        models="Mistral, Ministral, Devstral",
        rule="Write calls as a JSON array of objects with `name` and `arguments` after the word TOOL_CALLS in "
        "brackets.",
        call=lambda name, arguments: f"[TOOL_CALLS] [{_object('arguments')(name, arguments)}]",
        result=lambda name, text, is_error, _: f"[TOOL_RESULTS]{_named_result(name, text, is_error)}[/TOOL_RESULTS]",
        begins={"[TOOL_CALLS]": mistral_calls},
        bare=("{", bare_object),
        thinking=("[THINK]", "[/THINK]"),
    ),
    PromptFormat(
        name="glm",
        models="GLM 4.5 and later",
        rule=(
            "Write a call as a tool_call element that begins with the name of the tool, and each argument as an "
            "arg_key and an arg_value element. Strings are written as they are, all other values as JSON. "
            "Several calls are several tool_call elements."
        ),
        call=_glm,
        result=lambda name, text, is_error, _: f"<tool_response>\n{_plain(text, is_error)}\n</tool_response>",
        begins={"<tool_call>": glm_call},
        ends=("</tool_call>",),
    ),
    PromptFormat(
        name="deepseek",
        models="DeepSeek V3, V3.1, R1",
        rule="Write calls exactly as in the example, the arguments as a JSON object. "
        "Several calls stand one after the other inside the same outer tags.",
        call=_deepseek,
        result=lambda name, text, is_error, _: f"<｜tool▁output▁begin｜>{_plain(text, is_error)}<｜tool▁output▁end｜>",
        begins={"<｜tool▁call▁begin｜>": deepseek_call},
        ends=("```", "<｜tool▁call▁end｜>"),
        around=("<｜tool▁calls▁begin｜>",),
        ignored=("<｜tool▁calls▁end｜>",),
    ),
    PromptFormat(
        name="kimi",
        models="Kimi K2",
        rule=(
            "Write calls exactly as in the example, the arguments as a JSON object. The number behind the name "
            "counts the calls of the conversation. Several calls stand one after the other inside the same outer tags."
        ),
        call=_kimi,
        result=lambda name, text, is_error, index: f"## Return of functions.{name}:{index}\n{_plain(text, is_error)}",
        begins={"<|tool_call_begin|>": kimi_call},
        ends=("<|tool_call_end|>",),
        around=("<|tool_calls_section_begin|>",),
        ignored=("<|tool_calls_section_end|>",),
    ),
    PromptFormat(
        name="deepseek-v3.2",
        models="DeepSeek V3.2",
        rule=_INVOKE_RULE,
        call=_invoke("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", True),
        result=lambda name, text, is_error, _: (
            f"<function_results>\n<result>{_plain(text, is_error)}</result>\n</function_results>"
        ),
        begins={'<｜DSML｜invoke name="': dsml_call},
        around=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
        ignored=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    ),
    PromptFormat(
        name="minimax",
        models="MiniMax M2",
        rule=_INVOKE_RULE,
        call=_invoke("<minimax:tool_call>", "</minimax:tool_call>", False),
        result=lambda name, text, is_error, _: f"<response>{_plain(text, is_error)}</response>",
        begins={'<invoke name="': invoke_call},
        around=("<minimax:tool_call>",),
        ignored=("</minimax:tool_call>",),
    ),
    PromptFormat(
        name="gpt-oss",
        models="gpt-oss",
        rule="Write calls exactly as in the example, the arguments as a JSON object.",
        call=_harmony,
        result=lambda name, text, is_error, _: (
            f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{_plain(text, is_error)}<|end|>"
        ),
        begins={"<|channel|>": harmony_message, "<|start|>": harmony_message},
        ends=("<|call|>",),
        ignored=("<|end|>", "<|return|>"),
    ),
    PromptFormat(
        name="gemma4",
        models="Gemma 4",
        rule=_GEMMA_RULE,
        call=_gemma("<|tool_call>", '<|"|>', "<tool_call|>"),
        result=lambda name, text, is_error, _: (
            f'<|tool_response>response:{name}{{value:<|"|>{_plain(text, is_error)}<|"|>}}<tool_response|>'
        ),
        begins={"<|tool_call>": other_family},
        ends=("<tool_call|>",),
        thinking=("<|channel>thought", "<channel|>"),
    ),
    PromptFormat(
        name="functiongemma",
        models="FunctionGemma",
        rule=_GEMMA_RULE,
        call=_gemma("<start_function_call>", "<escape>", "<end_function_call>"),
        result=lambda name, text, is_error, _: (
            f"<start_function_response>response:{name}{{value:<escape>{_plain(text, is_error)}<escape>}}"
            "<end_function_response>"
        ),
        begins={"<start_function_call>": other_family},
        ends=("<end_function_call>",),
    ),
    PromptFormat(
        name="phi4",
        models="Phi 4 mini",
        rule="Write calls exactly as in the example: a JSON array of objects with `name` and `arguments`.",
        call=lambda name, arguments: f"<|tool_call|>[{_object('arguments')(name, arguments)}]<|/tool_call|>",
        result=_output_object,
        begins={"<|tool_call|>": object_or_list, "functools[": listed_objects},
        bare=("{", bare_object),
        ends=("<|/tool_call|>",),
    ),
    PromptFormat(
        name="granite",
        models="Granite 3",
        rule="Write calls exactly as in the example: a JSON array of objects with `name` and `arguments`.",
        call=lambda name, arguments: f"<|tool_call|>[{_object('arguments')(name, arguments)}]",
        result=_output_object,
        begins={"<|tool_call|>": object_or_list, "<tool_call>": object_or_list},
        bare=("{", bare_object),
        ends=("<|end_of_text|>",),
    ),
    PromptFormat(
        name="kimi-k3",
        models="Kimi K3",
        rule=(
            "Write calls exactly as in the example: a call for each tool, with an argument for each value. Strings are "
            "written as they are, all other values as JSON. The index counts the calls of a turn."
        ),
        call=_xtml,
        result=lambda name, text, is_error, index: (
            f'<|open|>message role="tool" tool="{name}" index="{index + 1}"<|sep|>{_plain(text, is_error)}'
            "<|close|>message<|sep|>"
        ),
        begins={'<|open|>call tool="': xtml_call},
        ends=("<|close|>call<|sep|>",),
        around=("<|open|>tools<|sep|>",),
        ignored=(
            *("<|close|>tools<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>"),
            *("<|close|>message<|sep|>", "<|end_of_msg|>"),
        ),
        thinking=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ),
)

FORMATS: Final[Mapping[str, PromptFormat]] = MappingProxyType({format_.name: format_ for format_ in _ALL})
"""All formats by name."""
