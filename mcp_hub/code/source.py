"""The text of a script. Pure."""

import ast
import builtins
import json
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Final

from mcp_hub.code.steps import CodeError
from mcp_hub.masking import hide_head

MOST_BYTES: Final = 64 << 10

_FENCE: Final = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n`]*\n(.*?)^[ \t]*\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL
)
_PYTHON: Final = ("", "py", "python", "python3")
_LEADING: Final = re.compile(r"^[ \t]+", re.MULTILINE)
_IDENTIFIER: Final = re.compile(r"[^\W\d]\w*")
_MEMBERS: Final = ("tool", "arguments", "code")
"""Attributes of `OutcomeUnknown` and `ToolError`; those of the engine have args alone."""
_MOST_LINE: Final = 200
_parsing: Final = threading.Lock()
_MOST_NESTED: Final = 10
"""The time of a check of types doubles with each."""
_MOST_MESSAGE: Final = 2000
_MOST_PROBLEMS: Final = 10

MODULES: Final = (
    "asyncio, base64, binascii, bisect, collections, copy, csv, dataclasses, datetime, decimal, functools, hashlib, "
    "itertools, json, math, random, re, sys, time, tomllib, typing"
)
"""Modules that a script can import."""

DECLARATIONS: Final = """
import typing as _t
class ToolError(Exception):
    code: str | None
class OutcomeUnknown(Exception):
    tool: str
    arguments: dict[str, _t.Any]
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class FileExistsError(OSError): ...
class IsADirectoryError(OSError): ...
class NotADirectoryError(OSError): ...
class ImportError(Exception): ...
class ModuleNotFoundError(ImportError): ...
class UnboundLocalError(NameError): ...
class UnicodeDecodeError(ValueError): ...
class UnicodeEncodeError(ValueError): ...
map: _t.Any
filter: _t.Any
format: _t.Any
getattr: _t.Any
hasattr: _t.Any
setattr: _t.Any
def hub_begin() -> None: ...
def hub_tool(value: object) -> _t.Any: ...
def hub_arguments(value: object) -> _t.Any: ...
def hub_code(value: object) -> _t.Any: ...
def hub_class_name(value: object) -> str: ...
"""
"""For the check of types: our exceptions, and what the engine has but its declarations lack."""

PRELUDE: Final = """
from csv import Error as ToolError
from binascii import Incomplete as OutcomeUnknown
import json as hub_json
def hub_member(value, name):
    text = str(value)
    at = text.rfind("\\n{")
    try:
        return hub_json.loads(text[at + 1:]).get(name)
    except ValueError:
        return None
def hub_tool(value):
    return hub_member(value, "tool") if isinstance(value, (ToolError, OutcomeUnknown)) else value.tool
def hub_arguments(value):
    return hub_member(value, "arguments") if isinstance(value, (ToolError, OutcomeUnknown)) else value.arguments
def hub_code(value):
    return hub_member(value, "code") if isinstance(value, (ToolError, OutcomeUnknown)) else value.code
def hub_class_name(value):
    if isinstance(value, ToolError):
        return "ToolError"
    if isinstance(value, OutcomeUnknown):
        return "OutcomeUnknown"
    return type(value).__name__
"""
"""Runs before each script. The engine has no classes that inherit, so rare ones of its own stand for ours."""

RESERVED: Final = frozenset(
    (
        *("ToolError", "OutcomeUnknown", "hub_begin", "hub_tool", "hub_arguments", "hub_code", "hub_member"),
        *("hub_class_name", "hub_json"),
    )
)
"""Names that no tool can have in a script, beside keywords and builtins."""


def cleaned(code: str) -> str:
    """The script in a model's text: out of its Markdown fence, with LF, without a common indent. Raises `CodeError`."""
    if len(code.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise CodeError("syntax", f"the script is longer than {MOST_BYTES >> 10} kB")
    code = code.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    fences = [match[3] for match in _FENCE.finditer(code) if match[2].lower() in _PYTHON]
    if fences and not _parses(code):
        code = max(fences, key=len)
    if any(ord(letter) < 32 and letter not in "\n\t\f" or 0xD800 <= ord(letter) < 0xE000 for letter in code):
        raise CodeError("syntax", "the script has control characters")
    first = code.lstrip("\n")
    if first[:1] in (" ", "\t"):
        code = textwrap.dedent(code)
    code = _without_mixed_tabs(code)
    if not code.strip():
        raise CodeError("syntax", "the script is empty")
    return code


def names_in(code: str) -> frozenset[str]:
    """Names that `code` reads, called or not; of a text that is not Python, all of its words."""
    tree = _parsed(code)
    if tree is None:
        return frozenset(_IDENTIFIER.findall(code))
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def unbound_names(code: str) -> frozenset[str]:
    """Names that `code` reads and does not bind, which tools have to have."""
    bound = {*dir(builtins), "ToolError", "OutcomeUnknown"}
    tree = _parsed(code)
    for node in () if tree is None else ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=alias):
                bound.add(alias or name.partition(".")[0])
    return names_in(code) - bound


def rewritten(code: str) -> str:
    """`code` with the attributes of our exceptions read by functions; lines stay. Raises `CodeError`."""
    tree = _parsed(code)
    if tree is None:
        return code
    for line, reason in _refusals(tree):
        raise CodeError("syntax", reason, line=line, source=line_at(code, line), problems=((line, reason),))
    lines = code.encode().split(b"\n")
    for line, start, end, present, replaced in sorted(_edits(tree), reverse=True):
        if lines[line][start:end] == present:  # before 3.12 the places in some texts with values are wrong
            lines[line] = lines[line][:start] + replaced + lines[line][end:]
    return b"\n".join(lines).decode()


def line_of(code: str, offset: int) -> int:
    """The line, from 1, of an offset in UTF-8."""
    return code.encode().count(b"\n", 0, offset) + 1


def line_at(code: str, line: int) -> str:
    """The text of a line, without its indent."""
    lines = code.split("\n")
    return hide_head(lines[line - 1].strip(), _MOST_LINE) if 0 < line <= len(lines) else ""


def lines_around(code: str, line: int, around: int = 2) -> str:
    """The lines beside `line`, numbered, with a mark at it."""
    lines = code.split("\n")
    numbers = range(max(line - around, 1), min(line + around, len(lines)) + 1)
    width = len(str(numbers[-1])) if numbers else 1
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} {hide_head(lines[number - 1], _MOST_LINE)}".rstrip()
        for number in numbers
    )


def problems(diagnostics: str, code: str) -> CodeError:
    """The error for what a check said of `code`, whose first line is ours."""
    reasons = []
    is_syntax = False
    for item in json.loads(diagnostics):
        is_syntax = is_syntax or item["code"] == "invalid-syntax"
        hint = f"; there are {MODULES}" if item["code"] == "unresolved-import" else ""
        reasons.append((max(item["location"]["row"] - 1, 0), hide_head(item["message"], _MOST_MESSAGE) + hint))
    line, message = reasons[0] if reasons else (0, "the types of the script do not fit")
    source = line_at(code, line + 1) if line else ""
    return CodeError(
        "syntax" if is_syntax else "types",
        message,
        line=line,
        source=source,
        problems=tuple(reasons[:_MOST_PROBLEMS]),
    )


def _refusals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and reasons of what the engine takes too long for, or finds out only when it has made calls."""
    nodes = [(tree, 0)]
    while nodes:
        node, depth = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            depth += 1
            if depth > _MOST_NESTED:
                yield node.lineno, f"functions and classes are nested deeper than {_MOST_NESTED}"
        elif isinstance(node, ast.Call) and any(keyword.arg == "return_exceptions" for keyword in node.keywords):
            yield node.lineno, "gather() has no return_exceptions: catch exceptions in an async def, and gather that"
        nodes += [(child, depth) for child in ast.iter_child_nodes(node)]


def _edits(tree: ast.AST) -> Iterator[tuple[int, int, int, bytes, bytes]]:
    """Line, start, end, present and new text of each edit, in bytes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or node.end_col_offset is None:
            continue
        value, present, call = node.value, "{}." + node.attr, ""
        if node.attr in _MEMBERS:
            call = f"hub_{node.attr}({{}})"
        elif node.attr == "__name__" and isinstance(value, ast.Call) and _is_type(value):
            value, present, call = value.args[0], "type({}).__name__", "hub_class_name({})"
        if call and isinstance(value, ast.Name):
            texts = present.format(value.id).encode(), call.format(value.id).encode()
            yield node.lineno - 1, node.col_offset, node.end_col_offset, *texts


def _is_type(call: ast.Call) -> bool:
    is_plain = len(call.args) == 1 and not call.keywords
    return is_plain and isinstance(call.func, ast.Name) and call.func.id == "type"


def _without_mixed_tabs(code: str) -> str:
    """Tabs of indents as spaces, where tabs and spaces are mixed."""
    if "\t" not in code or _parses(code):
        return code
    candidates = (_LEADING.sub(partial(_expanded, width), code) for width in (4, 8))
    return next(filter(_parses, candidates), code)


def _expanded(width: int, indent: re.Match[str]) -> str:
    return indent[0].expandtabs(width)


def _parses(code: str) -> bool:
    return _parsed(code) is not None


def _parsed(code: str) -> ast.Module | None:
    with _parsing, warnings.catch_warnings():  # which is the whole program's
        warnings.simplefilter("ignore")  # they would be written to our stderr
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
