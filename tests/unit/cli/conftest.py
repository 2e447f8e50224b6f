"""Fixtures for tests of the commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub.cli.commands.clients import install as install_command
from mcp_hub.cli.commands.clients import leave as leave_command
from mcp_hub.cli.commands.running import paths as paths_command
from mcp_hub.onboarding.clients import programs
from mcp_hub.sandbox.confinement import ABI_LIMIT
from tests.unit.cli.homes import Moved, make_home
from tests.unit.cli.sites import Site, served


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a sandbox, so that `add` and `import` start nothing. Tests about sandboxes take it back."""
    monkeypatch.setenv(ABI_LIMIT, "0")


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a person who works in it: `servers.yaml` there is the configuration; no variable leads out of it."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def moved(person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moved:
    """A home whose clients have moved into the hub; no server starts, and the service of the machine stays."""
    monkeypatch.delenv("MCP_HUB_CONFIG")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    bases = [str(tmp_path / name / "mcp-hub") for name in ("run", "short", "open")]
    monkeypatch.setattr(paths_command, "base_folders", lambda env: bases)
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state/mcp-hub"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(programs, "_names", lambda system: iter(()))
    monkeypatch.setattr(install_command, "_start_once", lambda *args: None)
    monkeypatch.setattr(leave_command, "stop_service", lambda: None)
    make_home(tmp_path)
    home = Moved(tmp_path)
    home.run("install", "--all", "--import")
    assert all(home.contents()[name] != text for name, text in home.before.items())
    return home


@pytest.fixture
def site() -> Iterator[Site]:
    """A web site of a stranger."""
    with served() as running:
        yield running


@pytest.fixture
def small_file(person: Path) -> Path:
    """A configuration with one server."""
    path = person / "servers.yaml"
    path.write_text("servers:\n  time: {command: uvx, args: [mcp-server-time]}\n")
    return path
