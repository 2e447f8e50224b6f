"""`mcp-hub export`: servers in the form of every client; what cannot go along is said."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.cli.clients.exported import exported
from mcp_hub.cli.clients.reading import held_at, read_data
from mcp_hub.cli.clients.table import CLIENTS

CONFIG = """\
# mine
servers:
  files: {command: npx, args: [x], env: {ROOT: "${DIR:-/tmp}", GH: "${GH}", S_TOKEN: s3cret-canary}, timeout: 5m}
  far: {url: "https://example.com/mcp", bearer: "${FAR}"}
  funcs: {local: "mcp_hub.examples.jobs:registry"}
  off: {command: x, enabled: false}
"""
WRITTEN = [client.name for client in CLIENTS.values() if client.is_written]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    monkeypatch.setenv("GH", "gh-s3cret-canary")
    monkeypatch.setenv("FAR", "far-s3cret-canary")
    (tmp_path / "servers.yaml").write_text(CONFIG)
    return tmp_path


def run(*args: str) -> Result:
    try:
        return CliRunner().invoke(main, ["export", *args])
    finally:
        masking.forget()


@pytest.mark.parametrize("name", WRITTEN)
def test_every_client_gets_its_own_form_without_a_secret(home: Path, name: str) -> None:
    done = run(name)
    assert done.exit_code == 0 and "canary" not in done.output
    layout = CLIENTS[name].places[-1].layouts[-1]
    form = {"codex": "x.toml", "goose": "x.yaml", "continue": "x.yaml"}.get(name, "x.json")
    held = held_at(read_data(done.stdout, form), layout.key)
    names = [one["name"] for one in held] if isinstance(held, list) else list(held)  # type: ignore[call-overload]
    assert sorted(names) == (["far", "files"] if layout.http is not None else ["files"])
    assert "funcs: not exported, only the hub runs Python functions" in done.stderr
    assert "off: not exported, it is disabled" in done.stderr and "files: left out: timeout" in done.stderr


@pytest.mark.parametrize("args", [(), ("unheard-of",)])
def test_the_clients_are_listed_for_one_who_names_none_or_another(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.exit_code == 2 and f"{', '.join(WRITTEN)}." in done.stderr


@pytest.mark.parametrize(
    ("name", "files", "far"),
    [
        ("cursor", {"ROOT": "${env:DIR}", "GH": "${env:GH}"}, {"Authorization": "Bearer ${env:FAR}"}),
        ("claude-code", {"ROOT": "${DIR}", "GH": "${GH}"}, {"Authorization": "Bearer ${FAR}"}),
        ("opencode", {"ROOT": "{env:DIR}", "GH": "{env:GH}"}, {"Authorization": "Bearer {env:FAR}"}),
        ("goose", {"ROOT": "${DIR:-/tmp}", "GH": "${GH}"}, {"Authorization": "Bearer ${FAR}"}),
    ],
)
def test_variables_are_named_as_the_client_does(name: str, files: dict[str, str], far: dict[str, str]) -> None:
    client = CLIENTS[name]
    servers = yaml.safe_load(CONFIG)["servers"]
    layout = client.places[-1].layouts[-1]
    one, other = (exported(client, layout, server, servers[server]) for server in ("files", "far"))
    assert one.entry is not None and other.entry is not None
    env = one.entry.get("env") or one.entry.get("envs") or one.entry.get("environment")
    assert env == {**files, "S_TOKEN": "s3cret-canary"}
    assert other.entry["headers"] == far
    assert any("does not fill these in" in note for note in one.notes) == (name == "goose")


@pytest.mark.parametrize(("name", "key"), [("continue", None), ("codex", "http_headers"), ("copilot", "headers")])
def test_headers_go_where_the_client_has_them_or_are_missed(name: str, key: str | None) -> None:
    client = CLIENTS[name]
    own = {"url": "https://example.com/mcp", "headers": {"X-Team": "a"}}
    made = exported(client, client.places[-1].layouts[-1], "far", own)
    assert made.entry is not None and (made.entry.get(key) if key else None) == ({"X-Team": "a"} if key else None)
    assert any("takes no headers" in note for note in made.notes) == (key is None)


def test_codex_gets_variables_by_their_names(home: Path) -> None:
    made = tomllib.loads(run("codex").stdout)["mcp_servers"]
    assert made["files"]["env_vars"] == ["GH"] and "GH" not in made["files"]["env"]
    assert made["far"]["bearer_token_env_var"] == "FAR" and "command" not in made["far"]


def test_servers_are_written_beside_those_that_are_there_and_the_change_can_be_undone(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    before = '{\n  // mine\n  "mcpServers": {"files": {"command": "own"}},\n}\n'
    file.write_text(before)
    done = run("cursor", "--write", "--all")
    assert done.exit_code == 0 and "1 server added" in done.stderr and "canary" not in done.output
    after = file.read_text()
    assert after.startswith('{\n  // mine\n  "mcpServers": {"files": {"command": "own"}')
    held = read_data(after, "mcp.json")
    assert held_at(held, ("mcpServers", "files")) == {"command": "own"}
    assert held_at(held, ("mcpServers", "far", "url")) == "https://example.com/mcp"
    assert "0 servers added" in run("cursor", "--write", "--all").stderr and file.read_text() == after
    assert CliRunner().invoke(main, ["install", "--undo"]).exit_code == 0
    assert file.read_text() == before


def test_a_file_that_cannot_be_edited_is_left_alone(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": [')
    done = run("cursor", "--write", "--all")
    assert done.exit_code != 0 and file.read_text() == '{"mcpServers": ['
    refused = run("continue", "--write")
    assert refused.exit_code == 1 and "client_file_unclear" in refused.output


def test_an_unknown_client_is_a_mistake(home: Path) -> None:
    done = run("curser")
    assert done.exit_code == 2 and 'Did you mean "cursor"?' in done.output


def test_printed_entries_are_data_whatever_a_name_is(home: Path) -> None:
    name = 'a "b"; rm -rf & é\\'
    (home / "servers.yaml").write_text(json.dumps({"servers": {name: {"command": "x y"}}}))
    assert json.loads(run("cursor").stdout)["mcpServers"][name]["command"] == "x y"
    assert tomllib.loads(run("codex").stdout)["mcp_servers"][name]["command"] == "x y"
