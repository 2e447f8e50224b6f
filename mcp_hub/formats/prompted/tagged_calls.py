"""Calls with an element for each argument, passed through; arguments one by one, as members of a JSON object."""

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from mcp_hub.formats.prompted.json_calls import named_call, pass_value
from mcp_hub.formats.prompted.loose_json import read_value
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_DEPTH, MAX_NAME, ParsedCall, ParsedOutput
from mcp_hub.schema import allowed_types, fits, properties

_NAME: Final = re.compile(r"[\w.:/@-]+")
_QUOTED: Final = re.compile(r'[^<>"\n]+')
_KEY: Final = re.compile(r"[^<>\n]+")
_VALUE: Final = re.compile(r"[^<]+")
_BLANK: Final = re.compile(r"[ \t\r\n]+")
_TYPE: Final = re.compile(r'(?:string="(?P<string>true|false)"|type="(?P<type>\w+)")')
_HEADER: Final = re.compile(r"[^<{]+")
_RECIPIENT: Final = re.compile(r"\bto=([\w.:/@-]+)")
_CHANNEL: Final = re.compile(r"(?:\s|<\|\w+\|>|assistant|analysis|commentary|final|functions\.\S+ to=assistant)*")
_NOT_TAG: Final = re.compile(r"[^<]+")
_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
"""Words of Python that models write for those of JSON."""


class Members:
    """The object: for each member `begin`, then `text` or `value`; then `end`."""

    def __init__(self, call: ParsedCall) -> None:
        self._call = call
        self._names: set[str] = set()

    @property
    def names(self) -> set[str]:
        return self._names

    def begin(self, name: str) -> None:
        """Begins a member. Raises: MalformedCall for a duplicate, and for a name with marks of tags."""
        if not name or set(name) & set('="<>'):
            raise MalformedCall(f"expected the name of an argument, found {name}")
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
        return json.dumps(text, ensure_ascii=False) if is_text else _python(text, allowed)
    if isinstance(value, str) or ("string" in allowed and not fits(value, allowed)):
        return json.dumps(text, ensure_ascii=False)
    return text.strip()


def _python(text: str, allowed: set[str]) -> str:
    """A word, list or dictionary of Python as JSON, where no string is allowed."""
    stripped = text.strip()
    if stripped[:1] in ("[", "{") and not allowed.isdisjoint(("array", "object")):
        try:
            value, end, missing = read_value(stripped)
        except (MalformedCall, EOFError):
            missing, end, value = 1, 0, ""
        if missing or end < len(stripped):
            raise MalformedCall(f"expected JSON, found {shown(stripped)}")
        return value
    return _PYTHON.get(stripped) or json.dumps(text, ensure_ascii=False)


def typed_argument(schema: Mapping[str, object], key: str, value: str, is_text: bool | None, *, has_lines: bool) -> str:
    """The value of an argument as JSON. `is_text`: its tag says so."""
    allowed = allowed_types(properties(schema).get(key), schema)
    if is_text is not None:
        allowed = {"string"} if is_text else allowed - {"string"}
    if has_lines:
        value = value.removeprefix("\n").removesuffix("\n")
    return json.dumps(value, ensure_ascii=False) if allowed == {"string"} else typed(value, allowed)


def add_argument(members: dict[str, str], key: str, value: str) -> None:
    """Adds an argument. Raises: MalformedCall for a duplicate, and for a name with marks of tags."""
    if not key or set(key) & set('="<>'):
        raise MalformedCall(f"expected the name of an argument, found {key}")
    if key in members:
        raise MalformedCall(f'"{key}" occurs twice')
    members[key] = value


def object_of(members: Mapping[str, str]) -> str:
    """The object, written like that of `Members`."""
    texts = (f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in members.items())
    return "{" + ", ".join(texts) + "}"


@dataclass(frozen=True)
class _ParameterTags:
    """The tags of a call; an empty one does not occur.

    `begin` precedes the name, `named` follows it. `outer_end` follows `end`. `has_lines`: values stand on lines of
    their own. `is_quoted`: a quote and attributes follow names and keys.
    """

    key: str
    key_end: str
    value_end: str
    end: str
    begin: str = ""
    named: str = ""
    value: str = ""
    outer_end: str = ""
    has_lines: bool = False
    is_quoted: bool = False


def tagged_call(
    tags: Mapping[str, str], *, is_begun: bool = False, has_lines: bool = False, is_quoted: bool = False
) -> Callable[[Characters, ParsedOutput], Steps[None]]:
    """A parser for after the outer tag, or after `begin` if `is_begun`. `tags`, and the rest: `_ParameterTags`."""
    parameter_tags = _ParameterTags(**tags, has_lines=has_lines, is_quoted=is_quoted)

    def parse(source: Characters, output: ParsedOutput) -> Steps[None]:
        yield from skip(source)
        if not is_begun:
            yield from expect(source, parameter_tags.begin)
        yield from _call(source, output, parameter_tags)

    return parse


def _call(source: Characters, output: ParsedOutput, tags: _ParameterTags) -> Steps[None]:
    name = html.unescape((yield from all_of(source, _QUOTED if tags.is_quoted else _NAME, MAX_NAME)))
    yield from need(source)
    if not name or name.endswith("/"):
        raise MalformedCall("expected the name of a tool")
    yield from _ends(source, tags, tags.named)
    if (yield from skip_to(source)) != "<":
        raise MalformedCall(f"expected {tags.key} or {tags.end}")
    source.release()
    call = output.call(name)
    call.begin()
    members = Members(call)
    while (yield from _tag(source, (tags.key, tags.end))) == tags.key:
        key = (yield from all_of(source, _QUOTED if tags.is_quoted else _KEY, MAX_NAME)).strip()
        attributes = yield from _ends(source, tags, tags.key_end)
        if tags.value:
            yield from _tag(source, (tags.value,))
        members.begin(html.unescape(key) if tags.is_quoted else key)
        yield from _value(source, call, members, key, tags, attributes)
    members.end()


def _ends(source: Characters, tags: _ParameterTags, end: str) -> Steps[str]:
    """Consumes the end of a tag; returns its attributes."""
    if not tags.is_quoted:
        yield from expect(source, end)
        return ""
    yield from expect(source, '"')
    attributes = yield from all_of(source, _KEY, MAX_NAME)
    yield from expect(source, end)
    return attributes


def _tag(source: Characters, tags: tuple[str, ...]) -> Steps[str]:
    yield from skip_to(source, "<")
    tag, is_whole = yield from match(source, tags)
    if not is_whole:
        yield from need(source)
        raise MalformedCall(f"expected {' or '.join(tags)}")
    return tag


def _value(
    source: Characters, call: ParsedCall, members: Members, key: str, tags: _ParameterTags, attributes: str
) -> Steps[None]:
    allowed = allowed_types(properties(call.schema).get(key), call.schema)
    if kind := _TYPE.search(attributes):
        is_text = "string" in (kind["type"], {"true": "string"}.get(kind["string"] or ""))
        allowed = {"string"} if is_text else allowed - {"string"}
    missing = set(properties(call.schema)) - members.names
    if allowed == {"string"}:
        members.quote()
        yield from _text(source, tags, missing, _trimmed(members.text, tags.has_lines))
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

    yield from _text(source, tags, missing, _trimmed(keep, tags.has_lines))
    if not call.is_over:
        members.value(typed("".join(pieces), allowed))


def _text(source: Characters, tags: _ParameterTags, missing: set[str], pass_on: Callable[[str], None]) -> Steps[None]:
    """A value up to its end tag. Raises: MalformedCall if the next argument or the end of the call comes first."""
    while True:
        pass_on(source.run(_VALUE))
        if (yield from need(source)) != "<":
            continue
        tag, is_whole = yield from match(source, (tags.value_end, tags.key, tags.end))
        if is_whole and tag == tags.value_end:
            return
        if is_whole and tag == tags.key:
            key = yield from all_of(source, _QUOTED if tags.is_quoted else _KEY, MAX_NAME)
            if key.strip() in missing:
                raise MalformedCall(f"expected {tags.value_end} before {tag}{key}")
            tag += key
        elif is_whole:
            tag += yield from _after_end(source, tags)
        pass_on(tag)


def _after_end(source: Characters, tags: _ParameterTags) -> Steps[str]:
    """Text after `tags.end` in a value. Raises: MalformedCall if the call ends."""
    blanks = yield from all_of(source, _BLANK, MAX_NAME)
    outer, is_whole = "", not tags.outer_end
    if tags.outer_end and (yield from source.peek()) == "<":
        outer, is_whole = yield from match(source, (tags.outer_end,))
    if is_whole or not (yield from source.peek()):
        raise MalformedCall(f"expected {tags.value_end} before {tags.end}")
    return blanks + outer


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


def harmony_message(source: Characters, output: ParsedOutput) -> Steps[None]:
    """After `<|start|>` or `<|channel|>`: `commentary to=functions.name <|constrain|>json<|message|>{…}`.

    A message to no tool is text, or thinking if its channel is `analysis`.
    """
    header, is_whole = "", False
    source.release()
    while not is_whole:
        header += yield from all_of(source, _HEADER, MAX_NAME)
        yield from need(source)
        tag, is_known = yield from match(source, ("<|message|>", "<|channel|>", "<|constrain|>"))
        if not is_known:
            raise MalformedCall("expected <|message|>")
        header, is_whole = f"{header} {tag} ", tag == "<|message|>"
        if len(header) > MAX_NAME:
            raise MalformedCall("expected <|message|>")
    if (recipient := _RECIPIENT.search(header)) and recipient[1] != "assistant":
        yield from named_call(source, output, recipient[1])
    elif not _CHANNEL.fullmatch(header):
        raise MalformedCall("expected to= and the name of a tool")
    elif "analysis" in header:
        yield from _analysis(source, output)


def _analysis(source: Characters, output: ParsedOutput) -> Steps[None]:
    while char := (yield from source.peek()):
        if char != "<":
            output.thinking(source.run(_NOT_TAG))
            continue
        tag, is_whole = yield from match(source, ("<|end|>",))
        if is_whole:
            return
        output.thinking(tag)


_QWEN: Final = {
    "begin": "<function=",
    "named": ">",
    "key": "<parameter=",
    "key_end": ">",
    "value_end": "</parameter>",
    "end": "</function>",
    "outer_end": "</tool_call>",
}
_GLM: Final = {
    "key": "<arg_key>",
    "key_end": "</arg_key>",
    "value": "<arg_value>",
    "value_end": "</arg_value>",
    "end": "</tool_call>",
}
_INVOKE: Final = {
    "begin": '<invoke name="',
    "named": ">",
    "key": '<parameter name="',
    "key_end": ">",
    "value_end": "</parameter>",
    "end": "</invoke>",
    "outer_end": "</minimax:tool_call>",
}
_DSML: Final = {
    "begin": '<｜DSML｜invoke name="',
    "named": ">",
    "key": '<｜DSML｜parameter name="',
    "key_end": ">",
    "value_end": "</｜DSML｜parameter>",
    "end": "</｜DSML｜invoke>",
    "outer_end": "</｜DSML｜function_calls>",
}
_XTML: Final = {
    "begin": '<|open|>call tool="',
    "named": "<|sep|>",
    "key": '<|open|>argument key="',
    "key_end": "<|sep|>",
    "value_end": "<|close|>argument<|sep|>",
    "end": "<|close|>call<|sep|>",
    "outer_end": "<|close|>tools<|sep|>",
}

qwen_call: Final = tagged_call(_QWEN, has_lines=True)
qwen_function: Final = tagged_call(_QWEN, is_begun=True, has_lines=True)
glm_call: Final = tagged_call(_GLM)
invoke_call: Final = tagged_call(_INVOKE, is_begun=True, is_quoted=True)
dsml_call: Final = tagged_call(_DSML, is_begun=True, is_quoted=True)
xtml_call: Final = tagged_call(_XTML, is_begun=True, is_quoted=True)
