"""The forms of `mcp-hub serve` that join a background hub, by the rules of the whole command."""

from pathlib import Path

import platformdirs
import pytest

from mcp_hub.attach.arguments import NAMES, find_config, state_folder, wanted
from mcp_hub.attach.system import user_folder
from mcp_hub.config.load import load
from mcp_hub.errors import ConfigError

ENV = {"HOME": "/nowhere"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    place = tmp_path / "servers.yaml"
    place.write_text("servers: {}\n")
    return place


@pytest.mark.parametrize(
    "more", [["--client", "x"], ["--profile=dev", "--attach", "always"], [], ["--client=claude-code"]]
)
def test_options_of_clients_are_understood(config: Path, more: list[str]) -> None:
    found = wanted(["serve", "-c", str(config), *more], ENV)
    assert found is not None and found.config == str(config)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"], ["serve", "--http"], ["serve", "--warm"], ["serve", "--help"], ["serve", "--log-level", "debug"],
        ["serve", "--config"], ["serve", "--attach", "perhaps"], ["serve", "extra"], [],
    ],
)  # fmt: skip
def test_every_other_form_is_for_the_whole_command(config: Path, arguments: list[str]) -> None:
    assert wanted([*arguments], {**ENV, "MCP_HUB_CONFIG": str(config)}) is None


def test_the_variable_overrides_the_file_and_the_option_both(config: Path) -> None:
    line = ["serve", "--config", str(config)]
    env = {**ENV, "MCP_HUB_ATTACH": "never"}
    found, chosen = wanted(line, env), wanted([*line, "--attach", "always"], env)
    assert found is not None and found.attach == "never"
    assert chosen is not None and chosen.attach == "always"


@pytest.mark.parametrize("explicit", [None, "@user", "servers.yaml", "~/servers.yaml", "missing.yaml"])
@pytest.mark.parametrize("variable", [None, "~/servers.yaml", "missing.yaml"])
@pytest.mark.parametrize("here", [True, False])
def test_the_configuration_is_the_one_that_the_whole_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explicit: str | None, variable: str | None, here: bool
) -> None:
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    for folder in (home, cwd, tmp_path / "config" / "mcp-hub"):
        folder.mkdir(parents=True)
        (folder / "servers.yaml").touch()
    if not here:
        (cwd / "servers.yaml").unlink()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    env |= {} if variable is None else {"MCP_HUB_CONFIG": variable}
    try:
        theirs = load.find_config(explicit, cwd, env)
    except ConfigError:
        theirs = Path("/missing")
    assert find_config(explicit, str(cwd), env) == (str(theirs) if theirs.is_file() else None)


@pytest.mark.parametrize("name", NAMES)
def test_file_that_is_only_found_is_for_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_text("servers: {a: {command: x, env: {K: '${cmd:touch hit}'}}}")
    monkeypatch.chdir(tmp_path)
    assert wanted(["serve"], {**ENV, "XDG_CONFIG_HOME": "/missing"}) is None
    assert wanted(["serve", "--config", name], ENV) is not None


@pytest.mark.parametrize("kind", ["config", "state"])
def test_folders_of_the_user_are_those_of_platformdirs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    theirs = {"config": platformdirs.user_config_dir, "state": platformdirs.user_state_dir}[kind]
    for env in ({}, {f"XDG_{kind.upper()}_HOME": "/srv/own"}, {f"XDG_{kind.upper()}_HOME": "here"}):
        monkeypatch.delenv(f"XDG_{kind.upper()}_HOME", raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert user_folder(kind, env) == theirs("mcp-hub")
    assert state_folder({"MCP_HUB_STATE_DIR": "/srv/state"}) == "/srv/state"
