"""The command by which clients start the hub, and the links that install it."""

import base64
import json
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from mcp_hub.edit.entries import put
from mcp_hub.errors import HubError
from mcp_hub.onboarding.changes.written import lost_entries
from mcp_hub.onboarding.clients import programs
from mcp_hub.onboarding.clients.entries import Command, hub_command
from mcp_hub.onboarding.clients.table import CLIENTS
from tests.unit.cli.test_cli_install import CANARY, SERVERS, Home

COMMAND = Command('/opt/é "x" & y/mcp-hub', ("serve", "--config", "/a b/s.yaml"))
ENTRY = {"command": COMMAND.program, "args": list(COMMAND.args)}


def test_links_hold_the_command_whatever_its_characters() -> None:
    links = {name: urlsplit(client.link(COMMAND)) for name, client in CLIENTS.items() if client.link}
    assert links.keys() == {"cursor", "vscode", "vscode-insiders", "vscodium", "lm-studio", "goose"}
    for name in ("cursor", "lm-studio"):
        query = parse_qs(links[name].query)
        assert json.loads(base64.b64decode(query["config"][0])) == ENTRY and query["name"] == ["mcp-hub"]
    vscode = {"name": "mcp-hub", "type": "stdio", **ENTRY}
    assert (links["vscode"].scheme, links["vscode"].path) == ("vscode", "mcp/install")
    assert json.loads(unquote(links["vscode"].query)) == vscode
    goose = parse_qs(links["goose"].query)
    assert (goose["cmd"], goose["arg"]) == ([COMMAND.program], list(COMMAND.args))


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_command_is_that_of_the_installation(tmp_path: Path) -> None:
    scripts, python = tmp_path / "bin", str(tmp_path / "bin/python")
    assert hub_command({}, ("a",), scripts, python) == Command(python, ("-m", "mcp_hub", "a"))
    script = program(tmp_path / "bin/mcp-hub")
    assert hub_command({}, ("a",), scripts, python) == Command(str(script), ("a",))


@pytest.mark.parametrize("variable", [None, "UV_CACHE_DIR"])
def test_throw_away_installation_is_started_through_uvx(tmp_path: Path, variable: str | None) -> None:
    folder = "cache" if variable else ".cache/uv/archive-v0"
    program(tmp_path / folder / "x/bin/mcp-hub")
    scripts = tmp_path / folder / "x/bin"
    env = {"PATH": str(tmp_path / "tools")} | ({variable: str(tmp_path / folder)} if variable else {})
    with pytest.raises(HubError):
        hub_command(env, (), scripts)
    uvx = program(tmp_path / "tools/uvx")
    command = hub_command(env, ("serve",), scripts)
    assert command.program == str(uvx) and command.args[0].startswith("mcp-hub@") and command.args[1:] == ("serve",)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setattr(programs, "_names", lambda system: iter(()))
    home = Home(tmp_path, monkeypatch)
    home.config.write_text(f"{SERVERS}profiles: {{work: {{servers: [a]}}, play: {{}}}}\n")
    home.write("other.yaml", SERVERS)
    monkeypatch.chdir(tmp_path)
    return home


FILES = {
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "claude-code": (".claude.json", "mcpServers"),
    "cline": (".cline/data/settings/cline_mcp_settings.json", "mcpServers"),
    "opencode": (".config/opencode/opencode.json", "mcp"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "goose": (".config/goose/config.yaml", "extensions"),
}


def entry_of(home: Home, client: str, entry: Any = None) -> Any:
    """The hub's entry in the client's file, which gets `entry` first; `<config>` and `<home>` are paths in it."""
    name, key = FILES[client]
    if entry is not None:
        text = json.dumps(entry).replace("<config>", str(home.config)).replace("<home>", str(home.folder))
        home.write(name, put("", name, (key, "mcp-hub"), json.loads(text)))
    text = (home.folder / name).read_text()
    data = tomllib.loads(text) if name.endswith("toml") else yaml.safe_load(text)
    return data[key]["mcp-hub"]


SERVE = ["serve", "--config", "<config>", "--client"]


def by(*args: str, **keys: Any) -> dict[str, Any]:
    return {"command": "/old/mcp-hub", "args": [*args], **keys}


KEPT: list[tuple[str, Any]] = [
    ("cursor", by(*SERVE, "cursor", "--profile", "work")),
    ("cursor", by("serve", "--profile=work", "-c", "<config>")),
    ("cursor", by("serve", "--attach", "never", "--log-level", "debug", env={"A": CANARY}, timeout=9, disabled=True)),
    ("cursor", {"command": "uvx", "args": ["mcp-hub@0.1", "serve", "--profile", "work"], "envFile": "x"}),
    ("cursor", {"command": "python", "args": ["-m", "mcp_hub", "serve", "--client", "zed"], "cwd": "/tmp"}),
    ("cursor", by("serve", env={"MCP_HUB_CONFIG": "<config>", "MCP_HUB_ATTACH": "never"})),
    ("cursor", {"command": "/old/mcp-hub serve --profile work"}),
    ("claude-code", by(*SERVE, "claude-code", "--profile", "work", type="stdio", env={"A": CANARY}, alwaysLoad=True)),
    ("cline", {"transport": by("serve", "--profile", "work", type="stdio", env={"A": "1"}), "timeout": 5}),
    ("cline", by("serve", "--profile", "work", env={"A": "1"}, autoApprove=["x"])),
    ("opencode", {"type": "local", "command": ["/old/mcp-hub", "serve", "--profile", "work"], "enabled": False}),
    ("codex", by("serve", "--profile", "work", startup_timeout_sec=99, env={"A": CANARY})),
    ("goose", {"type": "stdio", "cmd": "/old/mcp-hub", "args": ["serve", "--profile", "work"], "timeout": 7}),
]


@pytest.mark.parametrize(("client", "old"), KEPT)
def test_options_of_an_entry_are_kept(home: Home, client: str, old: Any) -> None:
    old = entry_of(home, client, old)
    before = (home.folder / FILES[client][0]).read_bytes()
    assert home.install(client).exit_code == 0
    new = entry_of(home, client)
    inner, old_inner = (one.get("transport", one) if client == "cline" else one for one in (new, old))
    words = [
        *([one] if isinstance(one := inner.get("command", inner.get("cmd")), str) else one),
        *inner.get("args", []),
    ]
    old_words = " ".join(map(str, old_inner.values())).replace("=", " ").replace("'", "").replace(",", "")
    for option in ("--profile", "--attach", "--log-level", "--client zed"):
        assert (option in old_words) is (option in " ".join(words)), words
    assert "--profile" not in words or words[words.index("--profile") + 1] == "work"
    assert not any("/old/" in word for word in words) and ("--config" in words) is ("MCP_HUB_CONFIG" not in str(old))
    form = {"command", "cmd", "args", "type", "transport"}
    flat_new, flat_old = {**new, **inner}, {**old, **old_inner}
    assert {key: flat_new[key] for key in flat_old.keys() - form} == {
        key: flat_old[key] for key in flat_old.keys() - form
    }
    assert "already there" in home.install(client).output and entry_of(home, client) == new
    assert home.run("install", "--undo").exit_code == 0 and (home.folder / FILES[client][0]).read_bytes() == before


REFUSED: list[tuple[str, Any, list[str], str]] = [
    ("cursor", by("serve", "--profile", "wrok"), [], 'Did you mean "work"?'),
    ("cursor", by("serve", "--config", "<home>/other.yaml"), [], "other.yaml"),
    ("cursor", by("serve", "--config", "${workspaceFolder}/servers.yaml"), [], "workspaceFolder"),
    ("cursor", by("serve", "--config", "servers.yaml"), [], "servers.yaml"),
    ("cursor", by("serve", env={"MCP_HUB_CONFIG": "<home>/other.yaml"}), [], "other.yaml"),
    ("cursor", by("serve", "--client", "mine"), [], "--client mine"),
    ("cursor", {"command": "firejail", "args": ["--net=none", "mcp-hub", "serve"]}, [], "firejail"),
    ("cursor", {"command": "docker", "args": ["run", "-i", "hub", "mcp-hub", "serve"]}, ["--http"], "docker"),
    ("cursor", {"command": "docker", "args": ["run", "-i", "x/mcp-hub:1"]}, [], "docker"),
    ("cursor", by("serve", "--attach", "never"), ["--http"], "--attach"),
    ("cursor", {"url": "http://127.0.0.1:8765/mcp/p/wrok"}, ["--http"], 'Did you mean "work"?'),
    ("cursor", by("serve", env={"A": CANARY}), ["--http"], "env"),
    (
        "cursor",
        {"url": "https://team.example.com/mcp", "headers": {"A": CANARY}},
        [],
        "not that of a hub on this machine",
    ),
    ("cursor", {"url": "http://127.0.0.1:8765/mcp?profile=work"}, ["--http"], "URL"),
    ("cursor", {"url": "http://127.0.0.1:8765/mcp", "headers": {"Authorization": CANARY}}, [], "headers"),
]


@pytest.mark.parametrize(("client", "old", "args", "reason"), REFUSED)
def test_entry_that_would_become_wider_is_refused(
    home: Home, client: str, old: Any, args: list[str], reason: str
) -> None:
    entry_of(home, client, old)
    before = (home.folder / FILES[client][0]).read_bytes()
    result = home.install(client, *args)
    assert result.exit_code == 1 and "[client_entry_differs]" in result.stderr and reason in result.stderr
    assert (home.folder / FILES[client][0]).read_bytes() == before


def test_entry_over_http_keeps_its_headers_and_servers_beside_a_refused_entry_stay(home: Home) -> None:
    entry_of(home, "cursor", {"url": "http://localhost:1/mcp", "headers": {"A": CANARY}, "disabled": True})
    assert home.install("cursor", "--http").exit_code == 0
    new = {"url": "http://127.0.0.1:8765/mcp", "headers": {"A": CANARY}, "disabled": True}
    assert entry_of(home, "cursor") == new
    path = home.write(".cursor/mcp.json", "{}")
    entry = {"command": "firejail", "args": ["mcp-hub", "serve"]}
    path.write_text(json.dumps({"mcpServers": {"mcp-hub": entry, "new": {"command": "/nowhere/new"}}}))
    before = home.contents()
    result = home.install("cursor", "--import")
    assert result.exit_code == 1 and "[client_entry_differs]" in result.stderr and home.contents() == before


def test_configuration_that_is_gone_or_was_written_by_the_hub_gives_way(home: Home) -> None:
    entry_of(home, "cursor", by("serve", "--config", "/nowhere/servers.yaml", "--profile", "work"))
    assert home.install("cursor").exit_code == 0
    other = home.write("third.yaml", home.config.read_text())
    assert home.run("install", "cursor", "--config", str(other)).exit_code == 0
    assert (
        entry_of(home, "cursor")["args"][-5:]
        == ["serve", "--config", str(other), "--profile", "work", "--client", "cursor"][-5:]
    )
    home.write("servers.yaml", SERVERS)
    assert "[client_entry_differs]" in home.run("install", "cursor").stderr


def test_profile_is_installed_kept_and_put_back(home: Home) -> None:
    path = home.write(".cursor/mcp.json", "{}")
    unknown = home.install("cursor", "--profile", "wrok")
    assert unknown.exit_code == 2 and "[unknown_profile]" in unknown.stderr and 'Did you mean "work"?' in unknown.stderr
    assert path.read_text() == "{}"
    assert home.install("cursor", "--http", "--profile", "work").exit_code == 0
    assert entry_of(home, "cursor") == {"url": "http://127.0.0.1:8765/mcp/p/work"}
    assert home.install("cursor").exit_code == 0 and entry_of(home, "cursor")["args"][-2:] == ["--profile", "work"]
    assert home.install("cursor", "--http").exit_code == 0
    assert entry_of(home, "cursor") == {"url": "http://127.0.0.1:8765/mcp/p/work"}
    for _ in range(3):
        assert home.run("install", "--undo").exit_code == 0
    assert path.read_text() == "{}"
    assert home.install("cursor", "--profile", "work").exit_code == 0
    assert entry_of(home, "cursor")["args"][-2:] == ["--profile", "work"]
    assert "already there" in home.install("cursor").output
    path.write_text("{}")
    (lost,) = lost_entries(home.folder / "state")
    assert lost.profile == "work"
    home.run("doctor", "--fix", "--config", str(home.config))
    assert entry_of(home, "cursor")["args"][-2:] == ["--profile", "work"]
    assert home.install("cursor", "--profile", "play").exit_code == 0
    assert entry_of(home, "cursor")["args"][-2:] == ["--profile", "play"]
    links = home.install("cursor", "--link", "--profile", "work").stdout
    assert "work" in base64.b64decode(parse_qs(urlsplit(links.split()[-1]).query)["config"][0]).decode()


def test_entry_of_a_person_comes_back_into_a_file_that_was_rewritten(home: Home) -> None:
    old = entry_of(home, "cursor", by("serve", "--profile", "work", env={"A": CANARY}))
    path = home.folder / FILES["cursor"][0]
    assert home.install("cursor").exit_code == 0
    path.write_text(json.dumps({"mine": 1, **json.loads(path.read_text())}, indent=4))
    assert home.run("install", "--undo").exit_code == 0 and entry_of(home, "cursor") == old
    assert home.install("cursor").exit_code == 0 and home.run("uninstall", "cursor").exit_code == 0
    assert json.loads(path.read_text()) == {"mine": 1, "mcpServers": {}}
    assert home.run("install", "--undo").exit_code == 0 and home.run("leave", "--yes").exit_code == 0
    assert entry_of(home, "cursor") == old


@pytest.mark.parametrize("flag", [{"disabled": True}, {"enabled": False}])
def test_disabled_servers_are_not_said_to_start(home: Home, flag: dict[str, bool]) -> None:
    path = home.write(".cursor/mcp.json", json.dumps({"mcpServers": {"one": {"command": "x", **flag}}}))
    assert "own servers" not in home.install("cursor").output
    data = json.loads(path.read_text())
    path.write_text(json.dumps({"mcpServers": {**data["mcpServers"], "two": {"command": "y"}}}))
    assert "own servers" in home.install("cursor").output
