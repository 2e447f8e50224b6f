"""The rule about folders: one function makes them, so that each has the mode of the hub's files."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Offence, Source, sources

MAKER = ("mcp_hub/attach/folder.py", "make_folder")
"""The file and the function."""
_MAKE = {"mkdir", "makedirs", "renames", "copytree", "unpack_archive", "extractall"}
"""Functions and methods that make folders with the mode of the umask; `tempfile.mkdtemp` makes private ones."""
_MODULES = {"os", "shutil", "posix", "nt"}


def folders_made_elsewhere(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        maker = {id(node) for node in _maker(source)}
        for node in source.of(ast.Attribute, ast.ImportFrom, ast.Constant):
            name = "" if id(node) in maker else _name(node)
            if name:
                line = getattr(node, "lineno", 0)
                yield Offence(source.shown, line, name, f"{name} makes a folder: call attach.folder.make_folder")


def _maker(source: Source) -> Iterator[ast.AST]:
    for name, node in source.qualified:
        if (source.shown, name) == MAKER:
            yield from ast.walk(node)


def _name(node: ast.AST) -> str:
    """The function that the code names, also where it is only passed on, imported, or the command of a process."""
    if isinstance(node, ast.Attribute) and node.attr in _MAKE:
        of = node.value.id if isinstance(node.value, ast.Name) else ""
        return node.attr if node.attr != "renames" or of in _MODULES else ""
    if isinstance(node, ast.ImportFrom) and node.module in _MODULES:
        return next((alias.name for alias in node.names if alias.name in _MAKE), "")
    return node.value if isinstance(node, ast.Constant) and node.value in ("mkdir", "makedirs") else ""
