"""What the source of a module says about a `local` that names something in it; the module is never run."""

from pathlib import Path

import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.functions.source import check_reference

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
def folder(tmp_path: Path) -> str:
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
def test_name_that_is_there_or_may_be_there_passes(folder: str, reference: str) -> None:
    check_reference(reference, folder)


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
def test_name_that_is_surely_not_there_is_refused(folder: str, reference: str, code: str, said: str) -> None:
    with pytest.raises(StartFailed, match=said) as caught:
        check_reference(reference, folder)
    assert caught.value.code == code
