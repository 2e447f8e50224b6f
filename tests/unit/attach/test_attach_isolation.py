"""Which servers have a process for each client of a background hub, unless the configuration says otherwise."""

import json
import stat
from pathlib import Path

import pytest

from mcp_hub.app.readiness import StartFolders, default_scope, folder_key, is_to_separate
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.trust import project_of
from mcp_hub.errors import ConfigError
from mcp_hub.types import UpstreamState, UpstreamStatus


@pytest.mark.parametrize(
    ("command", "args", "isolated"),
    [
        ("npx", ["@playwright/mcp@latest"], True),
        ("npx", ["-y", "chrome-devtools-mcp@latest"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-puppeteer"], True),
        ("uvx", ["--from", "git+https://x/serena", "serena", "start-mcp-server"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "../docs"], True),
        ("server", ["--root=./data"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/home/ann/docs"], False),
        ("uvx", ["mcp-server-time"], False),
        ("uvx", ["mcp-server-git"], False),
        ("python", ["tools/server.py"], True),
        ("node", ["index.mjs", "/data"], True),
        ("npx", ["-y", "@scope/name", "user/repo", "https://a.example/x.js", "/srv/x.py"], False),
        ("./server", [], False),
        ("server", ["--version=1.2", "..."], False),
    ],
)
def test_browsers_and_servers_of_a_working_directory_are_isolated(
    command: str, args: list[str], isolated: bool
) -> None:
    server = ServerSettings.model_validate({"command": command, "args": args})
    assert default_scope(server, asks=False) == ("session" if isolated else None)


def test_server_with_a_folder_of_its_own_is_shared_and_the_root_of_a_project_seen_to_begin(home: Path) -> None:
    assert (
        default_scope(ServerSettings.model_validate({"command": "x", "args": ["."], "cwd": "/srv"}), asks=False) is None
    )
    assert default_scope(ServerSettings.model_validate({"url": "https://playwright.example"}), asks=True) is None
    folder = home / "plain/deep"
    folder.mkdir()
    assert project_of(str(folder)) == str(folder)
    (home / "plain/.git").mkdir()
    assert project_of(str(folder)) == str(home / "plain")
    (home / "plain/.git").rmdir()
    assert project_of(str(folder)) == str(folder)


@pytest.mark.parametrize(("era", "scope"), [("follow", "session"), ("handshake", "session"), ("modern", None)])
def test_a_server_that_asks_its_callers_is_isolated_where_it_does_not_say_whom(era: str, scope: str | None) -> None:
    assert default_scope(ServerSettings.model_validate({"command": "x", "era": era}), asks=True) == scope


@pytest.mark.parametrize(
    ("server", "asks", "scope", "separated"),
    [
        ({"command": "x"}, True, "", True),
        ({"command": "x"}, False, "", False),
        ({"command": "x"}, True, "session", False),
        ({"command": "x", "scope": "shared"}, True, "", False),
        ({"command": "x", "era": "modern"}, True, "", False),
        ({"url": "https://x.example"}, True, "", False),
    ],
    ids=["asked", "silent", "separated before", "shared on purpose", "modern", "remote"],
)
def test_a_shared_server_is_separated_once_it_has_asked(
    server: dict[str, str], asks: bool, scope: str, separated: bool
) -> None:
    status = UpstreamStatus("x", UpstreamState.READY, asks=asks, scope=scope)
    assert is_to_separate(status, ServerSettings.model_validate(server)) is separated


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("work/.git", "work/src", "plain", "conf", "repo/.git"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("entry", "config", "start"),
    [
        ({"cwd": "/srv"}, "repo", "/srv"),
        ({"cwd": "${client.root}/docs"}, "conf", "work/docs"),
        ({"cwd": "${client.cwd}"}, "conf", "work/src"),
        ({"args": ["."]}, "repo", "repo"),
        ({}, "repo", "repo"),
        ({"args": ["--repository", "${client.root}"]}, "conf", "work"),
        ({"env": {"HERE": "${client.cwd}"}}, "conf", "work/src"),
        ({"args": ["./index.js"]}, "conf", "work/src"),
        ({"args": ["serena"]}, "conf", "work/src"),
        ({"args": ["@playwright/mcp"]}, "conf", None),
        ({"scope": "session"}, "conf", None),
        ({}, "conf", None),
        ({}, "", None),
    ],
)
def test_server_starts_in_the_first_folder_of_the_rule(
    home: Path, entry: dict[str, object], config: str, start: str | None
) -> None:
    folders = StartFolders.of(home / config / "servers.yaml", home / "state")
    server = ServerSettings.model_validate({"command": "x", **entry})
    chosen = folders.start("a", server, str(home / "work/src"))
    if start is not None:
        assert chosen == str(home / start)
        return
    assert Path(chosen).is_relative_to(home / "state") and stat.S_IMODE(Path(chosen).stat().st_mode) == 0o700
    assert chosen != folders.start("b", server, None), "each server has one of its own"


def test_server_of_no_client_or_without_a_state_folder_does_not_start_in_the_home_folder(home: Path) -> None:
    folders = StartFolders.of(home / "servers.yaml", home / "state")
    for entry in ({"args": ["."]}, {"cwd": "${client.cwd}"}, {}):
        started = folders.start("a", ServerSettings.model_validate({"command": "x", **entry}), None)
        assert Path(started).is_relative_to(home / "state")
    (home / "file").touch()
    blocked = StartFolders.of(home / "servers.yaml", home / "file")
    assert blocked.start("a", ServerSettings.model_validate({"command": "x"}), str(home)) == "/"


def test_placeholders_of_a_client_are_filled_in_and_tell_processes_apart(home: Path) -> None:
    entry = {"command": "x", "args": ["--at=${client.root}", "$"], "env": {"A": "${client.cwd}:b"}}
    server, folders = ServerSettings.model_validate(entry), StartFolders.of(home / "servers.yaml", home / "state")
    here = str(home / "work/src")
    assert folders.fill("a", server, here) == ([f"--at={home}/work", "$"], {"A": f"{here}:b"})
    assert folders.scope(server, asks=False) == "folder" == default_scope(server, asks=False)
    assert folders.scope(server.model_copy(update={"scope": "shared"}), asks=False) == "folder"
    assert folders.scope(server.model_copy(update={"scope": "session"}), asks=False) == "session"
    assert folder_key(server, here) != folder_key(server, str(home / "work"))
    of_root = ServerSettings.model_validate({"command": "x", "cwd": "${client.root}"})
    assert folder_key(of_root, here) == folder_key(of_root, str(home / "work")) == str(home / "work")
    assert project_of(str(home / "plain")) == str(home / "plain") and project_of(str(home)) == str(home)


@pytest.mark.parametrize("entry", ['command: "${client.cwd}/x"', 'url: "https://x.example/${client.root}"'])
def test_placeholders_of_a_client_belong_into_cwd_args_and_env(entry: str, tmp_path: Path) -> None:
    text = (
        'servers: {a: {command: x, cwd: "${client.root}", args: ["${client.cwd}"], env: {A: "${client.cwd}"}}, b: {%s}}'
    )
    with pytest.raises(ConfigError, match="belongs into cwd, args or env"):
        parse(text % entry, "servers.yaml", {}, tmp_path)
    server = parse(text % "command: y", "servers.yaml", {}, tmp_path).settings.servers["a"]
    assert (server.cwd, server.args) == ("${client.root}", ["${client.cwd}"])


def test_escaped_and_inserted_placeholders_of_a_client_stay_literal(home: Path) -> None:
    here, env = str(home / "work/src"), {"V": "${client.cwd}", "D": "cost$"}
    texts = {
        "$${client.root}": "${client.root}",
        "$$${client.root}": "$${client.root}",
        "${client.root}": f"{home}/work",
        "a $${client.cwd} ${client.cwd}": f"a ${{client.cwd}} {here}",
        "${V}": "${client.cwd}",
        "${D}${client.cwd}": f"cost${here}",
        "${D}{client.cwd}": "cost${client.cwd}",
        "${X:-$}{client.cwd} ${D}": "${client.cwd} cost$",
        "$${client.cwd}${client.cwd}": f"${{client.cwd}}{here}",
        "$${other} $$ $": "${other} $$ $",
    }
    entry = {"command": "x", "args": list(texts), "env": dict(zip("ABCDEFGHIJ", texts, strict=True))}
    settings = parse(json.dumps({"servers": {"a": entry}}), "servers.json", env, home).settings
    args, filled = StartFolders.of(home / "servers.yaml", home / "state").fill("a", settings.servers["a"], here)
    assert args == list(filled.values()) == list(texts.values())
    escaped = parse('servers: {a: {command: x, args: ["$${client.cwd}"]}}', "servers.yaml", {}, home).settings
    assert default_scope(escaped.servers["a"], asks=False) is None, "it does not depend on its client"
