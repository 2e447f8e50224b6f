"""Calls with a tag for each parameter: Qwen3-Coder and GLM."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mcp_hub.formats.prompted.characters import Characters, MalformedCall, NotACall, Steps, all_of, expect
from mcp_hub.formats.prompted.members import Members, typed
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_NAME, ParsedCall, ParsedOutput
from mcp_hub.schema import allowed_types, properties

_NAME: Final = re.compile(r"[\w.:/@-]+")
_KEY: Final = re.compile(r"[^<>\n]+")
_VALUE: Final = re.compile(r"[^<]+")


@dataclass(frozen=True)
class ParameterTags:
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


QWEN_TAGS: Final = ParameterTags(
    begin="<function=",
    named=">",
    key="<parameter=",
    key_end=">",
    value="",
    value_end="</parameter>",
    end="</function>",
    has_lines=True,
)
GLM_TAGS: Final = ParameterTags(
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
        raise NotACall
    yield from expect(source, QWEN_TAGS.begin)
    yield from _call(source, output, QWEN_TAGS)


def qwen_function(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<function=`, often written without the outer tag."""
    yield from _call(source, output, QWEN_TAGS)


def glm_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<tool_call>`."""
    yield from source.skip()
    yield from _call(source, output, GLM_TAGS)


def _call(source: Characters, output: ParsedOutput, tags: ParameterTags) -> Steps[None]:
    name = yield from all_of(source, _NAME, MAX_NAME)
    yield from source.need()
    if not name:
        raise NotACall
    yield from expect(source, tags.named)
    yield from _begins(source, tags)
    source.release()
    call = output.call()
    call.set_name(name)
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


def _begins(source: Characters, tags: ParameterTags) -> Steps[None]:
    if (yield from source.skip_to()) != "<":
        raise NotACall


def _tag(source: Characters, tags: tuple[str, ...]) -> Steps[str]:
    yield from source.skip_to("<")
    tag, is_whole = yield from source.match(tags)
    if not is_whole:
        yield from source.need()
        raise MalformedCall(f"expected {' or '.join(tags)}")
    return tag


def _value(source: Characters, call: ParsedCall, members: Members, key: str, tags: ParameterTags) -> Steps[None]:
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
