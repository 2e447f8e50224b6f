"""The text of a script. Pure."""

import ast
import builtins
import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Final

from mcp_hub.code.steps import CodeError
from mcp_hub.globs import late
from mcp_hub.masking import hide_head, hide_part
from mcp_hub.syntax import parsed

MOST_BYTES: Final = 64 << 10

_OPENING: Final = late(r"[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^`]*")
_CLOSING: Final = late(r"[ \t]*((?:`{3}|~{3})[`~]*)[ \t]*")
_MOST_UNCLOSED: Final = 20
_TOKEN: Final = late(r"\w+|[^\w\s]")
_MOST_TOKENS: Final = 24_000
"""The parser holds all else up: 50 ms for so many."""
_PYTHON: Final = ("", "py", "python", "python3")
_LEADING: Final = late(r"^[ \t]+", re.MULTILINE)
_IDENTIFIER: Final = late(r"[^\W\d]\w*")
_MEMBERS: Final = ("tool", "arguments", "code")
"""Attributes of `OutcomeUnknown` and `ToolError`; those of the engine have args alone."""
_MOST_LINE: Final = 200
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
_MOST_NESTED: Final = 10
"""The time of a check of types doubles with each."""

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
def hub_data(text: str) -> _t.Any: ...
def hub_tool(value: object) -> _t.Any: ...
def hub_arguments(value: object) -> _t.Any: ...
def hub_code(value: object) -> _t.Any: ...
def hub_class_name(value: object) -> str: ...
async def hub_gather(*calls: object, return_exceptions: object = False) -> _t.Any: ...
_T = _t.TypeVar("_T")
def hub_task(call: _T) -> _T: ...
def hub_next(values: object, *default: object) -> _t.Any: ...
"""
"""For the check of types: our exceptions, and what the engine has but its declarations lack."""

PRELUDE: Final = """
from csv import Error as ToolError
from binascii import Incomplete as OutcomeUnknown
import asyncio as hub_asyncio
def hub_member(value, name):
    return (hub_data(str(value)) or {}).get(name)
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
async def hub_caught(call):
    try:
        return await call
    except Exception as error:
        return error
async def hub_gather(*calls, return_exceptions=False):
    if return_exceptions:
        calls = [hub_caught(call) for call in calls]
    return await hub_asyncio.gather(*calls)
def hub_task(call):
    return call
def hub_next(values, *default):
    for value in values:
        return value
    if default:
        return default[0]
    raise StopIteration()
"""
"""Runs before each script. The engine has no classes that inherit, so rare ones of its own stand for ours."""

RESERVED: Final = frozenset(
    (
        *("ToolError", "OutcomeUnknown", "hub_begin", "hub_tool", "hub_arguments", "hub_code", "hub_member"),
        *("hub_class_name", "hub_data", "hub_asyncio", "hub_caught", "hub_gather"),
        *("hub_task", "hub_next"),
    )
)
"""Names that no tool can have in a script, beside keywords and builtins."""


def cleaned(code: str) -> str:
    """The script in a model's text: without Markdown fence and common indent, with LF. Raises `CodeError`."""
    if len(code.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise CodeError("syntax", f"the script is longer than {MOST_BYTES >> 10} kB")
    if sum(1 for _ in _TOKEN.finditer(code)) > _MOST_TOKENS:
        raise CodeError("syntax", f"the script has more than {_MOST_TOKENS} words and signs")
    code = code.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    fences = list(_fenced(code))
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


def _fenced(code: str) -> Iterator[str]:
    """Texts between Markdown fences of Python. In linear time: of fences without an end a few are looked at."""
    lines = code.split("\n")
    ends = [(number, match[1]) for number, line in enumerate(lines) if (match := _CLOSING.fullmatch(line))]
    after = unclosed = 0
    for number, line in enumerate(lines):
        if number < after or not (match := _OPENING.fullmatch(line)):
            continue
        ends = ends[bisect_right(ends, number, key=itemgetter(0)) :]
        end = next((at for at, marks in ends if marks.startswith(match[1])), None)
        if end is None:
            unclosed += 1
            if unclosed == _MOST_UNCLOSED:
                return
            continue
        after = end + 1
        if match[2].lower() in _PYTHON:
            yield "".join(f"{text}\n" for text in lines[number + 1 : end])


def tree_of(code: str) -> ast.Module | None:
    """The tree of `code`, or None of what is not Python."""
    try:
        return parsed(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def names_in(code: str) -> frozenset[str]:
    """Names that `code` reads, called or not; of a text that is not Python, all words."""
    tree = tree_of(code)
    if tree is None:
        return frozenset(_IDENTIFIER.findall(code))
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def unbound(code: str) -> frozenset[str]:
    """Names that `code` reads and nowhere binds, without Python's: perhaps of tools."""
    return names_in(code) - bound_in(code) - RESERVED - set(dir(builtins))


def rewritten(code: str, begin: str = "") -> str:
    """`code` for the engine, behind a line with the call `begin`; its lines stay, and others may follow.

    Replaces features that the engine lacks. Endings for other hosts become the output: a `return` outside of functions,
    a named value, an uncalled `async def main()`. Raises `CodeError`.
    """
    tree = tree_of(code)
    if tree is None:
        return "\n".join(filter(None, (begin, code)))
    for line, reason in _refusals(tree):
        raise CodeError("syntax", reason, line=line, source=line_at(code, line), problems=((line, reason),))
    if _returns_early(tree):
        body = code.replace("\n", "\n    ")
        return rewritten(f"async def hub_script(begin={begin}):\n    {body}\n{_imports(tree)}\nawait hub_script()")
    lines = code.encode().split(b"\n")
    for line, start, end, present, replaced in sorted(_edits(tree, lines), reverse=True):
        if lines[line][start:end] == present:  # before 3.12 the places in some texts with values are wrong
            lines[line] = lines[line][:start] + replaced + lines[line][end:]
    first = "; ".join(filter(None, (begin, _imports(tree), *_globals(tree))))
    body = b"\n".join(lines).decode()
    return f"{first}\n{body}{_output(tree)}" if first else body + _output(tree)


def bound_in(code: str) -> frozenset[str]:
    """Names that `code` gives a value, at any place."""
    return _bound_in(tree_of(code))


def line_of(code: str, offset: int) -> int:
    """The line, from 1, of an offset in UTF-8."""
    return code.encode().count(b"\n", 0, offset) + 1


def line_at(code: str, line: int) -> str:
    """The text of a line, without its indent."""
    return _masked_line(code, code.split("\n"), line, is_stripped=True)


def lines_around(code: str, line: int, around: int = 2) -> str:
    """The lines beside `line`, numbered, with a mark at it."""
    lines = code.split("\n")
    numbers = range(max(line - around, 1), min(line + around, len(lines)) + 1)
    width = len(str(numbers[-1])) if numbers else 1
    return "\n".join(
        f"{'>' if number == line else ' '} {number:{width}} {_masked_line(code, lines, number)}".rstrip()
        for number in numbers
    )


def _masked_line(code: str, lines: list[str], line: int, *, is_stripped: bool = False) -> str:
    """A line, without what it has of a secret of several lines; empty if there is no such line."""
    if not 0 < line <= len(lines):
        return ""
    start = sum(len(text) + 1 for text in lines[: line - 1])
    text = hide_part(code, start, start + len(lines[line - 1]))
    return hide_head(text.strip() if is_stripped else text, _MOST_LINE)


def _refusals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and reasons of what the engine takes too long for."""
    nodes = [(tree, 0)]
    while nodes:
        node, depth = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            depth += 1
            if depth > _MOST_NESTED:
                yield node.lineno, f"functions and classes are nested deeper than {_MOST_NESTED}"
        nodes += [(child, depth) for child in ast.iter_child_nodes(node)]


def _edits(tree: ast.Module, lines: list[bytes]) -> Iterator[tuple[int, int, int, bytes, bytes]]:
    """Line, start, end, present and new text of each edit, in bytes."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Return) and last.value is not None and last.value.lineno == last.lineno:
        yield last.lineno - 1, last.col_offset, last.col_offset + len(b"return "), b"return ", b""
    for node in ast.walk(tree):
        if isinstance(node, ast.Delete) and (statement := _without_del(node, lines[node.lineno - 1])):
            yield node.lineno - 1, node.col_offset, node.end_col_offset or 0, *statement
        for part, replaced in _lacking(node):
            if part.end_col_offset is not None:
                span = part.lineno - 1, part.col_offset, part.end_col_offset
                yield *span, ast.unparse(part).encode(), replaced.encode()
    for attribute in _attributes(tree):
        if isinstance(attribute.ctx, ast.Load) and attribute.end_col_offset is not None:
            for edit in _member(attribute):
                yield attribute.lineno - 1, attribute.col_offset, attribute.end_col_offset, *edit


def _lacking(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """A part that the engine does not take, and an equivalent."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name("asyncio"), attr="gather") | ast.Name("gather"), keywords=named
        ):
            if any(keyword.arg == "return_exceptions" for keyword in named):
                yield node.func, "hub_gather"
        case ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="create_task" | "ensure_future")):
            yield node.func, "hub_task"
        case ast.Call(func=ast.Name("next"), args=[ast.GeneratorExp(), *_]):
            yield node.func, "hub_next"
        case ast.keyword(arg="key", value=ast.Attribute(value=ast.Name(name), attr="get") as value):
            yield value, f"(lambda hub_key: {name}.get(hub_key))"
        case ast.keyword(arg="key", value=ast.Attribute(value=ast.Name("str"), attr=name) as value):
            yield value, f"(lambda hub_key: hub_key.{name}())"


def _without_del(node: ast.Delete, line: bytes) -> tuple[bytes, bytes] | None:
    """The text of `del values[key]` on one line, and a call that does the same."""
    match node.targets:
        case [ast.Subscript(value=value, slice=key)] if (
            not isinstance(key, ast.Slice) and node.end_lineno == key.lineno
        ):
            holder, index = line[value.col_offset : value.end_col_offset], line[key.col_offset : key.end_col_offset]
            return line[node.col_offset : node.end_col_offset], b"%b.pop(%b)" % (holder, index)
    return None


def _member(node: ast.Attribute) -> Iterator[tuple[bytes, bytes]]:
    """The text of an attribute that may be an exception's, and the call that reads it."""
    value, present, call = node.value, "{}." + node.attr, ""
    if node.attr in _MEMBERS:
        call = f"hub_{node.attr}({{}})"
    elif node.attr == "__name__" and isinstance(value, ast.Call) and _is_type(value):
        value, present, call = value.args[0], "type({}).__name__", "hub_class_name({})"
    if call and isinstance(value, ast.Name):
        yield present.format(value.id).encode(), call.format(value.id).encode()


def _bound_in(tree: ast.Module | None) -> frozenset[str]:
    return frozenset(name for node in (ast.walk(tree) if tree is not None else ()) for name in _bound(node))


def _imports(tree: ast.Module) -> str:
    """An import of the modules that a script uses without one, or an empty text."""
    used = {node.value.id for node in _attributes(tree) if isinstance(node.value, ast.Name)}
    missing = sorted(used.intersection(MODULES.split(", ")) - _bound_in(tree))
    return f"import {', '.join(missing)}" if missing else ""


def _globals(tree: ast.Module) -> list[str]:
    """Assignments without which the engine takes `id` of `[id for id in ids]` for the function."""
    targets = (node.target for node in ast.walk(tree) if isinstance(node, ast.comprehension))
    bound = {name for target in targets for node in ast.walk(target) for name in _bound(node)}
    return [f"{name} = {name}" for name in sorted(bound.intersection(dir(builtins)))]


def _returns_early(tree: ast.Module) -> bool:
    """Whether a script returns outside of functions before its end, and can be the body of one."""
    nodes: list[ast.AST] = [*tree.body]
    early = False
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
            early = early or (isinstance(node, ast.Return) and node is not tree.body[-1])
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))
    return early and all(node.lineno == node.end_lineno for node in texts)


def _attributes(tree: ast.Module | None) -> list[ast.Attribute]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)] if tree is not None else []


def _output(tree: ast.Module) -> str:
    """A last line that outputs the result of a script without one; or empty."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    match tree.body[-1:]:
        case [ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())]:
            return f"\n{name}" if "print" not in names else ""
        case _ if "main" not in names and all(isinstance(node, _DEFINITIONS) for node in tree.body):
            is_main = any(isinstance(node, ast.AsyncFunctionDef) and node.name == "main" for node in tree.body)
            return "\nawait main()" if is_main else ""
    return ""


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=alias):
            yield alias or name.partition(".")[0]
        case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            yield name


def _is_type(call: ast.Call) -> bool:
    is_plain = len(call.args) == 1 and not call.keywords
    return is_plain and isinstance(call.func, ast.Name) and call.func.id == "type"


def _without_mixed_tabs(code: str) -> str:
    if "\t" not in code or _parses(code):
        return code
    candidates = (_LEADING.sub(partial(_expanded, width), code) for width in (4, 8))
    return next(filter(_parses, candidates), code)


def _expanded(width: int, indent: re.Match[str]) -> str:
    return indent[0].expandtabs(width)


def _parses(code: str) -> bool:
    return tree_of(code) is not None
