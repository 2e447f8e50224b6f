"""The rules of docs/architecture.md that a machine can check; each offence is printed as `file:line: what`."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# top imports bottom only, names on one line never import each other; errors and ids speak `types`, so that it stands
# on a line of its own here
ORDER = [
    {"__main__"},
    {"cli", "library", "examples"},
    {"app", "client"},
    {"operating"},
    {"adopting", "watching"},
    {"composition", "fleet", "reload"},
    {"rules", "sources", "file_watch", "telemetry"},
    {"tracing"},
    {"logins"},
    {"dashboard"},
    {"fronts"},
    {"hub"},
    {"catalog", "calls", "sessions"},
    {"upstreams", "stores", "formats"},
    {"wire"},
    {"protocol"},
    {"config"},
    {"events", "logs"},
    {"errors", "clock", "ids"},
    {"types", "masking"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
CLIENT_MAY = {"types", "errors", "events", "protocol", "client"}

PURE = {
    *("types", "events", "errors", "config.plan", "protocol", "formats", "dashboard.views", "fronts.sse"),
    *("catalog.names", "catalog.filters", "catalog.compact", "catalog.view", "catalog.search"),
    *("catalog.search_documents", "catalog.search_postings", "catalog.search_queries", "catalog.search_scores"),
    "catalog.search_words",
    *("catalog.compact_inlining", "catalog.compact_keywords", "catalog.compact_references", "catalog.compact_rules"),
    *(
        "calls.machine",
        "calls.cursors",
        "calls.coalesce",
        "calls.progress",
        "calls.cutting",
        "calls.fitting",
        "calls.json_paths",
        "calls.patterns",
        "calls.reading",
        "calls.records",
        "upstreams.lifecycle",
        "upstreams.pacing",
        "upstreams.producers",
        "client.messages",
        "client.stream_reader",
        "client.rest_messages",
        "client.retrying",
    ),
    # not named by the document, but their docstrings claim it
    *("catalog.uris", "catalog.links", "catalog.definitions", "catalog.routes", "catalog.instructions"),
    *("catalog.rules", "catalog.overrides", "catalog.entries", "catalog.diffs", "catalog.unmatched", "rules"),
    *("catalog.pins", "catalog.flags", "catalog.inspection"),
    *("catalog.sentences", "catalog.signatures", "catalog.tokens", "catalog.discovery", "catalog.accounting"),
    "fronts.guard",
    *("stores.base", "stores.documents", "stores.rules", "stores.limits"),
}
IMPURE = {"anyio", "asyncio", "socket", "subprocess", "starlette", "uvicorn", "sqlite3", "structlog"}

SDK = {
    *("wire", "upstreams.peer", "upstreams.http", "upstreams.auth"),
    *("fronts.mcp_server", "fronts.streamable_http", "fronts.legacy_sse"),
}
ABSTRACT = {"hub", "catalog", "calls", "sessions", "fronts", "dashboard"}
SEAMS = {"upstreams.base", "upstreams.changes", "upstreams.producers", "stores.base", "stores.documents"}
ASYNCIO = {"wire", "calls.runner", "stores.worker"}

MAX_FILE, MAX_FUNCTION = 400, 60

Offences = Iterator[str]


def within(module: str, names: set[str]) -> bool:
    """Whether `module` or a package it is in is one of `names`."""
    parts = module.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def sources(root: Path, folder: str) -> Iterator[tuple[Path, Path]]:
    """Every Python file under `folder`: its place, and its name relative to `root`."""
    return ((path, path.relative_to(root)) for path in sorted((root / folder).rglob("*.py")))


def imports(root: Path) -> Iterator[tuple[str, str, str]]:
    """`file:line`, importing module and imported name, wherever in a file it is imported, `TYPE_CHECKING` included.

    Modules of the hub are named without `mcp_hub.`, imported ones keep it.
    """
    for path, shown in sources(root, "mcp_hub"):
        module = ".".join(shown.with_suffix("").parts[1:]).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from ((f"{shown}:{node.lineno}", module, name) for name in names)


def out_of_order(root: Path) -> Offences:
    for place, module, name in imports(root):
        top, _, inner = name.partition(".")
        source, target = module.partition(".")[0], inner.partition(".")[0]
        if top != "mcp_hub" or source in (target, "__init__") or not _is_module(root, target):
            continue  # `mcp_hub` itself, the version, may be imported by anyone
        if source == "client":
            if target not in CLIENT_MAY:
                yield f"{place}: client imports {target}"
        elif source not in RANK or target not in RANK:
            yield f"{place}: {source} or {target} has no place in the import order"
        elif RANK[target] <= RANK[source]:
            yield f"{place}: {source} imports {target}"


def _is_module(root: Path, name: str) -> bool:
    return bool(name) and any((root / "mcp_hub" / place).exists() for place in (name, f"{name}.py"))


def impure(root: Path) -> Offences:
    for place, module, name in imports(root):
        if within(module, PURE) and within(name, IMPURE):
            yield f"{place}: pure {module} imports {name}"


def sdk_elsewhere(root: Path) -> Offences:
    for place, module, name in imports(root):
        allowed = SDK | {"protocol"} if within(name, {"mcp_types"}) else SDK
        if within(name, {"mcp", "mcp_types"}) and not within(module, allowed):
            yield f"{place}: {module} imports {name}"


def concrete(root: Path) -> Offences:
    for place, module, name in imports(root):
        target = name.removeprefix("mcp_hub.")
        is_ours = name != target and within(target, {"config", "stores", "upstreams"})
        if is_ours and within(module, ABSTRACT) and not within(target, SEAMS):
            yield f"{place}: {module} imports concrete {target}"


def asyncio_elsewhere(root: Path) -> Offences:
    for place, module, name in imports(root):
        if within(name, {"asyncio"}) and not within(module, ASYNCIO):
            yield f"{place}: {module} imports asyncio"


def long_files(root: Path) -> Offences:
    for folder in ("mcp_hub", "tests"):
        for path, shown in sources(root, folder):
            lines = len(path.read_text().splitlines())
            if lines > MAX_FILE:
                yield f"{shown}:{MAX_FILE}: {lines} lines"


def long_functions(root: Path) -> Offences:
    for path, shown in sources(root, "mcp_hub"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION:
                    yield f"{shown}:{node.lineno}: {node.name} has {lines} lines"


RULES: list[Callable[[Path], Offences]] = [
    *(out_of_order, impure, sdk_elsewhere, concrete, asyncio_elsewhere, long_files, long_functions)
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps_the_rule(rule: Callable[[Path], Offences]) -> None:
    offences = list(rule(ROOT))
    assert not offences, "\n" + "\n".join(offences)


TYPE_CHECKING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
BROKEN: list[tuple[Callable[[Path], Offences], str, str, str]] = [
    (out_of_order, "calls/log.py", "from mcp_hub.fronts import sse", ":1: calls imports fronts"),
    (out_of_order, "calls/log.py", "import mcp_hub.catalog.view", ":1: calls imports catalog"),
    (out_of_order, "calls/log.py", TYPE_CHECKING + "from mcp_hub.hub import Facade", ":3: calls imports hub"),
    (out_of_order, "calls/log.py", "def f():\n    from mcp_hub import hub", ":2: calls imports hub"),
    (out_of_order, "misc.py", "from mcp_hub.types import Era", ":1: misc or types has no place"),
    (out_of_order, "client/call.py", "from mcp_hub.hub import Facade", ":1: client imports hub"),
    (impure, "calls/machine.py", "import anyio", ":1: pure calls.machine imports anyio"),
    (impure, "protocol/new.py", "from asyncio import Event", ":1: pure protocol.new imports asyncio.Event"),
    (sdk_elsewhere, "calls/log.py", "import mcp.types", ":1: calls.log imports mcp.types"),
    (sdk_elsewhere, "protocol/eras.py", "from mcp import types", ":1: protocol.eras imports mcp.types"),
    (sdk_elsewhere, "calls/log.py", "import mcp_types", ":1: calls.log imports mcp_types"),
    (concrete, "hub.py", "from mcp_hub.upstreams import stdio", ":1: hub imports concrete upstreams.stdio"),
    (concrete, "fronts/rest.py", "from mcp_hub.config.schema import Settings", ":1: fronts.rest imports concrete"),
    (concrete, "calls/log.py", "import mcp_hub.stores.sqlite", ":1: calls.log imports concrete stores.sqlite"),
    (asyncio_elsewhere, "calls/log.py", "import asyncio.tasks", ":1: calls.log imports asyncio"),
    (long_files, "calls/log.py", "\n" * 401, ":400: 401 lines"),
    (long_functions, "calls/log.py", "def f():\n" + "    pass\n" * 60, ":1: f has 61 lines"),
]


@pytest.mark.parametrize(("rule", "file", "text", "expected"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_an_offence_is_found_and_placed(
    tmp_path: Path, rule: Callable[[Path], Offences], file: str, text: str, expected: str
) -> None:
    for name in ("hub.py", "types.py", "fronts/sse.py", "catalog/view.py", "upstreams/stdio.py", file):
        place = tmp_path / "mcp_hub" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text if name == file else "")
    (offence,) = rule(tmp_path)
    assert offence.startswith(f"mcp_hub/{file}{expected}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_what_is_allowed_is_no_offence(tmp_path: Path, rule: Callable[[Path], Offences]) -> None:
    for name, text in {
        "__init__.py": "__version__ = '1'",
        "types.py": "from mcp_hub import __version__",
        "protocol/eras.py": "import mcp_types\nfrom mcp_hub.types import Era",
        "wire/pipe.py": "import asyncio\nimport mcp.shared",
        "upstreams/base.py": "import anyio",
        "hub.py": "from mcp_hub.upstreams.base import Upstream\nfrom mcp_hub.upstreams import changes",
    }.items():
        (tmp_path / "mcp_hub" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mcp_hub" / name).write_text(text)
    assert list(rule(tmp_path)) == []
