"""Calls with JSON arguments, passed through as far as they are valid.

What breaks JSON, or stands beside name and arguments, raises `MalformedCall`: `readings` reads the call again.
"""

import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.formats.prompted.characters import (
    Characters,
    MalformedCall,
    Steps,
    all_of,
    expect,
    match,
    need,
    shown,
    skip,
    skip_to,
)
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_DEPTH, MAX_NAME, ParsedCall, ParsedOutput

_ARGUMENTS: Final = ("arguments", "parameters")
_BESIDE: Final = ("type", "id")  # members beside name and arguments
_AFTER: Final = frozenset("{}[],;:\"'“#/")
"""Characters after an object that belong to its call: something is missing, too much or beside it."""
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_BETWEEN: Final = re.compile(r'[^"{}\[\]]+')
_SCALAR: Final = re.compile(r'[^\s,"{}\[\]]+')
_NAME: Final = re.compile(r"[\w.:/@-]+")
_HEX: Final = "0123456789abcdefABCDEF"

PassOn = Callable[[str], None]


def tagged_object(source: Characters, output: ParsedOutput) -> Steps[None]:
    """`{"name": …, "arguments": {…}}` after a tag."""
    if (yield from skip_to(source)) != "{":
        raise MalformedCall("expected an object with the name and the arguments of a call")
    source.release()
    yield from _call_object(source, output.call())


def other_family(source: Characters, output: ParsedOutput) -> Steps[None]:
    """A call that is read as a whole."""
    yield from ()
    raise MalformedCall("expected a call")


def bare_object(source: Characters, output: ParsedOutput) -> Steps[None]:
    """That object without a tag: a call once it has a name and arguments."""
    yield from _call_object(source, output.call())


def object_or_list(source: Characters, output: ParsedOutput) -> Steps[None]:
    """That object after a tag, or a list of them."""
    if (yield from skip_to(source)) == "[":
        yield from _array(source, output)
    else:
        yield from tagged_object(source, output)


def listed_objects(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `functools[`."""
    yield from _objects(source, output)


def mistral_calls(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `[TOOL_CALLS]`: `[{…}, {…}]`, or `name{…}` with `[ARGS]` or `[CALL_ID]id[ARGS]` in between."""
    char = yield from skip_to(source)
    if char in "{[":
        yield from object_or_list(source, output)
    else:
        name = yield from _name(source)
        if (yield from need(source)) == "[":
            mark, is_whole = yield from match(source, ("[ARGS]", "[CALL_ID]"))
            if mark == "[CALL_ID]":
                yield from _name(source)
                yield from expect(source, "[ARGS]")
            elif not is_whole:
                raise MalformedCall("expected [ARGS] or [CALL_ID]")
        yield from named_call(source, output, name)


def kimi_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<|tool_call_begin|>`: `functions.name:0<|tool_call_argument_begin|>{…}`."""
    yield from skip(source)
    name = yield from _name(source)
    yield from skip(source)
    yield from expect(source, "<|tool_call_argument_begin|>")
    yield from named_call(source, output, name)


def deepseek_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<｜tool▁call▁begin｜>`: `name<｜tool▁sep｜>{…}`; of V3 `function<｜tool▁sep｜>name`, a fence, `{…}`."""
    yield from skip(source)
    name = yield from _name(source)
    yield from expect(source, "<｜tool▁sep｜>")
    if (yield from skip_to(source)) != "{":
        name = yield from _name(source)
        yield from skip(source)
        yield from expect(source, "```json")
    yield from named_call(source, output, name)


def _name(source: Characters) -> Steps[str]:
    name = yield from all_of(source, _NAME, MAX_NAME)
    yield from need(source)
    if not name:
        raise MalformedCall("expected the name of a tool")
    return name


def named_call(source: Characters, output: ParsedOutput, name: str) -> Steps[None]:
    """The arguments of `name`."""
    if (yield from skip_to(source)) != "{":
        raise MalformedCall("expected the object of the arguments")
    source.release()
    call = output.call(name)
    call.begin()
    yield from pass_value(source, call.arguments, call.too_deep)
    yield from _finish(source, call)


def _finish(source: Characters, call: ParsedCall) -> Steps[None]:
    if (char := (yield from skip(source))) and char in _AFTER:
        raise MalformedCall(f"{char} follows the call")
    call.finish()


def _array(source: Characters, output: ParsedOutput) -> Steps[None]:
    source.step()
    yield from _objects(source, output)


def _objects(source: Characters, output: ParsedOutput) -> Steps[None]:
    while True:
        if (yield from skip_to(source)) != "{":
            raise MalformedCall("expected an object with the name and the arguments of a call")
        source.release()
        call = output.call()
        yield from _members(source, call)
        if (yield from skip_to(source, ",]")) == "]":
            source.step()
            yield from _finish(source, call)
            return
        call.finish()
        output.begin_region()
        source.keep()
        source.step()


def _call_object(source: Characters, call: ParsedCall) -> Steps[None]:
    yield from _members(source, call)
    if source.is_holding and not call.is_known:
        raise MalformedCall("no tool has that name")
    source.release()
    yield from _finish(source, call)


def _members(source: Characters, call: ParsedCall) -> Steps[None]:
    source.step()
    char = yield from skip_to(source, '"}')
    while char != "}":
        key = yield from _string(source, MAX_NAME)
        yield from skip_to(source, ":")
        source.step()
        yield from _member(source, call, key)
        char = yield from skip_to(source, ",}")
        if char == ",":
            source.step()
            char = yield from skip_to(source, '"')
    source.step()


def _member(source: Characters, call: ParsedCall, key: str) -> Steps[None]:
    char = yield from skip_to(source)
    if key == "name":
        if char != '"' or call.name is not None:
            raise MalformedCall('"name" is one string')
        call.set_name((yield from _string(source, MAX_NAME)))
    elif key in _ARGUMENTS:
        if call.name is not None and char == "{":
            source.release()
        if call.name is not None and not source.is_holding:
            call.begin()
        yield from _arguments(source, call)
    elif key in _BESIDE:
        yield from pass_value(source, _ignore, _nothing)
    else:
        raise MalformedCall(f'expected "name" and "arguments", found "{key}"')


def _arguments(source: Characters, call: ParsedCall) -> Steps[None]:
    if call.has_arguments:
        raise MalformedCall("the arguments occur twice")
    char = yield from need(source)
    if char == '"':
        text = yield from _string(source, 6 * MAX_ARGUMENTS)
        if text.strip():
            _read_inside(text, call)
    elif char == "{":
        yield from pass_value(source, call.arguments, call.too_deep)
    else:
        yield from expect(source, "null")


def _read_inside(text: str, call: ParsedCall) -> None:
    """The arguments as the text of an object."""
    inner = Characters(text, is_whole=True)
    pieces: list[str] = []
    try:
        for _ in skip_to(inner, "{"):
            pass
        for _ in pass_value(inner, pieces.append, call.too_deep):
            pass
    except EOFError:
        raise MalformedCall("the arguments are a string that is not the text of an object") from None
    for _ in skip(inner):
        pass
    if inner.step():
        raise MalformedCall("text follows the object of the arguments")
    call.arguments("".join(pieces))


_SPACE: Final = r"[ \t\r\n]*+"
_PRIMITIVE: Final = rf"(?:-?(?:0|[1-9]\d*+)(?:\.\d++)?(?:[eE][+-]?\d++)?|true|false|null){_SPACE}"
_FIRST: Final = rf"(?:{_PRIMITIVE},{_SPACE})*+(?:{_PRIMITIVE}\]|[\"{{\[])"
_STATES: Final = {
    "{": re.compile(rf'{_SPACE}["}}]'),
    "key": re.compile(rf'{_SPACE}:{_SPACE}(?:["{{\[]|{_PRIMITIVE}(?:\}}|,{_SPACE}"))'),
    "}": re.compile(rf'{_SPACE}(?:\}}|,{_SPACE}")'),
    "[": re.compile(rf"{_SPACE}(?:\]|{_FIRST})"),
    "]": re.compile(rf"{_SPACE}(?:\]|,{_SPACE}{_FIRST})"),
}
"""Text before the next quote or bracket: after `{`, after a key, after a value in an object; in a list."""
_CLOSING: Final = {"{": "}", "[": "]"}
_VALUE: Final = re.compile(_PRIMITIVE)


def pass_value(
    source: Characters, pass_on: PassOn, too_deep: Callable[[], None], max_depth: int = MAX_DEPTH
) -> Steps[None]:
    """Passes on one value while it is JSON; escapes line breaks in strings, and refuses repeated keys."""
    char = yield from need(source)
    if char == '"':
        yield from _pass_string(source, pass_on)
        pass_on('"')
    elif char in _CLOSING:
        yield from _pass_container(source, pass_on, too_deep, max_depth)
    else:
        yield from _scalar(source, pass_on)


def _pass_container(source: Characters, pass_on: PassOn, too_deep: Callable[[], None], max_depth: int) -> Steps[None]:
    state = source.step()
    pass_on(state)
    closing, keys = [_CLOSING[state]], [set[str]()]
    pending = ""
    while closing:
        between = yield from _between(source, pass_on)
        char = source.step()
        if not _STATES[state].fullmatch(between + char):
            raise MalformedCall(_expected(state, between + char))
        pass_on(pending + between + char)
        pending = ""
        if char == '"':
            is_key = closing[-1] == "}" and (state != "key" or "," in between)
            state = yield from _member_string(source, pass_on, keys[-1] if is_key else None, closing[-1])
            pending = '"'
        elif char in _CLOSING:
            closing.append(_CLOSING[char])
            keys.append(set())
            state = char
            if len(closing) > max_depth:
                too_deep()
        else:
            closing.pop()
            keys.pop()
            state = closing[-1] if closing else ""


def _member_string(source: Characters, pass_on: PassOn, keys: set[str] | None, closing: str) -> Steps[str]:
    """A string without its last quote; returns the state after it."""
    if keys is None:
        yield from _pass_string(source, pass_on, is_begun=True)
        return closing
    pieces: list[str] = []

    def passed(piece: str) -> None:
        pieces.append(piece)
        pass_on(piece)

    yield from _pass_string(source, passed, is_begun=True)
    key = "".join(pieces)
    if key in keys:
        raise MalformedCall(f'"{key}" occurs twice')
    keys.add(key)
    return "key"


def _between(source: Characters, pass_on: PassOn) -> Steps[str]:
    """Text before the next quote or bracket."""
    pieces: list[str] = []
    room = MAX_ARGUMENTS
    while (yield from need(source)) not in '"{}[]':
        piece = source.run(_BETWEEN)
        room -= len(piece)
        if room >= 0:
            pieces.append(piece)
        elif len(pieces):
            pass_on("".join(pieces) + piece)  # which is too large
            pieces = []
    return "".join(pieces)


def _expected(state: str, text: str) -> str:
    where = {"{": "a key in quotes", "key": "a colon and a value", "}": "a comma and a key, or }"}
    return f"expected {where.get(state, 'a value, a comma, or ]')}, found {shown(text)}"


def _scalar(source: Characters, pass_on: PassOn) -> Steps[None]:
    text = yield from all_of(source, _SCALAR, MAX_ARGUMENTS)
    if not _VALUE.fullmatch(text):
        raise MalformedCall(f"expected a value, found {shown(text)}")
    pass_on(text)


def _pass_string(source: Characters, pass_on: PassOn, *, is_begun: bool = False) -> Steps[None]:
    """All but the last quote."""
    if not is_begun:
        pass_on(source.step())
    while True:
        pass_on(source.run(_PLAIN))
        char = yield from need(source)
        if char == '"':
            source.step()
            return
        if char == "\\":
            pass_on((yield from _escape(source)))
        elif char < " ":
            pass_on(json.dumps(source.step())[1:-1])


def _escape(source: Characters) -> Steps[str]:
    text = source.step()
    char = yield from need(source)
    if char not in '"\\/bfnrtu':
        raise MalformedCall(f"\\{char} in a string is not an escape of JSON")
    text += source.step()
    while char == "u" and len(text) < 6:
        if (yield from need(source)) not in _HEX:
            raise MalformedCall("four hexadecimal digits follow \\u in a string")
        text += source.step()
    return text


def _string(source: Characters, limit: int) -> Steps[str]:
    pieces: list[str] = []
    room = limit

    def keep(piece: str) -> None:
        nonlocal room
        room -= len(piece)
        if room >= 0:
            pieces.append(piece)

    yield from _pass_string(source, keep)
    if room < 0:
        raise MalformedCall(f"a string is longer than {limit} characters")
    try:
        return msgspec.json.decode("".join(pieces) + '"', type=str)
    except msgspec.DecodeError as error:
        raise MalformedCall(f"a string is not valid JSON: {error}") from None


def _ignore(_: str) -> None:
    """Drops a value."""


def _nothing() -> None:
    """Accepts any depth."""
