"""The sizes of the hub that have a goal, as a table: `python -m tests.architecture --figures`."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.architecture import budgets, classes, imports, prose
from tests.architecture.source import Rule, sources


class Figure(NamedTuple):
    """`goal`: the value is to become at most this."""

    name: str
    value: float
    goal: float | None
    note: str = ""


def figures(root: Path) -> Iterator[str]:
    """The table in Markdown."""
    yield from ("| figure | now | goal | |", "| --- | ---: | ---: | --- |")
    for name, value, goal, note in _figures(root):
        aim = "" if goal is None else f"≤ {goal:,}" if goal else "0"
        yield f"| {name} | {value:,} | {aim} | {note} |"


def _figures(root: Path) -> Iterator[Figure]:
    lines = _lines(root, "mcp_hub")
    words = _count(root, budgets.dialect)
    yield Figure(
        "bindings of the dialect per 1,000 lines", round(1000 * words / max(1, lines), 1), 3, f"{words:,} in all"
    )
    yield Figure("words in docstrings", docstring_words(root), 70_000)
    yield Figure("docstrings that begin with a word that says nothing", _count(root, prose.docstring_openings), 0)
    yield Figure("names that are missing in docstrings of packages", _count(root, prose.package_maps), 0)
    yield Figure("two-way pairs of folders", _count(root, imports.two_way_pairs), 0)
    yield Figure("setters that only store", _count(root, classes.storing_setters), 0)
    yield from _largest(root)
    yield Figure("constructor calls with 5 or more positional arguments", _count(root, classes.positional_arguments), 0)
    yield Figure("`is_shared` outside of the stores", _count(root, budgets.shared_stores), 0)
    yield Figure("modules", _count(root, budgets.modules), 600)
    yield Figure("public classes", _count(root, budgets.public_classes), 800)
    yield Figure("`Any`", _count(root, budgets.unchecked_types), 216)
    yield Figure("lines of mcp_hub", lines, None)
    yield Figure("lines of tests", _lines(root, "tests"), 80_000)


def _largest(root: Path) -> Iterator[Figure]:
    """The class with the most of each kind, its bases included."""
    for kind, limit in classes.EFFECTIVE.items():
        sizes = [(size, each.name) for each in classes.effective(root) if (size := int(getattr(each, kind)))]
        size, name = max(sizes, default=(0, ""))
        above = sum(size > limit for size, _ in sizes)
        yield Figure(f"{kind} of a class with its bases", size, limit, f"{name}; {above} above")


def docstring_words(root: Path) -> int:
    """Words in the docstrings of modules, classes and functions."""
    nodes = (node for source in sources(root) for node in (source.tree, *source.classes, *source.functions))
    return sum(len((ast.get_docstring(node) or "").split()) for node in nodes)


def _count(root: Path, rule: Rule) -> int:
    return sum(1 for _ in rule(root))


def _lines(root: Path, folder: str) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in (root / folder).rglob("*.py"))
