"""Calls as a list of Python calls, `[f(a=1), g()]`. `ast` parses each argument as a literal; nothing is evaluated."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp_hub.formats.prompted.characters import Characters, MalformedCall, Steps, all_of, expect, need, skip, skip_to
from mcp_hub.formats.prompted.output import MAX_ARGUMENTS, MAX_DEPTH, MAX_NAME, ParsedCall, ParsedOutput, Tools
from mcp_hub.formats.prompted.tagged_calls import Members
from mcp_hub.formats.records import OutputError, ToolCallEnd, ToolCallStart
from mcp_hub.schema import allowed_types, properties
from mcp_hub.syntax import parsed

_MAX_CODE: Final = 1 << 16  # characters of an argument outside strings: `ast` needs 400 times their size
_NAME: Final = re.compile(r"[\w.-]+")
_WORD: Final = re.compile(r"\w+")
_CODE: Final = re.compile(r"""[^"'()\[\]{},]+""")
_PLAIN: Final = {"'": re.compile(r"[^'\\\n]+"), '"': re.compile(r'[^"\\\n]+')}
_ESCAPES: Final = "\n\\'\"abfnrtv0123xNuU"
_LITERALS: Final = re.compile(
    r"""\s*+(?:[^\W\d]\w*+\s*+=)?(?:\s+|""|[\[\](){},:]|(?:True|False|None|true|false|null)(?![\w"])"""
    r"|[-+]?(?:\d[\d_]*+(?:\.[\d_]*+)?|\.\d[\d_]*+)(?:[eE][-+]?\d+)?(?![\w.]))*+"
)
_EVERYTHING: Final = re.compile(r"(?s:.)*")
_WORDS: Final = {"true": True, "false": False, "null": None}


class _Argument:
    def __init__(self, call: ParsedCall, begun: str) -> None:
        self._call = call
        self._source: list[str] = []
        self._code: list[str] = []
        self._room = MAX_ARGUMENTS
        self._code_room = _MAX_CODE
        self.code(begun)

    def code(self, piece: str) -> None:
        self._code_room -= len(piece)
        if self._code_room < 0:
            self._call.too_large(f"{_MAX_CODE >> 10} KiB of values in one argument")
        self.string(piece)
        if not self._call.is_over:
            self._code.append(piece)

    def string(self, piece: str) -> None:
        self._room -= len(piece)
        if self._room < 0:
            self._call.too_large()
        if not self._call.is_over:
            self._source.append(piece)

    def string_ends(self) -> None:
        self._code.append('""')

    def read(self) -> tuple[str | None, str] | None:
        """Name (None if positional) and JSON. Code outside strings is checked before `ast` sees it."""
        source, code = "".join(self._source), "".join(self._code)
        if not code.strip():
            return None
        try:
            if not _LITERALS.fullmatch(code):
                raise ValueError
            name, node = _parts(parsed(f"f({source})", mode="eval").body)
            text = json.dumps(_value(node), ensure_ascii=False, allow_nan=False)
            text.encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise MalformedCall("an argument is not written as name=value with a literal value") from None
        return name, text


def pythonic_calls(source: Characters, output: ParsedOutput) -> Steps[None]:
    """From `[` to `]`, which may be missing."""
    source.step()
    yield from skip(source)
    while True:
        yield from pythonic_call(source, output)
        output.begin_region()
        source.keep()
        if (yield from skip(source)) in (",", ";"):
            source.step()
        if (yield from skip(source)) in ("]", ""):
            source.step()
            return


def pythonic_call(source: Characters, output: ParsedOutput) -> Steps[None]:
    """One call, to its `)`."""
    name = yield from all_of(source, _NAME, MAX_NAME)
    if not name:
        raise MalformedCall("expected the name of a tool")
    yield from skip(source)
    yield from expect(source, "(")
    call = output.call(name)
    begun = "" if call.is_known or not source.is_holding else (yield from _keyword(source))
    source.release()
    call.begin()
    yield from _arguments(source, call, begun)


def _keyword(source: Characters) -> Steps[str]:
    """The name before `=`, or empty before `)`."""
    begun = ""
    if (yield from skip_to(source)) != ")":
        begun = yield from all_of(source, _WORD, MAX_NAME)
        yield from skip(source)
        if not begun or (yield from need(source)) != "=":
            raise MalformedCall
    return begun


def _arguments(source: Characters, call: ParsedCall, begun: str) -> Steps[None]:
    members = Members(call)
    positions = list(properties(call.schema))
    while True:
        argument = yield from _argument(source, call, begun)
        begun = ""
        if not call.is_over and (pieces := argument.read()):
            name = pieces[0] if pieces[0] is not None else _next(positions)
            if pieces[0] is None and pieces[1][:1] == "{" and not _takes_object(call.schema, name):
                raise MalformedCall("arguments need names: name=value")
            members.begin(name)
            members.value(pieces[1])
        if source.step() == ")":
            members.end()
            return


def _takes_object(schema: Mapping[str, object], name: str) -> bool:
    allowed = allowed_types(properties(schema).get(name), schema)
    return not allowed or "object" in allowed


def _next(positions: list[str]) -> str:
    if not positions:
        raise MalformedCall("arguments need names: name=value")
    return positions.pop(0)


def _argument(source: Characters, call: ParsedCall, begun: str) -> Steps[_Argument]:
    argument = _Argument(call, begun)
    closing: list[str] = []
    while True:
        argument.code(source.run(_CODE))
        char = yield from need(source)
        if char in "\"'":
            yield from _quoted(source, argument)
            continue
        if char in ",)" and not closing:
            return argument
        if char in "([{":
            closing.append({"(": ")", "[": "]", "{": "}"}[char])
            if len(closing) >= MAX_DEPTH:
                call.too_deep()
        elif char in ")]}" and (not closing or closing.pop() != char):
            raise MalformedCall(f"{char} does not close anything")
        argument.code(source.step())


def _quoted(source: Characters, argument: _Argument) -> Steps[None]:
    """Unknown escapes keep their backslash, as in Python."""
    quote = yield from _opening(source)
    argument.string(quote)
    closing = 0
    while closing < len(quote) and len(quote) != 2:
        if piece := source.run(_PLAIN[quote[0]]):
            argument.string(piece)
            closing = 0
        char = yield from need(source)
        if char == quote[0]:
            argument.string(source.step())
            closing += 1
        elif char == "\n":
            source.step()
            argument.string("\\n")
            closing = 0
        elif char == "\\":
            source.step()
            char = yield from need(source)
            argument.string(("\\" if char in _ESCAPES else "\\\\") + source.step())
            closing = 0
    argument.string_ends()


def _opening(source: Characters) -> Steps[str]:
    quote = source.step()
    if (yield from need(source)) == quote:
        quote += source.step()
        if (yield from need(source)) == quote[0]:
            quote += source.step()
    return quote


def _parts(node: ast.expr) -> tuple[str | None, ast.expr]:
    match node:
        case ast.Call(args=[], keywords=[ast.keyword(arg=str(name), value=value)]):
            return name, value
        case ast.Call(args=[value], keywords=[]):
            return None, value
    raise ValueError


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=ast.Constant(value=int() | float() as value)):
            return -value if isinstance(sign, ast.USub) else value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return dict(zip(_texts(keys), map(_value, values), strict=True))
    raise ValueError


def _texts(keys: Sequence[ast.expr | None]) -> list[str]:
    texts = [key.value if isinstance(key, ast.Constant) else None for key in keys]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError
    return [str(text) for text in texts]


def python_call_in(text: str, at: int, tools: Tools) -> tuple[list[tuple[str, str]], int]:
    """The call of a whole text that begins at `at`, by name and arguments, and its end.

    Raises: MalformedCall, EOFError.
    """
    source, output = Characters(text[at:], is_whole=True), ParsedOutput(tools, "")
    for _ in pythonic_call(source, output):
        pass
    name, calls = "", list[tuple[str, str]]()
    for event in output.take():
        match event:
            case ToolCallStart():
                name = event.name
            case ToolCallEnd():
                calls.append((name, event.arguments))
            case OutputError(code="unknown_tool"):
                calls.append((name, "{}"))
            case OutputError():
                raise MalformedCall(event.message)
    return calls, len(text) - len(source.run(_EVERYTHING))
