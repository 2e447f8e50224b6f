"""Finding the registry that `module:attribute` names, and what the source of a module says of it without a run."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub.config.trust import OVERRIDE
from mcp_hub.errors import StartFailed, UpstreamUnavailable
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.functions.source import check_reference
from mcp_hub.upstreams.functions.upstream import load_registry, loaded_upstream
from tests.unit.upstreams.function_calls import Recorder, request, text
from tests.unit.wire.raw_lines import within

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for modules of one test; neither they nor the folder stay importable."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


GOOD = """
from mcp_hub.upstreams.functions.registry import Registry
registry = Registry()
registry.tool(lambda: 1, name="one")
other = 1
"""


async def test_registry_is_loaded_from_the_configurations_folder(folder: Path) -> None:
    (folder / "my_tools.py").write_text(GOOD)
    upstream = loaded_upstream("mine", "my_tools:registry", str(folder))
    assert upstream.status().state is UpstreamState.READY
    completed = await within(upstream.call(request("one"), Recorder()))
    assert json.loads(bytes(completed.result)) == text("1")


def test_working_directory_is_not_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hidden_tools.py").write_text(GOOD)
    monkeypatch.chdir(folder)
    with pytest.raises(StartFailed, match="module hidden_tools"):
        load_registry("hidden_tools:registry")


@pytest.mark.parametrize(
    ("reference", "source", "code", "named"),
    [
        (":registry", "", "registry_not_found", ":registry"),
        ("bad_tools", GOOD, "registry_not_found", "bad_tools"),
        ("bad_tools:", "", "registry_not_found", "bad_tools:"),
        ("absent_tools:registry", "", "module_not_found", "absent_tools"),
        ("bad_tools.sub:registry", GOOD, "module_not_found", "bad_tools.sub"),
        ("bad_tools:registry", "import absent_dependency", "module_not_found", "absent_dependency"),
        ("bad_tools:registry", "1 / 0", "import_failed", "ZeroDivisionError"),
        ("bad_tools:registry", "raise SystemExit(4)", "import_failed", "SystemExit: 4"),
        ("bad_tools:registry", "def (", "import_failed", r"SyntaxError: .*\(bad_tools.py, line 1\)"),
        ("bad_tools:absent", GOOD, "registry_not_found", "absent"),
        ("bad_tools:other", GOOD, "registry_not_found", r"\bint\b"),
    ],
)
def test_registry_that_is_not_loaded_says_why(folder: Path, reference: str, source: str, code: str, named: str) -> None:
    (folder / "bad_tools.py").write_text(source)
    with pytest.raises(StartFailed, match=named) as caught:
        load_registry(reference, str(folder))
    assert caught.value.code == code and reference in str(caught.value)


DECORATED = "from mcp_hub import tool\n@tool\ndef {name}() -> str:\n    return 'x'\n"


def test_a_module_without_an_attribute_serves_the_functions_that_tool_decorates(folder: Path) -> None:
    (folder / "first_tools.py").write_text(DECORATED.format(name="one"))
    (folder / "second_tools.py").write_text(DECORATED.format(name="one") + DECORATED.format(name="two"))
    assert [*load_registry("first_tools", str(folder)).tools] == ["one"]
    assert [*load_registry("second_tools", str(folder)).tools] == ["one", "two"]


def package(folder: Path, name: str, **tools: str) -> None:
    """A package that imports its modules, each with one tool."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"from {name} import {', '.join(tools)}")
    for module, tool in tools.items():
        (folder / name / f"{module}.py").write_text(DECORATED.format(name=tool))


def test_a_package_serves_the_tools_of_the_modules_that_it_imports(folder: Path) -> None:
    package(folder, "tool_package", inner="one", outer="two")
    assert [*load_registry("tool_package", str(folder)).tools] == ["one", "two"]
    assert [*load_registry("tool_package.inner", str(folder)).tools] == ["one"]
    package(folder, "double_package", inner="same", outer="same")
    with pytest.raises(StartFailed, match='tool "same" is defined twice'):
        load_registry("double_package", str(folder))


async def test_upstream_that_could_not_be_loaded_is_failed_with_the_reason() -> None:
    upstream = loaded_upstream("mine", "absent_tools:registry")
    status = upstream.status()
    assert status.state is UpstreamState.FAILED
    assert status.code == "module_not_found" and "absent_tools" in (status.reason or "")
    assert upstream.snapshot() is None
    with pytest.raises(UpstreamUnavailable, match='"mine"') as caught:
        await upstream.call(request("one"), Recorder())
    about = {"server": "mine", "state": "failed", "reason": status.reason, "code": "module_not_found"}
    assert caught.value.about_upstream == about


@pytest.mark.parametrize("name", ["wide_tools.py", "wide_tools/__init__.py", "wide_tools/inner.py"])
def test_a_module_that_others_can_write_is_not_run(folder: Path, name: str) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").write_text("")
    file.write_text(f"raise SystemExit('was run')\n{GOOD}")
    file.chmod(0o666)
    reference = f"{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}:registry"
    with pytest.raises(StartFailed, match=f"{file} can be written by everybody on this machine.*chmod go-w"):
        load_registry(reference, str(folder), {})
    with pytest.raises(StartFailed, match="was run"):
        load_registry(reference, str(folder), {OVERRIDE: "1"})
    file.write_text(GOOD)
    file.chmod(0o644)
    assert "one" in load_registry(reference, str(folder), {}).tools


SOURCE = """
import os.path as place, sys
from a import b as c
raise SystemExit("not to be run")
registry = Registry()
first, *rest = x
if True:
    inside = 1
with y as opened:
    pass
def function():
    global shared
    shared = hidden = 1
class Kind:
    member = 1
"""


@pytest.fixture
def sources(tmp_path: Path) -> str:
    (tmp_path / "own_tools.py").write_text(SOURCE)
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('not to be run')")
    (package / "part.py").write_text("registry = 1")
    (tmp_path / "dynamic_tools.py").write_text("def __getattr__(name): ...")
    (tmp_path / "starred_tools.py").write_text("from x import *")
    (tmp_path / "broken_tools.py").write_text("def")
    return str(tmp_path)


@pytest.mark.parametrize(
    "reference",
    [
        "own_tools",
        *(f"own_tools:{name}" for name in "place sys c registry first rest inside opened function Kind shared".split()),
        "own_tools:registry.member",
        "own_package.part:registry",
        "own_package:part.registry",
        *(f"{module}_tools:anything" for module in ("dynamic", "starred", "broken")),
        "mcp_hub.examples.jobs:registry",
        "math:pi",
    ],
)
def test_name_that_is_there_or_may_be_there_passes(sources: str, reference: str) -> None:
    check_reference(reference, sources)


@pytest.mark.parametrize(
    ("reference", "code", "said"),
    [
        ("own_tools:registri", "registry_not_found", '"registry"'),
        ("own_tools:hidden", "registry_not_found", "hidden"),
        ("own_tools:member", "registry_not_found", "member"),
        ("own_package:registry", "registry_not_found", "registry"),
        ("own_package.parts:registry", "module_not_found", "own_package.parts"),
        ("own_tools.part:registry", "module_not_found", "own_tools.part"),
        ("mcp_hub.examples.jobs:registri", "registry_not_found", '"registry"'),
    ],
)
def test_name_that_is_surely_not_there_is_refused(sources: str, reference: str, code: str, said: str) -> None:
    with pytest.raises(StartFailed, match=said) as caught:
        check_reference(reference, sources)
    assert caught.value.code == code
