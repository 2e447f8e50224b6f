"""Rules about classes: their sizes with and without their bases, setters, calls of constructors, and names."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.architecture.source import Function, Offence, Source, sources

MAX_METHODS, MAX_ATTRIBUTES, MAX_POSITIONAL = 12, 10, 4
EFFECTIVE = {"lines": 300, "methods": 14, "attributes": 16}
"""What a class and its bases may have together."""


def large_classes(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for name, node in source.qualified:
            if isinstance(node, ast.ClassDef):
                counts = (
                    ("methods", public_methods(node), MAX_METHODS),
                    ("attributes", attributes(node), MAX_ATTRIBUTES),
                )
                for kind, names, most in counts:
                    if len(names) > most:
                        what = f"{name} has {len(names)} {kind}, {most} at most"
                        yield Offence(source.shown, node.lineno, f"{name}.{kind}", what, len(names))


class EffectiveClass(NamedTuple):
    """A class with its bases of the hub; protocols among them are forms and add no lines."""

    file: str
    line: int
    name: str
    lines: int
    methods: int
    attributes: int


@cache
def effective(root: Path) -> tuple[EffectiveClass, ...]:
    """Every class at the top of a module."""
    table = _Classes(root)
    return tuple(table.effective(source, node) for source in sources(root) for node in _top(source))


def effective_classes(root: Path) -> Iterator[Offence]:
    for each in effective(root):
        for kind, limit in EFFECTIVE.items():
            size = getattr(each, kind)
            if size > limit:
                problem = f"{each.name} has {size} {kind} with its bases, {limit} at most"
                yield Offence(each.file, each.line, f"{each.name}.{kind}", problem, size)


class _Classes:
    """The classes of the hub by module and name, and the names under which each module imports them."""

    def __init__(self, root: Path) -> None:
        self._defined = {
            (source.module, node.name): (source, node) for source in sources(root) for node in _top(source)
        }
        self._imported = {source.module: dict(_imported(source)) for source in sources(root)}

    def effective(self, source: Source, node: ast.ClassDef) -> EffectiveClass:
        line = list(dict.fromkeys(self._line(source, node)))
        bodies = [node, *(base for base in line[1:] if not is_protocol(base))]
        is_frozen = any(map(_is_frozen, line))
        fields = set[str]() if is_frozen else {name for base in line for name in annotated(base) if name.islower()}
        return EffectiveClass(
            source.shown,
            node.lineno,
            node.name,
            sum((base.end_lineno or base.lineno) - base.lineno + 1 for base in bodies),
            len({name for base in line for name in public_methods(base)}),
            len(fields.union(*map(written_on_self, line))),
        )

    def _line(self, source: Source, node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """The class, its bases, theirs, and so on."""
        yield node
        for base in node.bases:
            target = self._target(source.module, ast.unparse(base).partition("[")[0])
            if target is not None and target[1] is not node:
                yield from self._line(*target)

    def _target(self, module: str, name: str) -> tuple[Source, ast.ClassDef] | None:
        prefix, _, last = name.rpartition(".")
        if prefix:
            return self._defined.get((".".join(self._imported[module].get(prefix, ())), last))
        return self._defined.get((module, name)) or self._defined.get(self._imported[module].get(name, ("", "")))


def _imported(source: Source) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in source.of(ast.ImportFrom):
        top, _, module = (node.module or "").partition(".")
        for alias in node.names if top == "mcp_hub" else ():
            yield alias.asname or alias.name, (module, alias.name)


def _top(source: Source) -> Iterator[ast.ClassDef]:
    return (node for node in source.tree.body if isinstance(node, ast.ClassDef))


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)


def storing_setters(root: Path) -> Iterator[Offence]:
    """Methods that store what they are called with and do nothing else: it belongs into the constructor."""
    for source in sources(root):
        for name, node in source.qualified:
            if isinstance(node, Function) and "." in name and _only_stores(node):
                yield Offence(source.shown, node.lineno, name, f"{name} only stores what it is called with")


def _only_stores(node: Function) -> bool:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if node.decorator_list or node.name.startswith("__") or not arguments or arguments[0].arg != "self":
        return False
    parameters = {argument.arg for argument in arguments[1:]}
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return bool(body) and all(_stores(statement, parameters) for statement in body)


def _stores(statement: ast.stmt, parameters: set[str]) -> bool:
    match statement:
        case ast.Assign(targets=targets, value=value):
            return all(map(_is_own, targets)) and _is_parameter(value, parameters)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return _is_own(target) and _is_parameter(value, parameters)
    return False


def _is_own(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple):
        return all(map(_is_own, target.elts))
    return isinstance(target, ast.Attribute) and _is_self(target.value)


def _is_parameter(value: ast.expr, parameters: set[str]) -> bool:
    if isinstance(value, ast.Tuple):
        return all(_is_parameter(part, parameters) for part in value.elts)
    return isinstance(value, ast.Name) and value.id in parameters


def positional_arguments(root: Path) -> Iterator[Offence]:
    """Calls of a constructor, also of the base's and by `partial`, with more arguments than a reader can count."""
    names = {node.name for source in sources(root) for node in source.classes} | {"cls", "super"}
    for source in sources(root):
        for node in source.of(ast.Call):
            name, count = _constructed(node)
            if count > MAX_POSITIONAL and name in names:
                what = f"{name} is constructed with {count} positional arguments, {MAX_POSITIONAL} at most: name them"
                yield Offence(source.shown, node.lineno, name, what)


def _constructed(node: ast.Call) -> tuple[str, int]:
    match node.func:
        case ast.Name(id="partial") | ast.Attribute(attr="partial") if node.args:
            return _last(node.args[0]), len(node.args) - 1
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"):
            return "super", len(node.args)
    return _last(node.func), len(node.args)


def _last(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return _last(value)
    return ""


def public_methods(node: ast.ClassDef) -> set[str]:
    """Properties count too; a property and its setter are one."""
    return {child.name for child in node.body if isinstance(child, Function) and not child.name.startswith("_")}


def attributes(node: ast.ClassDef) -> set[str]:
    """State: attributes that the class writes on `self`, and the fields of a record that is not frozen."""
    fields = set() if _is_frozen(node) else {name for name in annotated(node) if name.islower()}
    return fields | written_on_self(node)


def annotated(node: ast.ClassDef) -> set[str]:
    return {
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign)
        and isinstance(child.target, ast.Name)
        and not ast.unparse(child.annotation).startswith(("ClassVar", "Final"))
    }


def written_on_self(node: ast.ClassDef) -> set[str]:
    return {
        inner.attr
        for child in node.body
        if isinstance(child, Function)
        for inner in ast.walk(child)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value)
    }


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_frozen(node: ast.ClassDef) -> bool:
    """Frozen structs and dataclasses; settings (`Section` is frozen) and protocols, whose fields are a form."""
    head = [
        *node.keywords,
        *(word for call in node.decorator_list if isinstance(call, ast.Call) for word in call.keywords),
    ]
    bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
    return bool(bases & {"Section", "Protocol"}) or any(word.arg == "frozen" for word in head)


def repeated_class_names(root: Path) -> Iterator[Offence]:
    public = [
        (source.shown, node) for source in sources(root) for node in source.tree.body if isinstance(node, ast.ClassDef)
    ]
    places: dict[str, list[str]] = {}
    for shown, node in public:
        if not node.name.startswith("_"):
            places.setdefault(node.name, []).append(shown)
    for shown, node in public:
        others = [place for place in places.get(node.name, []) if place != shown]
        if others:
            yield Offence(shown, node.lineno, node.name, f"class {node.name} is also in {', '.join(others)}")


def foreign_attributes(root: Path) -> Iterator[Offence]:
    """An attribute is written on anything but `self` only in the module whose class declares it."""
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
