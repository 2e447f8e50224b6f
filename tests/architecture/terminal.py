"""A rule about terminals: every text reaches one through `visible`, which spells out what a terminal would obey."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.source import Offence, Source, sources

GATES: Final = {
    "mcp_hub/cli/render/output.py": "the functions through which commands print and ask",
    "mcp_hub/logs.py": "the log, whose every line has passed `visible`",
    "mcp_hub/attach/serve.py": "one line, spelled out there: joining a hub loads nothing else",
    "mcp_hub/cli/commands/running/attached.py": "a fixed line for the program that starts the hub",
    "mcp_hub/fronts/stdio.py": "the protocol",
    "mcp_hub/cli/setup.py": "flushes stdout, and writes nothing",
    "mcp_hub/cli/access/following.py": "bytes of a result into a pipe",
}
"""Modules that may write to a stream, and why."""
SINKS: Final = frozenset(
    ("print", "click.echo", "click.secho", "click.echo_via_pager", "click.prompt", "click.confirm", "click.pause")
)
STREAMS: Final = frozenset(f"sys.{name}.{end}" for name in ("stdout", "stderr") for end in ("write", "buffer"))
ESCAPES: Final = frozenset(("visible", "cell", "short_cell"))
_SHOWN: Final = frozenset(("text", "message", "default", "prompt_suffix"))
"""Keywords of prompts whose values are shown."""
_METHODS: Final = frozenset(("join", "strip", "rstrip", "split", "removesuffix", "removeprefix"))


def unescaped_output(root: Path) -> Iterator[Offence]:
    """Prints, prompts and texts for rich whose words have not passed `visible`."""
    for source in sources(root):
        if source.shown in GATES or source.shown.startswith("mcp_hub/examples/"):
            continue
        for node in source.of(ast.Attribute, ast.ImportFrom, ast.Call):
            if (what := _offence(source, node)) is not None:
                yield Offence(source.shown, getattr(node, "lineno", 1), what.split("(")[0], f"{what} without visible()")


def _offence(source: Source, node: ast.AST) -> str | None:
    match node:
        case ast.Attribute(attr="write" | "buffer") if (name := ast.unparse(node)) in STREAMS:
            return name
        case ast.ImportFrom(module="click", names=names):
            return next((f"click.{own.name}" for own in names if f"click.{own.name}" in SINKS), None)
        case ast.Call(func=ast.Name(id="Text")) if "rich.text" in source.text:
            return None if all(map(_is_escaped, node.args[:1])) else ast.unparse(node)[:80]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="Text"))) if "rich.text" in source.text:
            return None if all(map(_is_escaped, node.args)) else ast.unparse(node)[:80]
        case ast.Call(func=ast.Attribute(attr="write"), args=[ast.Constant(value=1 | 2), *_]):
            return ast.unparse(node)[:80] if ast.unparse(node.func) == "os.write" else None
        case ast.Call(func=ast.Name() | ast.Attribute(value=ast.Name())) if ast.unparse(node.func) in SINKS:
            texts = [*node.args, *(word.value for word in node.keywords if word.arg in _SHOWN)]
            return None if all(map(_is_escaped, texts)) else ast.unparse(node)[:80]
    return None


def _is_escaped(node: ast.expr) -> bool:
    """Whether the text of an expression is a constant, or has passed `visible`."""
    match node:
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)) if name in ESCAPES:
            return True
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in _METHODS:
            return _is_escaped(value) and all(map(_is_escaped, args))
        case ast.Subscript(value=value):
            return _is_escaped(value)
        case ast.JoinedStr(values=values):
            return all(_is_escaped(part.value if isinstance(part, ast.FormattedValue) else part) for part in values)
        case ast.Tuple(elts=[text, *_]):  # of Text.assemble
            return _is_escaped(text)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_escaped(body) and _is_escaped(orelse)
        case ast.BinOp(left=left, right=right):
            return _is_escaped(left) and _is_escaped(right)
        case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner):
            return _is_escaped(inner)
    return False
