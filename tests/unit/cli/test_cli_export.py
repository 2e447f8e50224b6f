"""`mcp-hub export`: servers in the form of every client; what cannot go along is said."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.config.load.foreign_limits import limited
from mcp_hub.config.load.foreign_server import flat, translated
from mcp_hub.config.load.notations import Notation
from mcp_hub.edit.entries import held_at, read_data
from mcp_hub.onboarding.clients.exported import exported
from mcp_hub.onboarding.clients.table import CLIENTS

CONFIG = """\
# mine
servers:
  files: {command: npx, args: [x], env: {ROOT: "${DIR:-/tmp}", GH: "${GH}", S_TOKEN: s3cret-canary}, timeout: 5m}
  far: {url: "https://example.com/mcp", bearer: "${FAR}"}
  funcs: {local: "mcp_hub.examples.jobs:registry"}
  off: {command: x, enabled: false}
"""
WRITTEN = [client.name for client in CLIENTS.values() if client.is_written]


@pytest.fixture
def home(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GH", "gh-s3cret-canary")
    monkeypatch.setenv("FAR", "far-s3cret-canary")
    (person / "servers.yaml").write_text(CONFIG)
    return person


def run(*args: str) -> Result:
    try:
        return CliRunner().invoke(main, ["export", *args])
    finally:
        masking.forget()


@pytest.mark.parametrize("name", WRITTEN)
def test_every_client_gets_its_own_form_without_a_secret_and_reads_it_back(home: Path, name: str) -> None:
    done = run(name)
    assert done.exit_code == 0 and "canary" not in done.output
    layout = CLIENTS[name].places[-1].layouts[-1]
    form = CLIENTS[name].places[-1].paths.linux[-1].rpartition("/")[2]
    held = held_at(read_data(done.stdout, form), layout.key)
    names = [one["name"] for one in held] if isinstance(held, list) else list(held)  # type: ignore[call-overload]
    said = done.stderr
    stays_off = "off: not exported, it is disabled" not in said
    far = ["far"] if layout.http is not None else []
    assert sorted(names) == [*far, "files", *(["off"] if stays_off else [])]
    assert stays_off == (layout.keys.off is not None)
    assert "funcs: not exported, only the hub runs Python functions" in said
    # Each key comes back or is said to be left out: the client's row and its `CONVENTIONS` fit each other.
    layout = CLIENTS[name].places[-1].layouts[-1]
    process = {**LIMITED, "enabled": layout.keys.off is None, "args": ["a"], "env": {"GH": "${GH}", "A": "b"}}
    remote = {"url": "https://example.com/mcp", "headers": {"X-A": "b"}, "timeout": "1500s"}
    notation = Notation(name, {"GH": "g"}, {}, {}, None, ask=str, keep=lambda *_: "", note=lambda *_: None)
    for own in (process, remote) if layout.http else (process,):
        made = exported(CLIENTS[name], layout, "x", own)
        assert made.entry is not None
        there = notation.server(limited(translated(flat(made.entry), name, lambda *_: None), name, lambda *_: None))
        if passed := there.pop("pass_env", []):
            there["env"] |= {key: f"${{{key}}}" for key in passed}
        there.setdefault("enabled", True)
        left = {key for note in made.notes if note.startswith("left out: ") for key in note[10:].split(", ")}
        left |= {"headers"} if any("takes no headers" in note for note in made.notes) else set()
        assert {key: there.get(key) for key in own.keys() - left} == {key: own[key] for key in own.keys() - left}
    client = CLIENTS[name]
    for place in client.places:
        for layout in place.layouts:
            made = exported(client, layout, "x", {"command": "x"})
            assert made.entry is not None and not any("timeout" in key for key in made.entry)


@pytest.mark.parametrize("args", [(), ("unheard-of",)])
def test_the_clients_are_listed_for_one_who_names_none_or_another(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.exit_code == 2 and f"{', '.join(WRITTEN)}." in done.stderr


@pytest.mark.parametrize(
    ("name", "files", "far"),
    [
        ("cursor", {"ROOT": "${env:DIR}", "GH": "${env:GH}"}, {"Authorization": "Bearer ${env:FAR}"}),
        ("claude-code", {"ROOT": "${DIR:-/tmp}", "GH": "${GH}"}, {"Authorization": "Bearer ${FAR}"}),
        ("opencode", {"ROOT": "{env:DIR}", "GH": "{env:GH}"}, {"Authorization": "Bearer {env:FAR}"}),
        ("goose", {"ROOT": "${DIR:-/tmp}", "GH": "${GH}"}, {"Authorization": "Bearer ${FAR}"}),
    ],
)
def test_variables_are_named_as_the_client_does(name: str, files: dict[str, str], far: dict[str, str]) -> None:
    client = CLIENTS[name]
    servers = yaml.safe_load(CONFIG)["servers"]
    layout = client.places[-1].layouts[-1]
    one, other = (exported(client, layout, server, servers[server]) for server in ("files", "far"))
    assert one.entry is not None and other.entry is not None
    env = one.entry.get("env") or one.entry.get("envs") or one.entry.get("environment")
    assert env == {**files, "S_TOKEN": "s3cret-canary"}
    assert other.entry["headers"] == far
    assert any("does not fill these in" in note for note in one.notes) == (name == "goose")
    assert any("no defaults" in note for note in one.notes) == (name in ("cursor", "opencode"))


LIMITED = {
    "command": "x",
    "cwd": "/srv",
    "timeout": "1500s",
    "start_timeout": "20s",
    "tools": {"allow": ["read"], "deny": ["drop"]},
    "enabled": False,
}


@pytest.mark.parametrize(
    ("name", "carried"),
    [
        ("claude-code", {"timeout"}),
        ("codex", {*LIMITED}),
        ("gemini", {"timeout", "tools"}),
        ("copilot", {"timeout"}),
        ("cline", {"timeout", "enabled"}),
        ("goose", {"timeout", "enabled"}),
        ("opencode", {"timeout", "enabled"}),
        ("kiro", {"timeout", "enabled"}),
        ("zed", {"timeout", "enabled"}),
        ("cursor", set()),
        ("vscode", set()),
    ],
)
def test_limits_come_back_as_they_were_when_the_client_has_them(name: str, carried: set[str]) -> None:
    client = CLIENTS[name]
    own: dict[str, object] = {key: value for key, value in LIMITED.items() if key != "enabled" or key in carried}
    made = exported(client, client.places[-1].layouts[-1], "x", own)
    assert made.entry is not None
    there = limited(translated(flat(made.entry), name, lambda *_: None), name, lambda *_: None)
    assert {key for key, value in LIMITED.items() if there.get(key) == value} == {"command", "cwd"} | carried
    left = sorted({"timeout", "start_timeout", "tools"} - carried)
    assert [note for note in made.notes if note.startswith("left out")] == (
        [f"left out: {', '.join(left)}"] if left else []
    )


@pytest.mark.parametrize(
    ("box", "is_boxed", "note"),
    [
        (
            {"write": ["/data/a"], "net": ["a.example"]},
            True,
            '"allowWrite": ["/data/a"]}, "network": {"allowedDomains": ["a',
        ),
        ({"net": "none"}, True, '"sandbox": {}'),
        ({"read": ["/data/a"]}, False, "left out: sandbox"),
        ("on", False, "left out: sandbox"),
        (True, False, "left out: sandbox"),
        ("off", False, ""),
        (False, False, ""),
    ],
)
def test_a_sandbox_comes_back_to_vs_code_where_it_is_not_narrower_there(box: object, is_boxed: bool, note: str) -> None:
    own: dict[str, object] = {"command": "x", "sandbox": box}
    made = exported(CLIENTS["vscode"], CLIENTS["vscode"].places[-1].layouts[-1], "a", own)
    assert made.entry is not None and made.entry.get("sandboxEnabled", False) is is_boxed
    assert note in " ".join(made.notes) and bool(made.notes) is bool(note)
    other = exported(CLIENTS["cursor"], CLIENTS["cursor"].places[-1].layouts[-1], "a", own)
    assert other.entry is not None and "sandboxEnabled" not in other.entry
    assert ("left out: sandbox" in other.notes) is bool(note)


@pytest.mark.parametrize(
    ("name", "written", "text", "note"),
    [
        ("claude-desktop", "$${HOME}/x", "${HOME}/x", None),
        ("claude-desktop", "$${HOME} ${HOME}", "${HOME} ${HOME}", "fill these in, set them yourself: ${HOME}"),
        ("cursor", "$${HOME} ${HOME}", "${HOME} ${env:HOME}", None),
        (
            "claude-code",
            "$${HOME}",
            "${HOME}",
            "takes a $ in these for a variable, which is plain text here: args, env.V",
        ),
        ("gemini", "a$HOME", "a$HOME", "takes a $ in these for a variable"),
        ("opencode", "$${file:x}", "${file:x}", None),
        ("claude-code", "${env:A:-b}", "${A:-b}", None),
        ("codex", "${file:secrets/x}", "${file:secrets/x}", "set them yourself: ${file:secrets/x}"),
        ("codex", "$${file:secrets/x}", "${file:secrets/x}", None),
        ("vscode", "${open", "${open", "set them yourself: args, env.V"),
    ],
)
def test_escaped_text_stays_text(name: str, written: str, text: str, note: str | None) -> None:
    client = CLIENTS[name]
    layout = client.places[-1].layouts[-1]
    made = exported(client, layout, "x", {"command": "x", "args": [written], "env": {"V": written}})
    assert made.entry is not None
    argv = made.entry["command"] if name == "opencode" else made.entry["args"]
    env: dict[str, object] = made.entry.get("env") or made.entry["environment"]
    assert argv[-1] == text and env["V"] == text
    assert [*made.notes] == [] if note is None else note in made.notes[0]


@pytest.mark.parametrize(("name", "key"), [("continue", None), ("codex", "http_headers"), ("copilot", "headers")])
def test_headers_go_where_the_client_has_them_or_are_missed(name: str, key: str | None) -> None:
    client = CLIENTS[name]
    own = {"url": "https://example.com/mcp", "headers": {"X-Team": "a"}}
    made = exported(client, client.places[-1].layouts[-1], "far", own)
    assert made.entry is not None and (made.entry.get(key) if key else None) == ({"X-Team": "a"} if key else None)
    assert any("takes no headers" in note for note in made.notes) == (key is None)


@pytest.mark.parametrize(
    ("cwd", "path"), [("data", "{}/data"), ("~/data", "{}/data"), ("/srv", "/srv"), ("${D}/x", "${{D}}/x")]
)
def test_folder_of_a_server_is_absolute(home: Path, cwd: str, path: str) -> None:
    (home / "servers.yaml").write_text(json.dumps({"servers": {"x": {"command": "x", "cwd": cwd}}}))
    assert json.loads(run("vscode").stdout)["servers"]["x"]["cwd"] == path.format(home)


def test_forms_are_data_whatever_a_name_is_and_name_the_variables_of_codex(home: Path) -> None:
    made = tomllib.loads(run("codex").stdout)["mcp_servers"]
    assert made["files"]["env_vars"] == ["GH"] and "GH" not in made["files"]["env"]
    assert made["far"]["bearer_token_env_var"] == "FAR" and "command" not in made["far"]
    name = 'a "b"; rm -rf & é\\'
    (home / "servers.yaml").write_text(json.dumps({"servers": {name: {"command": "x y"}}}))
    assert json.loads(run("cursor").stdout)["mcpServers"][name]["command"] == "x y"
    assert tomllib.loads(run("codex").stdout)["mcp_servers"][name]["command"] == "x y"


def test_servers_are_written_beside_those_that_are_there_and_the_change_can_be_undone(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    before = '{\n  // mine\n  "mcpServers": {"files": {"command": "own"}},\n}\n'
    file.write_text(before)
    done = run("cursor", "--write", "--all")
    assert done.exit_code == 0 and "1 server added" in done.stderr and "canary" not in done.output
    after = file.read_text()
    assert after.startswith('{\n  // mine\n  "mcpServers": {"files": {"command": "own"}')
    held = read_data(after, "mcp.json")
    assert held_at(held, ("mcpServers", "files")) == {"command": "own"}
    assert held_at(held, ("mcpServers", "far", "url")) == "https://example.com/mcp"
    assert "0 servers added" in run("cursor", "--write", "--all").stderr and file.read_text() == after
    assert CliRunner().invoke(main, ["install", "--undo"]).exit_code == 0
    assert file.read_text() == before


def test_secrets_in_a_file_that_others_can_read_are_mentioned_and_half_a_server_is_left_out(home: Path) -> None:
    (home / "key").write_text("s3cr3t-value-1")
    (home / "key").chmod(0o600)
    text = 'servers: {a: {command: x, env: {API_TOKEN: "${file:key}"}}, half: {enabled: true}}'
    (home / "servers.yaml").write_text(text)
    target = home / ".cursor/mcp.json"
    target.parent.mkdir(exist_ok=True)
    for mode, is_mentioned in ((0o644, True), (0o600, False)):
        target.write_text("{}")
        target.chmod(mode)
        done = run("cursor", "--write", "--all")
        assert "s3cr3t-value-1" in target.read_text() and "s3cr3t-value-1" not in done.output
        assert ("can be read by everybody" in done.stderr) is is_mentioned, done.stderr
        assert "half: not exported, it has neither a command nor a URL" in done.stderr
        again = run("cursor", "--write", "--all").stderr
        assert "0 servers added" in again and "can be read" not in again


@pytest.mark.processes
def test_output_of_a_command_is_written_if_the_configuration_may_run_it(home: Path) -> None:
    (home / "key").write_text("s3cr3t-value-2\n")
    (home / "servers.yaml").write_text("""servers:
  works: {command: x, env: {TOKEN: "a-${cmd:cat key}"}}
  locked: {command: x, env: {TOKEN: "${cmd:false}"}}
""")
    target = home / ".cursor/mcp.json"
    target.parent.mkdir(exist_ok=True)
    for mode, is_run in ((0o600, True), (0o660, False)):
        (home / "servers.yaml").chmod(mode)
        target.write_text("{}")
        done = run("cursor", "--write", "--all")
        assert ('"a-s3cr3t-value-2"' in target.read_text()) is is_run and "s3cr3t" not in done.output
        assert ("works: not exported, these cannot be read: ${cmd:cat key}" in done.stderr) is not is_run
        assert "locked: not exported, these cannot be read: ${cmd:false}" in done.stderr
        assert ('program "false" exited with code 1' in done.stderr) is is_run
    read = run("cursor")
    assert "${cmd:cat key}" in read.stdout and "does not fill these in, set them yourself" in read.stderr


def test_client_that_is_unknown_or_cannot_be_edited_is_refused(home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": [')
    done = run("cursor", "--write", "--all")
    assert done.exit_code != 0 and file.read_text() == '{"mcpServers": ['
    refused = run("continue", "--write")
    assert refused.exit_code == 1 and "client_file_unclear" in refused.output
    done = run("curser")
    assert done.exit_code == 2 and 'Did you mean "cursor"?' in done.output
