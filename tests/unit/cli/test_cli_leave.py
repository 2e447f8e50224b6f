"""The way out by commands: `install --undo CLIENT`, `uninstall --restore`, `leave`; hubs without a configuration."""

import fcntl
import json
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.cli.access import running
from mcp_hub.cli.access.running import recorded
from mcp_hub.cli.commands.clients import leave as leave_command
from mcp_hub.cli.commands.clients import uninstall as uninstall_command
from mcp_hub.edit.entries import read_data
from mcp_hub.onboarding.changes import acts
from mcp_hub.onboarding.changes.plan import Step
from mcp_hub.onboarding.changes.restore import FileState, state_of
from mcp_hub.onboarding.clients.reading import ClientFile
from mcp_hub.onboarding.clients.table import CLIENTS as CLIENTS_TABLE
from tests.unit.cli.homes import FILES, Moved

CLIENTS = {"claude-desktop": 0, "cursor": 1, "codex": 2, "gemini": 3}
PATHS = [*FILES]


def test_leave_gives_every_file_its_bytes_and_lists_the_rest(moved: Moved) -> None:
    assert "Would stay" in moved.run("leave", "--dry-run").stdout and moved.contents() != moved.before
    done = moved.run("leave")
    said = done.stdout
    assert moved.contents() == moved.before and "To take this back" in done.stderr
    assert re.search(r"Codex: the hub is removed.*Next: start a new session\.", said), said
    for path in (moved.config, moved.folder / "state/mcp-hub", moved.config.parent / "secrets/db.arg2"):
        assert f"  {path} (" in said and "history of calls, logs of servers" in said, said
    assert "Still there" in moved.run("leave").stdout and moved.contents() == moved.before
    moved.run("install", "--undo")
    assert moved.contents() != moved.before
    would, purged = (moved.run("leave", "--purge", option).output for option in ("--dry-run", "--yes"))
    assert "Would remove:" in would and "To be removed:" in purged and not re.search("Would|take this back", purged)
    left = [str(path.relative_to(moved.folder)) for path in moved.folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(FILES) and not moved.config.parent.exists()


def test_leave_after_more_acts_than_are_kept_and_after_changes_of_clients(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "_MOST", 1)
    moved.edit(1, "// mine", "// my own")
    moved.edit(3, '"theme": "x"', '"theme": "y"')
    moved.run("install", "--all", "--http", code=0)
    moved.run("install", "--all")
    moved.run("uninstall", "cursor", "--keep")
    moved.run("leave")
    edits = {1: (b"// mine", b"// my own"), 3: (b'"theme": "x"', b'"theme": "y"')}
    expected = {
        name: (text or b"").replace(*edits.get(number, (b"", b""))) if number in edits else text
        for number, (name, text) in enumerate(moved.before.items())
    }
    assert moved.contents() == expected


def test_purge_after_the_folder_or_the_file_of_a_client_was_removed(moved: Moved) -> None:
    removed, path = moved.folder / PATHS[1], moved.folder / PATHS[3]
    shutil.rmtree(removed.parent)
    path.unlink()
    for words in (["--dry-run"], [], ["--purge", "--yes"]):
        refused = moved.run("leave", *words, code=1).stderr
        assert f"Cursor: {removed} is gone, and " in refused and "nothing is restored" in refused
        assert f"{path} is gone, and " in refused and moved.config.exists()
    (command,) = re.findall(rf"Or leave without {path}: mcp-hub (.*)", refused)
    moved.run(*command.split(), code=1)
    moved.run("leave", "--purge", "--yes")
    assert moved.contents() == {**moved.before, PATHS[1]: None, PATHS[3]: None} and not moved.config.exists()


@pytest.mark.parametrize("ways", [[("install", "--undo")], [("leave",)], [("leave",), ("leave", "--purge", "--yes")]])
def test_folders_that_an_install_makes_go_again(moved: Moved, ways: list[tuple[str, ...]]) -> None:
    moved.run("leave")
    folders = [moved.folder / ".kiro/settings", moved.folder / ".copilot"]
    (moved.folder / ".kiro").mkdir()
    moved.run("install", "kiro", "copilot")
    assert all(folder.is_dir() for folder in folders)
    for way in ways:
        moved.run(*way)
    assert not any(folder.exists() for folder in folders) and (moved.folder / ".kiro").is_dir()
    assert moved.contents() == moved.before


@pytest.mark.parametrize("is_undone", [True, False])
def test_purge_with_a_server_that_was_changed_since(moved: Moved, is_undone: bool) -> None:
    moved.edit(2, "[mcp_servers.mcp-hub]", '[mcp_servers.db]\ncommand = "x"\n\n[mcp_servers.mcp-hub]')
    dry = moved.run("leave", "--dry-run", code=1).output
    assert "db has been changed since, and stays as it is. [undo_drift]" in dry
    if is_undone:
        moved.run("install", "--undo", code=1)
    else:
        refused = moved.run("leave", "--purge", "--yes", code=1).output
        assert "another name" in refused and "mcp-hub leave --purge" not in refused and moved.config.exists()
        moved.edit(2, "[mcp_servers.db]", "[mcp_servers.mine]")
    moved.config.parent.joinpath("secrets").mkdir(parents=True, exist_ok=True)  # an undo keeps folders
    moved.run("leave", "--purge", "--yes")
    left = [str(path.relative_to(moved.folder)) for path in moved.folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(FILES) and not moved.config.parent.exists()
    assert ("mine" in (moved.folder / PATHS[2]).read_text()) is not is_undone


def test_purge_removes_only_files_that_are_the_hubs_alone(moved: Moved) -> None:
    theirs, other = moved.folder / "work/.mcp.json", moved.folder / "src/mcp-hub/notes.txt"
    for path in (theirs, other):
        path.parent.mkdir(parents=True)
    theirs.write_text('{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}')
    other.write_text("mine")
    for name in ("logs", "keys", "results"):
        (other.parent / name).mkdir()
    moved.run("install", "gemini", "--config", str(theirs))
    moved.config.write_text(f"hub: {{store: {{path: {other.parent}}}}}\n" + moved.config.read_text())
    (other.parent / "streams.db").touch()
    notes = moved.folder / "state/mcp-hub/folders/0123/notes/memory.json"
    spare, names = moved.folder / "run/mcp-hub/state", ("run", "short", "open")
    dead, other_base, strange = (moved.folder / name / "mcp-hub/0123456789abcdef" for name in names)
    for folder in (notes.parent, spare, dead, other_base, strange):
        folder.mkdir(parents=True, mode=0o700)
    other_base.parent.chmod(0o700)
    notes.touch()
    done = moved.run("leave", "--purge", "--yes")
    assert moved.contents() == moved.before and not moved.config.exists()
    assert theirs.exists() and other.exists() and not (other.parent / "streams.db").exists(), done.output
    assert {path.name for path in other.parent.iterdir()} == {"notes.txt", "logs", "keys"}
    assert notes.exists() and [path.name for path in notes.parents[3].iterdir()] == ["folders"]
    assert f"{notes.parents[2]} stays" in done.stderr and spare.exists()
    assert not dead.exists() and not other_base.parent.exists() and strange.exists(), "others can use it"


def test_leave_purges_nothing_without_yes_or_while_a_client_is_not_restored(moved: Moved) -> None:
    before = moved.contents()
    refused = moved.run("leave", "--purge", code=2)
    assert "needs --yes" in refused.stderr and "To be removed:" in refused.stdout
    assert f"  {moved.config} (" in refused.stdout and moved.contents() == before and moved.config.exists()
    path = moved.folder / PATHS[2]
    path.write_text("[broken\n")
    said = moved.run("leave", "--purge", "--yes", code=1)
    assert f"{path}: line 1" in said.output and "Nothing is removed" in said.output and moved.config.exists()
    assert "To take this back: mcp-hub install --undo" in said.output
    assert moved.contents() == {**moved.before, PATHS[2]: b"[broken\n"}
    path.unlink()
    for output in (said.output, moved.run("leave", code=1).output):
        saved = re.search(r"from before is in (\S+)", output)
        assert saved is not None and Path(saved[1]).read_bytes() == moved.before[PATHS[2]] and not path.exists()


def test_leave_with_nothing_to_do_says_so_and_does_not_ask(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    moved.run("leave")
    with monkeypatch.context() as terminal:
        terminal.setattr(leave_command, "agrees", None)
        terminal.setattr("sys.stdin.isatty", lambda: True, raising=False)
        again = moved.run("leave")
    assert "Nothing to do" in again.stderr and "Still there" in again.stdout
    moved.run("leave", "--purge", "--yes")
    (moved.folder / PATHS[0]).unlink()  # which has an entry of the person's own
    assert "Nothing to do" in moved.run("leave", "--purge").stderr


def test_purge_knows_the_configurations_that_clients_had_and_no_folder_of_a_person(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, chosen = moved.folder / "work/project", moved.folder / "chosen/state"
    for folder in (project, chosen):
        folder.mkdir(parents=True)
    config = project / "servers.yaml"
    config.write_text("servers: {time: {command: uvx, env: {K: '${file:secrets/time.K}'}}}\n")
    (project / "secrets").mkdir()
    (project / "secrets/time.K").write_text("x")
    moved.run("uninstall", "--all", "--restore")
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(chosen))
    moved.run("install", "gemini", "--config", str(config))
    moved.run("leave")
    said = moved.run("leave", "--purge", "--yes")
    assert not config.exists() and not (project / "secrets").exists(), said.output
    assert project.is_dir() and chosen.is_dir() and not [*project.iterdir(), *chosen.iterdir()]


@pytest.mark.parametrize("name", ["folder", "notes.txt", "compose.yaml"])
def test_purge_removes_no_folder_and_no_file_without_servers_that_is_named_as_a_configuration(
    moved: Moved, name: str
) -> None:
    (moved.folder / "folder").mkdir()
    (moved.folder / "folder/precious").touch()
    (moved.folder / "notes.txt").write_text("to do: [")
    (moved.folder / "compose.yaml").write_text("services: {db: {image: postgres}}\n")
    said = moved.run("leave", "--purge", "--yes", "--config", str(moved.folder / name))
    assert (moved.folder / name).exists() and (moved.folder / "folder/precious").exists(), said.output


def test_purge_leaves_folders_and_files_of_others_in_a_shared_state_folder(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = moved.folder / "shared"
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(shared))
    theirs = shared / "logs/app.log"
    theirs.parent.mkdir(parents=True, mode=0o755)
    theirs.parent.chmod(0o755)
    theirs.touch()
    (shared / "keys").touch()
    (shared / "approvals").mkdir(mode=0o700)
    (shared / "approvals/a.json").touch()
    said = moved.run("leave", "--purge", "--yes")
    assert {path.name for path in shared.iterdir()} == {"logs", "keys"} and theirs.exists(), said.output
    assert f"{theirs.parent} stays" in said.stderr


def test_purge_goes_on_when_a_hub_does_not_end(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_PATIENCE", 0.1)
    config = moved.folder / "work/servers.yaml"
    config.parent.mkdir()
    config.write_text("servers: {time: {command: uvx}}\n")
    moved.run("install", "gemini", "--config", str(config))
    folder = moved.folder / "run/mcp-hub/0123456789abcdef"
    folder.mkdir(parents=True, mode=0o700)
    with open(folder / "lock", "w") as lock, recorded(str(config), "", os.environ, folder=str(folder)):
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"Stops the background hub of {config} (process {os.getpid()})" in moved.run("leave", "--dry-run").stdout
        said = moved.run("leave", "--purge", "--yes", code=1)
    for path in (config, folder, moved.folder / "state/mcp-hub"):
        assert path.exists() and f"{path} stays" in said.stderr, said.output
    assert f"(process {os.getpid()}) has not ended" in said.stderr
    assert moved.contents() == moved.before and not moved.config.exists()
    assert not list(moved.folder.rglob("*.mcp-hub-backup"))
    moved.run("leave", "--purge", "--yes")
    assert not config.exists() and not folder.exists() and config.parent.is_dir()


def test_a_hub_over_http_is_named_and_keeps_what_it_uses(moved: Moved) -> None:
    named = f"A hub over HTTP runs for {moved.config} (process {os.getpid()}). Stop it where it was started."
    with recorded(str(moved.config), "http://127.0.0.1:9/mcp", os.environ):
        said = moved.run("leave", "--purge", "--yes", code=1)
        assert named in said.stderr and moved.contents() == moved.before
        for path in (moved.config, moved.folder / "state/mcp-hub"):
            assert path.exists() and f"{path} stays" in said.stderr, said.output
        done = moved.run("leave", code=1)
        again = done.stderr
        assert f"Still there:\n  {moved.config} (" in done.stdout, done.stdout
        assert named in again and "no client has the hub." in again and "nothing of it runs" not in again


def test_servers_that_are_in_no_client_are_named(moved: Moved) -> None:
    moved.config.write_text(moved.config.read_text() + "  added: {command: added-server}\n")
    for option, first in (("--wait", ""), ("--purge", " first")):
        advice = f"To put all servers into one{first}: mcp-hub export CLIENT --write --all\n"
        assert f"In no client, only there: added. {advice}" in moved.run("leave", "--dry-run", option).stderr
    moved.run("export", "cursor", "--write", "--all")
    assert "In no client" not in moved.run("leave", "--dry-run").stderr


@pytest.mark.parametrize("command", ["leave --purge --yes", "uninstall cursor codex gemini --restore"])
def test_servers_that_were_exported_stay_in_the_file_of_their_client(moved: Moved, command: str) -> None:
    moved.config.write_text(moved.config.read_text() + "  more: {command: x}\n  added: {command: added-server}\n")
    for client in ("cursor", "codex", "gemini"):
        moved.run("export", client, "--write", "--all")
    moved.edit(1, "// mine", "// my own")
    moved.run(*command.split())
    for number, key in ((1, "mcpServers"), (2, "mcp_servers"), (3, "mcpServers")):
        path, before = PATHS[number], moved.before[PATHS[number]] or b""
        text = (moved.contents()[path] or b"").decode()
        servers: Any = read_data(text, path)
        old: Any = read_data(before.decode(), path)
        assert servers[key].pop("added")["command"] == "added-server" and "mcp-hub" not in servers[key]
        assert servers[key].pop("more")["command"] == "x"
        assert {name: servers[key][name] for name in old[key]} == old[key]
    assert "// my own" in (moved.folder / PATHS[1]).read_text()


def _those(states: list[FileState], file: ClientFile) -> list[FileState]:
    return states


def test_copies_of_two_files_of_one_name_are_two(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        path = moved.folder / name / "mcp.json"
        states = [state_of(path, name.encode(), [])]
        monkeypatch.setattr(uninstall_command, "_states", partial(_those, states))
        place = CLIENTS_TABLE["vscode"].places[0]
        uninstall_command._save(Step(ClientFile(CLIENTS_TABLE["vscode"], path, place), place.layouts[0]))
    assert {path.read_bytes() for path in (moved.folder / "state/mcp-hub/clients/saved").iterdir()} == {b"a", b"b"}


def test_undo_of_one_client_leaves_the_others_and_the_last_undo_the_rest(moved: Moved) -> None:
    installed = moved.contents()
    moved.edit(1, "// mine", "// my own")
    said = moved.run("install", "--undo", "cursor").stdout
    assert "Cursor" in said and "2 servers back: clock, github" not in said
    cursor = (moved.before[PATHS[1]] or b"").replace(b"// mine", b"// my own")
    assert moved.contents() == {**installed, PATHS[1]: cursor}
    moved.run("install", "--undo", "cursor", code=1)
    moved.run("install", "--undo")
    assert moved.contents() == {**moved.before, PATHS[1]: cursor} and not moved.config.exists()


def test_undo_names_what_it_cannot_restore_and_tries_it_again(moved: Moved) -> None:
    codex, gemini = (moved.folder / PATHS[number] for number in (2, 3))
    installed = codex.read_text()
    codex.write_text(f"{installed}\n= 1\n")
    gemini.unlink()
    said = moved.run("install", "--undo", code=1)
    assert f"{codex}:{installed.count(chr(10)) + 2}: " in said.output and f"{gemini} is gone" in said.output
    saved = [Path(path).read_bytes() for path in re.findall(r"from before is in (\S+)", said.output)]
    assert saved == [moved.before[PATHS[3]], moved.before[PATHS[2]]]
    assert moved.contents()[PATHS[1]] == moved.before[PATHS[1]]
    codex.write_text(installed)
    moved.run("install", "--undo")
    assert moved.contents() == {**moved.before, PATHS[3]: None}


def test_server_that_was_edited_in_the_hub_stays_there_with_its_secret(moved: Moved) -> None:
    text = moved.config.read_text()
    moved.config.write_text(text.replace("db-mcp", "db-mcp-2") + "  mine: {command: x}\n")
    said = moved.run("install", "--undo", code=1)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if one.startswith("  db:"))
    assert re.search(rf"{moved.config}:\d+: db has been changed since", said.output) and line
    left = moved.config.read_text()
    assert "db-mcp-2" in left and "mine: {command: x}" in left and "github" not in left
    assert [path.name for path in (moved.config.parent / "secrets").iterdir()] == ["db.arg2"]
    assert moved.contents() == moved.before


@pytest.mark.parametrize(("answer", "comes_back"), [("--restore", True), ("--keep", False)])
def test_uninstall_says_what_would_be_lost(moved: Moved, answer: str, comes_back: bool) -> None:
    installed = moved.contents()
    refused = moved.run("uninstall", "codex", code=2)
    assert "3 servers would be only in the hub: " in refused.output and "--keep" in refused.output
    assert moved.contents() == installed
    said = moved.run("uninstall", "codex", answer)
    assert ("mcp-hub export codex --write" in said.output) is not comes_back
    codex = moved.contents()[PATHS[2]] or b""
    assert b"mcp-hub" not in codex and (codex == moved.before[PATHS[2]]) is comes_back
    assert moved.contents() == {**installed, PATHS[2]: codex}
    moved.run("install", "--undo")
    assert moved.contents() == installed


def test_hub_and_every_place_of_it_are_named_also_without_a_configuration(moved: Moved) -> None:
    found = json.loads(moved.run("paths", "--json").stdout)
    assert {name: one["path"] for name, one in found.items()} == {
        "configuration": str(moved.config),
        "secrets": str(moved.config.parent / "secrets"),
        "state": str(moved.folder / "state/mcp-hub"),
        "history": str(moved.folder / "state/mcp-hub/history.db"),
        "cache": str(moved.folder / "state/mcp-hub/lists"),
        "logs": found["logs"]["path"],
        "sockets": found["sockets"]["path"],
    }
    shown = moved.run("paths").stdout
    assert str(moved.config) in shown and "not there yet" in shown and shown.count("\n") == len(found)
    assert json.loads(moved.run("status", "--json", code=3).stdout)["paths"]["configuration"] == str(moved.config)
    moved.run("stop", code=3)
    with recorded(str(moved.config), "http://127.0.0.1:9/mcp", os.environ):
        moved.config.unlink()
        shown = moved.run("status").stdout
        (hub,) = json.loads(moved.run("status", "--json").stdout)["hubs"]
    assert f"{moved.config}, which is gone" in shown and hub["config"] == str(moved.config)


def test_export_writes_what_came_from_the_client_with_the_values_of_its_secrets(moved: Moved) -> None:
    moved.config.write_text(moved.config.read_text() + "  added: {command: x}\n")
    for number, client in ((0, "claude-desktop"), (1, "cursor"), (2, "codex")):
        moved.run("uninstall", client, "--keep")
        said = moved.run("export", client, "--write")
        text = moved.contents()[PATHS[number]] or b""
        assert b"${file:" not in text and b"added" not in text and "server" in said.output
        before, now = (_servers(content or b"", client) for content in (moved.before[PATHS[number]], text))
        before.pop("mcp-hub", None)
        secrets = [{name: _variables(one) for name, one in servers.items()} for servers in (before, now)]
        assert secrets[0] == secrets[1]
    (moved.config.parent / "secrets/github.GITHUB_TOKEN").unlink()
    moved.run("install", "--undo", "claude-desktop")
    assert "not exported, these cannot be read" in moved.run("export", "claude-desktop", "--write").output
    assert "came from Warp" in moved.run("export", "warp", "--write").output
    moved.run("export", "warp", "--write", "--all")
    assert "added" in json.dumps(_servers((moved.folder / ".warp/.mcp.json").read_bytes(), "warp"))


def _variables(server: dict[str, Any]) -> object:
    return server.get("env") or server.get("headers") or server.get("http_headers")


def _servers(text: bytes, client: str) -> dict[str, Any]:
    data: Any = read_data(text.decode(), "x.toml" if client == "codex" else "x.json")
    return dict(data["mcp_servers" if client == "codex" else "mcpServers"])
