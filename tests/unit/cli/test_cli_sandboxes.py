"""`add`, `import` and `sandbox SERVER on`: servers that start in a sandbox get one, others stay as they were."""

import io
import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub.addresses import HostRule
from mcp_hub.app.readiness import StartFolders
from mcp_hub.cli import main, trials
from mcp_hub.cli.commands.repairs import found_repairs
from mcp_hub.cli.commands.servers import edit
from mcp_hub.cli.commands.servers import sandbox as sandbox_command
from mcp_hub.cli.commands.servers.edit import note_added
from mcp_hub.cli.trials import OFF, ON, boxed, in_sandbox, tried, why_not_tried
from mcp_hub.edit.entries import put
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.protocol.rest.servers import RefusedInfo, SandboxInfo
from mcp_hub.sandbox.confinement import ABI_LIMIT, READ, WRITE, Confinement, PathRight
from mcp_hub.sandbox.home import PrivateHome
from tests.unit.fakes import HandClock
from tests.unit.sandbox.confined import needs_sandbox

PAGE: Final = Path(__file__).parents[3] / "docs/sandbox.md"
SERVER: Final = """
import json, os, sys
if path := os.environ.get("NEEDED"):
    open(path).close()
if words := os.environ.get("SAYS"):
    sys.exit(words)
if os.environ.get("API_KEY", "k-1") != "k-1":
    sys.exit("the wrong key")
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        info = {"name": "s", "version": "1"}
        known = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        answers = {"initialize": {"result": known}, "tools/list": {"result": {"tools": []}}}
        answer = answers.get(message["method"], {"error": {"code": -32601, "message": "unknown"}})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a hub, a server, and a file that no sandbox opens."""
    home = tmp_path / "user"
    (home / "data").mkdir(parents=True)
    (home / "notes").mkdir()
    (home / "canary").write_text("secret")
    (tmp_path / "server.py").write_text(SERVER)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "hub" / "servers.yaml"))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def confined(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with a sandbox again."""
    monkeypatch.delenv(ABI_LIMIT)


def sandbox_repairs(home: Path) -> list[str]:
    found = found_repairs(home.parent / "hub" / "servers.yaml", os.environ)
    return [repair.problem for repair in found if repair.code == "sandbox_off"]


def run(*args: str, code: int = 0, answers: str | None = None) -> Result:
    stdin = io.BytesIO((answers or "").encode())
    stdin.isatty = lambda: answers is not None  # type: ignore[method-assign]
    done = CliRunner().invoke(main, list(args), input=stdin)
    assert done.exit_code == code, done.output
    return done


def servers(home: Path) -> Any:
    return yaml.safe_load((home.parent / "hub" / "servers.yaml").read_text())["servers"]


def entry(home: Path, *args: str, **env: str) -> dict[str, Any]:
    line = {"command": sys.executable, "args": ["-S", str(home.parent / "server.py"), *args]}
    return {**line, **({"env": env} if env else {})}


@needs_sandbox()
@pytest.mark.usefixtures("confined")
@pytest.mark.processes
@pytest.mark.slow
def test_an_import_puts_servers_that_start_into_a_sandbox_and_breaks_none(home: Path) -> None:
    found = {
        "good": entry(home, str(home / "data"), API_KEY="k-1"),
        "needs": entry(home, NEEDED=str(home / "canary")),
        "later": entry(home, "x", MEMORY=str(home / "notes" / "memory.json")),
        "home": entry(home, "h", MEMORY=str(home / "memory.json")),
        "broad": entry(home, str(home)),
        "engine": {"command": "docker", "args": ["run", "x"]},
        "unset": entry(home, "y", TOKEN="${NOT_SET_HERE}"),
        "far": {"url": "https://mcp.example/mcp"},
        "theirs": {**entry(home, "z"), "sandboxEnabled": True},
    }
    (home / "client.json").write_text(json.dumps({"mcpServers": found}))
    done = run("import", str(home / "client.json"), "--yes", "--no-count", "--json")
    names = servers(home)
    assert {name: own.get("sandbox") for name, own in names.items() if "sandbox" in own} == {
        "good": True, "theirs": {"write": [], "net": ["registry.npmjs.org"]}
    }  # fmt: skip
    assert names["good"]["env"] == {"API_KEY": "${file:secrets/good.API_KEY}"}
    off = json.loads(done.stdout)["sandbox"]["off"]
    assert json.loads(done.stdout)["sandbox"]["on"] == ["good"]
    told = {
        "needs": f'read: ["{home}/canary"]', "later": f'write: ["{home}/notes"]',
        "home": f'set MEMORY to {home}/home-data/memory.json. If it may, set write: ["{home}/home-data"]',
        "broad": "contains the home folder",
        "engine": "docker starts it in a container", "unset": "NOT_SET_HERE is not set",
    }  # fmt: skip
    assert off.keys() == told.keys() and [name for name in told if told[name] not in off[name]] == []
    assert "[sandbox_refused]" in off["needs"] and "[sandbox_refused]" in off["later"]


@needs_sandbox()
@pytest.mark.usefixtures("confined")
@pytest.mark.processes
@pytest.mark.slow
def test_a_server_that_is_refused_is_added_without_a_sandbox_and_gets_one_when_it_starts(home: Path) -> None:
    canary = home / "canary"
    line = [sys.executable, "-S", str(home.parent / "server.py")]
    done = run("add", "s", "--env", f"NEEDED={canary}", "--", *line)
    assert "sandbox" not in servers(home)["s"]
    sentence = f'If it may, set read: ["{canary}"] in its sandbox. The server: '
    assert f"Without a sandbox: s: The sandbox refuses to read {canary}. {sentence}" in done.stderr
    homes = home.parent / "state" / "sandboxes"
    assert not [*homes.glob("*/*")]
    assert "mcp-hub sandbox s on" in done.stderr
    (repair,) = [
        one for one in found_repairs(home.parent / "hub" / "servers.yaml", os.environ) if one.code == "sandbox_off"
    ]
    assert "files: s. Run mcp-hub sandbox s on" in repair.problem and not repair.is_problem and not repair.is_fixable
    text = (home.parent / "hub" / "servers.yaml").read_text()
    (home.parent / "hub" / "servers.yaml").write_text(text.replace(str(canary), str(home.parent / "server.py")))
    done = run("sandbox", "s", "on")
    assert "sandbox: on for s" in done.stderr and "In a sandbox" not in done.stderr and [*homes.glob("*/s-*/home")]
    assert "    sandbox: on\n" in (home.parent / "hub" / "servers.yaml").read_text()
    run("sandbox", "--all", "off")
    assert servers(home)["s"]["sandbox"] is False
    assert "says on or off already. To change one: " in run("sandbox", "--all", "on").stderr
    assert not sandbox_repairs(home)


NO_PACKAGE: Final = "npm error code E404\nnpm error 404  'nope@*' is not in this registry."


@needs_sandbox()
@pytest.mark.usefixtures("confined")
@pytest.mark.processes
@pytest.mark.slow
def test_a_start_that_would_fail_without_a_sandbox_too_leaves_it_on(home: Path) -> None:
    line, off = [sys.executable, "-S", str(home.parent / "server.py")], "If the sandbox is the cause: mcp-hub sandbox "
    for name, words, reason, is_unclear in (
        ("typo", NO_PACKAGE, "The package nope does not exist: check its spelling [start_crashed]", False),
        ("key", "no key", "no key", True),
    ):
        shown = run("add", name, "--env", f"SAYS={words}", "--", *line).stderr
        assert f"In a sandbox, but it did not start: {name}: " in shown and reason in shown
        assert (f"{off}{name} off" in shown) is is_unclear and servers(home)[name]["sandbox"] is True
    assert off not in run("add", "none", "--", "no-such-program").stderr and servers(home)["none"]["sandbox"] is True
    assert "In a sandbox, but it did not start: typo: " in run("sandbox", "typo", "on", code=1).stderr
    assert not sandbox_repairs(home)
    used = {"typo2": entry(home, "t", SAYS=NO_PACKAGE), "key2": entry(home, "x", SAYS="no key")}
    (home / "client.json").write_text(json.dumps({"mcpServers": used}))
    done = json.loads(run("import", str(home / "client.json"), "--yes", "--no-count", "--json").stdout)
    assert done["sandbox"]["on"] == ["typo2"] and "no key" in done["sandbox"]["off"]["key2"]
    assert [servers(home)[name].get("sandbox") for name in used] == [True, None]


@needs_sandbox()
@pytest.mark.usefixtures("confined")
def test_a_person_who_says_no_is_asked_once_and_not_again(home: Path) -> None:
    found = {"a": entry(home), "b": entry(home, "b"), "far": {"url": "https://mcp.example/mcp"}}
    (home / "client.json").write_text(json.dumps({"mcpServers": found}))
    done = run("import", str(home / "client.json"), "--no-count", answers="y\nn\n")
    assert done.stderr.count("Run these 2 servers in a sandbox? [Y/n]") == 1
    assert {name: own.get("sandbox") for name, own in servers(home).items()} == {"a": False, "b": False, "far": None}
    assert not sandbox_repairs(home)
    (home.parent / "hub" / "servers.yaml").unlink()
    done = run("import", str(home / "client.json"), "--no-count", "--no-sandbox", answers="y\n")
    assert "in a sandbox?" not in done.stderr and servers(home)["a"]["sandbox"] is False


def test_a_system_without_a_sandbox_gets_none_and_is_told_once(home: Path) -> None:
    (home / "client.json").write_text(json.dumps({"mcpServers": {"a": entry(home), "b": entry(home, "b")}}))
    done = run("import", str(home / "client.json"), "--yes", "--no-count")
    assert done.stderr.count("This system has no sandbox, so nothing limits 2 servers: ") == 1
    done = run("add", "c", "--", "prog")
    assert done.stderr.count("no sandbox, so nothing limits c: ") == 1
    run("add", "d", "--no-sandbox", "--", "prog")
    assert "d will not start on this system" not in run("add", "e", "--no-sandbox", "--", "prog").stderr
    assert "f will not start on this system, which has no sandbox" in run("add", "f", "--sandbox", "--", "prog").stderr
    assert {name: own.get("sandbox") for name, own in servers(home).items()} == {
        "a": None, "b": None, "c": None, "d": False, "e": False, "f": True
    }  # fmt: skip
    assert "[sandbox_unsupported]" in run("sandbox", "c", "on", code=2).stderr
    run("add", "u", "https://mcp.example/mcp", "--sandbox", code=2)
    run("add", "u", "https://mcp.example/mcp")
    assert "[misplaced_key]" in run("sandbox", "u", "off", code=2).stderr
    assert not sandbox_repairs(home)


@needs_sandbox()
@pytest.mark.usefixtures("confined")
def test_a_sandbox_of_defaults_holds_for_new_servers(home: Path) -> None:
    (home.parent / "hub").mkdir()
    (home.parent / "hub" / "servers.yaml").write_text("servers: {}\ndefaults: {sandbox: on}\n")
    assert "The sandbox of `defaults` is for a, too" in run("add", "a", "--", "prog").stderr
    assert servers(home)["a"] == {"command": "prog"}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"command": "npx", "args": ["x"]}, None),
        ({"command": "sh", "args": ["-c", "docker run x"]}, None),
        ({"command": "/usr/bin/docker", "args": ["run", "x"]}, "in a container"),
        ({"command": "podman"}, "in a container"),
        ({"command": "wsl.exe", "args": ["node", "x"]}, "outside"),
        ({"command": "ssh", "args": ["host", "x"]}, "outside"),
        ({"command": "npx", "enabled": False}, "it is disabled"),
        ({"command": "uvx", "args": ["mcp-server-git"]}, "the folder of its client"),
        ({"command": "uvx", "args": ["mcp-server-git", "--repository", "/data/x"]}, None),
    ],
)
def test_servers_that_a_sandbox_cannot_be_around_are_not_tried(own: dict[str, Any], reason: str | None) -> None:
    said = why_not_tried(own)
    assert (said is None) is (reason is None) and (reason or "") in (said or "")


def test_a_switch_keeps_the_rule_and_is_a_bare_word_in_yaml() -> None:
    assert in_sandbox({"command": "x", "sandbox": {"net": "none"}}, OFF)["sandbox"] == {"net": "none", "mode": "off"}
    text = put("servers:\n  a: {command: x} # mine\n", "s.yaml", ("servers", "a", "sandbox"), ON, "hub")
    assert text == "servers:\n  a: {command: x, sandbox: on} # mine\n"
    assert put('{"servers": {"a": {"command": "x"}}}', "s.json", ("servers", "a", "sandbox"), OFF, "hub") == (
        '{"servers": {"a": {"command": "x", "sandbox": "off"}}}'
    )


def test_rows_of_the_command_show_the_whole_rule_and_each_refusal() -> None:
    grants = (PathRight("/d", READ | WRITE), PathRight("/usr", READ), PathRight("/etc/hosts", READ))
    hosts = (HostRule("a.test"), HostRule("b.test", (8443,)))
    confinement = Confinement(grants, "hosts", 5, "x86_64", hosts, ("/run/s",), variables={"HOME": "/h"})
    assert [*sandbox_command._rule(confinement, ("read: ~/x does not exist",))] == [
        "home   /h", "write  /d", "read   /usr", "read   /etc, except for keys and passwords",
        "net    a.test port 443 or 80, b.test port 8443", "socket /run/s", "note   read: ~/x does not exist",
        "note   this kernel lets it send signals to other processes of the user",
    ]  # fmt: skip
    latest = [
        RefusedInfo("host", "c.test", "no", "bad time", 2, "net", "c.test"), RefusedInfo("rate", "s", "many", "then", 1)
    ]  # fmt: skip
    box = SandboxInfo("absent", "hosts", 3, reason="no Landlock", latest=latest, lists={"net": ["a.test"]})
    assert [*sandbox_command._refusals(box)] == [
        "note   the running hub started the server without a sandbox: no Landlock",
        "refused in the running hub: 3 attempts, the latest at different targets:",
        '       bad time  c.test (no); to allow it, set net: ["a.test", "c.test"], 2 times', "       then  s (many)",
    ]  # fmt: skip
    assert [*sandbox_command._refusals(SandboxInfo("on", "any", 0))] == ["refused in the running hub: 0 attempts"]


@needs_sandbox()
@pytest.mark.usefixtures("confined")
def test_a_server_without_a_sandbox_is_shown_with_that_which_it_would_have(home: Path) -> None:
    run("add", "--no-sandbox", "a", "--", sys.executable, str(home / "data"))
    shown = run("sandbox", "a").stdout
    assert shown.startswith("a has no sandbox. With sandbox: on it would have this one:\n")
    assert f"write  {home}/data\n" in shown
    assert (
        run("sandbox", "a", "test", str(home / "data")).stdout.splitlines()[0] == "a has no sandbox. With sandbox: on:"
    )


@needs_sandbox()
@pytest.mark.usefixtures("confined")
def test_doctor_names_servers_of_add_and_import_that_could_have_a_sandbox(home: Path) -> None:
    path, plain = home.parent / "hub" / "servers.yaml", {"command": "prog"}
    path.parent.mkdir()
    own = {
        "a": plain, "b b": plain, "by-hand": plain, "off": {**plain, "enabled": False},
        "on": {**plain, "sandbox": True},
        "never": {**plain, "sandbox": False}, "engine": {"command": "docker"}, "far": {"url": "https://mcp.example/mcp"},
    }  # fmt: skip
    note_added(ServersFile(path, os.environ), [name for name in own if name != "by-hand"])
    rows = [
        ({"servers": own}, ["a, b b. Run mcp-hub sandbox --all on"]),
        ({"servers": {"b b": plain}}, ["b b. Run mcp-hub sandbox 'b b' on"]),
        ({"servers": own, "defaults": {"sandbox": "on"}}, []),
    ]  # fmt: skip
    for document, lines in rows:
        path.write_text(json.dumps(document))
        repairs = sandbox_repairs(home)
        assert len(repairs) == len(lines) and all(map(str.__contains__, repairs, lines)), repairs


def test_values_that_are_kept_are_there_for_a_start_and_escaped_text_stays(tmp_path: Path) -> None:
    secrets = KeptSecrets(tmp_path)
    reference = secrets.keep("a", "KEY", "v${X}")
    own = {
        "env": {"KEY": reference, "TEXT": f"${reference}", "OTHER": "${file:secrets/other}"},
        "args": [f"--k={reference}"],
    }
    assert secrets.filled(own) == {
        "env": {"KEY": "v$${X}", "TEXT": f"${reference}", "OTHER": "${file:secrets/other}"}, "args": ["--k=v$${X}"]
    }  # fmt: skip


def test_a_removed_server_leaves_its_private_home_which_purge_removes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "PATIENCE", 0.2)
    for name in ("a", "b b"):
        run("add", "--no-sandbox", "--", name, "prog")
    starts = StartFolders.of(home.parent / "hub" / "servers.yaml", home.parent / "state")
    homes = {name: PrivateHome(starts.home(name)) for name in ("a", "b b")}
    for private in homes.values():
        private.make(str(home), {})
        Path(private.home, "data").write_text("x")
    said = run("remove", "b b").stderr
    assert f"{homes['b b'].folder} is its private home" in said and "mcp-hub remove --purge -- 'b b'" in said
    assert Path(homes["b b"].home, "data").exists() and servers(home).keys() == {"a"}
    run("remove", "b b", code=2)
    run("remove", "a", "never", "--purge", code=2)
    assert Path(homes["a"].home, "data").exists() and servers(home).keys() == {"a"}
    done = run("remove", "a", "b b", "--purge", answers="n\n", code=1)
    assert "cannot be undone" in done.output and servers(home).keys() == {"a"}
    with homes["a"].hold():  # as a hub whose process runs
        done = run("remove", "a", "b b", "--purge", code=1)
    assert f"{homes['a'].folder} stays: a hub still uses it" in done.stderr and not servers(home)
    assert f"removed {homes['b b'].folder}" in done.stdout and not os.path.lexists(homes["b b"].folder)
    run("remove", "a", "--purge", answers="y\n")
    assert not os.path.lexists(homes["a"].folder)


@needs_sandbox()
@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize(
    ("waits", "taken", "limits", "late"),
    [
        (False, 20.0, [20.0, 20.0], 2), (True, 120.0, [120.0, 120.0], 2), (False, 15.0, [20.0, 20.0, 10.0], 0),
        (True, 1.0, [120.0] * 3, 0), (None, 100.0, [120.0, 120.0, 40.0], 0),
    ],
)  # fmt: skip
def test_trials_have_a_time_for_each_eight_servers_and_twice_that_for_all(
    waits: bool | None, taken: float, limits: list[float], late: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`waits`: a person at a terminal; None: `mcp-hub sandbox --all on`."""
    clock, seen = HandClock(), list[float]()

    def started(loaded: object, names: Collection[str], longest: float) -> dict[str, str]:
        seen.append(longest)
        clock.time += min(taken, longest)
        return dict.fromkeys(names, "late")

    monkeypatch.setattr(trials, "_started", started)
    monkeypatch.setattr(trials, "SystemClock", lambda: clock)
    monkeypatch.setattr(trials, "can_ask", lambda: waits)
    own = {f"s{number:02}": {"command": "prog", "args": [str(number)]} for number in range(18)}
    file = ServersFile(home / "servers.yaml", os.environ)
    trial = tried(file, own) if waits is None else boxed(file, own, dict, True, asks=False, are_used=True)
    assert seen == limits and not trial.passed
    assert [*trial.refused.values()] == ["late"] * (18 - late) + ["others took all the time"] * late
    assert "Eight have two minutes, all four; without a terminal 20 and 40 s." in PAGE.read_text()


@needs_sandbox()
@pytest.mark.usefixtures("confined")
@pytest.mark.processes
def test_servers_that_never_answer_end_an_import_without_a_terminal_soon(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "UNATTENDED", 1.5)
    silent = {f"silent{number}": {"command": "sleep", "args": [str(600 + number)]} for number in range(2)}
    (home / "claude.json").write_text(json.dumps({"mcpServers": silent}))
    said = run("import", str(home / "claude.json"), "--yes", "--no-count").output
    assert servers(home).keys() == silent.keys() and not any("sandbox" in own for own in servers(home).values())
    assert "Without a sandbox: silent0: it does not start in time" in said
    assert "mcp-hub sandbox --all on" in said
