"""Checks a `local` reference against a module's source, without importing it."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from mcp_hub.config.findings import nearest
from mcp_hub.errors import StartFailed
from mcp_hub.syntax import parsed

_LARGEST = 1 << 20
_DYNAMIC = ("__getattr__", "globals", "vars", "setattr", "exec")
"""Names by which a module may get attributes that its source does not show."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def check_reference(reference: str, folder: str) -> None:
    """Raises `StartFailed` if the module or its attribute certainly does not exist. `folder` is searched after
    `sys.path`.
    """
    module, _, attribute = reference.partition(":")
    top = module.partition(".")[0]
    if not _is_module(top, folder):
        message = f"module not found: {top}. Install it, or put it next to the configuration."
        raise StartFailed("module_not_found", message, tuple(dict.fromkeys((*sys.path, folder))))
    spec = _module_spec(module, folder)
    name = attribute.partition(".")[0]
    names = _names(spec)
    if not name or names is None or name in names:
        return
    if spec.submodule_search_locations and PathFinder.find_spec(f"{module}.{name}", spec.submodule_search_locations):
        return
    reason = f"module {module} does not have {name}{nearest(name, names) or '. Name a Registry that it defines.'}"
    raise StartFailed("registry_not_found", reason)


def _is_module(top: str, folder: str) -> bool:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None or PathFinder.find_spec(top, [folder]) is not None


def _module_spec(module: str, folder: str) -> ModuleSpec:
    top, *submodules = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    spec = spec or PathFinder.find_spec(top, [folder])
    for length in range(len(submodules)):
        if spec is not None:
            places = spec.submodule_search_locations
            spec = PathFinder.find_spec(".".join((top, *submodules[: length + 1])), places) if places else None
    if spec is None:
        raise StartFailed("module_not_found", f"module not found: {module}. Correct its name.")
    return spec


def _names(spec: ModuleSpec) -> set[str] | None:
    """The names that the module defines; None if unknown."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        with Path(spec.origin).open("rb") as file:
            tree = parsed(file.read(_LARGEST))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # loading will say so
    names = set(_bound(tree))
    is_open = "*" in names or any(isinstance(node, ast.Name) and node.id in _DYNAMIC for node in ast.walk(tree))
    return None if is_open or names & {"__getattr__"} else names


def _bound(node: ast.AST) -> Iterator[str]:
    """Names bound at module level or declared global."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.Global(names=names):
                yield from names
        if isinstance(child, _SCOPES):
            yield from (name for inner in ast.walk(child) if isinstance(inner, ast.Global) for name in inner.names)
        else:
            yield from _bound(child)
