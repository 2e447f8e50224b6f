"""A state folder that others may write: no command and no hub uses it, and `doctor --fix` corrects it."""

import stat
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from mcp_hub.cli import _GROUPS, main
from mcp_hub.config.trust import OVERRIDE
from mcp_hub.errors import ConfigError
from mcp_hub.library.hub import Hub
from tests.unit.cli.command import hub


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a configuration without servers, with a folder of logins, and a folder for the store."""
    folder = tmp_path / "state"
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(folder))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    monkeypatch.delenv(OVERRIDE, raising=False)
    (tmp_path / "servers.yaml").write_text(f"servers: {{}}\nhub: {{store: {{path: {tmp_path / 'streams'}}}}}\n")
    for place in (folder, folder / "oauth", tmp_path / "streams"):
        place.mkdir(mode=0o700)
    return folder


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def open_to(folder: Path, more: int) -> Path:
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | more)
    return folder


@pytest.mark.processes
def test_folders_that_the_hub_makes_are_private(state: Path) -> None:
    streams = state.parent / "streams"
    streams.rmdir()
    assert hub(state.parent, "doctor").returncode == hub(state.parent, "doctor").returncode == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in (streams, streams / "instances")} == {0o700}


def test_a_private_folder_or_one_that_others_may_only_read_is_used(state: Path) -> None:
    open_to(state, 0o055)
    assert run("check", "--no-start").exit_code == 0


_COMMANDS: Final = [
    *(("check", "--no-start"), ("install", "--undo"), ("open", "--print"), ("add", "x", "--command", "x")),
    *((name,) for group in _GROUPS.values() for name in group if name not in ("schema", "completion")),
]
_PLACES: Final = ["state/oauth", "state/hubs", "state/clients/acts", "streams"]


@pytest.mark.parametrize(
    ("place", "command"),
    [*(("state", command) for command in _COMMANDS), *((place, _COMMANDS[0]) for place in _PLACES)],
)
def test_a_folder_that_others_may_write_is_refused_with_the_fix(
    state: Path, place: str, command: tuple[str, ...]
) -> None:
    (state.parent / place).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = open_to(state.parent / place, 0o077)
    refused = run(*command)
    said = " ".join(refused.output.split())
    assert refused.exit_code == 2 and "[state_untrusted]" in said
    assert f"{folder}: can be written by everybody on this machine" in said and "mcp-hub doctor --fix" in said


@pytest.mark.parametrize("command", [("schema",), ("install", "--help"), ("--help",), ("--version",)])
def test_a_command_that_uses_no_state_runs_beside_an_open_folder(state: Path, command: tuple[str, ...]) -> None:
    open_to(state, 0o077)
    assert run(*command).exit_code == 0


@pytest.mark.processes
def test_doctor_fixes_what_is_fixed_by_the_right_mode(state: Path) -> None:
    folders = [open_to(folder, 0o077) for folder in (state, state / "oauth", state.parent / "streams")]
    fixed = hub(state.parent, "doctor", "--fix")
    assert fixed.returncode == 0 and all(f"+ {folder}: mode 0755" in fixed.stderr for folder in folders)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o755] * 3
    again = hub(state.parent, "doctor", "--fix")
    assert again.returncode == 0 and "fixed" not in again.stderr


def test_those_who_trust_the_others_can_say_so(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to(state, 0o077)
    monkeypatch.setenv(OVERRIDE, "1")
    assert run("check", "--no-start").exit_code == 0


@pytest.mark.anyio
async def test_a_hub_in_a_program_refuses_it_too(state: Path) -> None:
    open_to(state, 0o077)
    with pytest.raises(ConfigError) as caught:
        async with Hub.from_config():
            pass
    assert caught.value.code == "state_untrusted" and str(state) in str(caught.value)


@pytest.mark.processes
def test_store_that_cannot_be_used_is_named_in_a_sentence(state: Path) -> None:
    (state.parent / "streams/streams.db").mkdir()
    (state.parent / "servers.yaml").write_text(
        (state.parent / "servers.yaml").read_text().replace("{}", '{t: {local: "mcp_hub.examples.jobs:registry"}}', 1)
    )
    done = hub(state.parent, "list")
    assert done.returncode == 0 and done.stderr.startswith("Calls of this command are not stored")
    assert f"{state.parent}/streams/streams.db" in done.stderr and "Check the permissions" in done.stderr
    assert "store_failed" not in done.stderr and "durable=" not in done.stderr and done.stderr.count("\n") == 1
