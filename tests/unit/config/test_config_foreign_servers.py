"""Servers as other clients write them: their keys, their `${…}`, and one that is wrong among others."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.errors import ConfigError
from mcp_hub.types import JsonObject
from tests.unit.config.faults import findings, shown, shown_all

ENV = {"HOME": "/home/alice", "API_KEY": "k-123456", "TOKEN": "t-123456"}


def loaded(tree: JsonObject | str, name: str = "c.json", base: Path = Path("/base")) -> Loaded:
    return parse(tree if isinstance(tree, str) else json.dumps(tree), name, ENV, base)


def server(own: JsonObject, **top: object) -> Any:
    """The server as it is read, without a warning."""
    found = loaded({"mcpServers": {"a": own}, **top})
    assert found.warnings == ()
    return found.settings.servers["a"]


X: JsonObject = {"command": "x"}


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"context_servers": {"a": X}}, "context_servers"),
        ({"mcp": {"servers": {"a": X}, "inputs": []}}, "mcp.servers"),
        ({"mcp": {"a": {"type": "local", **X}}}, "mcp"),
        ({"a": X}, ""),
    ],
)
def test_servers_are_found_and_findings_name_their_place_as_written(tree: JsonObject, path: str) -> None:
    assert [*loaded(tree).settings.servers] == ["a"]
    text = json.dumps(tree).replace('"command": "x"', '"command": "x", "oddity": 1')
    (warning,) = [own for own in loaded(text).warnings if "oddity" in own.path]
    assert shown(warning) == f"c.json:1: {f'{path}.' if path else ''}a.oddity [ignored_key]"


def test_workspace_is_above_the_folder_of_a_client_and_mcp_json_is_vs_codes() -> None:
    tree = {"servers": {"a": {**X, "dev": {}}}}
    assert [shown(own) for own in loaded(tree, "/p/.vscode/mcp.json").warnings] == [
        "/p/.vscode/mcp.json:1: servers.a.dev [ignored_key]"
    ]
    tree = {"servers": {"a": {**X, "cwd": "${workspaceFolder}"}}}
    assert loaded(tree, "/p/.vscode/mcp.json", Path("/p/.vscode")).settings.servers["a"].cwd == "/p"


@pytest.mark.parametrize("oddity", ["note", "mcpservers", "tools", "envFile"])
def test_unknown_key_never_changes_the_class_of_a_file(oddity: str) -> None:
    found = loaded({"mcpServers": {"a": X}, oddity: {"command": "y"}})
    assert [*found.settings.servers] == ["a"] and [own.code for own in found.warnings] == ["ignored_key"]
    assert findings(loaded, {"servers": {"a": X}, oddity: {"command": "y"}}) == [f"c.json:1: {oddity} [unknown_key]"]


def test_toml_of_codex_is_read() -> None:
    text = """
model = "m"
[mcp_servers.a]
command = "x"
args = ["-y"]
env_vars = ["TOKEN", "NOT_SET"]
env = {A = "1"}
startup_timeout_ms = 1500
tool_timeout_sec = 60
enabled_tools = ["t"]
[mcp_servers."b.c"]
url = "https://b.example/mcp"
bearer_token_env_var = "TOKEN"
http_headers = {X-A = "1"}
env_http_headers = {X-B = "API_KEY"}
odd = 1
"""
    found = loaded(text, "config.toml")
    a, b = found.settings.servers["a"], found.settings.servers["b.c"]
    assert (a.command, a.args, a.env, a.pass_env) == ("x", ["-y"], {"A": "1"}, ["TOKEN", "NOT_SET"])
    assert (a.start_timeout, a.timeout, [own.name for own in a.tools.allow or []]) == (1.5, 60.0, ["t"])
    assert b.sent_headers() == {"X-A": "1", "X-B": "k-123456", "Authorization": "Bearer t-123456"}
    assert {"t-123456", "k-123456"} <= found.secrets
    assert [shown(own) for own in found.warnings] == [
        "config.toml: model [ignored_key]",
        'config.toml:11: mcp_servers["b.c"].odd [ignored_key]',
    ]


@pytest.mark.parametrize(("text", "place"), [("a = ]", "1:5"), ("a = 1\nb = [", "")])
def test_wrong_toml_is_an_error_with_its_place(text: str, place: str) -> None:
    assert findings(loaded, text, "c.toml") == [f"c.toml{f':{place}' if place else ''} [invalid_toml]"]


@pytest.mark.parametrize(
    ("own", "key", "value"),
    [
        ({"transportType": "sse", "url": "https://a.example"}, "type", "sse"),
        ({"transportType": "stdio", **X}, "type", None),
        ({"transport": {"type": "streamableHttp", "url": "https://a.example"}}, "type", "http"),
        ({"transport": {"type": "stdio", **X}}, "command", "x"),
        ({"type": "remote", "url": "https://a.example"}, "type", None),
        ({"command": ["x", "-y"]}, "args", ["-y"]),
        ({"command": {"path": "x", "args": ["-y"]}}, "args", ["-y"]),
        ({**X, "environment": {"A": "1"}}, "env", {"A": "1"}),
        ({**X, "env": {"A": 1, "B": True, "C": None}}, "env", {"A": "1", "B": "true"}),
        ({**X, "working_directory": "/w"}, "cwd", "/w"),
    ],
)
def test_keys_of_others_are_read_as_ours(own: JsonObject, key: str, value: object) -> None:
    assert getattr(server(own), key) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${userHome}/x", "/home/alice/x"),
        ("${workspaceFolder}/x", "/base/x"),
        ("${workspaceFolderBasename}", "base"),
        ("a${/}b${pathSeparator}c", f"a{os.sep}b{os.sep}c"),
        ("${input:api-key}", "k-123456"),
        ("${input:region}", "eu"),
    ],
)
def test_references_of_others_are_filled_in(written: str, value: str) -> None:
    inputs = [{"id": "api-key", "default": "no"}, {"id": "region", "default": "eu"}, {"id": "plain"}]
    found = loaded({"servers": {"a": {**X, "env": {"A": written}}}, "inputs": inputs})
    assert found.settings.servers["a"].env == {"A": value}
    assert found.secrets == ({"k-123456"} if value == "k-123456" else set())


@pytest.mark.parametrize(
    ("entry", "cwd"),
    [
        ({"command": "uvx", "args": ["mcp-server-git"]}, "${client.cwd}"),
        ({"command": "npx", "args": ["-y", "@cyanheads/git-mcp-server@latest"]}, "${client.cwd}"),
        ({"command": "uvx", "args": ["mcp-server-git", "--repository=/srv/x"]}, None),
        ({"command": "uvx", "args": ["mcp-server-git", "--repository", "~/x"]}, None),
        ({"command": "uvx", "args": ["mcp-server-git"], "cwd": "/w"}, "/w"),
        ({"command": "uvx", "args": ["mcp-server-time"]}, None),
        ({"command": "npx", "args": ["-y", "@x/github-mcp-server"]}, None),
    ],
)
def test_server_that_works_where_it_starts_keeps_the_folder_of_its_client(
    entry: dict[str, Any], cwd: str | None
) -> None:
    tree = {"mcpServers": {"a": entry}}
    users = loaded(tree, "/home/alice/.cursor/mcp.json", Path("/home/alice/.cursor"))
    assert users.settings.servers["a"].cwd == cwd and users.sources["a"] == ()
    project = loaded(tree, "/p/.cursor/mcp.json", Path("/p/.cursor")).settings.servers["a"]
    assert project.cwd == (entry.get("cwd") or "/p")


@pytest.mark.parametrize("reference", ["${userHome}", "${workspaceFolder}", "${input:api-key}"])
def test_references_of_others_mean_nothing_in_our_own_files(reference: str) -> None:
    with pytest.raises(ConfigError):
        loaded(f"servers: {{a: {{command: '{reference}'}}}}", "servers.yaml")


def test_env_file_gives_variables_and_env_goes_before_it(tmp_path: Path) -> None:
    lines = [
        "# comment",
        "",
        "export A=1 # one",
        'B="two # \\n$3"',
        "C='three'",
        "D=",
        "E=a#b",
        "SECRET=s-123456",
        "F=/usr/bin",
    ]
    file = tmp_path / ".env"
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    own = {**X, "envFile": "${workspaceFolder}/.env", "env": {"A": "own"}}
    found = loaded({"mcpServers": {"a": own}}, base=tmp_path)
    values = {"A": "own", "B": "two # \n$3", "C": "three", "D": "", "E": "a#b", "SECRET": "s-123456", "F": "/usr/bin"}
    assert found.settings.servers["a"].env == values
    assert "s-123456" in found.secrets and "/usr/bin" not in found.secrets
    assert found.warnings == ()
    file.chmod(0o644)
    found = loaded({"mcpServers": {"a": own}}, base=tmp_path)
    assert [shown(own) for own in found.warnings] == ["c.json:1: mcpServers.a.envFile [secret_readable]"]


def test_env_file_that_cannot_be_read_is_an_error_of_its_server(tmp_path: Path) -> None:
    found = loaded({"mcpServers": {"a": {**X, "envFile": ".env"}, "b": X}}, base=tmp_path)
    assert failures(found) == {"a": "file_unreadable", "b": None}
    (warning,) = found.warnings
    assert shown(warning) == "c.json:1: mcpServers.a.envFile [file_unreadable]"
    assert str(tmp_path / ".env") in warning.message and "(the server has failed)" in warning.message


def failures(found: Loaded) -> dict[str, str | None]:
    """The servers, with the code of their failure."""
    causes = {name: found.settings.failure(name) for name in found.settings.servers}
    return {name: None if cause is None else cause.code for name, cause in causes.items()}


BAD: JsonObject = {
    "variables": {"command": "x", "envFile": ".env", "env": ["A=1"]},
    "no-command": {},
    "socket": {"type": "ws", "url": "wss://a.example"},
    "variable": {"command": "x", "env": {"A": "${NOT_SET}"}},
    "text": "x",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_server_of_another_client_has_failed_with_a_warning(name: str) -> None:
    found = loaded({"mcpServers": {name: BAD[name], "good": X}})
    causes = failures(found)
    assert causes["good"] is None and causes[name] is not None
    assert found.warnings and all(own.path.startswith(f"mcpServers.{name}") for own in found.warnings)
    assert any("(the server has failed)" in own.message and own.code == causes[name] for own in found.warnings)
    with pytest.raises(ConfigError):
        loaded({"mcpServers": {name: BAD[name]}})


def test_bad_server_of_ours_is_an_error_unless_the_rest_is_wanted() -> None:
    text = "servers: {bad: {comand: x}, good: {command: x}}\nprofiles: {p: {servers: [bad, good]}}"
    with pytest.raises(ConfigError):
        loaded(text, "servers.yaml")
    found = parse(text, "servers.yaml", ENV, Path("/base"), partly=True)
    assert failures(found) == {"bad": "unknown_key", "good": None}
    assert {own.path for own in found.warnings} == {"servers.bad.comand"}
    with pytest.raises(ConfigError):
        parse(f"hub: {{odd: 1}}\n{text}", "servers.yaml", ENV, Path("/base"), partly=True)


def test_command_that_is_a_list_gets_the_right_advice() -> None:
    with pytest.raises(ConfigError) as caught:
        loaded("servers: {a: {command: [npx, -y]}}", "servers.yaml")
    assert shown_all(caught) == ["servers.yaml:1: servers.a.command [wrong_type]"]
    assert "args" in str(caught.value) and "quotes" not in str(caught.value)


@pytest.mark.parametrize("indent", ["\t", "  \t", "    \t", "\t    "])
@pytest.mark.parametrize("line", ["args: []", "# comment", "- x", "|"])
def test_tab_in_yaml_is_named(indent: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"servers:\n  a:\n    command: x\n{indent}{line}\n    cwd: x", "servers.yaml")
    assert caught.value.findings[0].line == 4 and "tab" in caught.value.findings[0].message
    assert "Check the indentation" not in str(caught.value)


DESKTOP = """{
  // other settings of the application
  "globalShortcut": "Ctrl+Space",
  "preferences": {"servers": {"legacy": "${NOPE}"}},
  "inputs": [],
  "mcpServers": {
    "git": {
      "command": "npx", "args": ["-y", "git"], "timeout": 60,
      "autoApprove": ["status"],
      "alwaysAllow": [],
      "disabledTools": ["push"], "comand": "x",
    },
    "far": {"serverUrl": "https://mcp.example/mcp", "envFile": ".env"},
  },
}"""
VS_CODE = (
    '{"servers": {"git": {"type": "stdio", "command": "git-mcp", "dev": {"watch": "src"}}}, "inputs": [{"id": "x"}]}'
)


def test_foreign_keys_are_left_out_with_a_warning_each_and_words_with_a_meaning_are_read() -> None:
    found = loaded(DESKTOP)
    assert list(found.settings.servers) == ["git", "far"]
    places = [shown(warning).removesuffix(" [ignored_key]") for warning in found.warnings]
    assert places == [
        "c.json:3: globalShortcut",
        "c.json:4: preferences",
        "c.json:5: inputs",
        "c.json:9: mcpServers.git.autoApprove",
        "c.json:10: mcpServers.git.alwaysAllow",
        "c.json:11: mcpServers.git.comand",
        "c.json:13: mcpServers.far.envFile",
    ]
    assert not any('"command"' in warning.message for warning in found.warnings[:5]), "they are not slips"
    assert '"command"' in found.warnings[5].message
    servers = loaded(DESKTOP).settings.servers
    assert [entry.name for entry in servers["git"].tools.deny] == ["push"]
    assert (servers["git"].timeout, servers["far"].url) == (60.0, "https://mcp.example/mcp")
    found = loaded(VS_CODE)
    assert found.settings.servers["git"].command == "git-mcp"
    assert [warning.path for warning in found.warnings] == ["inputs", "servers.git.dev"]


@pytest.mark.parametrize(
    ("written", "allowed", "denied"),
    [
        ('"disabled_tools": ["a"], "tools": {"deny": ["b"]}', [], ["b", "a"]),
        ('"includeTools": ["a"], "excludeTools": ["b"]', ["a"], ["b"]),
        ('"tools": ["*"]', ["*"], []),
        ('"tools": []', [], ["*"]),
    ],
)
def test_lists_of_tools_become_filters(written: str, allowed: list[str], denied: list[str]) -> None:
    found = loaded(f'{{"mcpServers": {{"a": {{"type": "local", "command": "x", {written}}}}}}}')
    tools = found.settings.servers["a"].tools
    assert ([own.name for own in tools.allow or []], [own.name for own in tools.deny]) == (allowed, denied)
    assert found.warnings == ()


@pytest.mark.parametrize(
    "written",
    [
        '"disabledTools": "a"',
        '"disabledTools": [1]',
        '"enabledTools": ["a"], "tools": {"allow": ["b"]}',
        '"enabledTools": ["a"], "tools": {"allow": []}',
    ],
)
def test_list_of_tools_that_does_not_fit_is_left_out(written: str) -> None:
    (warning,) = loaded(f'{{"mcpServers": {{"a": {{"command": "x", {written}}}}}}}').warnings
    assert warning.code == "ignored_key" and "tools.allow" in warning.message and "tools.deny" in warning.message


def test_slip_or_unset_input_is_reported_with_the_error_that_it_leads_to() -> None:
    problem, slip = findings(loaded, '{\n "mcpServers": {\n  "git": {\n   "commnd": "x"}}}')
    assert problem.startswith("c.json:3: mcpServers.git [missing_key]")
    assert slip == "c.json:4: mcpServers.git.commnd [unknown_key]"
    text = '{"servers": {"a": {"command": "x", "env": {"KEY": "${input:other-key}"}}}, "inputs": []}'
    assert findings(loaded, text) == ["c.json:1: servers.a.env.KEY [variable_not_set]"]
    with pytest.raises(ConfigError, match="OTHER_KEY"):
        loaded(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"mcpServers": {"a": {"command": "x", "autoApprove": []}}}', "servers.yaml"),
        ('{"hub": {}, "mcpServers": {"a": {"command": "x", "autoApprove": []}}}', "c.json"),
        ('{"servers": {"a": {"command": "x", "autoApprove": []}}}', "c.json"),
    ],
)
def test_files_of_our_own_stay_strict(text: str, name: str) -> None:
    (found,) = findings(loaded, text, name)
    assert "autoApprove [unknown_key]" in found
