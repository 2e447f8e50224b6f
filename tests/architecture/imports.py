"""Rules about imports, wherever in a file they stand, those under `TYPE_CHECKING` included."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture import ranks
from tests.architecture.source import Offence, sources


class Import(NamedTuple):
    """Names of our own modules come without `mcp_hub.` in `module`, with it in `name`."""

    file: str
    line: int
    module: str
    name: str
    is_lazy: bool

    def offence(self, what: str) -> Offence:
        return Offence(self.file, self.line, self.name.removeprefix("mcp_hub."), what)


def within(module: str, names: set[str]) -> bool:
    """Whether `module` or a package it is in is one of `names`."""
    parts = module.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


@cache
def imports(root: Path) -> tuple[Import, ...]:
    """Every import of the package."""
    found = []
    for source in sources(root):
        functions = [(node.lineno, node.end_lineno or node.lineno) for node in source.functions]
        for node in (*source.of(ast.Import), *source.of(ast.ImportFrom)):
            line = node.lineno
            is_lazy = any(first <= line <= last for first, last in functions)
            found += [Import(source.shown, line, source.module, name, is_lazy) for name in imported(node)]
    return tuple(found)


def imports_out_of_order(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        top, _, inner = found.name.partition(".")
        source, target = found.module.partition(".")[0], inner.partition(".")[0]
        if top != "mcp_hub" or source in (target, "") or not _is_module(root, target):
            continue  # `mcp_hub` itself, the version, may be imported by anyone
        if source == "client":
            if target not in ranks.CLIENT_MAY:
                yield found.offence(f"client imports {target}")
        elif source not in ranks.RANK or target not in ranks.RANK:
            yield found.offence(f"{source} or {target} is missing in the table of ranks")
        elif ranks.RANK[target] <= ranks.RANK[source] or (source == "hub" and target in ranks.HUB_MAY_NOT):
            yield found.offence(f"{source} imports {target}")


def _is_module(root: Path, name: str) -> bool:
    return bool(name) and any((root / "mcp_hub" / place).exists() for place in (name, f"{name}.py"))


def two_way_pairs(root: Path) -> Iterator[Offence]:
    """Files and folders beside each other that import each other, in whatever file below them."""
    modules = {source.module for source in sources(root)}
    pairs: dict[tuple[str, str], Import] = {}
    for found in imports(root):
        target = _module(found.name, modules)
        if target and found.module:
            pairs.setdefault(_beside(found.module, target), found)
    for (here, there), found in pairs.items():
        if here < there and (there, here) in pairs:
            yield found.offence(f"{here} and {there} import each other")


def _module(name: str, modules: set[str]) -> str:
    """The module of the hub that an import reads, empty for another one."""
    top, _, inner = name.partition(".")
    parts = inner.split(".") if top == "mcp_hub" and inner else []
    lengths = range(len(parts), 0, -1)
    return next((name for length in lengths if (name := ".".join(parts[:length])) in modules), "")


def _beside(source: str, target: str) -> tuple[str, str]:
    """The two that stand beside each other and hold these modules, both empty if one holds the other."""
    here, there = source.split("."), target.split(".")
    for place, (one, other) in enumerate(zip(here, there, strict=False)):
        if one != other:
            return ".".join(here[: place + 1]), ".".join(there[: place + 1])
    return "", ""


def imports_of_fronts(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        top, _, inner = found.name.partition(".")
        target = inner.partition(".")[0]
        if top == "mcp_hub" and within(found.module, {"fronts"}) and _is_module(root, target):
            if target not in ranks.FRONTS_MAY:
                yield found.offence(f"{found.module} imports {inner}: fronts ask the hub's port")


def imports_of_pure_modules(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        if within(found.module, ranks.PURE) and within(found.name, ranks.IMPURE):
            yield found.offence(f"pure {found.module} imports {found.name}")


def imports_of_the_sdk(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        if within(found.name, {"mcp", "mcp_types"}) and not within(found.module, ranks.SDK):
            yield found.offence(f"{found.module} imports {found.name}")


def imports_of_concrete_parts(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        target = found.name.removeprefix("mcp_hub.")
        is_concrete = found.name != target and within(target, ranks.CONCRETE) and not within(target, ranks.SEAMS)
        if is_concrete and within(found.module, ranks.ABSTRACT - {"fronts"}):
            yield found.offence(f"{found.module} imports concrete {target}")


def imports_of_asyncio(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        if within(found.name, {"asyncio"}) and not within(found.module, ranks.ASYNCIO):
            yield found.offence(f"{found.module} imports asyncio")


def lazy_imports(root: Path) -> Iterator[Offence]:
    for found in imports(root):
        if found.is_lazy and found.module.partition(".")[0] not in ranks.LAZY:
            yield found.offence(f"{found.name} is imported inside a function")
