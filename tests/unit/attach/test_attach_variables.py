"""The variables that a configuration names, found without reading YAML, against the real interpolation."""

from pathlib import Path

import pytest

from mcp_hub.attach.environment import named_variables, written_mode
from mcp_hub.config.load.load import parse


class Noting(dict[str, str]):
    """An environment that remembers which variables it was asked for."""

    def __init__(self, values: dict[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)


TEXTS = {
    "servers.yaml": """
servers:
  a: {command: x, args: ["--key=${TOKEN}", "${env:OTHER}", "${MISSING:-none}"], env: {B: "$${NOT} ${TOKEN}"}}
  b: {url: "https://x/${PATH_PART}", bearer: "${BEARER}"}
hub: {store: {path: "/x/${STORE}"}, tokens: [{token: "${HUB_TOKEN_OF_TESTS}", principal: p}]}
""",
    "mcp.json": '{"servers": {"a": {"command": "x", "env": {"K": "${input:api-key}"}}}, "inputs": [{"id": "api-key"}]}',
    "hub.yaml": """
servers:
  a: {command: x, pass_env: [TOKEN, "OTHER"]}
  b:
    command: y
    pass_env:
      # a comment
      - BEARER
      - 'STORE'   # of b
    cwd: /x
""",
    "servers.json": '{"mcpServers": {"a": {"command": "x", "pass_env" : [\n"TOKEN",\n"API_KEY"\n]}}}',
    "aliased.yaml": """
servers:
  a: {command: x, pass_env: &names [TOKEN, OTHER]}
  b: {command: x, pass_env: *names}
""",
    "opencode.json": '{"mcp": {"a": {"type": "local", "command": ["x", "{env:TOKEN}"], '
    '"environment": {"A": "${OTHER}"}}}}',
    "/p/.gemini/settings.json": '{"mcpServers": {"a": {"command": "x", "args": ["$TOKEN", "%OTHER%", "a-$BEARER/b"]}}}',
    "/p/.claude.json": '{"mcpServers": {"a": {"command": "sh", "args": ["-c", "x $TOKEN ${OTHER%/}"], '
    '"env": {"S": "%STORE%"}}}}',
    "librechat.yaml": "mcpServers: {a: {command: x, env: {K: '$TOKEN'}}}",
    "config.yaml": "mcpServers: [{name: a, command: x, env: {K: '${{ secrets.BEARER }}'}}]",
    "goose.yaml": "extensions: {a: {cmd: x, type: stdio, env_keys: [TOKEN]}}",
    "config.toml": '[mcp_servers.a]\nurl = "https://x/mcp"\nbearer_token_env_var = "BEARER"\n'
    '[mcp_servers.b]\ncommand = "x"\nenv_vars = ["TOKEN", "OTHER"]\n',
}
ENV = dict.fromkeys(
    ("TOKEN", "OTHER", "PATH_PART", "BEARER", "STORE", "HUB_TOKEN_OF_TESTS", "API_KEY"), "a-value-of-its-own"
)


@pytest.mark.parametrize("name", TEXTS)
def test_no_variable_that_the_configuration_takes_is_missed(name: str) -> None:
    env = Noting({**ENV, "HOME": "/home/ann"})
    loaded = parse(TEXTS[name], name, env, Path(name).parent, lenient=True)
    passed = {variable for server in loaded.settings.servers.values() for variable in server.pass_env}
    taken = (env.asked | passed) & ENV.keys()
    found = named_variables(TEXTS[name].encode(), {*ENV, "HOME"})
    assert taken and found is not None and taken <= found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a: {pass_env: [A, B], cwd: HOME}", {"A", "B"}),
        ("a:\n  pass_env:\n  - A\n\n  - B\n  cwd: HOME\n", {"A", "B"}),
        ('{"pass_env"\n: ["A"], "cwd": "HOME"}', {"A"}),
        ('pass_env = ["A"]\ncwd = "HOME"', {"A"}),
        ("a: {pass_envelope: HOME}", set()),
        ("a: {pass_env: &x [A]}\nb: HOME", {"HOME"}),
        (r'a: {pass_env: ["A\x42"]}', set()),
        ("hub: {telemetry: {}}", {"OTEL_SERVICE_NAME"}),
    ],
)
def test_names_under_pass_env_are_taken_and_no_other_words(text: str, names: set[str]) -> None:
    assert named_variables(text.encode(), {"HOME", "OTEL_SERVICE_NAME"}) == names


@pytest.mark.parametrize(
    "text",
    [
        "a: $\0{\0TOKEN}",
        r'a: "\u0024{TOKEN}"', r'a: "\x24{TOKEN}"', r'a: "$\u007bTOKEN}"', r'a: "$\x7BTOKEN}"', r'a: "${T\u004fKEN}"',
        'a: "$\\\n  {TOKEN}"', r'a: "\U00000024{TOKEN}"', "a: ${TOKEN",
    ],
)  # fmt: skip
def test_a_text_that_may_hide_a_variable_is_not_certain(text: str) -> None:
    assert named_variables(text.encode(), ()) is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("servers: {}", ""),
        ("hub:\n  attach: never\n", "never"),
        ("hub: {attach: always}\n", "always"),
        ('{"hub": {"attach": "auto"}}', "auto"),
        ("# attach: never\nhub: {}\n", ""),
        ("hub:\n  attach: never # not here\n", "never"),
        ("servers:\n  a: {command: attach}\n", ""),
        ("servers:\n  a:\n    description: attach files\n", ""),
        ("servers: {a: {command: /home/me/attach-rig/bin/a, args: [--attach=x]}}\n", ""),
        ("servers:\n  attachments: {command: attach}\n", ""),
        ("hub:\n  attach_idle: 1s\n", ""),
        ('{"hub": {\n  "attach": "auto",\n  "attach_idle": "1s"\n}}', "auto"),
        ("hub: {attach: never, watch: false}", "never"),
        ("hub: {watch: false, attach: never}", None),
        ('{"hub": {"attach"\n: "never"}}', None),
        ("servers:\n  a: {description: 'how to attach: by hand'}\n", None),
        ("hub:\n  attach: ${MODE}\n", None),
        ("hub:\n  attach: never\nservers:\n  a:\n    env:\n      attach: always\n", None),
    ],
)
def test_the_mode_is_read_where_it_is_certain(text: str, mode: str | None) -> None:
    assert written_mode(text.encode()) == mode
