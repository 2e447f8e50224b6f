"""Files that other clients wrote: what is not for the hub is left out with a warning; its own files stay strict."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown, shown_all

ENV = {"HOME": "/home/alice"}
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


def loaded(text: str, name: str = "c.json") -> Loaded:
    return parse(text, name, ENV, Path("/base"))


def findings(text: str, name: str = "c.json") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, name)
    return shown_all(caught)


def test_foreign_keys_are_left_out_with_a_warning_each_that_names_file_line_and_key() -> None:
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


def test_words_of_others_that_have_a_meaning_here_are_read() -> None:
    servers = loaded(DESKTOP).settings.servers
    assert [entry.name for entry in servers["git"].tools.deny] == ["push"]
    assert (servers["git"].timeout, servers["far"].url) == (60.0, "https://mcp.example/mcp")


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


def test_file_of_vs_code_is_read() -> None:
    found = loaded(VS_CODE)
    assert found.settings.servers["git"].command == "git-mcp"
    assert [warning.path for warning in found.warnings] == ["inputs", "servers.git.dev"]


def test_slip_in_a_key_is_reported_with_the_error_that_it_leads_to() -> None:
    problem, slip = findings('{\n "mcpServers": {\n  "git": {\n   "commnd": "x"}}}')
    assert problem.startswith("c.json:3: mcpServers.git [missing_key]")
    assert slip == "c.json:4: mcpServers.git.commnd [unknown_key]"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"mcpServers": {"a": {"command": "x", "autoApprove": []}}}', "servers.yaml"),
        ('{"hub": {}, "mcpServers": {"a": {"command": "x", "autoApprove": []}}}', "c.json"),
        ('{"servers": {"a": {"command": "x", "autoApprove": []}}}', "c.json"),
    ],
)
def test_files_of_our_own_stay_strict(text: str, name: str) -> None:
    (found,) = findings(text, name)
    assert "autoApprove [unknown_key]" in found


def test_input_of_vs_code_that_is_not_in_the_environment_is_an_error_that_names_the_variable() -> None:
    text = '{"servers": {"a": {"command": "x", "env": {"KEY": "${input:api-key}"}}}, "inputs": []}'
    assert findings(text) == ["c.json:1: servers.a.env.KEY [variable_not_set]"]
    with pytest.raises(ConfigError, match="API_KEY"):
        loaded(text)
