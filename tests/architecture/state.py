"""The rule about state: an attribute is written on anything but `self` only in the module whose class declares it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sizes import written_on_self
from tests.architecture.source import Offence, Source, sources


def foreign_attributes(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        own = declared(source)
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                if ast.unparse(node.value) not in ("self", "cls") and node.attr not in own:
                    what = f"{ast.unparse(node)} is written outside the module of its class"
                    yield Offence(source.shown, node.lineno, node.attr, what)


def declared(source: Source) -> set[str]:
    """The attributes of all classes in the file: slots, names in their bodies, and what they write on `self`."""
    names: set[str] = set()
    for node in source.classes:
        names |= written_on_self(node)
        for child in node.body:
            names |= _names_of(child)
    return names


def _names_of(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets, value=value):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            slots = (
                {node.value for node in ast.walk(value) if isinstance(node, ast.Constant)}
                if "__slots__" in names
                else set()
            )
            return names | {name for name in slots if isinstance(name, str)}
        case _:
            return set()
