"""Diagnostics of the engine: mistakes of a script in the check of types, with their words; limits. Pure.

The checker is strict where ordinary scripts are not: mixed dicts, `**arguments`, `re.match(…).group()`, annotations.
Only mistakes that fail in any case are kept: wrong names, missing and unknown arguments, values that a tool does not
take, members that a result does not have, a missing `await`, imports.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, TypedDict

from mcp_hub.code.source import MODULES, line_at, tree_of
from mcp_hub.code.steps import CodeError
from mcp_hub.masking import hide_head

_MOST_MESSAGE: Final = 2000
_MOST_PROBLEMS: Final = 10
_SYNTAX: Final = "invalid-syntax"
_ALWAYS: Final = frozenset(
    (
        *(_SYNTAX, "unresolved-reference", "missing-argument"),
        *("too-many-positional-arguments", "parameter-already-assigned", "unused-awaitable"),
    )
)
_COROUTINE: Final = re.compile(r"(?:type|found) `(?:list\[)?CoroutineType\[")
_ARGUMENT: Final = re.compile(r"^Argument to function `(\w+)` is incorrect: Expected `(.*)`, found `(.*)`$", re.DOTALL)
_KEY: Final = re.compile(r'^Unknown key "(.*)" for TypedDict')
_OPEN_ITEMS: Final = re.compile(r"\||Unknown|Any|LiteralString|float")
_CONTAINERS: Final = re.compile(r"(list|tuple|dict)\[")
_TAKES: Final = {"list": ("list[", "Sequence["), "tuple": ("tuple[", "Sequence["), "dict": ("Mapping[",)}
_MEMBERS: Final = "Module `asyncio` has no member"


class _Place(TypedDict):
    row: int
    column: int


class _Item(TypedDict):
    code: str
    message: str
    location: _Place


def mistakes(diagnostics: str, code: str, tools: Collection[str]) -> CodeError | None:
    """The error for diagnostics of `code`, whose first line is ours; None if none must fail."""
    script = _Script(code, tools)
    reasons, is_syntax = [], False
    items: list[_Item] = json.loads(diagnostics)
    for item in items:
        if script.is_mistaken(item):
            is_syntax = is_syntax or item["code"] == _SYNTAX
            message = hide_head(item["message"], _MOST_MESSAGE) + _hint(item)
            reasons.append((max(item["location"]["row"] - 1, 0), message))
    if not reasons:
        return None
    line, message = reasons[0]
    source = line_at(code, line + 1) if line else ""
    return CodeError(
        "syntax" if is_syntax else "types",
        message,
        line=line,
        source=source,
        problems=tuple(islice(dict.fromkeys(reasons), _MOST_PROBLEMS)),
    )


def limit_of(kind: str, message: str) -> str | None:
    """The key of a limit that the engine enforced by an exception, which scripts cannot catch."""
    if kind == "TimeoutError" and "time limit exceeded" in message:
        return "seconds"
    if kind == "MemoryError" and "memory limit" in message:
        return "memory"
    if kind == "RuntimeError" and message.startswith("suspension limit"):
        return "calls"
    return None


def _hint(item: _Item) -> str:
    message = item["message"]
    if item["code"] == "unresolved-import":
        return f"; there are {MODULES}"
    if _COROUTINE.search(message):
        return ": write await before the call"
    if message.startswith(_MEMBERS):
        return "; there are gather, run and sleep. The hub limits how many calls are in flight"
    if message.startswith("Name `open` "):
        return "; scripts have no files, tools may"
    if message.endswith("has no attribute `message`"):
        return ": str(error) is its text"
    if item["code"] == "too-many-positional-arguments":
        return "; tools take arguments by name"
    return ""


class _Script:
    """A script, as far as messages about it need it."""

    def __init__(self, code: str, tools: Collection[str]) -> None:
        self._lines = code.split("\n")
        self._tools = tools
        tree = tree_of(code)
        nodes = [] if tree is None else list(ast.walk(tree))
        self._guarded = {line for node in nodes for line in _guarded(node)}
        self._written = {key for node in nodes for key in _written(node)}
        self._read = {position for node in nodes for position in _read(node)}
        self._looks = any(isinstance(node, ast.Name) and node.id in ("hasattr", "getattr") for node in nodes)

    def is_mistaken(self, item: _Item) -> bool:
        message, row = item["message"], item["location"]["row"]
        match item["code"]:
            case _ if "__future__" in message:
                return False
            case "unknown-argument":
                return " of " in message  # else it is a method of a mapping with known members
            case code if code in _ALWAYS:
                return True
            case "unresolved-import":
                return row not in self._guarded
            case "unresolved-attribute":
                is_known = " in union" not in message and "`None`" not in message
                return is_known and not self._looks and row not in self._guarded
            case "invalid-key":
                key = _KEY.match(message)
                is_read = (row, item["location"]["column"]) in self._read
                return is_read and key is not None and key[1] not in self._written and row not in self._guarded
            case "invalid-argument-type":
                return self._is_unfit(message, item["location"])
            case "invalid-assignment" | "invalid-return-type":
                return False
            case "invalid-await":
                return " | " not in message
            case _:
                return _COROUTINE.search(message) is not None

    def _is_unfit(self, message: str, start: _Place) -> bool:
        """An argument that its tool never takes, or a coroutine where a value is needed."""
        argument = _ARGUMENT.match(message)
        if argument is None or argument[1] not in (*self._tools, "main"):
            return _COROUTINE.search(message) is not None
        line = self._lines[start["row"] - 1].encode()[start["column"] - 1 :]
        return not line.startswith(b"**") and not _may_fit(argument[2], argument[3])


def _may_fit(expected: str, actual: str) -> bool:
    """Whether a value of the type may be one that is expected, as far as the texts of the types say."""
    if actual == "None" or actual.startswith(("Literal[", "CoroutineType[")) or actual.endswith("_result"):
        return " | " in actual
    if container := _CONTAINERS.match(actual):
        is_taken = any(kind in expected for kind in _TAKES[container[1]])
        return is_taken and ("Literal[" in expected or _OPEN_ITEMS.search(actual) is not None)
    match actual:
        case "str" | "LiteralString":
            return 'Literal["' in expected
        case "int" | "bool":
            return "Literal[" in expected
        case _:
            return True


def _read(node: ast.AST) -> Iterator[tuple[int, int]]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.slice.lineno, node.slice.col_offset + 1


def _guarded(node: ast.AST) -> Iterator[int]:
    if isinstance(node, ast.Try) and node.handlers:
        for statement in node.body:
            yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _written(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store()):
            yield key
        case ast.Dict(keys=keys):
            yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.Call(func=ast.Attribute(attr="setdefault"), args=[ast.Constant(value=str(key)), *_]):
            yield key
        case ast.Call(func=ast.Attribute(attr="update"), keywords=keywords):
            yield from (keyword.arg for keyword in keywords if keyword.arg)
