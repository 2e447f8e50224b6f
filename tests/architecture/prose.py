"""Rules about text: docstrings, the pages that they cite, and phrases that are not plain English."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.source import Function, Offence, Source, sources

PACKAGE_LINES = range(2, 21)
_OPENING = re.compile(r"(What|Who|Whoever|How|The same|As|Of|Those|Where|Whose|In its)\b")
_NAME = re.compile(r"(?<=[`.])(\w+)(?=[`.])")
_DOTTED = re.compile(r"`([a-z_]+(?:\.(?!(?:yaml|sock|json|md)`)\w+)+)`")
_HEAD = re.compile(r"^(?:[*-] )?((?:`[\w.]+`(?:, | and )?)+)(?=:|\s{2,}\S|$)|`(\w+)`(?=:)", re.MULTILINE)
"""The names of a line of a list: what they hold stands behind a colon, or in a column of its own."""
_PAGE = re.compile(r"([\w./-]+\.md)\b(?:,?\s+§\s?(\d[\d.]*\d|\d))?(?:,\s+\"([^\"]+)\")?")
PHRASES = {
    "is-no": (r"is\s+no(?!\s+(?:longer|more\s+than)\b)", '"is not a"'),
    "has-none": (r"has\s+none", '"does not have"'),
    "told": (r"told", "say who says, sends or asks what"),
    "mend": (r"mend(?:s|ed|ing)?", '"fix"'),
    "goes-on": (r"goes\s+on", '"continues"'),
    "for-good": (r"for\s+good", '"permanently"'),
}
"""Name → pattern, and what to write instead."""

_FOUND = re.compile(
    "|".join(rf"(?<![\w-])(?P<{name.replace('-', '_')}>{pattern})(?![\w-])" for name, (pattern, _) in PHRASES.items()),
    re.I,
)
_MAYBE = re.compile(r"\b(?:told|mend|goes\s+on|for\s+good|has\s+none|is\s+no\b)")
"""At least what `_FOUND` finds, in a small part of the time, in text without capitals."""
_THERE = re.compile(r"\bthere\s+$", re.I)
_FENCED = re.compile(r"^(\s*)(```|~~~).*?^\s*\2", re.M | re.S)
_CODE = re.compile(r"(`+)(?:[^`\0\n]|\n(?!\s*\n))+?\1")


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


def package_maps(root: Path) -> Iterator[Offence]:
    """The docstring of a package names each of its modules and sub-packages in backticks, and none that is gone."""
    by_module = {source.module: source for source in sources(root)}
    for source in sources(root):
        if source.is_package and source.module:  # that of the hub itself is the help of the library
            text = ast.get_docstring(source.tree) or ""
            names, modules = set(_NAME.findall(text)), _modules_in((root / source.shown).parent)
            for name in sorted(modules - names):
                yield Offence(source.shown, 1, name, f"the docstring does not name `{name}`")
            heads = (head[1] or f"`{head[2]}`" for head in _HEAD.finditer(text))
            gone = {name for head in heads for name in re.findall(r"`(\w+)`", head)} - modules
            gone |= {name for name in _DOTTED.findall(text) if not _names_something(name, source.module, by_module)}
            for name in sorted(gone):
                yield Offence(source.shown, 1, name, f"the docstring names `{name}`, which does not exist")


def _modules_in(folder: Path) -> set[str]:
    files = {path.stem for path in folder.glob("*.py")}
    return files - {"__init__", "__main__"} | {path.parent.name for path in folder.glob("*/__init__.py")}


def _names_something(name: str, package: str, by_module: dict[str, Source]) -> bool:
    """Whether a dotted name that begins with a module, beside the others or of the hub, leads somewhere."""
    name = name.removeprefix("mcp_hub.")
    for path in (f"{package}.{name}", name):
        if any(
            f"{module}.".startswith(f"{path[: len(path) - len(name)]}{name.split('.')[0]}.") for module in by_module
        ):
            parts = path.split(".")
            module = max((module for module in by_module if f"{path}.".startswith(f"{module}.")), key=len, default="")
            body = by_module[module].text.partition('"""')[2].partition('"""')[2] if module else ""
            return all(re.search(rf"\b{part}\b", body) for part in parts[module.count(".") + bool(module) :])
    return True


def docstring_openings(root: Path) -> Iterator[Offence]:
    """Docstrings of modules, classes and functions, and those below attributes."""
    for source in sources(root):
        for node in source.of(ast.Expr):
            match node.value:
                case ast.Constant(value=str(text)) if opening := _OPENING.match(text.strip()):
                    what = f"the docstring begins with {opening[1]}: say what the thing is"
                    yield Offence(source.shown, node.lineno, opening[1].replace(" ", "-"), what, room=source.room)


def missing_pages(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for cited in _PAGE.finditer(source.prose) if ".md" in source.text else ():
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


def english(root: Path) -> Iterator[Offence]:
    """Phrases in prose, the pages included; names and what is in backticks or fences do not count."""
    for shown, text in _texts(root):
        for found in _FOUND.finditer(text):
            name = (found.lastgroup or "").replace("_", "-")
            if name != "is-no" or not _THERE.search(text[: found.start()][-40:]):
                line = text.count("\n", 0, found.start()) + 1
                yield Offence(shown, line, name, f'"{" ".join(found[0].split())}": write {PHRASES[name][1]}')


@cache
def _texts(root: Path) -> list[tuple[str, str]]:
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    texts = [(page.relative_to(root).as_posix(), _FENCED.sub(_blank, _read(page))) for page in pages]
    texts += [
        (source.shown, source.prose) for source in sources(root) if _MAYBE.search(source.text.replace("#", " ").lower())
    ]
    return [(shown, _CODE.sub(_blank, text)) for shown, text in texts]


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _blank(code: re.Match[str]) -> str:
    """As long as the code was, with its line breaks, so that offsets stay."""
    return re.sub(r"[^\n]", "\0", code[0])
