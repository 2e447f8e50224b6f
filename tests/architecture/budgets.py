"""Budgets: counts that may only fall, each for a room or for the whole hub."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Offence, Source, sources

DIALECT = frozenset(
    (
        *("own", "found", "said", "known", "given", "made", "kept", "here", "meant", "rest", "one", "left", "way"),
        *("asked", "wanted", "shown", "done", "lost", "held", "place", "most", "what", "how", "about", "now", "other"),
        "others",
    )
)
"""Words for parameters and variables that say nothing about the value: the field has a noun for it."""


def dialect(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for line, name in bindings(source):
            if name.strip("_") in DIALECT:
                what = f"{name} does not say what the value is: use the field's noun"
                yield Offence(source.shown, line, "bindings", what, room=source.room)


def bindings(source: Source) -> Iterator[tuple[int, str]]:
    """The line and the name of every parameter, variable, attribute and pattern that gets a value."""
    for parameter in source.of(ast.arg):
        yield parameter.lineno, parameter.arg
    for name in source.of(ast.Name):
        if isinstance(name.ctx, ast.Store):
            yield name.lineno, name.id
    for attribute in source.of(ast.Attribute):
        if isinstance(attribute.ctx, ast.Store):
            yield attribute.lineno, attribute.attr
    patterns: list[ast.MatchAs | ast.MatchStar | ast.ExceptHandler] = [
        *source.of(ast.MatchAs),
        *source.of(ast.MatchStar),
        *source.of(ast.ExceptHandler),
    ]
    for pattern in patterns:
        if pattern.name is not None:
            yield pattern.lineno, pattern.name


def modules(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        yield Offence(source.shown, 1, "modules", "a module more than the budget has", room="mcp_hub")


def public_classes(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                what = f"{node.name} is a public class more than the budget has"
                yield Offence(source.shown, node.lineno, "classes", what, room="mcp_hub")


def unchecked_types(root: Path) -> Iterator[Offence]:
    """Each `Any`, wherever it stands but in an import."""
    for source in sources(root):
        names = [node for node in source.of(ast.Name) if node.id == "Any"]
        for node in (*names, *(node for node in source.of(ast.Attribute) if node.attr == "Any")):
            yield Offence(source.shown, node.lineno, "Any", "Any is not checked: name the type", room="mcp_hub")


def shared_stores(root: Path) -> Iterator[Offence]:
    """Whether a store is shared is a question within `stores`; others ask for what they want to do."""
    for source in sources(root):
        if not source.module.startswith("stores"):
            for line, name in _mentions(source):
                if name.strip("_") == "is_shared":
                    what = "is_shared outside of the stores"
                    yield Offence(source.shown, line, "is_shared", what)


def _mentions(source: Source) -> Iterator[tuple[int, str]]:
    for attribute in source.of(ast.Attribute):
        yield attribute.lineno, attribute.attr
    for name in source.of(ast.Name):
        yield name.lineno, name.id
    for parameter in source.of(ast.arg):
        yield parameter.lineno, parameter.arg
    for keyword in source.of(ast.keyword):
        yield keyword.value.lineno, keyword.arg or ""
    for function in source.functions:
        yield function.lineno, function.name
