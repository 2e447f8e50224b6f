"""The files that the rules look at, each read and parsed once, and the form in which an offence is reported."""

import ast
import gc
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


class Offence(NamedTuple):
    """One place that breaks a rule. `file` and `name` identify it in the allow-list, where `size` is added up.

    `room`: the folder that has an entry in the list in place of the file.
    """

    file: str
    line: int
    name: str
    what: str
    size: int = 1
    room: str = ""

    @property
    def entry(self) -> tuple[str, str]:
        """The file or room, and the name, of the allow-list."""
        return self.room or self.file, self.name

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


Rule: TypeAlias = Callable[[Path], Iterator[Offence]]
"""Takes the root of a repository, gives its offences. The name of the function is the name of the rule."""


class Source:
    """One file; `shown` is its path below the root. Modules of the hub are named without `mcp_hub.`."""

    def __init__(self, root: Path, path: Path) -> None:
        self.shown = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.is_package = path.name == "__init__.py"
        self.module = ".".join(path.relative_to(root).with_suffix("").parts[1:]).removesuffix("__init__").rstrip(".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes with fields, the outer ones first; three times as fast as `ast.walk`."""
        nodes: list[ast.AST] = [self.tree]
        for node in nodes:
            for value in vars(node).values():
                if value.__class__ is list:
                    nodes += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST) and value._fields:
                    nodes.append(value)
        return nodes

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        nodes: dict[type[ast.AST], list[ast.AST]] = {}
        for node in self.nodes:
            nodes.setdefault(type(node), []).append(node)
        return nodes

    def of(self, *classes: type[Node]) -> Iterator[Node]:
        """The nodes of exactly these classes."""
        for class_ in classes:
            yield from self._by_class.get(class_, [])  # type: ignore[misc]

    @property
    def functions(self) -> Iterator[Function]:
        yield from self.of(ast.FunctionDef)
        yield from self.of(ast.AsyncFunctionDef)

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        return self.of(ast.ClassDef)

    @property
    def room(self) -> str:
        """The folder of the hub that the file is below, such as `mcp_hub/calls`."""
        return "/".join(self.shown.split("/")[: 2 if self.shown.count("/") > 1 else 1])

    @cached_property
    def qualified(self) -> list[tuple[str, ast.ClassDef | Function]]:
        """Every class and function of the file with its name, that of a method with its class."""
        return list(_inside(self.tree, ""))

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    @cached_property
    def prose(self) -> str:
        """Comments and strings at their offsets; code is NUL characters, indentation and `#` are blanks."""
        lines = io.StringIO(self.text).readlines()
        shown = [re.sub(r"\S", "\0", line) for line in lines]
        for token in tokenize.generate_tokens(iter(lines).__next__):
            if token.type in _PROSE:
                (first, begin), (last, end) = token.start, token.end
                for row in range(first - 1, last):
                    start, stop = begin if row == first - 1 else 0, end if row == last - 1 else len(lines[row])
                    text = lines[row][start:stop]
                    text = text.replace("#", " ", 1) if token.type == tokenize.COMMENT else text
                    shown[row] = shown[row][:start] + text + shown[row][stop:]
        return "".join(shown)


_PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


@contextmanager
def collector_paused() -> Iterator[None]:
    """Millions of nodes come and none of them goes: the garbage collector would take four fifths of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@cache
def sources(root: Path, folder: str = "mcp_hub") -> tuple[Source, ...]:
    """Every Python file below `folder`, in order of path."""
    return tuple(Source(root, path) for path in sorted((root / folder).rglob("*.py")))


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields that hold statements, or what holds statements: only there are classes and functions defined."""


def _inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    for block in _BLOCKS:
        children = getattr(node, block, None)
        for child in children if isinstance(children, list) else ():
            if isinstance(child, ast.ClassDef | Function):
                yield prefix + child.name, child
                yield from _inside(child, f"{prefix}{child.name}.")
            else:
                yield from _inside(child, prefix)
