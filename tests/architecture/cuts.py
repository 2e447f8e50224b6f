"""Texts that are cut by hand: only `masking.hide_head`, `hide_tail` and `hide_part` cut behind the mask."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tests.architecture.source import Function, Offence, sources

_LEAST = 20
"""A cut at fewer characters looks at a head or a hash; the shortest text for people has this many."""
_MASKS = {"hide", "shown", "visible", "decoded", "hide_head", "hide_tail", "one_line"}
_TEXTS = {"detail", "message", "reason", "stderr", "error_description", "location"}
"""Attributes that hold what a stranger wrote."""
_WITHOUT_MASK = ("attach", "client", "conformance", "examples", "masking")
"""Parts that know no secrets, and the mask itself."""


def cut_texts(root: Path) -> Iterator[Offence]:
    """A text is cut by a slice before it is masked, or on its way into an error, a log line or another text."""
    for source in sources(root):
        if not source.module.startswith(_WITHOUT_MASK):
            slices = [node.lineno for node in source.of(ast.Slice)]
            functions = [
                (name, node)
                for name, node in source.qualified
                if isinstance(node, Function) and any(node.lineno <= line <= (node.end_lineno or 0) for line in slices)
            ]
            places = {place.lineno: (name, place) for name, node in functions for place in _cut_in(node)}
            for line, (name, place) in sorted(places.items()):
                what = f"{ast.unparse(place)} cuts a text before it is masked: use hide_head"
                yield Offence(source.shown, line, name, what)


def _cut_in(function: Function) -> Iterator[ast.Subscript]:
    sliced = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for place in _places(node.value):
                sliced[node.targets[0].id] = place
    for node in ast.walk(function):
        for value in _values(node):
            yield from _shown(value, sliced)
        if _is_text(node):
            yield from _places(node)


def _values(node: ast.AST) -> list[ast.expr]:
    """What a part of the code shows or joins to another text."""
    match node:
        case ast.FormattedValue(value=value):
            return [value]
        case ast.Call(func=func, args=args, keywords=keywords) if _shows(func):
            return [*args, *(keyword.value for keyword in keywords)]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if "…" in (_text(left), _text(right)):
            return [left, right]
    return []


def _is_text(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """Whether it is a part of a text, going by what the text comes from."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr=attr)):
            return attr in _TEXTS
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="decode" | "replace"))):
            return True
        case ast.Subscript(value=ast.Call(func=ast.Name(id="str" | "repr" | "ascii"))):
            return True
    return False


def _shows(func: ast.expr) -> bool:
    """Whether it masks, logs or raises what it is called with."""
    match func:
        case ast.Name(id=name):
            return name in _MASKS or name.endswith(("Error", "Failed", "Params", "Problem", "Entry", "Refused"))
        case ast.Attribute(value=ast.Name(id="log")):
            return True
    return False


def _shown(value: ast.expr, sliced: dict[str, ast.Subscript]) -> Iterator[ast.Subscript]:
    """The slices that are the value, or the name of it, or stand within calls that change it."""
    match value:
        case ast.Name(id=name) if name in sliced:
            yield sliced[name]
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if attr != "join":
            yield from _shown(inner, sliced)
            for each in args:
                yield from _shown(each, sliced)
        case _:
            yield from _places(value)


def _places(value: ast.expr) -> Iterator[ast.Subscript]:
    """The slices that an expression has as its value."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_places(body), *_places(orelse))
        case ast.BoolOp(values=values):
            for each in values:
                yield from _places(each)
        case ast.BinOp(left=left, right=right):
            yield from (*_places(left), *_places(right))
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "decode" | "rstrip" | "lower" | "encode")):
            yield from _places(inner)
        case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper)):
            is_hash = isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith(("digest", "isoformat"))
            if not is_hash and (_limits(lower) or _limits(upper)):
                yield value


def _limits(bound: ast.expr | None) -> bool:
    """Whether a bound of a slice is a number of characters: a constant, or a name in capitals."""
    if bound is None:
        return False
    for node in ast.walk(bound):
        match node:
            case ast.Constant(value=int(number)) if number >= _LEAST:
                return True
            case ast.Name(id=name) if name.isupper():
                return True
    return False


def _text(value: ast.expr) -> object:
    return value.value if isinstance(value, ast.Constant) else None
