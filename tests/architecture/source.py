"""The files that the rules look at, each read and parsed once, and the form in which an offence is reported."""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Offence(NamedTuple):
    """One place that breaks a rule. `file` and `name` identify it in the allow-list, where `size` is added up."""

    file: str
    line: int
    name: str
    what: str
    size: int = 1

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
        return list(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

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


@cache
def sources(root: Path, folder: str = "mcp_hub") -> tuple[Source, ...]:
    """Every Python file below `folder`, in order of path."""
    return tuple(Source(root, path) for path in sorted((root / folder).rglob("*.py")))


def qualified(source: Source) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Every class and function of a file with its name, that of a method with its class."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | Function):
                yield prefix + child.name, child
                yield from inside(child, f"{prefix}{child.name}.")
            else:
                yield from inside(child, prefix)

    return inside(source.tree, "")
