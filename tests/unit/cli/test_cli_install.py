"""`mcp-hub install` and `uninstall` in homes of all systems: what they change, say and refuse."""

import json
import os
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub.cli import main
from mcp_hub.onboarding.changes.written import lost_entries
from mcp_hub.onboarding.clients import programs
from mcp_hub.onboarding.clients.entries import serve_args
from mcp_hub.onboarding.clients.model import SYSTEMS, System, Where
from mcp_hub.onboarding.clients.reading import hub_files
from mcp_hub.onboarding.clients.table import CLIENTS

CANARY = "s3cr3t-canary-of-a-neighbour"
WRITTEN = [client for client in CLIENTS.values() if client.is_written]
SERVERS = "servers: {a: {command: x, enabled: false}}\n"


class Home:
    """A home folder of a system, with a configuration of the hub."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self.config = folder / "own" / "servers.yaml"
        self.config.parent.mkdir()
        self.config.write_text(SERVERS)
        monkeypatch.setenv("MCP_HUB_STATE_DIR", str(folder / "state"))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        self.be("linux")

    def be(self, system: System) -> Where:
        """From now on a home of this system."""
        where = Where(system, self.folder, {"PATH": str(self.folder / "bin")})
        self._patch.setattr(Where, "here", lambda env: where)
        return where

    def run(self, *args: str) -> Result:
        result = CliRunner().invoke(main, list(args))
        assert CANARY not in result.output
        return result

    def install(self, *args: str) -> Result:
        return self.run("install", *args, "--config", str(self.config))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def contents(self) -> dict[str, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file() and "state" not in path.parts)
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(programs, "_names", lambda system: iter(()))
    return Home(tmp_path, monkeypatch)


def start(file: Path) -> str:
    """A file with a neighbour that has a secret."""
    if file.suffix == ".toml":
        return f'# mine\n[mcp_servers.one]\ncommand = "x"\nenv = {{ KEY = "{CANARY}" }}\n'
    if file.suffix == ".yaml":
        return f"# mine\nextensions:\n  one: {{type: stdio, cmd: x, envs: {{KEY: {CANARY}}}}}\n"
    return f'{{ // mine\n  "mcpServers": {{"one": {{"command": "x", "env": {{"KEY": "{CANARY}"}}}}}},\n}}\n'


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_all_clients_get_the_hub_and_every_step_is_taken_back(home: Home, system: System) -> None:
    where = home.be(system)
    files = [file for client in WRITTEN for file in hub_files(client, where)]
    for file in files:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        if not file.place.is_own:
            file.path.write_text(start(file.path))
    before = home.contents()
    assert home.install("--all", "--dry-run").exit_code == 0 and home.contents() == before
    assert home.install("--all").exit_code == 0
    installed = home.contents()
    for file in files:
        assert b'"serve"' in file.path.read_bytes() and file.client.client_kind.encode() in file.path.read_bytes()
    assert home.install("--all").output.count("already there") == len(files) and home.contents() == installed
    assert home.run("uninstall", "--all").exit_code == 0
    assert not any(b'"serve"' in file.path.read_bytes() for file in files if file.path.exists())
    assert home.install("--undo").exit_code == 0
    assert {name: text for name, text in home.contents().items() if "backup" not in name} == {
        name: text for name, text in installed.items() if "backup" not in name
    }
    assert home.run("install", "--undo").exit_code == 0 and home.contents() == before
    assert home.run("install", "--undo").exit_code == 1


def test_entry_names_configuration_and_kind_and_an_old_one_is_replaced_unshown(home: Home) -> None:
    path = home.write(".cursor/mcp.json", "")
    home.install("cursor")
    entry = json.loads(path.read_text())["mcpServers"]["mcp-hub"]
    assert os.path.isabs(entry["command"])
    assert entry["args"][-5:] == ["serve", "--config", str(home.config), "--client", "cursor"]
    old = {"command": "old", "env": {"KEY": CANARY}, "headers": {"X": CANARY}}
    path = home.write(".cursor/mcp.json", json.dumps({"mcpServers": {"mcp-hub": old}}))
    result = home.install("cursor")
    assert '- "command": "old"' in result.output.replace("   ", " ").replace("  ", " ")
    assert set(json.loads(path.read_text())["mcpServers"]["mcp-hub"]) == {"command", "args"}


@pytest.mark.processes
@pytest.mark.slow
def test_file_in_the_folder_of_a_project_is_never_read(home: Home, tmp_path: Path) -> None:
    home.config.write_text('servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}\n')
    path = home.write(".cursor/mcp.json", "")
    home.install("cursor", "--http")
    assert json.loads(path.read_text())["mcpServers"]["mcp-hub"] == {"url": "http://127.0.0.1:8765/mcp"}
    project = tmp_path / "project"
    home.write("project/servers.yaml", "servers: {evil: {command: touch, args: [evil], start: eager}}\n")
    args = serve_args(home.config, "cursor")
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    request["params"] |= {"capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}  # type: ignore[operator]
    lines = [request, {"jsonrpc": "2.0", "method": "notifications/initialized"}]
    lines.append({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    done = subprocess.run(
        [sys.executable, "-m", "mcp_hub", *args],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        cwd=project,
        timeout=240,
        env={**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert "jobs" in done.stdout and "evil" not in done.stdout + done.stderr
    assert [one.name for one in project.iterdir()] == ["servers.yaml"]


def test_clients_are_refused_one_by_one(home: Home) -> None:
    home.write(".cursor/mcp.json", '{"a": ')
    (home.folder / ".warp").mkdir()
    (home.folder / ".warp/.mcp.json").symlink_to("nothing")
    kiro = home.write(".kiro/settings/mcp.json", "{}")
    home.write(".junie/mcp/mcp.json", "{}").chmod(0o444)
    result = home.install("--all")
    assert result.exit_code == 1
    for code in ("client_file_unclear", "dangling_link", "client_file_unwritable"):
        assert f"[{code}]" in result.stderr
    assert "mcp-hub" in kiro.read_text() and lost_entries(home.folder / "state") == []


def test_client_that_cannot_be_edited_gets_a_snippet(home: Home) -> None:
    home.write(".codex/config.toml", f'mcp_servers = {{ one = {{ command = "{CANARY}" }} }}\n')
    result = home.install("codex")
    assert result.exit_code == 1 and "[mcp_servers.mcp-hub]" in result.stderr and str(home.config) in result.stderr
    result = home.install("amp")
    assert result.exit_code == 1 and "[client_import_only]" in result.stderr
    assert json.loads(result.stdout)["amp.mcpServers"]["mcp-hub"]["args"][-1] == "unknown"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["nothing"], "unknown_client"),
        (["curser"], "unknown_client"),
        ([], "usage"),
        (["cursor", "--all"], "usage"),
        (["--all"], "no_client"),
    ],
)
def test_wrong_arguments_are_usage_errors(home: Home, args: list[str], code: str) -> None:
    result = home.install(*args)
    assert result.exit_code == 2 and f"[{code}]" in result.stderr


def test_lost_entry_is_noticed(home: Home) -> None:
    path = home.write(".cursor/mcp.json", "{}")
    home.install("cursor")
    state = home.folder / "state"
    assert lost_entries(state) == []
    path.write_text("{}")
    (lost,) = lost_entries(state)
    assert (lost.client, lost.args) == ("cursor", ("--config", str(home.config)))
    assert home.install(lost.client, *lost.args).exit_code == 0 and lost_entries(state) == []
    home.run("uninstall", "cursor")
    assert lost_entries(state) == []


def test_undo_takes_only_the_hub_out_of_a_file_that_was_changed_since(home: Home) -> None:
    path = home.write(".cursor/mcp.json", "{}")
    home.install("cursor")
    path.write_text(path.read_text().replace("{", '{"mine": 1, ', 1))
    result = home.run("install", "--undo")
    assert result.exit_code == 0 and "Cursor" in result.stdout and "the hub is out" in result.stdout
    assert json.loads(path.read_text()) == {"mine": 1}


def test_app_that_writes_its_file_back_must_be_quit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.write(".config/Claude/claude_desktop_config.json", "{}")
    names = chain([["Claude"], ["bash", "Claude"], ["Claude"]], repeat(["bash"]))
    monkeypatch.setattr(programs, "_names", lambda system: iter(next(names)))
    monkeypatch.setattr(programs, "_STEP", 0.001)
    result = home.install("claude-desktop")
    assert result.exit_code == 1 and "[client_running]" in result.stderr and path.read_text() == "{}"
    assert home.install("claude-desktop", "--wait").exit_code == 0 and "mcp-hub" in path.read_text()


CLAUDE = """#!{python}
import json, pathlib, sys
path = pathlib.Path({path!r})
if {mode!r} == "fails":
    sys.exit("{canary}")
data = json.loads(path.read_text())
print("{canary}")
if {mode!r} == "works" and sys.argv[2] == "add-json":
    assert sys.argv[1:6] == ["mcp", "add-json", "--scope", "user", "mcp-hub"] and "mcp-hub" not in data["mcpServers"]
    data["mcpServers"]["mcp-hub"] = json.loads(sys.argv[6])
if {mode!r} == "works" and sys.argv[2] == "remove":
    del data["mcpServers"][sys.argv[5]]
path.write_text(json.dumps({{**data, "runs": data.get("runs", 0) + 1}}))
"""


def with_claude(home: Home, mode: str) -> Path:
    path = home.write(".claude.json", json.dumps({"mcpServers": {"one": {"env": {"K": CANARY}}}}))
    text = CLAUDE.format(python=sys.executable, path=str(path), mode=mode, canary=CANARY)
    home.write("bin/claude", text).chmod(0o755)
    return path


@pytest.mark.processes
def test_command_of_the_client_writes_its_file(home: Home) -> None:
    path = with_claude(home, "works")
    before = path.read_bytes()
    assert home.install("claude-code").exit_code == 0
    data = json.loads(path.read_text())
    assert data["runs"] == 1 and data["mcpServers"]["mcp-hub"]["type"] == "stdio"
    home.config = home.write("other.yaml", SERVERS)
    assert home.install("claude-code").exit_code == 0 and json.loads(path.read_text())["runs"] == 3
    assert home.run("uninstall", "claude-code").exit_code == 0
    assert json.loads(path.read_text()) == {"mcpServers": {"one": {"env": {"K": CANARY}}}, "runs": 4}
    for _ in range(3):
        assert home.run("install", "--undo").exit_code == 0
    assert path.read_bytes() == before


@pytest.mark.processes
def test_command_that_lies_is_noticed_and_one_that_fails_replaced(home: Home) -> None:
    with_claude(home, "lies")
    result = home.install("claude-code")
    assert result.exit_code == 1 and "[client_cli_failed]" in result.stderr
    assert home.run("install", "--undo").exit_code == 0
    path = with_claude(home, "fails")
    assert home.install("claude-code").exit_code == 0
    assert set(json.loads(path.read_text())["mcpServers"]) == {"one", "mcp-hub"}


@pytest.mark.processes
def test_command_that_writes_the_whole_file_anew_only_makes_new_files(home: Home) -> None:
    path = home.write(".config/Code/User/mcp.json", '{\n  // mine\n  "servers": {}\n}\n')
    text = f"#!{sys.executable}\nimport json, sys\nentry = json.loads(sys.argv[2])\nname = entry.pop('name')\n"
    home.write("bin/code", f"{text}json.dump({{'servers': {{name: entry}}}}, open({str(path)!r}, 'w'))\n").chmod(0o755)
    assert home.install("vscode").exit_code == 0
    assert "// mine" in path.read_text() and "mcp-hub" in path.read_text()
    path.unlink()
    assert home.install("vscode").exit_code == 0
    assert "\n" not in path.read_text() and json.loads(path.read_text())["servers"]["mcp-hub"]["type"] == "stdio"


def test_clients_connect_to_a_running_hub(home: Home) -> None:
    home.config.write_text(f"hub: {{tokens: [{{token: {CANARY}, principal: a}}], http: {{port: 9}}}}\n{SERVERS}")
    claude = home.write(".claude.json", "{}")
    home.write(".cursor/mcp.json", "{}")
    home.write(".config/Claude/claude_desktop_config.json", "{}")
    result = home.install("--all", "--http")
    assert result.exit_code == 0 and "Skipped: Claude Desktop" in result.stderr
    assert "mcp-hub serve --http" in result.stderr
    headers = {"Authorization": "Bearer ${HUB_TOKEN}"}
    entry = {"type": "http", "url": "http://127.0.0.1:9/mcp", "headers": headers}
    assert json.loads(claude.read_text())["mcpServers"]["mcp-hub"] == entry
    refused = home.install("kiro", "--http")
    assert refused.exit_code == 1 and "[client_without_http]" in refused.stderr
    assert not (home.folder / ".kiro").exists()


def test_next_steps_are_named_after_an_installation(home: Home) -> None:
    home.write(".cursor/mcp.json", json_servers(own=local("own")))
    home.write(".warp/.mcp.json", "{}")
    said = home.install("--all").output
    assert "mcp-hub install --undo" in said and "mcp-hub install --import cursor\n" in said
    assert "Cursor: the hub is installed. Next: restart the client if it does not show the hub.\n" in said
    said = home.install("--all", "--import").output
    assert "mcp-hub install --undo" in said and "install --import" not in said
    said = home.install("--all", "--import").output
    assert "--undo" not in said, "nothing has changed"


def test_own_file_of_the_hub_is_removed_again(home: Home) -> None:
    (home.folder / ".continue").mkdir()
    home.install("continue")
    path = home.folder / ".continue/mcpServers/mcp-hub.yaml"
    data: Any = yaml.safe_load(path.read_text())
    assert {key: data[key] for key in ("name", "version", "schema")} == {
        "name": "mcp-hub",
        "version": "0.0.1",
        "schema": "v1",
    }
    assert home.run("uninstall", "continue").exit_code == 0 and not path.exists()
    assert "not there" in home.run("uninstall", "continue").output


def json_servers(**servers: Any) -> str:
    return json.dumps({"mcpServers": servers}, indent=2) + "\n"


def local(name: str, **more: Any) -> dict[str, Any]:
    return {"command": f"/nowhere/{name}", "args": [name], **more}


@pytest.mark.slow
def test_servers_of_four_clients_move_into_the_hub_and_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.config.load.load.user_folder", lambda kind, env: str(home.folder / "own"))
    monkeypatch.chdir(home.folder)
    home.config.unlink()
    home.write(".cursor/mcp.json", "// mine\n" + json_servers(a=local("a"), b=local("b"), broken={"args": 1}))
    secret = local("c", env={"API_TOKEN": CANARY})
    home.write(".kiro/settings/mcp.json", json_servers(a=local("a"), c=secret, d=local("d")))
    toml = "# mine\n[mcp_servers.b]\ncommand = '/nowhere/b'\nargs = ['b']\n\n[mcp_servers.e]\ncommand = '/nowhere/e'\n"
    home.write(".codex/config.toml", toml)
    items = "".join(f"  - name: {name} # of {name}\n    command: /nowhere/{name}\n" for name in "fgh")
    home.write(".continue/config.yaml", f"# mine\nname: me\nmcpServers:\n{items}")
    before = home.contents()
    shown = home.run("install", "--all", "--import", "--dry-run")
    assert shown.exit_code == 0 and home.contents() == before
    result = home.run("install", "--all", "--import")
    assert result.exit_code == 0, result.output
    servers = yaml.safe_load(home.config.read_text())["servers"]
    assert sorted(servers) == [*"abcdefgh"] and CANARY not in home.config.read_text()
    assert json.loads((home.folder / ".kiro/settings/mcp.json").read_text())["mcpServers"].keys() == {"mcp-hub"}
    cursor = (home.folder / ".cursor/mcp.json").read_text()
    assert "// mine" in cursor and "broken" in cursor and "/nowhere" not in cursor
    codex = (home.folder / ".codex/config.toml").read_text()
    assert codex.startswith("# mine\n") and "/nowhere" not in codex and "mcp-hub" in codex
    rest = (home.folder / ".continue/config.yaml").read_text()
    assert rest == "# mine\nname: me\nmcpServers: []\n" and (home.folder / ".continue/mcpServers/mcp-hub.yaml").exists()
    assert home.run("install", "--undo").exit_code == 0
    assert home.contents() == before


def test_links_are_printed_without_a_change_and_a_configuration_must_exist(home: Home) -> None:
    before = home.contents()
    result = home.install("--link")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 6 and home.contents() == before
    assert home.install("zed", "--link").exit_code == 2
    home.config.unlink()
    assert home.install("cursor").exit_code == 2 and not (home.folder / ".cursor").exists()
