"""Rules about classes, their attributes and their names, and how large a file, a function or a package may get."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Function, Offence, Source, qualified, sources

MAX_FILE, MAX_FUNCTION, MAX_METHODS, MAX_ATTRIBUTES, MAX_MODULES = 400, 40, 12, 10, 15


def long_files(root: Path) -> Iterator[Offence]:
    for folder in ("mcp_hub", "tests", "rigs", "bench"):
        for source in sources(root, folder):
            lines = len(source.text.splitlines())
            if lines > MAX_FILE:
                yield Offence(source.shown, MAX_FILE, "lines", f"{lines} lines, {MAX_FILE} at most", lines)


def long_functions(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for name, node in qualified(source):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, Function) and lines > MAX_FUNCTION:
                yield Offence(
                    source.shown, node.lineno, name, f"{name} has {lines} lines, {MAX_FUNCTION} at most", lines
                )


def large_classes(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for name, node in qualified(source):
            if isinstance(node, ast.ClassDef):
                counts = (
                    ("methods", public_methods(node), MAX_METHODS),
                    ("attributes", attributes(node), MAX_ATTRIBUTES),
                )
                for kind, names, most in counts:
                    if len(names) > most:
                        what = f"{name} has {len(names)} {kind}, {most} at most"
                        yield Offence(source.shown, node.lineno, f"{name}.{kind}", what, len(names))


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


def large_packages(root: Path) -> Iterator[Offence]:
    packages = Counter(source.shown.rpartition("/")[0] for source in sources(root) if not source.is_package)
    for package, modules in packages.items():
        if modules > MAX_MODULES and package != "mcp_hub":
            what = f"{modules} modules, {MAX_MODULES} at most: make a sub-package"
            yield Offence(f"{package}/__init__.py", 1, "modules", what, modules)


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
