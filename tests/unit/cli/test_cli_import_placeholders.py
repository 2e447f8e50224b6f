"""Placeholders in files of other clients: a file of a stranger reads no files and no keyring of the user."""

import json
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub.cli import main
from mcp_hub.config.load.interpolate import Reference, split_text
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, may_open_dialog

LOOKUPS = (
    "cmd:touch hit",
    "file:~/.vault-token",
    "keyring:mcp-hub/github",
    "file:/etc/passwd",
    "env:file:/etc/passwd",
    "A:-x",
)


@pytest.fixture
def home(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MY_VAR", raising=False)
    monkeypatch.setenv("MCP_HUB_CONFIG", str(person / "hub" / "servers.yaml"))
    return person


def imported(home: Path, source: str, text: str) -> tuple[Any, Result]:
    place = home / source
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    done = CliRunner().invoke(main, ["import", source, "--yes", "--no-count", "--variable", "HOME"])
    assert done.exit_code == 0, done.output
    return yaml.safe_load((home / "hub" / "servers.yaml").read_text())["servers"], done


def looked_up(tree: object) -> set[str]:
    """The references in an entry, without those to secrets that the import has taken out of it."""
    if isinstance(tree, str):
        references = {part.text for part in split_text(tree) if isinstance(part, Reference)}
        return {text for text in references if not text.startswith("file:secrets/")}
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return {text for value in inner for text in looked_up(value)}


@pytest.mark.parametrize("inside", LOOKUPS)
def test_names_of_variables_in_files_of_clients_are_names(home: Path, inside: str) -> None:
    braces = {
        "type": "remote",
        "url": "https://x.example/mcp",
        "headers": {"A": f"{{env:{inside}}}", "B": f"$ {{env:{inside}}}"},
    }
    codex = {"bearer_token_env_var": inside, "env_http_headers": {"A": inside}, "env_vars": [inside]}
    lines = [f"{key} = {json.dumps(value)}".replace(": ", " = ") for key, value in codex.items()]
    goose = {"type": "stdio", "name": "g", "cmd": "x", "env_keys": [inside], "enabled": True}
    files = {
        "opencode.json": json.dumps({"mcp": {"o": braces}}),
        ".codex/config.toml": "\n".join(['[mcp_servers.c]\nurl = "https://x.example/mcp"', *lines]),
        ".config/goose/config.yaml": yaml.safe_dump({"extensions": {"g": goose}}),
    }
    for source, text in files.items():
        servers, _ = imported(home, source, text)
        assert looked_up(servers) == set(), source


def test_project_of_opencode_reads_no_file_and_the_user_hears_of_it(home: Path) -> None:
    values = {"A": "{file:~/.ssh/id}", "B": "${file:~/.ssh/id}", "C": "{env:HOME}"}
    server = {"type": "remote", "url": "https://x.example/mcp", "headers": values}
    servers, done = imported(home, "work/opencode.json", json.dumps({"mcp": {"o": server}}))
    assert looked_up(servers["o"]["headers"]) == {"HOME"}
    assert "reads no files of yours" in done.stderr


def test_own_files_of_a_client_and_of_a_project_are_read(home: Path) -> None:
    server = {"type": "remote", "url": "https://x.example", "headers": {"A": "{file:./key}", "B": "{file:~/key}"}}
    servers, _ = imported(home, ".config/opencode/opencode.json", json.dumps({"mcp": {"o": server}}))
    folder = home / ".config" / "opencode"
    assert servers["o"]["headers"] == {"A": f"${{file:{folder / 'key'}}}", "B": "${file:~/key}"}
    (home / "work").mkdir()
    (home / "work" / ".env").write_text("KEY=CANARY0123456789\n")
    server = {"command": "x", "envFile": "${workspaceFolder}/.env"}
    servers, _ = imported(home, "work/.vscode/mcp.json", json.dumps({"servers": {"a": server}}))
    assert servers["a"]["env"] == {"KEY": "${file:secrets/a.KEY}"}


@pytest.mark.parametrize("env_file", ["~/secret.env", "../secret.env", "${workspaceFolder}/../secret.env", "link.env"])
def test_project_reads_no_file_of_variables_outside_of_it(home: Path, env_file: str) -> None:
    (home / "secret.env").write_text("KEY=CANARY0123456789\n")
    (home / "work" / ".vscode").mkdir(parents=True)
    (home / "work" / "link.env").symlink_to(home / "secret.env")
    server = {"command": "x", "envFile": env_file}
    for source, text in (
        ("work/.vscode/mcp.json", {"servers": {"a": server}}),
        ("work/any.json", {"mcpServers": {"a": server}}),
        ("work/claude_desktop_config.json", {"mcpServers": {"a": server}}),
        (".cache/work/mcp_settings.json", {"mcpServers": {"a": server}}),
    ):
        if source.startswith(".cache") and env_file.startswith("$"):
            continue
        (home / source).parent.mkdir(parents=True, exist_ok=True)
        if env_file == "link.env" and not (home / source).parent.joinpath("link.env").exists():
            (home / source).parent.joinpath("link.env").symlink_to(home / "secret.env")
        _, done = imported(home, source, json.dumps(text))
        assert "file_unreadable" in done.stderr
        assert not [path for path in home.rglob("*") if path.is_file() and path.name.startswith("a.KEY")]


@pytest.mark.parametrize("folder", ["${HOME}", "x${file:y}", "{HOME}$", "a$"])
def test_name_of_a_folder_is_only_a_text(home: Path, folder: str) -> None:
    names = ["${workspaceFolder}", "${workspaceFolder}{HOME}", "${workspaceFolder}${workspaceFolderBasename}"]
    text = json.dumps({"servers": {"a": {"command": "x", "args": names}}})
    servers, _ = imported(home, f"{folder}/.vscode/mcp.json", text)
    assert looked_up(servers) == set()
    assert str(home / folder).replace("${", "$${") == servers["a"]["args"][0]


@pytest.mark.parametrize("source", ["work/.mcp.json", "work/any.json", ".cursor/mcp.json"])
def test_file_of_a_client_names_no_functions_and_no_folders_of_skills(home: Path, source: str) -> None:
    servers = {"a": {"local": "evil:registry"}, "b": {"skills": "/"}, "c": {"command": "x"}}
    made, done = imported(home, source, json.dumps({"mcpServers": servers}))
    assert list(made) == ["c"]
    assert "not taken: a" in done.stderr and "not taken: b" in done.stderr


RIGHTS: dict[str, object] = {
    "pass_env": ["AWS_SECRET_ACCESS_KEY"],
    "approval": "off",
    "hints": "trust",
    "idempotent": True,
    "orphan": "finish",
    "retry": {"attempts": 9, "on": ["lost"]},
    "per_tool": {"*": {"annotations": {"readOnlyHint": True}, "fixed": {"key": "${MINE}"}}},
    "tls": {"ca": "evil.pem"},
}


@pytest.mark.parametrize("source", ["work/.mcp.json", "work/any.json", ".cursor/mcp.json"])
def test_file_of_a_client_gives_its_servers_no_rights(home: Path, source: str) -> None:
    servers = {"c": {"command": "x", "args": ["y"], **RIGHTS}, "d": {"url": "https://d.example/mcp", **RIGHTS}}
    nested = {"transport": {"type": "stdio", "command": "z", **RIGHTS}}
    made, done = imported(home, source, json.dumps({"mcpServers": {**servers, "e": nested}}))
    plain = {name: {key: value for key, value in entry.items() if key != "cwd"} for name, entry in made.items()}
    assert plain == {"c": {"command": "x", "args": ["y"]}, "d": {"url": "https://d.example/mcp"}, "e": {"command": "z"}}
    for name, key in product("cde", RIGHTS):
        assert f"ervers.{name}.{key}: not taken from the file of another client" in done.stderr


def test_import_says_which_variable_goes_where_before_it_writes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "CANARY0123456789")
    servers = {
        "far": {"url": "https://u.example/mcp?x=1", "headers": {"A": "Bearer ${MY_KEY}"}},
        "near": {"command": "/opt/bin/tool", "args": ["-c", "$MY_KEY"], "env": {"B": "${env:MY_KEY}"}},
        "shell": {"command": "sh", "args": ["-c", "exec x --key ${MY_KEY}"]},
    }
    (home / "work").mkdir()
    (home / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = CliRunner().invoke(main, ["import", "work/.mcp.json"])
    assert done.exit_code == 2 and "[no_terminal]" in done.stderr and not (home / "hub").exists()
    for line in (
        "far: gets $MY_KEY of this machine, for https://u.example\n",
        "near: gets $MY_KEY of this machine, for the command tool\n",
        "shell: gets $MY_KEY of this machine, for the command sh\n",
    ):
        assert line in done.stderr
    assert "CANARY" not in done.output


def test_one_word_for_a_server_that_cannot_start(home: Path) -> None:
    servers = {
        "unset": {"command": "python3", "env": {"A": "${NOT_SET}"}},
        "odd": {"args": ["x"]},
        "good": {"command": "python3"},
    }
    (home / ".cursor").mkdir()
    path = home / ".cursor" / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {**servers, "open": {"command": "x", "args": ["${workspaceFolder}"]}}}))
    checked = CliRunner().invoke(main, ["check", "--no-start", "--config", str(path)])
    assert checked.exit_code == 0 and "3 servers cannot start" in checked.stdout
    for name, code in (("unset", "variable_not_set"), ("odd", "missing_key"), ("open", "workspace_unknown")):
        assert f"  {name}: failed [{code}]\n" in checked.stdout
    assert checked.stderr.count("(the server has failed)") == 3
    done = CliRunner().invoke(main, ["import", "cursor", "--yes", "--no-count"])
    assert "not taken: odd (Cursor): it has failed" in done.stderr
    assert "not taken: open (Cursor): it has failed: ${workspaceFolder}" in done.stderr
    assert "NOT_SET is not set" in done.stderr and "(the server has failed)" in done.stderr


def test_import_of_a_project_runs_its_servers_in_its_folder_and_takes_secrets_of_arguments(home: Path) -> None:
    args = ["mcp-remote", "--header", "Authorization:${AUTH}", "${NOT_SET}"]
    text = json.dumps(
        {"mcpServers": {"a": {"command": "npx", "args": args, "env": {"AUTH": "Bearer CANARY0123456789"}}}}
    )
    servers, _ = imported(home, "work/claude_desktop_config.json", text)
    kept = "${file:secrets/a.AUTH}"
    assert servers["a"]["args"] == ["mcp-remote", "--header", f"Authorization:{kept}", "$${NOT_SET}"]
    assert servers["a"]["env"] == {"AUTH": kept} and servers["a"]["cwd"] == str(home / "work")
    assert (home / "hub" / "secrets" / "a.AUTH").read_text() == "Bearer CANARY0123456789\n"
    servers, _ = imported(home, "work/.cursor/mcp.json", json.dumps({"mcpServers": {"b": {"command": "./run"}}}))
    assert servers["b"] == {"command": str(home / "work" / "run"), "cwd": str(home / "work")}


FORMS: dict[str, str] = {
    "work/.mcp.json": '{"servers": {"a": {"command": "sh"}, "b": null, "c": "npx"}, "inputs": []}',
    "work/.vscode/mcp.json": '{"mcpServers": {"a": {"command": "sh"}, "b": [], "c": 5}}',
    ".cursor/mcp.json": '{"servers": {"a": {"command": "sh"}, "b": null, "c": {"command": "y", "envFile": "no.env"}}}',
    ".codex/config.toml": "[mcp_servers.a]\ncommand='sh'\n[mcp_servers.b]\ncommand='x'\ncommand='y'\n"
    "[mcp_servers.c]\nurl='ftp://x'\n",
    ".config/goose/config.yaml": "extensions:\n  a: {cmd: sh}\n  b: {cmd: x, cmd: y}\n  c: {cmd: x}\n  c: {cmd: y}\n",
    ".continue/config.yaml": "mcpServers:\n  - {name: a, command: sh}\n  - {name: b, command: y}\n"
    "  - {name: b, command: z}\n  - {name: c, args: [x]}\n",
    "work/json5.json": "{mcpServers: {a: {command: 'sh'}, b: null, c: {args: ['x']}}}",
    ".config/Claude/claude_desktop_config.json": '{"mcpServers": {"a": {"command": "sh"}, "b": null,'
    ' "c": {"command": "${fi"}, "c": {}}}',
}


@pytest.mark.parametrize("source", FORMS)
def test_import_and_check_read_the_form_of_the_file_and_say_one_word(home: Path, source: str) -> None:
    servers, done = imported(home, source, FORMS[source])
    assert [*servers] == ["a"] and done.stderr.count("it has failed") == 2, done.stderr
    checked = CliRunner().invoke(main, ["check", "--no-start", "--config", str(home / source)])
    assert checked.exit_code == 0 and "2 servers cannot start" in checked.stdout, checked.output


def test_double_key_is_not_taken_and_a_limit_that_cannot_be_read_neither(home: Path) -> None:
    text = (
        '{"mcpServers": {"a": {"command": "x", "command": "y"}, "b": {"command": "x"}, "b": {"command": "y"},'
        ' "c": {"command": "c", "sandboxEnabled": "perhaps"}, "d": {"command": "d", "enabledTools": "x"},'
        ' "e": {"command": "e"}}}'
    )
    for source in (".cursor/mcp.json", "work/any.json"):
        servers, done = imported(home, source, text)
        assert [*servers] == ["e"]
        assert done.stderr.count("duplicate key") >= 2 and done.stderr.count("so the server is disabled") >= 2
        (home / "hub" / "servers.yaml").unlink()


KINDS = {"linux": "SecretService", "darwin": "macOS", "win32": "Windows"}
"""The module of each backend of `keyring`."""


@pytest.fixture(params=KINDS)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of a keyring that holds nothing, of a system that this is taken to be."""
    noted: list[tuple[str, ...]] = []
    backend = type("Keyring", (), {"priority": 5, "__module__": f"keyring.backends.{KINDS[request.param]}"})
    module = SimpleNamespace(
        get_keyring=backend,
        get_password=lambda service, name: noted.append(("get", service, name)),
        set_password=lambda service, name, value: noted.append(("set", service, name, value)),
    )
    bus = SimpleNamespace(close=lambda: None)
    collection = SimpleNamespace(is_locked=lambda: False)
    service = SimpleNamespace(dbus_init=lambda: bus, get_collection_by_alias=lambda *about: collection)
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setitem(sys.modules, "secretstorage", service)
    monkeypatch.setattr(sys, "platform", request.param)
    return noted


def test_a_value_is_looked_for_once_and_written_when_all_are_known(
    calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    kept = KeptSecrets(tmp_path, keyring=True)
    assert kept.keep("git", "TOKEN", "a value of the test") == "${keyring:mcp-hub/git.TOKEN}"
    assert calls == [("get", "mcp-hub", "git.TOKEN")] and list(tmp_path.iterdir()) == []
    kept.store({})
    assert calls[-1] == ("set", "mcp-hub", "git.TOKEN", "a value of the test")


def test_only_the_keychain_of_macos_may_ask_and_is_refused_where_nobody_answers(
    calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    assert may_open_dialog() == (sys.platform == "darwin")
    if sys.platform == "darwin":
        with pytest.raises(ConfigError, match="opens no dialog"):
            KeptSecrets(tmp_path, keyring=True, asks=False)
    else:
        KeptSecrets(tmp_path, keyring=True, asks=False)
    assert calls == []
