"""Rules about text: docstrings, the pages that they cite, and English. Word lists are in `english`."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import Function, Offence, Source, sources

PACKAGE_LINES = range(10, 21)
_OPENING = re.compile(r"(What|Who|Whoever|How)\b")
_PAGE = re.compile(r"([\w./-]+\.md)\b(?:,?\s+§\s?(\d[\d.]*\d|\d))?(?:,\s+\"([^\"]+)\")?")


def missing_docstrings(root: Path) -> Iterator[Offence]:
    promised = _promised(root)
    for source in sources(root):
        if ast.get_docstring(source.tree) is None:
            yield Offence(source.shown, 1, "module", "no docstring")
        for name, node in _public(source):
            is_promised = isinstance(node, Function) and "." in name and node.name in promised
            if ast.get_docstring(node) is None and not is_promised and not _is_plain(node):
                yield Offence(source.shown, node.lineno, name, f"{name} has no docstring")


def _public(source: Source) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield node.name, node
            for child in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(child, Function) and not child.name.startswith("_"):
                    yield f"{node.name}.{child.name}", child


@cache
def _promised(root: Path) -> frozenset[str]:
    """Methods that a protocol or another class documents: those that implement them need not repeat it."""
    methods = (child for source in sources(root) for node in source.classes for child in node.body)
    return frozenset(child.name for child in methods if isinstance(child, Function) and ast.get_docstring(child))


def _is_plain(node: ast.AST) -> bool:
    """A function of one statement says it all by its name; so does `...` in a protocol."""
    return isinstance(node, Function) and len(node.body) == 1 and not isinstance(node.body[0], ast.With | ast.AsyncWith)


def package_docstrings(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        text = ast.get_docstring(source.tree) or ""
        lines = len(text.splitlines())
        if source.is_package and lines not in PACKAGE_LINES:
            what = f"the docstring has {lines} lines; a package has {PACKAGE_LINES[0]} to {PACKAGE_LINES[-1]}"
            yield Offence(source.shown, 1, "lines", what)


def docstring_openings(root: Path) -> Iterator[Offence]:
    """Docstrings of modules, classes and functions, and those below attributes."""
    for source in sources(root):
        for node in source.nodes:
            match node:
                case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                    opening = _OPENING.match(text.strip())
                    if opening:
                        what = f"the docstring begins with {opening[1]}: say what the thing is"
                        yield Offence(source.shown, line, opening[1], what)


def missing_pages(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for cited in _PAGE.finditer(source.prose):
            page, section, heading = cited.groups()
            if not _is_there(root, page, section or heading):
                what = f"cites {' '.join(cited[0].split())}, which is not in docs/"
                yield Offence(source.shown, source.line_of(cited.start()), page, what)


def _is_there(root: Path, page: str, section: str | None) -> bool:
    headings = next((_headings(root / place) for place in (page, f"docs/{page}") if (root / place).is_file()), None)
    if headings is None:
        return False
    return section is None or any(re.match(re.escape(" ".join(section.split())) + r"\b", line) for line in headings)


@cache
def _headings(page: Path) -> list[str]:
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line.lstrip("#").strip() for line in lines if line.startswith("#")]
