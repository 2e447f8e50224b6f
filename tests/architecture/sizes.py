"""Rules about how large a file, a function or a package may get."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import Function, Offence, sources

MAX_FILE, MAX_FUNCTION, MAX_MODULES = 400, 40, 15


def long_files(root: Path) -> Iterator[Offence]:
    for folder in ("mcp_hub", "tests", "rigs", "bench"):
        for source in sources(root, folder):
            lines = len(source.text.splitlines())
            if lines > MAX_FILE:
                yield Offence(source.shown, MAX_FILE, "lines", f"{lines} lines, {MAX_FILE} at most", lines)


def long_functions(root: Path) -> Iterator[Offence]:
    for source in sources(root):
        for name, node in source.qualified:
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if isinstance(node, Function) and lines > MAX_FUNCTION:
                yield Offence(
                    source.shown, node.lineno, name, f"{name} has {lines} lines, {MAX_FUNCTION} at most", lines
                )


def large_packages(root: Path) -> Iterator[Offence]:
    packages = Counter(source.shown.rpartition("/")[0] for source in sources(root) if not source.is_package)
    for package, modules in packages.items():
        if modules > MAX_MODULES and package != "mcp_hub":
            what = f"{modules} modules, {MAX_MODULES} at most: make a sub-package"
            yield Offence(f"{package}/__init__.py", 1, "modules", what, modules)
