"""Every finding is one line, `file:line: path: message [code]`, and all are raised together."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown_all

ENV = {"HUB_TOKEN": "s3cr3t-token", "WORD": "s3cr3t-word", "MULTI": "two\nlines", "HOME": "/home/alice"}
COMMAND = "    command: x\n"


def findings(text: str, name: str = "servers.yaml") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, name, ENV, Path("/base"))
    assert "s3cr3t" not in str(caught.value)
    assert all(line.isprintable() for line in str(caught.value).split("\n"))
    return shown_all(caught)


def messages(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, "servers.yaml", ENV, Path("/base"))
    return [finding.message for finding in caught.value.findings]


def server(body: str) -> str:
    """A file whose line 3 is `body` of the server "git", which has a command on line 4."""
    return f"servers:\n  git:\n    {body}\n{COMMAND}"


@pytest.mark.parametrize(
    ("text", "finding", "near"),
    [
        ("servers:\n  git: {comand: uvx}", "2: servers.git.comand", "command"),
        ("server: {}", "1: server", "servers"),
        ("hub:\n  prefx: auto", "2: hub.prefx", "prefix"),
        ("hub:\n  http: {prot: 1}", "2: hub.http.prot", "port"),
        ("hub:\n  tokens:\n    - {token: abc, principle: a, principal: a}", "3: hub.tokens[0].principle", "principal"),
        (server("maxDuration: 1"), "3: servers.git.maxDuration", "max_duration"),
        (server("restart: {intensiti: 1}"), "3: servers.git.restart.intensiti", "intensity"),
        (server("disable: true"), "3: servers.git.disable", "disabled"),
        ("servers: {git: {command: x}}\nprofiles:\n  a: {zzz: 1}", "3: profiles.a.zzz", None),
    ],
)
def test_unknown_key_names_the_nearest(text: str, finding: str, near: str | None) -> None:
    assert findings(text) == [f"servers.yaml:{finding} [unknown_key]"]
    (message,) = messages(text)
    assert (f'"{near}"' in message) if near else message.count('"') == 2


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("timeout: soon", "timeout [invalid_value]"),
        ("timeout: 0s", "timeout [invalid_value]"),
        ("args: -l -a", "args [wrong_type]"),
        ("args: [1.10]", "args[0] [wrong_type]"),
        ('args: ["a\\0b"]', "args[0] [invalid_value]"),
        ("env: {PORT: 80}", "env.PORT [wrong_type]"),
        ('cwd: "a\\rb"', "cwd [invalid_value]"),
        ('cwd: "${MULTI}"', "cwd [invalid_value]"),
        ('env: {A: "x\\0y"}', "env.A [invalid_value]"),
        ('env: {"A=B": x}', 'env["A=B"] [invalid_value]'),
        ("enabled: perhaps", "enabled [wrong_type]"),
        ("disabled: perhaps", "disabled [wrong_type]"),
        ("era: old", "era [invalid_value]"),
        ("prefix: a b", "prefix [invalid_value]"),
        ("rename: {a: x.y}", "rename.a [invalid_value]"),
        ("rename: {a: x, b: x}", "rename [duplicate_name]"),
        ("tools: {deny: ['']}", "tools.deny[0] [out_of_range]"),
        ("restart: {intensity: -1}", "restart.intensity [out_of_range]"),
        ("local: 'a:b'", "local [conflicting_keys]"),
        ("url: http://x", "url [conflicting_keys]"),
        ("type: sse", "type [misplaced_key]"),
        ("type: pipe", "type [invalid_value]"),
        ("headers: {A: b}", "headers [misplaced_key]"),
        ("bearer: abc", "bearer [misplaced_key]"),
        ("bearer: ''", "bearer [out_of_range]"),
        ("headers: {A: 5}", "headers.A [wrong_type]"),
        ("cwd: '${NOPE}'", "cwd [variable_not_set]"),
    ],
)
def test_bad_value_of_a_server_is_found_where_it_stands(body: str, finding: str) -> None:
    (found,) = findings(server(body))
    assert found.startswith(f"servers.yaml:3: servers.git.{finding}")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("servers:\n  a: {}", "2: servers.a [missing_key]"),
        ("servers:\n  a:", "2: servers.a [wrong_type]"),
        ("servers: [a]", "1: servers [wrong_type]"),
        ("servers:\n  a: {local: 'x:'}", "2: servers.a.local [invalid_value]"),
        ("servers:\n  a:\n    local: a:b\n    args: [x]", "4: servers.a.args [misplaced_key]"),
        ("servers:\n  a:\n    local: a:b\n    type: http", "4: servers.a.type [misplaced_key]"),
        (
            "servers:\n  a:\n    command: x\n    enabled: true\n    disabled: true",
            "5: servers.a.disabled [conflicting_keys]",
        ),
        ('servers:\n  "": {command: x}', '2: servers[""] [invalid_value]'),
        ('servers:\n  "a\\e": {command: x}', '2: servers["a\\u001b"] [invalid_value]'),
        ("hub:\n  tokens:\n    - principal: a", "3: hub.tokens[0].token [missing_key]"),
        ("hub:\n  tokens: [{token: '', principal: a}]", "2: hub.tokens[0].token [out_of_range]"),
        ("hub:\n  http:\n    port: 65536", "3: hub.http.port [out_of_range]"),
        ("hub: {max_name_length: 8}", "1: hub.max_name_length [out_of_range]"),
        ("hub: {limits: {line: big}}", "1: hub.limits.line [invalid_value]"),
        ("hub: {page_size: many}", "1: hub.page_size [wrong_type]"),
    ],
)
def test_bad_section_is_found_where_it_stands(text: str, finding: str) -> None:
    (found,) = findings(text)
    assert found.startswith(f"servers.yaml:{finding}")


def test_name_of_an_unknown_server_or_profile_has_the_nearest() -> None:
    text = "servers: {git: {command: x}}\nprofiles:\n  review:\n    servers:\n      - git\n      - gti\n"
    assert findings(text) == ["servers.yaml:6: profiles.review.servers[1] [unknown_server]"]
    assert '"git"' in messages(text)[0]
    text = "hub:\n  tokens:\n    - {token: abc, principal: a, profile: revew}\nprofiles: {review: {}}\n"
    assert findings(text) == ["servers.yaml:3: hub.tokens[0].profile [unknown_profile]"]
    assert '"review"' in messages(text)[0]
    text = "hub:\n  tokens:\n    - {token: s3cr3t, principal: a}\n    - {token: s3cr3t, principal: b}\n"
    assert findings(text) == ["servers.yaml:4: hub.tokens[1].token [duplicate_token]"]


def test_unset_variable_is_one_finding_with_its_line() -> None:
    text = "hub:\n  http:\n    port: ${HUB_PORT}\n  tokens:\n    - {token: '${A}', principal: a, profile: '${B}'}\n"
    assert findings(text) == [
        "servers.yaml:3: hub.http.port [variable_not_set]",
        "servers.yaml:5: hub.tokens[0].token [variable_not_set]",
        "servers.yaml:5: hub.tokens[0].profile [variable_not_set]",
    ]
    assert all(name in message for name, message in zip(("HUB_PORT", " A ", " B "), messages(text), strict=True))


def test_all_findings_come_together_in_the_order_of_the_file() -> None:
    text = (
        "profiles:\n  p: {servers: [nope]}\n"
        "servers:\n  a: {comand: x}\n  b: {command: x, args: ['${NOPE}'], timeout: x}\n  a: {command: x}\n"
    )
    assert findings(text) == [
        "servers.yaml:2: profiles.p.servers[0] [unknown_server]",
        "servers.yaml:5: servers.b.args[0] [variable_not_set]",
        "servers.yaml:5: servers.b.timeout [invalid_value]",
        "servers.yaml:6: servers.a [duplicate_key]",
    ]


def test_names_that_clients_would_not_get_are_warned_of() -> None:
    own = f"rename: {{a: {'r' * 49}, b: {'s' * 48}}}, per_tool: {{c: {{name: {'n' * 60}}}, d: {{name: short}}}}"
    text = f"servers: {{git: {{command: x, {own}}}}}"
    warnings = parse(text, "servers.yaml", ENV, Path("/base")).warnings
    assert [warning.path for warning in warnings] == ["servers.git.rename.a", "servers.git.per_tool.c.name"]
    assert all(own.code == "name_too_long" and "hub.max_name_length (48)" in own.message for own in warnings)
    assert parse(f"hub: {{max_name_length: 64}}\n{text}", "servers.yaml", ENV, Path("/base")).warnings == ()


def test_operator_is_not_everybody_without_a_token() -> None:
    text = "hub: {tokens: [{token: abcdefghij, principal: local%s}]}\nservers: {a: {command: x}}"
    assert findings(text % ", operator: true") == ["servers.yaml:1: hub.tokens[0].principal [conflicting_keys]"]
    parse(text % "", "servers.yaml", ENV, Path("/base"))


def test_findings_use_the_words_of_the_file() -> None:
    assert findings('{\n "mcpServers": {\n  "git": {"command": "", "env": {"A=": 1}}}}', "c.json") == [
        "c.json:3: mcpServers.git [missing_key]"
    ]
    assert findings("servers: {a: {command: x}}\nmcpServers: {b: {command: x}}") == [
        "servers.yaml:2: mcpServers [conflicting_keys]"
    ]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\ufeff", "null"])
def test_empty_file_shows_how_to_begin(text: str) -> None:
    (found,) = findings(text)
    assert found.startswith("servers.yaml [config_empty]")


@pytest.mark.parametrize("text", ["- a", "text", "3"])
def test_root_that_is_no_mapping_is_refused(text: str) -> None:
    (found,) = findings(text)
    assert found.startswith("servers.yaml:1 [wrong_type]")


@pytest.mark.parametrize("text", ['"a\\n\\x9b": 1', 'servers: {a: {command: "${file:x\\n\\e}"}}'])
def test_finding_is_one_line_that_a_terminal_cannot_obey(text: str) -> None:
    assert len(findings(text)) == 1
    (message,) = messages(text)
    assert message.isprintable()


@pytest.mark.parametrize("name", ["c.json", "stdin.json5"])
def test_broken_json_is_one_finding_on_one_line(name: str) -> None:
    assert findings("'\n", name) == [f"{name}:1:2 [invalid_json]"]


def test_value_put_in_or_token_is_never_part_of_a_message() -> None:
    text = (
        "hub:\n  http: {port: '${WORD}', max_body: '${WORD}', allow_public: '${WORD}'}\n"
        "  tokens:\n"
        "    - {token: '${HUB_TOKEN}', principal: a, profile: '${WORD}'}\n"
        "    - {token: s3cr3t-literal, principal: a, profile: nope, extra: s3cr3t}\n"
        "    - {token: [s3cr3t], principal: a}\n"
        "servers:\n"
        "  git: {command: x, era: '${WORD}', timeout: '${WORD}', prefix: '${WORD} ', rename: {a: '${WORD}.'},\n"
        "    enabled: '${WORD}', restart: {intensity: '${WORD}'}, local: '${WORD}', env: {A: [s3cr3t]}}\n"
    )
    assert len(findings(text)) == 15
    assert "s3cr3t" not in "\n".join(messages(text))
