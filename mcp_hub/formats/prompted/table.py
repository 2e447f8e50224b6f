"""The formats: tags, parsers, and texts of calls and results.

Tags in texts of servers are escaped: a text cannot end its place in a prompt, or look like a call.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from mcp_hub.formats.prompted.characters import Characters, MalformedCall, Steps, all_of, expect
from mcp_hub.formats.prompted.json_calls import (
    Members,
    bare_object,
    deepseek_call,
    kimi_call,
    mistral_calls,
    tagged_object,
    typed,
)
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_NAME, ParsedCall, ParsedOutput
from mcp_hub.formats.prompted.pythonic_calls import pythonic_calls
from mcp_hub.schema import allowed_types, properties

_ELEMENTS: Final = "tools|tool_calls?|function_calls?|tool_response|function_result|think|arg_key|arg_value"
_WORDS: Final = "TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|INST|SYSTEM_PROMPT|ARGS|CALL_ID|THINK"
_TAGS: Final = re.compile(
    rf"</?(?:{_ELEMENTS})>"
    r"|<(?=(?:function|parameter)=)|</(?:function|parameter|s)>|<s>|<(?:start|end)_of_turn>"
    r"|<(?=[|｜][^|｜<>\s]{1,64}[|｜]>)"
    rf"|\[/?(?:{_WORDS})\]"
    r"|(?m:^)#(?=# Return of )"
)
"""Tags of the formats, and those with which chat templates mark turns."""
_REFERENCES: Final = {"<": "&lt;", "[": "&#91;", "#": "&#35;"}


def escaped_json(text: str) -> str:
    return _TAGS.sub(lambda tag: f"\\u{ord(tag[0][0]):04x}{tag[0][1:]}", text)


def escaped_text(text: str) -> str:
    return _TAGS.sub(lambda tag: _REFERENCES[tag[0][0]] + tag[0][1:], text)


_NAME: Final = re.compile(r"[\w.:/@-]+")
_KEY: Final = re.compile(r"[^<>\n]+")
_VALUE: Final = re.compile(r"[^<]+")


@dataclass(frozen=True)
class _ParameterTags:
    """The tags of a call; an empty one does not occur.

    `begin` precedes the name, `named` follows it. `has_lines`: values stand on lines of their own.
    """

    begin: str
    named: str
    key: str
    key_end: str
    value: str
    value_end: str
    end: str
    has_lines: bool


QWEN_TAGS: Final = _ParameterTags(
    begin="<function=",
    named=">",
    key="<parameter=",
    key_end=">",
    value="",
    value_end="</parameter>",
    end="</function>",
    has_lines=True,
)
GLM_TAGS: Final = _ParameterTags(
    begin="",
    named="",
    key="<arg_key>",
    key_end="</arg_key>",
    value="<arg_value>",
    value_end="</arg_value>",
    end="</tool_call>",
    has_lines=False,
)


def qwen_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<tool_call>`."""
    if (yield from source.skip_to()) != "<":
        raise MalformedCall
    yield from expect(source, QWEN_TAGS.begin)
    yield from _call(source, output, QWEN_TAGS)


def qwen_function(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<function=`, often written without the outer tag."""
    yield from _call(source, output, QWEN_TAGS)


def glm_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<tool_call>`."""
    yield from source.skip()
    yield from _call(source, output, GLM_TAGS)


def _call(source: Characters, output: ParsedOutput, tags: _ParameterTags) -> Steps[None]:
    name = yield from all_of(source, _NAME, MAX_NAME)
    yield from source.need()
    if not name:
        raise MalformedCall
    yield from expect(source, tags.named)
    yield from _begins(source, tags)
    source.release()
    call = output.call(name)
    call.begin()
    members = Members(call)
    while (yield from _tag(source, (tags.key, tags.end))) == tags.key:
        key = (yield from all_of(source, _KEY, MAX_NAME)).strip()
        yield from expect(source, tags.key_end)
        if tags.value:
            yield from _tag(source, (tags.value,))
        members.begin(key)
        yield from _value(source, call, members, key, tags)
    members.end()


def _begins(source: Characters, tags: _ParameterTags) -> Steps[None]:
    if (yield from source.skip_to()) != "<":
        raise MalformedCall


def _tag(source: Characters, tags: tuple[str, ...]) -> Steps[str]:
    yield from source.skip_to("<")
    tag, is_whole = yield from source.match(tags)
    if not is_whole:
        yield from source.need()
        raise MalformedCall(f"expected {' or '.join(tags)}")
    return tag


def _value(source: Characters, call: ParsedCall, members: Members, key: str, tags: _ParameterTags) -> Steps[None]:
    allowed = allowed_types(properties(call.schema).get(key), call.schema)
    if allowed == {"string"}:
        members.quote()
        yield from _text_until(source, tags.value_end, _trimmed(members.text, tags.has_lines))
        members.quote()
        return
    pieces: list[str] = []
    room = MAX_ARGUMENTS

    def keep(piece: str) -> None:
        nonlocal room
        room -= len(piece)
        if room >= 0:
            pieces.append(piece)
        else:
            call.too_large()

    yield from _text_until(source, tags.value_end, _trimmed(keep, tags.has_lines))
    if not call.is_over:
        members.value(typed("".join(pieces), allowed))


def _text_until(source: Characters, tag: str, pass_on: Callable[[str], None]) -> Steps[None]:
    while True:
        pass_on(source.run(_VALUE))
        if (yield from source.need()) == tag[0]:
            begun, is_whole = yield from source.match((tag,))
            if is_whole:
                return
            pass_on(begun)


def _trimmed(pass_on: Callable[[str], None], has_lines: bool) -> Callable[[str], None]:
    if not has_lines:
        return pass_on
    is_first, line_break = True, ""

    def trimmed(piece: str) -> None:
        nonlocal is_first, line_break
        if piece:
            if is_first:
                piece, is_first = piece.removeprefix("\n"), False
            text = line_break + piece
            line_break = "\n" if text.endswith("\n") else ""
            pass_on(text.removesuffix("\n"))

    return trimmed


Grammar: TypeAlias = Callable[[Characters, ParsedOutput], Steps[None]]
Arguments: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class PromptFormat:
    """One way in which models write calls as text.

    `begins`: tags of calls. `bare`: a character at a line start that may begin a call, and its parser. `ends`, with
    `between`, are consumed after a call; `ignored` tags anywhere.
    """

    name: str
    models: str
    rule: str
    call: Callable[[str, Arguments], str]
    result: Callable[[str, str, bool, int], str]
    begins: Mapping[str, Grammar] = field(default_factory=dict)
    bare: tuple[str, Grammar] | None = None
    ends: tuple[str, ...] = ()
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


def _pythonic(name: str, arguments: Arguments) -> str:
    return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"


def _kimi(name: str, arguments: Arguments) -> str:
    call = f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def _deepseek(name: str, arguments: Arguments) -> str:
    call = f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"
    return f"<｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"


_ALL: Final = (
    PromptFormat(
        name="function_call",
        models="any model",
        rule="Write a call as a JSON object with `name` and `arguments` inside a function_call element. "
        "Several calls are several elements.",
        call=_tagged_call("function_call"),
        result=_tagged_result("function_result"),
        begins={"<function_call>": tagged_object},
        ends=("</function_call>",),
    ),
    PromptFormat(
        name="hermes",
        models="Hermes, Qwen 2.5, Qwen 3",
        rule="Write a call as a JSON object with `name` and `arguments` inside a tool_call element. "
        "Several calls are several elements.",
        call=_tagged_call("tool_call"),
        result=_tagged_result("tool_response"),
        begins={"<tool_call>": tagged_object},
        ends=("</tool_call>",),
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
        between=" \t\r\n;",
    ),
    PromptFormat(
        name="pythonic",
        models="Llama 3.2 and 4, Olmo 3, Gemma 3",
        rule=(
            "Write calls as a Python list of calls with named arguments and literal values, at the start of a line and "
            "without a code block. Several calls are several elements of the list."
        ),
        call=_pythonic,
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
        ignored=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
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
        ignored=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ),
)

FORMATS: Final[Mapping[str, PromptFormat]] = MappingProxyType({format_.name: format_ for format_ in _ALL})
"""All formats by name."""
