"""From files to `Loaded`: shapes that are accepted, secrets, warnings, and where files are looked for."""

import os
from functools import partial
from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, find_config, load, parse
from mcp_hub.edit import entries
from mcp_hub.edit.writing import CannotEdit
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.servers_file.servers_file import pasted
from tests.unit.config.faults import findings, shown, shown_all

ENV = {"TOKEN": "s3cr3t-token", "OFF": "false", "PORT": "9000", "HOME": "/home/alice"}
SHIPPED = Path(__file__).parents[3] / "servers.yaml"


def loaded(text: str, name: str = "servers.yaml") -> Loaded:
    return parse(text, name, ENV, Path("/base"))


def test_shipped_file_and_its_commented_examples_load() -> None:
    found = load(SHIPPED, {})
    assert list(found.settings.servers) == ["time", "everything", "files", "jobs"]
    assert found.settings.servers["files"].args[-1] == "."
    assert found.settings.servers["jobs"].local == "mcp_hub.examples.jobs:registry"
    assert found.warnings == ()
    assert found.path == SHIPPED
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


def test_empty_sections_and_no_servers_are_the_default_with_a_warning() -> None:
    empty = loaded("hub:\nservers: {a: {command: x, timeout: , tools: , url: , type: }}\ndefaults:\nprofiles:\n")
    assert empty.settings == loaded("servers: {a: {command: x}}").settings
    (warning,) = loaded("hub: {name: x}").warnings
    assert shown(warning) == "servers.yaml:1 [no_servers]"


def test_interpolated_texts_take_the_type_of_their_key_and_others_are_literal() -> None:
    found = loaded(
        "hub: {http: {port: '${PORT}', allow_public: '${OFF}'}}\n"
        "servers: {a: {command: x, enabled: '${OFF}', timeout: '${T:-30m}', restart: {intensity: '${N:-2}'}}}\n"
    )
    server = found.settings.servers["a"]
    assert (found.settings.hub.http.port, found.settings.hub.http.allow_public) == (9000, False)
    assert (server.enabled, server.timeout) == (False, 1800.0)
    assert server.restart is not None
    assert server.restart.intensity == 2
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


def test_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert findings(load, tmp_path / "none.yaml", {}) == [f"{tmp_path}/none.yaml [config_not_found]"]
    with pytest.raises(ConfigError, match="cannot be read: it is a directory"):
        load(tmp_path, {})
    path = tmp_path / "servers.yaml"
    path.write_bytes(b"servers:\n  a: {command: \xff}\n")
    with pytest.raises(ConfigError, match=r"servers\.yaml:2: the text is not UTF-8"):
        load(path, {})
    path = tmp_path / "servers.yaml"
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
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
    assert findings(loaded, text, "servers.json") == [f"servers.json:1: {where} [invalid_text]"]


@pytest.mark.parametrize("value", ['"\\ud83d\\ude00"', '"\\\\ud83d"', "9" * 500, "9" * 4000])
def test_lines_of_json_are_known_beside_escaped_pairs_and_long_numbers(value: str) -> None:
    text = f'{{"hub": {{"x": {value}}},\n"servers": {{"a": {{"command": "x",\n"colour": 1}}}}}}'
    where = [line for line in findings(loaded, text, "servers.json") if "colour" in line]
    assert where == ["servers.json:3: servers.a.colour [unknown_key]"]


@pytest.mark.parametrize(
    ("text", "line", "advice"),
    [
        ('servers:\n  a: {command: "x\x07"}\n', 2, "control character. Remove it."),
        ("servers: {}\n".encode("utf-16-le").decode("utf-8"), 1, "of another encoding. Save the file as UTF-8."),
        ("servers: {}\n---\nservers: {}\n", 2, "a file is one document"),
    ],
)
def test_text_that_yaml_does_not_take_is_named_by_its_line_with_the_cure(text: str, line: int, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice) as caught:
        loaded(text)
    assert caught.value.findings[0].line == line


def test_half_of_a_character_in_yaml_is_named_by_its_line() -> None:
    with pytest.raises(ConfigError, match="half of a character .* Write the character itself") as caught:
        loaded('servers:\n  a: {command: "\\ud83d\\ude00"}\n')
    assert caught.value.findings[0].line == 2


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
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
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


put, remove = partial(entries.put, manner="hub"), partial(entries.remove, manner="hub")
ON: dict[str, object] = {"command": "x"}
OFF = ("servers", "a", "enabled")


B = "  b:\n    command: x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"servers:\n{B}"),
        ("# none\n", f"# none\nservers:\n{B}"),
        ("hub: {}", f"hub: {{}}\nservers:\n{B}"),
        ("servers: # mine\nhub: {}\n", f"servers: # mine\n{B}hub: {{}}\n"),
        ("servers: {} # mine\n", f"servers: # mine\n{B}"),
        ("servers:\n  a: {} # 1\n  # 2\n\n# end\n", f"servers:\n  a: {{}} # 1\n  # 2\n{B}\n# end\n"),
        ("servers:\r\n a: {}\r\n", "servers:\r\n a: {}\r\n b:\r\n  command: x\r\n"),
        ("servers:\n    a: {}\n", "servers:\n    a: {}\n    b:\n        command: x\n"),
        ("servers: {a: {}, } # c\n", "servers: {a: {}, b: {command: x}, } # c\n"),
        ("servers:\n  a:\n    args: [\n      y]\nhub: {}\n", f"servers:\n  a:\n    args: [\n      y]\n{B}hub: {{}}\n"),
        ("\ufeffservers:\n  a: {}\n...\n", f"\ufeffservers:\n  a: {{}}\n{B}...\n"),
        ("servers:\n  a:\n    k: |+\n      t\n\nhub: {}\n", f"servers:\n  a:\n    k: |+\n      t\n\n{B}hub: {{}}\n"),
    ],
)
def test_new_server_stands_behind_the_others_in_their_style(before: str, after: str) -> None:
    assert put(before, "servers.yaml", ("servers", "b"), ON) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"servers": {"a": {}}}', '{"servers": {"a": {}, "b": {"command": "x"}}}'),
        (
            '{\n\t"servers": {\n\t\t"a": {} // why\n\t}\n}\n',
            '{\n\t"servers": {\n\t\t"a": {}, // why\n\t\t"b": {"command": "x"}\n\t}\n}\n',
        ),
        ('{"servers": {\n  "a": {}, // c\n}}', '{"servers": {\n  "a": {}, // c\n  "b": {"command": "x"},\n}}'),
        ("{}", '{"servers": {"b": {"command": "x"}}}'),
        (
            r'{"servers": {"a": {"url": "https:\/\/a"}}}',
            r'{"servers": {"a": {"url": "https:\/\/a"}, "b": {"command": "x"}}}',
        ),
    ],
)
def test_json_with_comments_is_edited_as_json(before: str, after: str) -> None:
    assert put(before, "servers.json", ("servers", "b"), ON) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("servers:\n  a: {url: u} # c\n", "servers:\n  a: {url: u, enabled: false} # c\n"),
        (
            "servers:\n  a:\n    url: u # c\n    # d\n  # e\n",
            "servers:\n  a:\n    url: u # c\n    # d\n    enabled: false\n  # e\n",
        ),
        ("servers:\n  a:\n    enabled: yes # c\n    url: u\n", "servers:\n  a:\n    enabled: false # c\n    url: u\n"),
        (
            "x: &b {y: u}\nservers:\n  a:\n    <<: *b\n",
            "x: &b {y: u}\nservers:\n  a:\n    <<: *b\n    enabled: false\n",
        ),
    ],
)
def test_one_member_is_set_and_comments_stay(before: str, after: str) -> None:
    assert put(before, "servers.yaml", OFF, False) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("servers:\n  # one\n  a: {} # gone\n  # two\n  b: {}\n", "servers:\n  # one\n  # two\n  b: {}\n"),
        ("servers: {a: {x: 1}, b: {}}\n", "servers: {b: {}}\n"),
        ("servers: {b: {}, a: {x: 1}}\n", "servers: {b: {}}\n"),
        ("servers: {a: {x: 1},}\n", "servers: {}\n"),
        ("servers: {\n  b: {}, # b\n  a: {x: 1} # a\n  # end\n}\n", "servers: {\n  b: {} # b\n  # end\n}\n"),
        ("servers: {\n  a: {x: 1}, # a\n  # b\n  b: {}}\n", "servers: {\n  # b\n  b: {}}\n"),
        ("servers:\n  a:\n    t: |\n      x\n\nhub: {}\n", "servers:\n\nhub: {}\n"),
        ("x: &x {url: u}\nservers:\n  a: *x\n  b: *x\n", "x: &x {url: u}\nservers:\n  b: *x\n"),
    ],
)
def test_removed_server_takes_its_own_lines_only(before: str, after: str) -> None:
    assert remove(before, "servers.yaml", ("servers", "a")) == after


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x: &x {url: u}\nservers:\n  a: *x\n", OFF),  # would change x, too
        ("servers:\n  a: &a {url: u}\n  b: *a\n", OFF),
        ("servers:\n  a: {url: u}\n  a: {url: v}\n", OFF),
        ("servers: [1]\n", OFF),
        ("servers:\n  ? a\n  : {}\n", ("servers", "b")),
    ],
)
def test_text_that_cannot_be_edited_surely_is_refused_with_lines_to_paste(text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(CannotEdit):
        put(text, "servers.yaml", path, False)
    snippet = pasted("servers.yaml", path, False)
    assert snippet.startswith("servers:\n  ") and snippet.endswith(": false")


@pytest.mark.parametrize(
    "text",
    [
        "servers:\n  a: &a {}\n  b: *a\n",
        "servers: {a: {}, # of a, or of b\n  b: {}}\n",
        "x: &x {a: {}}\nservers:\n  <<: *x\n",
    ],
)
def test_removal_that_would_take_more_is_refused(text: str) -> None:
    with pytest.raises(CannotEdit):
        remove(text, "servers.yaml", ("servers", "a"))


def test_value_that_is_there_changes_no_byte_and_a_missing_server_is_not_removed() -> None:
    text = "servers:\n  a: {n: 1}\n"
    assert put(text, "servers.yaml", ("servers", "a", "n"), 1) == text
    assert put(text, "servers.yaml", ("servers", "a", "n"), True) == "servers:\n  a: {n: true}\n"
    assert put(text, "servers.yaml", ("servers", "b"), {}) == f"{text}  b: {{}}\n"
    with pytest.raises(KeyError):
        remove("servers: {}\n", "servers.yaml", ("servers", "a"))


@pytest.mark.parametrize("text", ["...", "---", "~", "null", "1e3", "0x1F", "2020-01-01", "--", ".", ":"])
def test_text_that_yaml_takes_for_something_else_is_quoted(text: str) -> None:
    done = put(
        "servers: {}\n", "servers.yaml", ("servers", "b"), {"command": text, "args": [text], "env": {text: text}}
    )
    data = entries.read_data(done, "servers.yaml")
    assert data == {"servers": {"b": {"command": text, "args": [text], "env": {text: text}}}}
