"""From files to `Loaded`: shapes that are accepted, secrets, warnings, and where files are looked for."""

import os
from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, find_config, load, parse
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown, shown_all

ENV = {"TOKEN": "s3cr3t-token", "OFF": "false", "PORT": "9000", "HOME": "/home/alice"}
SHIPPED = Path(__file__).parents[3] / "servers.yaml"


def loaded(text: str, name: str = "servers.yaml") -> Loaded:
    return parse(text, name, ENV, Path("/base"))


def test_shipped_file_loads_without_any_variable_set() -> None:
    found = load(SHIPPED, {})
    assert list(found.settings.servers) == ["time", "everything", "files", "jobs"]
    assert found.settings.servers["files"].args[-1] == "."
    assert found.settings.servers["jobs"].local == "mcp_hub.examples.jobs:registry"
    assert found.warnings == ()
    assert found.path == SHIPPED


def test_commented_examples_of_the_shipped_file_load_too() -> None:
    lines = SHIPPED.read_text().splitlines()
    examples = [line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line for line in lines]
    prose = ("Clock", "The ", "Files", "Python", "A ", "Values", "Durations", "yaml-language-server")
    text = "\n".join(line for line in examples if not line.strip().startswith(prose))
    env = {"HUB_TOKEN": "s3cr3t-hub", "GITHUB_TOKEN": "s3cr3t-git", "TEAM_TOKEN": "s3cr3t-team"}
    found = parse(text.replace("${file:~/.config/mcp-hub/ci-token}", "ci"), "servers.yaml", env, Path("/base"))
    assert found.settings.servers["github"].rename == {"search_repositories": "find_repos"}
    assert found.settings.profiles["review"].servers == ["files", "time"]
    assert found.settings.servers["team"].url == "https://mcp.example.com/mcp"
    assert found.secrets == {"s3cr3t-hub", "s3cr3t-git", "s3cr3t-team", "ci"}


def test_json_of_other_clients_is_the_same_configuration() -> None:
    body = '"git": {"type": "stdio", "command": "x", "args": ["-y"], "disabled": true}'
    as_json = loaded('{"$schema": "s.json", // a comment\n"mcpServers": {' + body + "}}", "c.json")
    as_yaml = loaded("servers:\n  git: {command: x, args: [-y], enabled: false, cwd: .}")
    assert as_json.settings == as_yaml.settings


def test_section_with_nothing_in_it_is_the_default() -> None:
    empty = loaded("hub:\nservers: {a: {command: x, timeout: , tools: , url: , type: }}\ndefaults:\nprofiles:\n")
    assert empty.settings == loaded("servers: {a: {command: x}}").settings


def test_file_without_servers_is_a_warning() -> None:
    (warning,) = loaded("hub: {name: x}").warnings
    assert shown(warning) == "servers.yaml:1 [no_servers]"


def test_interpolated_texts_take_the_type_of_their_key() -> None:
    found = loaded(
        "hub: {http: {port: '${PORT}', allow_public: '${OFF}'}}\n"
        "servers: {a: {command: x, enabled: '${OFF}', timeout: '${T:-30m}', restart: {intensity: '${N:-2}'}}}\n"
    )
    server = found.settings.servers["a"]
    assert (found.settings.hub.http.port, found.settings.hub.http.allow_public) == (9000, False)
    assert (server.enabled, server.timeout) == (False, 1800.0)
    assert server.restart is not None
    assert server.restart.intensity == 2


def test_text_outside_servers_http_and_tokens_is_taken_literally() -> None:
    found = loaded("hub: {name: 'a ${TOKEN}', instructions: '${UNSET}'}\nservers: {a: {command: x}}")
    assert (found.settings.hub.name, found.settings.hub.instructions) == ("a ${TOKEN}", "${UNSET}")


@pytest.mark.parametrize(
    ("written", "resolved"),
    [("sub/x", "/base/sub/x"), ("~/x", "/home/alice/x"), ("~", "/home/alice"), ("/abs", "/abs"), (".", "/base")],
)
def test_cwd_is_relative_to_the_file_and_may_start_at_home(written: str, resolved: str) -> None:
    assert loaded(f"servers: {{a: {{command: x, cwd: '{written}'}}}}").settings.servers["a"].cwd == resolved


def test_home_that_is_unknown_is_a_finding() -> None:
    with pytest.raises(ConfigError, match="HOME") as caught:
        parse("servers: {a: {command: x, cwd: ~/x}}", "s", {}, Path("/base"))
    assert shown_all(caught) == ["s:1: servers.a.cwd [variable_not_set]"]


@pytest.mark.parametrize("switch", ["enabled: false", "disabled: true", "enabled: '${OFF}'"])
def test_unset_variable_of_a_disabled_server_is_only_a_warning(switch: str) -> None:
    text = f"servers:\n  a:\n    command: x\n    {switch}\n    args: ['${{NOPE}}', b]\n    timeout: '${{NOPE}}'\n"
    found = loaded(text)
    assert shown_all(found.warnings) == [
        "servers.yaml:5: servers.a.args[0] [variable_not_set]",
        "servers.yaml:6: servers.a.timeout [variable_not_set]",
    ]
    assert all("NOPE" in warning.message for warning in found.warnings)
    assert found.settings.servers["a"].args == ["${NOPE}", "b"]
    assert found.settings.servers["a"].timeout is None


def test_secrets_are_remembered_and_not_shown() -> None:
    found = loaded(
        "hub:\n  http: {port: '${PORT}'}\n  tokens: [{token: s3cr3t-literal, principal: a}]\n"
        "servers: {a: {command: x, args: ['--key=${TOKEN}'], env: {KEY: '${TOKEN}'}}}\n"
    )
    assert found.secrets == {"s3cr3t-token", "s3cr3t-literal"}
    assert found.settings.servers["a"].env == {"KEY": "s3cr3t-token"}
    assert found.settings.hub.tokens[0].token.get_secret_value() == "s3cr3t-literal"
    assert "s3cr3t" not in repr(found)


def test_missing_file_is_named_with_a_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml", {})
    assert shown_all(caught) == [f"{tmp_path}/none.yaml [config_not_found]"]


def test_unreadable_file_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: it is a directory"):
        load(tmp_path, {})


def test_file_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_bytes(b"servers:\n  a: {command: \xff}\n")
    with pytest.raises(ConfigError, match=r"servers\.yaml:2: the text is not UTF-8"):
        load(path, {})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"hub": {"store": "\\ud800"}}', "hub.store"),
        ('{"servers": {"\\ud800": {"command": "x"}}}', "servers"),
        ('{"servers": {"a": {"command": "x", "args": ["\\udc00"]}}}', "servers.a.args[0]"),
    ],
)
def test_escapes_that_make_half_of_a_character_are_named(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(text, "servers.json")
    assert shown_all(refused) == [f"servers.json:1: {where} [invalid_text]"]


def test_file_of_absurd_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load(path, {})


def test_file_reference_is_relative_to_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("s3cr3t-file\n")
    (tmp_path / "servers.yaml").write_text("servers: {a: {command: x, env: {K: '${file:key}'}, cwd: sub}}")
    monkeypatch.chdir(tmp_path.parent)
    found = load(Path(os.path.relpath(tmp_path / "servers.yaml")), {})
    assert found.settings.servers["a"].env == {"K": "s3cr3t-file"}
    assert found.settings.servers["a"].cwd == str(tmp_path / "sub")


def test_named_file_goes_before_the_environment(tmp_path: Path) -> None:
    env = {"MCP_HUB_CONFIG": "~/b.yaml", "HOME": "/home/alice"}
    assert find_config("a.yaml", tmp_path, env) == tmp_path / "a.yaml"
    assert find_config(None, tmp_path, env) == Path("/home/alice/b.yaml")


@pytest.mark.parametrize("name", ["servers.yaml", "servers.yml", "servers.json"])
def test_usual_file_of_the_directory_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert find_config(None, tmp_path, {}) == tmp_path / name


def test_file_of_the_user_is_found_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user" / name))
    with pytest.raises(ConfigError) as caught:
        find_config(None, tmp_path, {})
    place = tmp_path / "user" / "mcp-hub" / "servers.yaml"
    assert f"{tmp_path}/servers.json, {place}). Create one with: mcp-hub init" in str(caught.value)
    place.parent.mkdir(parents=True)
    place.touch()
    assert find_config(None, tmp_path, {}) == place
    (tmp_path / "servers.yaml").write_text("a repository's own")
    assert find_config("@user", tmp_path, {}) == place
    assert find_config("@user", tmp_path, {"MCP_HUB_CONFIG": "/home/alice/b.yaml"}) == Path("/home/alice/b.yaml")
