"""What a client says that joins a background hub: its options, the variables of its configuration, path and build."""

from itertools import permutations
from pathlib import Path

import platformdirs
import pytest

from mcp_hub.app.attached.hub import widened
from mcp_hub.attach.arguments import NAMES, find_config, state_folder, wanted
from mcp_hub.attach.environment import named_variables, written_mode
from mcp_hub.attach.hello import is_newer
from mcp_hub.attach.system import user_folder
from mcp_hub.config.load import load
from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError

ENV = {"HOME": "/nowhere"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    place = tmp_path / "servers.yaml"
    place.write_text("servers: {}\n")
    return place


@pytest.mark.parametrize(
    "more", [["--client", "x"], ["--profile=dev", "--attach", "always"], [], ["--client=claude-code"]]
)
def test_options_of_clients_are_understood(config: Path, more: list[str]) -> None:
    found = wanted(["serve", "-c", str(config), *more], ENV)
    assert found is not None and found.config == str(config)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"], ["serve", "--http"], ["serve", "--warm"], ["serve", "--help"], ["serve", "--log-level", "debug"],
        ["serve", "--config"], ["serve", "--attach", "perhaps"], ["serve", "extra"], [],
    ],
)  # fmt: skip
def test_every_other_form_is_for_the_whole_command(config: Path, arguments: list[str]) -> None:
    assert wanted([*arguments], {**ENV, "MCP_HUB_CONFIG": str(config)}) is None


def test_the_variable_overrides_the_file_and_the_option_both(config: Path) -> None:
    line = ["serve", "--config", str(config)]
    env = {**ENV, "MCP_HUB_ATTACH": "never"}
    found, chosen = wanted(line, env), wanted([*line, "--attach", "always"], env)
    assert found is not None and found.attach == "never"
    assert chosen is not None and chosen.attach == "always"


@pytest.mark.parametrize("explicit", [None, "@user", "servers.yaml", "~/servers.yaml", "missing.yaml"])
@pytest.mark.parametrize("variable", [None, "~/servers.yaml", "missing.yaml"])
@pytest.mark.parametrize("here", [True, False])
def test_the_configuration_is_the_one_that_the_whole_command_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explicit: str | None, variable: str | None, here: bool
) -> None:
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    for folder in (home, cwd, tmp_path / "config" / "mcp-hub"):
        folder.mkdir(parents=True)
        (folder / "servers.yaml").touch()
    if not here:
        (cwd / "servers.yaml").unlink()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    env |= {} if variable is None else {"MCP_HUB_CONFIG": variable}
    try:
        theirs = load.find_config(explicit, cwd, env)
    except ConfigError:
        theirs = Path("/missing")
    assert find_config(explicit, str(cwd), env) == (str(theirs) if theirs.is_file() else None)


@pytest.mark.parametrize("name", NAMES)
def test_file_that_is_only_found_is_for_the_whole_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_text("servers: {a: {command: x, env: {K: '${cmd:touch hit}'}}}")
    monkeypatch.chdir(tmp_path)
    assert wanted(["serve"], {**ENV, "XDG_CONFIG_HOME": "/missing"}) is None
    assert wanted(["serve", "--config", name], ENV) is not None


@pytest.mark.parametrize("kind", ["config", "state"])
def test_folders_of_the_user_are_those_of_platformdirs(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    theirs = {"config": platformdirs.user_config_dir, "state": platformdirs.user_state_dir}[kind]
    for env in ({}, {f"XDG_{kind.upper()}_HOME": "/srv/own"}, {f"XDG_{kind.upper()}_HOME": "here"}):
        monkeypatch.delenv(f"XDG_{kind.upper()}_HOME", raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert user_folder(kind, env) == theirs("mcp-hub")
    assert state_folder({"MCP_HUB_STATE_DIR": "/srv/state"}) == "/srv/state"


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
VALUES = dict.fromkeys(
    ("TOKEN", "OTHER", "PATH_PART", "BEARER", "STORE", "HUB_TOKEN_OF_TESTS", "API_KEY"), "a-value-of-its-own"
)


@pytest.mark.parametrize("name", TEXTS)
def test_no_variable_that_the_configuration_takes_is_missed(name: str) -> None:
    env = Noting({**VALUES, "HOME": "/home/ann"})
    loaded = parse(TEXTS[name], name, env, Path(name).parent, lenient=True)
    passed = {variable for server in loaded.settings.servers.values() for variable in server.pass_env}
    taken = (env.asked | passed) & VALUES.keys()
    found = named_variables(TEXTS[name].encode(), {*VALUES, "HOME"})
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
        *((text, "") for text in ("servers: {}", "# attach: never\nhub: {}\n", "servers:\n  a: {command: attach}\n")),
        ("hub:\n  attach: never\n", "never"),
        ("hub: {attach: always}\n", "always"),
        ('{"hub": {"attach": "auto"}}', "auto"),
        ("hub:\n  attach: never # not here\n", "never"),
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


@pytest.mark.parametrize(
    ("path", "more", "found"),
    [("/a:/b", "/b:/a", "/a:/b"), ("/a", "/c:/a:/c:/b", "/a:/c:/b"), ("/a", "bin:.::/b", "/a:/b"), ("/a", "", "/a")],
)
def test_only_what_is_new_and_absolute_comes_behind(path: str, more: str, found: str) -> None:
    assert widened(path, more) == found


def test_it_has_a_bound() -> None:
    many = ":".join(f"/{number}" for number in range(1000))
    assert len(widened("/a", many).split(":")) == 128
    assert widened(many, "/new") == many


OLD_TO_NEW = ["0.1.0a1", "0.1.0rc1", "0.1.0", "0.1.0.1", "0.2.0", "0.10.0", "1.0.0", "10.0.0"]


def test_builds_are_in_their_order_and_no_two_make_each_other_retire() -> None:
    for (place, one), (other_place, other) in permutations(enumerate(OLD_TO_NEW), 2):
        assert is_newer(one, other) == (place > other_place), (one, other)
    odd = ["", "x", "1", "1.0", "1.x", "1.0+local", "1.0-3", *OLD_TO_NEW]
    for one in odd:
        for other in odd:
            assert is_newer(one, other) + is_newer(other, one) <= 1
            assert one == other or is_newer(one, other) or is_newer(other, one)
