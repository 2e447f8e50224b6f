"""Calls with JSON arguments, passed through; arguments one by one, as members of a JSON object."""

import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.formats.prompted.characters import (
    Characters,
    MalformedCall,
    Steps,
    TruncatedCall,
    all_of,
    expect,
)
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_DEPTH, MAX_NAME, ParsedCall, ParsedOutput
from mcp_hub.schema import fits

_ARGUMENTS: Final = ("arguments", "parameters")
_BESIDE: Final = ("type", "id")  # members beside name and arguments that an object without a tag may begin with
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_BETWEEN: Final = re.compile(r'[^"{}\[\]]+')
_SCALAR: Final = re.compile(r'[^\s,"{}\[\]]+')
_NAME: Final = re.compile(r"[\w.:/@-]+")

PassOn = Callable[[str], None]


def tagged_object(source: Characters, output: ParsedOutput) -> Steps[None]:
    """`{"name": …, "arguments": {…}}` after a tag."""
    if (yield from source.skip_to()) != "{":
        raise MalformedCall
    source.release()
    yield from _call_object(source, output.call())


def bare_object(source: Characters, output: ParsedOutput) -> Steps[None]:
    """That object without a tag: a call once it has a name and arguments."""
    yield from _call_object(source, output.call())


def mistral_calls(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `[TOOL_CALLS]`: `[{…}, {…}]`, or `name{…}` with `[ARGS]` or `[CALL_ID]id[ARGS]` in between."""
    char = yield from source.skip_to()
    if char == "{":
        yield from tagged_object(source, output)
    elif char == "[":
        yield from _array(source, output)
    else:
        name = yield from _name(source)
        if (yield from source.need()) == "[":
            mark, is_whole = yield from source.match(("[ARGS]", "[CALL_ID]"))
            if mark == "[CALL_ID]":
                yield from _name(source)
                yield from expect(source, "[ARGS]")
            elif not is_whole:
                raise MalformedCall
        yield from _named(source, output, name)


def kimi_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<|tool_call_begin|>`: `functions.name:0<|tool_call_argument_begin|>{…}`."""
    yield from source.skip()
    name = yield from _name(source)
    yield from source.skip()
    yield from expect(source, "<|tool_call_argument_begin|>")
    yield from _named(source, output, name)


def deepseek_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<｜tool▁call▁begin｜>`: `name<｜tool▁sep｜>{…}`; of V3 `function<｜tool▁sep｜>name`, a fence, `{…}`."""
    yield from source.skip()
    name = yield from _name(source)
    yield from expect(source, "<｜tool▁sep｜>")
    if (yield from source.skip_to()) != "{":
        name = yield from _name(source)
        yield from source.skip()
        yield from expect(source, "```json")
    yield from _named(source, output, name)


def _name(source: Characters) -> Steps[str]:
    name = yield from all_of(source, _NAME, MAX_NAME)
    yield from source.need()
    if not name:
        raise MalformedCall
    return name


def _named(source: Characters, output: ParsedOutput, name: str) -> Steps[None]:
    if (yield from source.skip_to()) != "{":
        raise MalformedCall
    source.release()
    call = output.call(name)
    call.begin()
    yield from pass_value(source, call.arguments, call.too_deep)
    call.finish()


def _array(source: Characters, output: ParsedOutput) -> Steps[None]:
    source.step()
    while True:
        if (yield from source.skip_to()) != "{":
            raise MalformedCall("expected an object with the name and the arguments of a call")
        yield from tagged_object(source, output)
        if (yield from source.skip_to(",]")) == "]":
            source.step()
            return
        source.step()


def _call_object(source: Characters, call: ParsedCall) -> Steps[None]:
    source.step()
    char = yield from source.skip_to('"}')
    while char != "}":
        key = yield from _string(source, MAX_NAME)
        yield from source.skip_to(":")
        source.step()
        yield from _member(source, call, key)
        char = yield from source.skip_to(",}")
        if char == ",":
            source.step()
            char = yield from source.skip_to('"')
    source.step()
    if source.is_holding and not call.is_known:
        raise MalformedCall
    source.release()
    call.finish()


def _member(source: Characters, call: ParsedCall, key: str) -> Steps[None]:
    char = yield from source.skip_to()
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
    elif source.is_holding and key not in _BESIDE:
        raise MalformedCall
    else:
        yield from pass_value(source, _ignore, _nothing)


def _arguments(source: Characters, call: ParsedCall) -> Steps[None]:
    if call.has_arguments:
        raise MalformedCall("the arguments occur twice")
    char = yield from source.need()
    if char == '"':
        text = yield from _string(source, 6 * MAX_ARGUMENTS)
        inner = Characters(text, is_whole=True)
        try:
            yield from inner.skip_to("{")
            yield from pass_value(inner, call.arguments, call.too_deep)
        except TruncatedCall:
            raise MalformedCall("the arguments are a string that is not the text of an object") from None
        if (yield from inner.skip()):
            raise MalformedCall("text follows the object of the arguments")
    elif char == "{":
        yield from pass_value(source, call.arguments, call.too_deep)
    else:
        yield from expect(source, "null")


def pass_value(
    source: Characters, pass_on: PassOn, too_deep: Callable[[], None], max_depth: int = MAX_DEPTH
) -> Steps[None]:
    """Passes on one value, checked at its end; escapes line breaks in strings."""
    closing: list[str] = []
    while True:
        char = yield from source.need()
        if char == '"':
            yield from _pass_string(source, pass_on)
        elif char in "{[":
            closing.append("}" if char == "{" else "]")
            if len(closing) > max_depth:
                too_deep()
            pass_on(source.step())
        elif char in "}]":
            if not closing or closing.pop() != char:
                raise MalformedCall(f"{char} does not close anything")
            pass_on(source.step())
        elif closing:
            pass_on(source.run(_BETWEEN))
        else:
            yield from _scalar(source, pass_on)
        if not closing:
            return


def _scalar(source: Characters, pass_on: PassOn) -> Steps[None]:
    piece = source.run(_SCALAR)
    if not piece:
        raise MalformedCall("expected a value")
    while piece:
        pass_on(piece)
        piece = source.run(_SCALAR) if (yield from source.peek()) else ""


def _pass_string(source: Characters, pass_on: PassOn) -> Steps[None]:
    pass_on(source.step())
    while True:
        pass_on(source.run(_PLAIN))
        char = yield from source.need()
        if char == '"':
            pass_on(source.step())
            return
        if char == "\\":
            source.step()
            yield from source.need()
            pass_on("\\" + source.step())
        elif char < " ":
            pass_on(json.dumps(source.step())[1:-1])


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
        return msgspec.json.decode("".join(pieces), type=str)
    except msgspec.DecodeError as error:
        raise MalformedCall(f"a string is not valid JSON: {error}") from None


def _ignore(_: str) -> None:
    """Drops a value."""


def _nothing() -> None:
    """Accepts any depth."""


_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
"""Words of Python that models write for those of JSON."""


class Members:
    """The object: for each member `begin`, then `text` or `value`; then `end`."""

    def __init__(self, call: ParsedCall) -> None:
        self._call = call
        self._names: set[str] = set()

    def begin(self, name: str) -> None:
        """Begins a member. Raises: MalformedCall for a duplicate."""
        if name in self._names:
            raise MalformedCall(f'"{name}" occurs twice')
        self._call.arguments(f"{', ' if self._names else '{'}{json.dumps(name, ensure_ascii=False)}: ")
        self._names.add(name)

    def text(self, piece: str) -> None:
        self._call.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])

    def quote(self) -> None:
        self._call.arguments('"')

    def value(self, value: str) -> None:
        source = Characters(value, is_whole=True)
        for _ in pass_value(source, self._call.arguments, self._call.too_deep, MAX_DEPTH - 1):
            pass

    def end(self) -> None:
        self._call.arguments("}" if self._names else "{}")
        self._call.finish()


def typed(text: str, allowed: set[str]) -> str:
    """An unquoted value as JSON: a string only if nothing else fits."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        is_text = not allowed or "string" in allowed
        return json.dumps(text, ensure_ascii=False) if is_text else _PYTHON.get(text) or json.dumps(text)
    if isinstance(value, str) or ("string" in allowed and not fits(value, allowed)):
        return json.dumps(text, ensure_ascii=False)
    return text.strip()
