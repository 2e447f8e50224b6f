"""Every finding is one line, `file:line: path: message`, and all are raised together."""

from pathlib import Path

import pytest

from mcp_hub.config.load import parse
from mcp_hub.errors import ConfigError

ENV = {"HUB_TOKEN": "s3cr3t-token", "WORD": "s3cr3t-word", "MULTI": "two\nlines", "HOME": "/home/alice"}
COMMAND = "    command: x\n"


def findings(text: str, name: str = "servers.yaml") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, name, ENV, Path("/base"))
    return str(caught.value).split("\n")


def server(body: str) -> str:
    """A file whose line 3 is `body` of the server "git", which has a command on line 4."""
    return f"servers:\n  git:\n    {body}\n{COMMAND}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("servers:\n  git: {comand: uvx}", '2: servers.git.comand: unknown key "comand"; did you mean "command"?'),
        ("server: {}", '1: server: unknown key "server"; did you mean "servers"?'),
        ("hub:\n  prefx: auto", '2: hub.prefx: unknown key "prefx"; did you mean "prefix"?'),
        ("hub:\n  http: {prot: 1}", '2: hub.http.prot: unknown key "prot"; did you mean "port"?'),
        (
            "hub:\n  tokens:\n    - {token: abc, principle: a, principal: a}",
            '3: hub.tokens[0].principle: unknown key "principle"; did you mean "principal"?',
        ),
        (
            server("maxDuration: 1"),
            '3: servers.git.maxDuration: unknown key "maxDuration"; did you mean "max_duration"?',
        ),
        (
            server("restart: {intensiti: 1}"),
            '3: servers.git.restart.intensiti: unknown key "intensiti"; did you mean "intensity"?',
        ),
        (server("disable: true"), '3: servers.git.disable: unknown key "disable"; did you mean "disabled"?'),
        ("servers: {git: {command: x}}\nprofiles:\n  a: {zzz: 1}", '3: profiles.a.zzz: unknown key "zzz"'),
    ],
)
def test_unknown_key_names_the_nearest(text: str, finding: str) -> None:
    assert findings(text) == [f"servers.yaml:{finding}"]


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("timeout: soon", "timeout: expected a duration such as"),
        ("timeout: 0s", "timeout: must be longer than 0"),
        ("args: -l -a", 'args: expected a list, such as ["-l", "-a"]'),
        ("args: [1.10]", "args[0]: expected text; put it in quotes"),
        ('args: ["a\\0b"]', "args[0]: must not contain a NUL or a line break"),
        ("env: {PORT: 80}", "env.PORT: expected text; put it in quotes"),
        ('args: ["a\\rb"]', "args[0]: must not contain a NUL or a line break"),
        ('args: ["${MULTI}"]', "args[0]: must not contain a NUL or a line break"),
        ('env: {A: "x\\0y"}', "env.A: must not contain a NUL"),
        ('env: {"A=B": x}', 'env["A=B"]: a variable\'s name must not be empty or contain "="'),
        ("enabled: perhaps", "enabled: expected true or false"),
        ("disabled: perhaps", "disabled: expected true or false"),
        ("era: old", 'era: expected "auto", "handshake" or "modern"'),
        ("prefix: a b", "prefix: may hold letters, digits, _ and -, with a letter or _ first"),
        ("rename: {a: x.y}", "rename.a: may hold letters, digits, _ and -, with a letter or _ first"),
        ("rename: {a: x, b: x}", "rename: two names are exported as the same one"),
        ("tools: {deny: ['']}", "tools.deny[0]: must not be empty"),
        ("restart: {intensity: -1}", "restart.intensity: must be at least 0"),
        ("local: 'a:b'", "local: a server has a command or a local, not both"),
        ("url: http://x", "url: a server has a command or a url, not both"),
        ("type: sse", "type: belongs to a url; a command has none"),
        ("type: pipe", 'type: expected "http" or "sse"'),
        ("headers: {A: b}", "headers: belongs to a url; a command has none"),
        ("bearer: abc", "bearer: belongs to a url; a command has none"),
        ("bearer: ''", "bearer: must not be empty"),
        ("headers: {A: 5}", "headers.A: expected text; put it in quotes"),
        ("cwd: '${NOPE}'", "cwd: environment variable NOPE is not set"),
    ],
)
def test_bad_value_of_a_server_is_found_where_it_stands(body: str, finding: str) -> None:
    (found,) = findings(server(body))
    assert found.startswith(f"servers.yaml:3: servers.git.{finding}")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "servers:\n  a: {}",
            '2: servers.a: needs a "command" to start, a "url" to connect to, or "local" for Python functions',
        ),
        ("servers:\n  a:", "2: servers.a: expected a mapping (key: value)"),
        ("servers: [a]", "1: servers: expected a mapping (key: value)"),
        ("servers:\n  a: {local: x}", '2: servers.a.local: expected "module:attribute", for example'),
        ("servers:\n  a:\n    local: a:b\n    args: [x]", "4: servers.a.args: belongs to a command; a local has none"),
        ("servers:\n  a:\n    local: a:b\n    type: http", "4: servers.a.type: belongs to a url; a local has none"),
        (
            "servers:\n  a:\n    command: x\n    enabled: true\n    disabled: true",
            "5: servers.a.disabled: enabled says it already: keep one of them",
        ),
        ('servers:\n  "": {command: x}', '2: servers[""]: a server\'s name must have 1 to 64 characters'),
        ('servers:\n  "a\\e": {command: x}', '2: servers["a\\u001b"]: a server\'s name must not contain control'),
        ("hub:\n  tokens:\n    - principal: a", "3: hub.tokens[0].token: is missing"),
        ("hub:\n  tokens: [{token: '', principal: a}]", "2: hub.tokens[0].token: must not be empty"),
        ("hub:\n  http:\n    port: 65536", "3: hub.http.port: must be at most 65535"),
        ("hub: {max_name_length: 8}", "1: hub.max_name_length: must be at least 16"),
        ("hub: {limits: {line: big}}", "1: hub.limits.line: expected a size such as"),
        ("hub: {page_size: many}", "1: hub.page_size: expected a whole number"),
    ],
)
def test_bad_section_is_found_where_it_stands(text: str, finding: str) -> None:
    (found,) = findings(text)
    assert found.startswith(f"servers.yaml:{finding}")


def test_profile_of_unknown_server_names_the_nearest() -> None:
    text = "servers: {git: {command: x}}\nprofiles:\n  review:\n    servers:\n      - git\n      - gti\n"
    message = 'servers.yaml:6: profiles.review.servers[1]: unknown server "gti"; did you mean "git"?'
    assert findings(text) == [message]


def test_token_of_unknown_profile_names_the_nearest() -> None:
    text = "hub:\n  tokens:\n    - {token: abc, principal: a, profile: revew}\nprofiles: {review: {}}\n"
    message = 'servers.yaml:3: hub.tokens[0].profile: unknown profile "revew"; did you mean "review"?'
    assert findings(text) == [message]


def test_token_given_twice_is_refused_without_showing_it() -> None:
    text = "hub:\n  tokens:\n    - {token: s3cr3t, principal: a}\n    - {token: s3cr3t, principal: b}\n"
    assert findings(text) == ["servers.yaml:4: hub.tokens[1].token: the same token as hub.tokens[0]"]


def test_unset_variable_is_one_finding_with_its_line() -> None:
    text = "hub:\n  http:\n    port: ${HUB_PORT}\n  tokens:\n    - {token: '${A}', principal: a, profile: '${B}'}\n"
    hint = "environment variable {0} is not set; set it, or write ${{{0}:-default}}"
    assert findings(text) == [
        f"servers.yaml:3: hub.http.port: {hint.format('HUB_PORT')}",
        f"servers.yaml:5: hub.tokens[0].token: {hint.format('A')}",
        f"servers.yaml:5: hub.tokens[0].profile: {hint.format('B')}",
    ]


def test_all_findings_come_together_in_the_order_of_the_file() -> None:
    text = (
        "profiles:\n  p: {servers: [nope]}\n"
        "servers:\n  a: {comand: x}\n  b: {command: x, args: ['${NOPE}'], timeout: x}\n  a: {command: x}\n"
    )
    assert [found.split(": ")[:2] for found in findings(text)] == [
        ["servers.yaml:2", "profiles.p.servers[0]"],
        ["servers.yaml:5", "servers.b.args[0]"],
        ["servers.yaml:5", "servers.b.timeout"],
        ["servers.yaml:6", "servers.a"],
    ]


def test_names_that_clients_would_not_get_are_warned_of() -> None:
    own = f"rename: {{a: {'r' * 49}, b: {'s' * 48}}}, per_tool: {{c: {{name: {'n' * 60}}}, d: {{name: short}}}}"
    text = f"servers: {{git: {{command: x, {own}}}}}"
    warnings = parse(text, "servers.yaml", ENV, Path("/base")).warnings
    assert [warning.split(": ")[1] for warning in warnings] == ["servers.git.rename.a", "servers.git.per_tool.c.name"]
    assert all("longer than hub.max_name_length (48)" in warning for warning in warnings)
    assert parse(f"hub: {{max_name_length: 64}}\n{text}", "servers.yaml", ENV, Path("/base")).warnings == ()


def test_findings_use_the_words_of_the_file() -> None:
    assert findings('{\n "mcpServers": {\n  "git": {"command": "x", "restart": {"perod": 1}}}}', "c.json") == [
        'c.json:3: mcpServers.git.restart.perod: unknown key "perod"; did you mean "period"?'
    ]


def test_servers_under_both_names_are_refused() -> None:
    assert findings("servers: {a: {command: x}}\nmcpServers: {b: {command: x}}") == [
        'servers.yaml:2: mcpServers: says the same as "servers"; keep one of them'
    ]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\ufeff", "null"])
def test_empty_file_shows_how_to_begin(text: str) -> None:
    (found,) = findings(text)
    assert found.startswith("servers.yaml: is empty; begin with: servers: {time:")


@pytest.mark.parametrize("text", ["- a", "text", "3"])
def test_root_that_is_no_mapping_is_refused(text: str) -> None:
    (found,) = findings(text)
    assert found.startswith("servers.yaml:1: expected a mapping at the top; begin with: servers: {time:")


@pytest.mark.parametrize("text", ['"a\\n\\x9b": 1', 'servers: {a: {command: "${file:x\\n\\e}"}}'])
def test_finding_is_one_line_that_a_terminal_cannot_obey(text: str) -> None:
    (found,) = findings(text)
    assert found.isprintable()


@pytest.mark.parametrize("name", ["c.json", "stdin.json5"])
def test_broken_json_is_one_finding_on_one_line(name: str) -> None:
    assert findings("'\n", name) == [f'{name}:1:2: not valid JSON: Unexpected "\\n"']


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
    found = findings(text)
    assert len(found) == 15
    assert "s3cr3t" not in "\n".join(found)
