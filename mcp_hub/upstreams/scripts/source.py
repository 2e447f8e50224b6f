"""The tools that the scripts of a folder are: schemas of `main`, names that are used, and the text of a call.

A script is only read as a syntax tree, and never run by the hub itself.
"""

import ast
import builtins
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.trust import problem_of_config
from mcp_hub.errors import ConfigFinding, InvalidParams
from mcp_hub.masking import hide, hide_head
from mcp_hub.syntax import parsed
from mcp_hub.types import FileStamp, JsonObject
from mcp_hub.upstreams.folders import read_file, stamp_of
from mcp_hub.upstreams.functions.schemas import documented_parameters, first_paragraph

MOST_SCRIPTS: Final = 200
"""Scripts of one folder."""
LARGEST: Final = 64 << 10
"""Bytes of a script."""
_MOST_ENTRIES: Final = 5000
"""Entries of a folder, scripts or not."""
_SUFFIX: Final = ".py"
_POWER: Final = "have it call any tool"
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Names of scripts without `.py`."""
_MAIN: Final = "main"
_OWN: Final = "<main>"
"""Marks faults of a script that is Python, and no tool."""
_GIVEN: Final = frozenset({*dir(builtins), "ToolError", "OutcomeUnknown"})
"""Names that a script has without a tool."""
_SIMPLE: Final = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object",
    "None": "null",
}  # fmt: skip
_ANY: Final = ("Any", "object")
_DEEPEST: Final = 16
"""Levels of an annotation."""
_KNOWN: Final = "str, int, float, bool, list, dict, Literal, Optional or None"


class Script(msgspec.Struct, frozen=True):
    """The tool of a file with `stamp`, or the `fault` in a line.

    `names`: line of each name that neither the script nor Python has, such as those of tools.
    """

    name: str
    stamp: FileStamp | None = None
    text: str = ""
    definition: JsonObject = {}
    names: Mapping[str, int] = {}
    fault: str = ""
    line: int = 1

    def call(self, arguments: Mapping[str, object]) -> str:
        """The text of a call; lines keep their numbers.

        Raises `InvalidParams` for an unknown or missing argument, and for a number without a Python text.
        """
        schema = self.definition["inputSchema"]
        parameters, needed = schema["properties"], schema.get("required", ())
        faults = [f"- {hide_head(name, 100)}: unknown argument" for name in arguments if name not in parameters]
        faults += [f"- {name}: required, but missing" for name in needed if name not in arguments]
        if faults:
            listed = f"known: {', '.join(parameters) or 'none'}"
            raise InvalidParams("\n".join([f"invalid arguments ({listed}):", *faults]))
        passed = ", ".join(f"{name}={_literal(name, value)}" for name, value in arguments.items())
        return f"{self.text.rstrip()}\n\nawait {_MAIN}({passed})\n"


def _literal(name: str, value: object) -> str:
    """JSON as Python writes it, which no value can leave."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidParams(f"invalid arguments:\n- {name}: a number is too large")
        stack += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    try:
        return ascii(value)
    except (ValueError, RecursionError):
        raise InvalidParams(f"invalid arguments:\n- {name}: a number is too large, or a value too deep") from None


def read_script(name: str, text: str, stamp: FileStamp | None = None) -> Script:
    """The tool of a script, or its fault."""
    if not NAME.fullmatch(name):
        return Script(name, stamp, fault="its name may have letters, digits and _ only, 64 at most, and no digit first")
    try:
        tree = parsed(text)
        definition = _definition(name, _main_of(tree))
        names = dict(sorted(_free_names(tree).items(), key=lambda item: item[1]))
    except SyntaxError as problem:
        reason = problem.msg if problem.filename == _OWN else f"it is not Python: {problem.msg}"
        return Script(name, stamp, fault=reason, line=problem.lineno or 1)
    except (ValueError, RecursionError, MemoryError):
        return Script(name, stamp, fault="it is not Python that can be read: too deep, or with a null byte")
    return Script(name=name, stamp=stamp, text=text, definition=definition, names=names)


def is_tool(text: str) -> bool:
    """Whether the text is that of a tool, as it ends with a function and leaves the call of `main` to others."""
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(tree.body) and isinstance(tree.body[-1], ast.FunctionDef | ast.AsyncFunctionDef)


def _fault(reason: str, line: int) -> SyntaxError:
    return SyntaxError(reason, (_OWN, line, None, None))


def _main_of(tree: ast.Module) -> ast.AsyncFunctionDef:
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    mains = [node for node in mains if node.name == _MAIN]
    if len(mains) != 1:
        line = mains[1].lineno if mains else 1
        raise _fault(f"it needs one async def {_MAIN}(…), and has {len(mains) or 'none'}", line)
    if not isinstance(main := mains[0], ast.AsyncFunctionDef):
        raise _fault(f"write async def {_MAIN}(…), so that it can await tools", mains[0].lineno)
    return main


def _definition(name: str, main: ast.AsyncFunctionDef) -> JsonObject:
    docstring = ast.get_docstring(main)
    definition: JsonObject = {"name": name}
    if (purpose := first_paragraph(docstring)) is not None:
        definition["description"] = purpose
    definition["inputSchema"] = _parameters(main, documented_parameters(docstring or ""))
    if (output := _output(main.returns)) is not None:
        definition["outputSchema"] = output
    return definition


def _parameters(main: ast.AsyncFunctionDef, described: Mapping[str, str]) -> JsonObject:
    args = main.args
    for star in (args.vararg, args.kwarg, *args.posonlyargs):
        if star is not None:
            raise _fault(f"parameter {star.arg!r}: tools are called with named arguments", star.lineno)
    plain = [None] * (len(args.args) - len(args.defaults))
    defaults = [*plain, *args.defaults, *args.kw_defaults]
    members: dict[str, JsonObject] = {}
    needed: list[str] = []
    for parameter, default in zip([*args.args, *args.kwonlyargs], defaults, strict=True):
        member = {} if parameter.annotation is None else _schema(parameter.annotation, parameter.arg)
        if (text := described.get(parameter.arg)) is not None:
            member["description"] = text
        if default is None:
            needed.append(parameter.arg)
        else:
            member["default"] = _default(parameter.arg, default)
        members[parameter.arg] = member
    schema: JsonObject = {"type": "object", "properties": members, "additionalProperties": False}
    return {**schema, "required": needed} if needed else schema


def _default(name: str, node: ast.expr) -> object:
    try:
        value = ast.literal_eval(node)
        return msgspec.json.decode(msgspec.json.encode(value))
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError, OverflowError):
        raise _fault(f"parameter {name!r}: its default is not a value of JSON", node.lineno) from None


def _output(returns: ast.expr | None) -> JsonObject | None:
    """The schema of an object; None for any other result, which is text."""
    if returns is None:
        return None
    try:
        schema = _schema(returns, "the result")
    except SyntaxError:
        return None  # the engine may know the type
    return schema if schema.get("type") == "object" else None


def _schema(node: ast.expr, name: str, depth: int = 0) -> JsonObject:
    """The schema of an annotation. Raises `SyntaxError`."""
    if depth > _DEEPEST:
        raise _fault(f"{name}: its type is nested too deep", node.lineno)
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _schema(_forward(text, name, node.lineno), name, depth + 1)
        case ast.Name(id=kind) | ast.Attribute(value=ast.Name(id="typing"), attr=kind):
            if kind in _ANY:
                return {}
            if (
                simple := _SIMPLE.get(kind) or _SIMPLE.get(kind.lower() if kind in ("List", "Dict") else "")
            ) is not None:
                return {"type": simple}
        case ast.BinOp(op=ast.BitOr()):
            return _union([_schema(part, name, depth + 1) for part in _alternatives(node)])
        case ast.Subscript(
            value=ast.Name(id=kind) | ast.Attribute(value=ast.Name(id="typing"), attr=kind), slice=inner
        ):
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if (schema := _generic(kind, parts, name, depth + 1)) is not None:
                return schema
    raise _fault(f"{name}: its type {hide_head(ast.unparse(node), 60)} is not one of {_KNOWN}", node.lineno)


def _forward(text: str, name: str, line: int) -> ast.expr:
    try:
        return parsed(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _fault(f"{name}: its type cannot be read", line) from None


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    else:
        yield node


def _generic(kind: str, parts: Sequence[ast.expr], name: str, depth: int) -> JsonObject | None:
    match kind, parts:
        case (("list" | "List"), [item]):
            return _with({"type": "array"}, "items", _schema(item, name, depth))
        case (("dict" | "Dict"), [ast.Name(id="str"), value]):
            return _with({"type": "object"}, "additionalProperties", _schema(value, name, depth))
        case "Optional", [item]:
            return _union([_schema(item, name, depth), {"type": "null"}])
        case "Union", _:
            return _union([_schema(part, name, depth) for part in parts])
        case "Annotated", [item, *notes]:
            texts = [note.value for note in notes if isinstance(note, ast.Constant) and isinstance(note.value, str)]
            return {**_schema(item, name, depth), **({"description": texts[0]} if texts else {})}
        case "Literal", _:
            values = [part.value for part in parts if isinstance(part, ast.Constant)]
            if len(values) == len(parts) and all(isinstance(value, str | int | None) for value in values):
                is_text = all(isinstance(value, str) for value in values)
                return {"type": "string", "enum": values} if is_text else {"enum": values}
    return None


def _with(schema: JsonObject, key: str, inner: JsonObject) -> JsonObject:
    return {**schema, key: inner} if inner else schema


def _union(members: Sequence[JsonObject]) -> JsonObject:
    if {} in members:
        return {}
    distinct: list[JsonObject] = []
    for member in members:
        inner = member.get("anyOf")
        distinct += [item for item in (inner if isinstance(inner, list) else [member]) if item not in distinct]
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _free_names(tree: ast.Module) -> dict[str, int]:
    """The first line of each name that is read but bound neither in the script nor by Python."""
    bound: set[str] = set()
    read: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read[name] = min(read.get(name, node.lineno), node.lineno)
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=alias):
                bound.add(alias or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                bound.add(name)
            case ast.MatchMapping(rest=str(name)):
                bound.add(name)
    return {name: line for name, line in read.items() if name not in bound and name not in _GIVEN}


# -- folders


def read_folder(folder: str, env: Mapping[str, str], before: Mapping[str, Script]) -> dict[str, Script]:
    """The scripts by name, also those with a fault; files that did not change since `before` are not read. Blocks.

    Links and names that begin with a dot or `_` are no scripts. Raises `OSError`.
    """
    root = Path(folder).resolve(strict=True)
    if (problem := problem_of_config(os.stat(root), env, power=_POWER, path=root)) is not None:
        raise OSError(f"it {problem}")
    scripts: dict[str, Script] = {}
    for name, stamp in sorted(_files(root).items()):
        previous = before.get(name)
        is_same = previous is not None and previous.stamp == stamp
        scripts[name] = previous if previous is not None and is_same else _read(root, name, env, stamp)
    return scripts


def _files(root: Path) -> dict[str, FileStamp]:
    stamps: dict[str, FileStamp] = {}
    with os.scandir(root) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES or len(stamps) > MOST_SCRIPTS:
                raise OSError(f"it has more than {MOST_SCRIPTS} scripts, or {_MOST_ENTRIES} files")
            name = entry.name.removesuffix(_SUFFIX)
            if name != entry.name and name[:1] not in (".", "_", "") and entry.is_file(follow_symlinks=False):
                stamps[name] = stamp_of(entry.stat(follow_symlinks=False))
    return stamps


def _read(root: Path, name: str, env: Mapping[str, str], stamp: FileStamp) -> Script:
    file = root / f"{name}{_SUFFIX}"
    try:
        if (problem := problem_of_config(os.stat(file), env, power=_POWER, path=file)) is not None:
            return Script(name, stamp, fault=f"it {problem}")
        content, stamp = read_file(root, file.name, LARGEST)
        return read_script(name, content.decode("utf-8-sig"), stamp)
    except UnicodeError:
        return Script(name, stamp, fault="it is not UTF-8 text")
    except OSError as problem:
        return Script(name, stamp, fault=hide(str(problem.strerror or problem)))


def findings_of(folder: str, scripts: Mapping[str, Script], unknown: Mapping[str, list[str]]) -> list[ConfigFinding]:
    """Findings about each script; `unknown`: names by script that neither Python nor a tool has."""
    findings: list[ConfigFinding] = []
    for name, script in scripts.items():
        file = os.path.join(folder, f"{name}{_SUFFIX}")
        if script.fault:
            findings.append(ConfigFinding("script_invalid", hide_head(script.fault, 500), file, script.line))
        for missing in unknown.get(name, ()):
            reason = f"there is no tool {hide_head(missing, 100)!r} for scripts. Correct its name, or define it."
            findings.append(ConfigFinding("script_unknown_tool", reason, file, script.names[missing]))
    return findings
