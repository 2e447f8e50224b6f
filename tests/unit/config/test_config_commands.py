"""`${cmd:…}`: where it may stand, from which files commands run, and that foreign text never becomes one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.config.load.interpolate import NO_COMMANDS
from mcp_hub.config.load.load import Loaded, load, parse
from mcp_hub.config.plan import plan
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.trust import problem_of_commands
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide

TOUCH = "${cmd:touch hit}"


def parsed(server: dict[str, Any], *, base: Path = Path("/base"), **env: str) -> Loaded:
    return parse(json.dumps({"hub": {}, "servers": {"a": server}}), "servers.yaml", env, base, refusal=None)


def only(loaded: Loaded) -> ServerSettings:
    return loaded.settings.servers["a"]


def commands(server: ServerSettings) -> dict[tuple[str | int, ...], list[tuple[str, ...]]]:
    return {key: [part for part in parts if isinstance(part, tuple)] for key, parts in server.command_texts.items()}


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("op read op://vault/item/field", ["op", "read", "op://vault/item/field"]),
        ("op read 'op://My vault/an item'", ["op", "read", "op://My vault/an item"]),
        ('pass show "a \\"b\\" c"', ["pass", "show", 'a "b" c']),
        ("  vault   kv get\n -field=x a ", ["vault", "kv", "get", "-field=x", "a"]),
        ("echo $HOME | tr a b ; x > y # z", ["echo", "$HOME", "|", "tr", "a", "b", ";", "x", ">", "y", "#", "z"]),
        ("~/bin/token ''", ["~/bin/token", ""]),
        *((text, None) for text in ("a\\ b c\\}", "echo ${HOME}", "echo 'x}y'", "echo 'x", "", "''", "  ")),
    ],
)
def test_command_is_split_as_a_shell_does_and_what_cannot_be_is_refused(text: str, argv: list[str] | None) -> None:
    server = {"command": "x", "env": {"TOKEN": f"${{cmd:{text}}}"}}
    if argv is not None:
        assert commands(only(parsed(server))) == {("env", "TOKEN"): [tuple(argv)]}
        return
    with pytest.raises(ConfigError) as refused:
        parsed(server)
    (finding,) = refused.value.findings
    assert (finding.code, finding.path) == ("invalid_placeholder", "servers.a.env.TOKEN")


def test_outputs_are_put_in_and_nothing_in_them_or_around_them_is_looked_up() -> None:
    lookup = ("op", "x")
    local = {"command": "x", "args": ["-k=${cmd:op x}$${cmd:op x}${VAR}"], "env": {"A": "${cmd:op x}${cmd:op x}"}}
    server = only(parsed(local, VAR=TOUCH))
    assert commands(server) == {("args", 0): [lookup], ("env", "A"): [lookup] * 2}
    filled = server.filled({lookup: "${client.cwd}${cmd:x}"})
    assert filled.args == [f"-k=${{client.cwd}}${{cmd:x}}${{cmd:op x}}{TOUCH}"]
    assert filled.env == {"A": "${client.cwd}${cmd:x}" * 2}
    remote = {"url": "https://a.example/mcp", "bearer": "${cmd:op x}", "headers": {"X-Key": "k ${cmd:op x}"}}
    assert only(parsed(remote)).filled({lookup: "v\n"}).sent_headers() == {"Authorization": "Bearer v", "X-Key": "k v"}


@pytest.mark.parametrize(
    "server",
    [
        {"command": "${cmd:echo x}"},
        {"command": "x", "cwd": "${cmd:pwd}"},
        {"url": "https://a.example/${cmd:echo x}"},
        {"url": "https://a.example/mcp", "oauth": {"client_id": "a", "client_secret": "${cmd:op x}"}},
        {"command": "x", "description": "${cmd:op x}"},
        {"command": "x", "enabled": "${cmd:op x}"},
        {"command": "x", "args": ["${client.cwd}/${cmd:op x}"]},
    ],
    ids=json.dumps,
)
def test_place_that_cannot_wait_for_a_command_is_refused(server: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed(server)
    assert {finding.code for finding in refused.value.findings} == {"invalid_placeholder"}
    with pytest.raises(ConfigError, match="belongs into env, args, headers or bearer"):
        parse("hub: {tokens: [{token: '${cmd:op x}'}]}", "servers.yaml", {}, Path("/base"), refusal=None)


OWN = """
servers: {a: {command: x, env: {TOKEN: "${cmd:op x}"}}, b: {command: y}}
"""


def written(folder: Path, mode: int = 0o600, around: int = 0o700) -> Path:
    file = folder / "hub" / "servers.yaml"
    file.parent.mkdir()
    file.write_text(OWN)
    file.chmod(mode)
    file.parent.chmod(around)
    return file


@pytest.mark.parametrize(
    ("mode", "around", "fix"),
    [
        (0o600, 0o700, ""),
        (0o644, 0o755, ""),
        (0o400, 0o1777, ""),
        (0o660, 0o700, "chmod go-w {file}"),
        (0o602, 0o700, "chmod go-w {file}"),
        (0o600, 0o777, "chmod go-w {folder}"),
    ],
)
def test_commands_run_only_from_a_file_that_its_owner_alone_can_write(
    tmp_path: Path, mode: int, around: int, fix: str
) -> None:
    file = written(tmp_path, mode, around)
    env = {"MCP_HUB_TRUST_CONFIG": "1"}  # others may have written the rest of it, and still no command runs
    loaded = load(file, env, lenient=True)
    cause = loaded.settings.failure("a")
    if fix:
        assert cause is not None and cause.code == NO_COMMANDS.code and not only(loaded).command_texts
        assert fix.format(file=file, folder=file.parent) in cause.reason
        assert loaded.settings.failure("b") is None
    else:
        assert cause is None and commands(only(loaded)) == {("env", "TOKEN"): [("op", "x")]}


def test_commands_run_from_no_file_that_was_only_found_or_belongs_to_others_or_is_no_file(tmp_path: Path) -> None:
    file = written(tmp_path)
    found = load(file, {}, lenient=True, is_named=False)
    cause = found.settings.failure("a")
    assert cause is not None and "--config" in cause.reason
    assert found.needs_name  # no background hub takes it for a file that somebody has named
    file.write_text("servers: {a: {command: x}}")
    found = load(file, {}, lenient=True, is_named=False)
    assert not found.is_named and not found.needs_name  # a reload is as careful as the first look
    cause = parse(OWN, "settings", {}, tmp_path, lenient=True).settings.failure("a")
    assert cause is not None and cause.code == NO_COMMANDS.code
    stranger = os.stat_result((0o100600, 1, 1, 1, os.geteuid() + 4321, 0, 0, 0, 0, 0))
    assert "belongs to user" in (problem_of_commands(stranger, file) or "")
    root = os.stat_result((0o100644, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    assert problem_of_commands(root, file) is None


def test_link_counts_as_the_file_and_the_folder_behind_it(tmp_path: Path) -> None:
    file = written(tmp_path, around=0o777)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    cause = load(link, {}, lenient=True).settings.failure("a")
    assert cause is not None and f"chmod go-w {file.parent}" in cause.reason


def test_commands_run_only_where_others_can_exchange_no_folder_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    file = written(tmp_path / "a/b/c")
    (tmp_path / "links/deep").mkdir(parents=True)
    (tmp_path / "links/deep/step").symlink_to("../../a/b")
    (tmp_path / "way").symlink_to(tmp_path / "links/deep/step")
    link = tmp_path / "way/c" / file.relative_to(tmp_path / "a/b/c")

    def cause(path: Path) -> str:
        found = load(path, {}, lenient=True).settings.failure("a")
        return "" if found is None else found.reason

    assert cause(file) == cause(link) == ""
    for name, refused in (("a", [file, link]), ("a/b", [file, link]), ("links", [link]), ("links/deep", [link])):
        folder = tmp_path / name
        mode = folder.stat().st_mode
        folder.chmod(0o777)
        for path in (file, link):
            assert (f"chmod go-w {folder}" in cause(path)) is (path in refused), name
        folder.chmod(0o1777)
        assert cause(file) == cause(link) == "", "a sticky folder"
        folder.chmod(mode)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert problem_of_commands(file.stat(), tmp_path / "round/x") is None, "a link to itself ends"


@pytest.mark.parametrize("name", ["mcp.json", "config.toml", "settings.json", "opencode.json", ".mcp.json"])
@pytest.mark.parametrize("is_named", [True, False])
def test_files_of_other_clients_run_no_command(tmp_path: Path, name: str, is_named: bool) -> None:
    texts = [TOUCH, "$" + TOUCH, "{cmd:touch hit}", "${env:cmd:touch hit}", "${A:-${cmd:touch hit}}", "${input:x}"]
    names = ["${env:cmd:-touch hit}", "${localEnv:cmd:touch hit}", "${env:file:-touch hit}", "${env:keyring:-a/b}"]
    server = {
        "command": "x",
        "args": [*texts, *names],
        "env": {f"V{at}": text for at, text in enumerate(texts)},
        "envFile": "v.env",
    }
    file = tmp_path / name
    (tmp_path / "v.env").write_text(f"FROM_FILE='{TOUCH}'\n")
    if name.endswith(".toml"):
        args = ", ".join(json.dumps(text) for text in [*texts[:-1], *(names if is_named else ())])
        text = f'command = "x"\nargs = [{args}]\nenv = {{ V = {json.dumps(TOUCH)} }}\n'
        file.write_text(f'[mcp_servers.a]\n{text}[mcp_servers.b]\ncommand = "y"\n')
    else:
        inputs = [{"id": "x", "type": "promptString", "default": TOUCH}]
        file.write_text(json.dumps({"mcpServers": {"a": server, "b": {"command": "y"}}, "inputs": inputs}))
    file.chmod(0o600)
    loaded = load(file, {}, lenient=True, is_named=is_named)
    assert not only(loaded).command_texts
    assert (loaded.settings.failure("a") is None) is (is_named or name.endswith(".toml"))  # of `envFile`
    assert not is_named or TOUCH in only(loaded).args
    assert not is_named or only(loaded).args[-4:] == ["touch hit", "touch hit", "touch hit", "a/b"]  # the defaults


def test_overrides_that_the_dashboard_writes_hold_no_commands(tmp_path: Path) -> None:
    file = written(tmp_path)
    overrides = {"servers": {"b": {"per_tool": {"x": {"description": TOUCH, "name": "y"}}}}}
    (file.parent / "servers.overrides.yaml").write_text(json.dumps(overrides))
    loaded = load(file, {})
    assert loaded.settings.servers["b"].per_tool["x"].description == TOUCH
    assert not loaded.settings.servers["b"].command_texts and only(loaded).command_texts
    overrides["servers"]["b"] |= {"env": {"A": TOUCH}}  # type: ignore[dict-item]  # a key that it cannot have
    (file.parent / "servers.overrides.yaml").write_text(json.dumps(overrides))
    with pytest.raises(ConfigError):
        load(file, {})


def test_values_from_elsewhere_are_no_commands(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(TOUCH)
    texts = {"A": "${VAR}", "B": "${file:secret}", "C": "${NONE:-$}{cmd:touch hit}", "D": "$" + TOUCH}
    server = only(parsed({"command": "x", "env": texts}, base=tmp_path, VAR=TOUCH))
    assert not server.command_texts and server.env == dict.fromkeys(texts, TOUCH)


def test_change_of_a_command_restarts_its_server_and_a_literal_is_another_value() -> None:
    def of(token: str) -> Loaded:
        return parsed({"command": "x", "env": {"TOKEN": token}})

    assert plan(of("${cmd:op x}").settings, of("${cmd:op y}").settings).restarted == ("a",)
    assert plan(of("${cmd:op x}").settings, of("$${cmd}").settings).restarted == ("a",)
    assert plan(of("${cmd:op x}").settings, of("${cmd:op  x}").settings).unchanged == ("a",)
    assert hide("${cmd}") == "${cmd}"  # what stands for an output is no secret
