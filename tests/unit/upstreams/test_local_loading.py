"""Finding the registry that `module:attribute` names."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcp_hub.config.trust import OVERRIDE
from mcp_hub.errors import StartFailed, UpstreamUnavailable
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.local import LocalUpstream, load_registry
from tests.unit.upstreams.local_calls import Recorder, request, text

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for modules of one test; neither they nor the folder stay importable."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


GOOD = """
from mcp_hub.upstreams.tools import Registry
registry = Registry()
registry.tool(lambda: 1, name="one")
other = 1
"""


async def test_registry_is_loaded_from_the_configurations_folder(folder: Path) -> None:
    (folder / "my_tools.py").write_text(GOOD)
    upstream = LocalUpstream.load("mine", "my_tools:registry", str(folder))
    assert upstream.status().state is UpstreamState.READY
    with anyio.fail_after(5):
        completed = await upstream.call(request("one"), Recorder())
    assert json.loads(bytes(completed.result)) == text("1")


def test_working_directory_is_not_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hidden_tools.py").write_text(GOOD)
    monkeypatch.chdir(folder)
    with pytest.raises(StartFailed, match="no module hidden_tools"):
        load_registry("hidden_tools:registry")


@pytest.mark.parametrize(
    ("reference", "source", "message"),
    [
        ("no_colon", "", "write it as module:attribute"),
        ("bad_tools:", "", "write it as module:attribute"),
        ("absent_tools:registry", "", r"no module absent_tools \(searched: "),
        ("bad_tools.sub:registry", GOOD, r"no module bad_tools.sub \(searched: "),
        ("bad_tools:registry", "import absent_dependency", "module bad_tools needs absent_dependency, not installed"),
        ("bad_tools:registry", "1 / 0", "importing bad_tools raised ZeroDivisionError: division by zero"),
        ("bad_tools:registry", "raise SystemExit(4)", "importing bad_tools raised SystemExit: 4"),
        ("bad_tools:registry", "def (", r"importing bad_tools raised SyntaxError: .*\(bad_tools.py, line 1\)"),
        ("bad_tools:absent", GOOD, "bad_tools has no absent"),
        ("bad_tools:other", GOOD, "expected a Registry, found a int"),
    ],
)
def test_registry_that_cannot_be_loaded_says_why(folder: Path, reference: str, source: str, message: str) -> None:
    (folder / "bad_tools.py").write_text(source)
    with pytest.raises(StartFailed, match=message):
        load_registry(reference, str(folder))


async def test_upstream_that_could_not_be_loaded_is_failed_with_the_reason() -> None:
    upstream = LocalUpstream.load("mine", "absent_tools:registry")
    status = upstream.status()
    assert status.state is UpstreamState.FAILED
    assert status.reason is not None
    assert status.reason.startswith('local "absent_tools:registry": no module absent_tools')
    assert upstream.snapshot() is None
    with pytest.raises(UpstreamUnavailable, match='upstream "mine" is not available') as caught:
        await upstream.call(request("one"), Recorder())
    assert caught.value.data == {"upstream": "mine", "state": "failed", "reason": status.reason}


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
