"""The verdicts of `mcp-hub doctor`, as a table over states, codes and lists."""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import UNSET

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.cli.access.running import recorded
from mcp_hub.cli.commands.doctor import _Diagnosis, diagnose, told_apart
from mcp_hub.cli.commands.repairs import found_repairs, missing_parts
from mcp_hub.cli.render.servers import notices, status_of
from mcp_hub.codes.tables import CODES, COMMANDS, SERVERS
from mcp_hub.errors import ConfigError, StartFailed
from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry
from mcp_hub.protocol.rest.servers import FlagInfo, ServerInfo
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.process import commands
from mcp_hub.upstreams.process.commands import resolve

BAD = "tool u is left out: its inputSchema is not of type object"
UNSTEADY = "tools: the list is another one at each reading"


def server(state: UpstreamState, reason: str | None = None, code: str | None = None, **more: object) -> ServerInfo:
    said = {"reason": UNSET if reason is None else reason, "code": UNSET if code is None else code}
    return ServerInfo("s", state.value, 0, **said, **more)  # type: ignore[arg-type]  # by name


def verdict(*about: object, **more: object) -> _Diagnosis:
    return diagnose(server(*about, **more))  # type: ignore[arg-type]  # as `server` takes it


NOT_READY = (UpstreamState.FAILED, UpstreamState.BACKING_OFF, UpstreamState.STARTING, UpstreamState.INCOMPATIBLE)


@pytest.mark.parametrize("state", NOT_READY)
@pytest.mark.parametrize("code", SERVERS)
def test_server_that_is_not_ready_keeps_its_code_and_gets_its_advice(state: UpstreamState, code: str) -> None:
    found = verdict(state, "any sentence", code)
    assert (found.code, found.problem, found.fix) == (code, "any sentence", CODES[code].fix_of("s"))


def test_verdict_follows_state_and_code_and_has_the_last_lines() -> None:
    assert verdict(UpstreamState.STARTING).code == "start_timeout"
    assert verdict(UpstreamState.DISABLED).is_ok
    assert verdict(UpstreamState.STOPPED, "it starts when it is needed", "not_started", rests=True).is_ok
    assert not verdict(UpstreamState.STOPPED, "stopped", "stopped").is_ok
    own = server(UpstreamState.FAILED, "exited with code 3. Last output: boom", "start_crashed", stderr=["a", "boom"])
    assert diagnose(own) == _Diagnosis(status_of(own), "start_crashed", "exited with code 3", ("a", "boom"))
    lines = ["npm error code E404", "npm error 404  'nope@*' is not in this registry."]
    gone = server(UpstreamState.FAILED, "exited with code 1", "start_crashed", stderr=lines)
    assert diagnose(gone).fix == "The package nope does not exist: check its name in `args`."
    own = ServerInfo("two words", "failed", 0, code="lookup_failed", reason="gave no value")
    assert "`mcp-hub restart 'two words'`" in diagnose(own).fix and "SERVER" not in diagnose(own).fix


@pytest.mark.parametrize(
    ("lists", "code"),
    [
        ({"entries": {"tool": 1}, "offered": {"tool": 1}}, "ok"),
        ({"entries": {"prompt": 1}, "offered": {"prompt": 1}}, "ok"),
        ({"entries": {"tool": 1}}, "ok"),
        ({"entries": {}, "offered": {}}, "no_tools"),
        ({"entries": {"tool": 1}, "offered": {}}, "all_filtered"),
        ({"entries": {"tool": 1}, "offered": {"tool": 1}, "unsteady": [UNSTEADY]}, "lists_unsteady"),
        (
            {"entries": {"tool": 2}, "offered": {"tool": 1}, "warnings": ["late", BAD], "quarantined": 1},
            "definitions_quarantined",
        ),
    ],
)
def test_ready_server_is_judged_by_what_clients_get(lists: dict[str, object], code: str) -> None:
    found = verdict(UpstreamState.READY, **lists)
    assert found.code == code and found.fix == CODES[code].fix
    assert found.is_ok == (code == "ok")
    assert found.problem == BAD or code != "definitions_quarantined"
    assert found.problem == UNSTEADY or code != "lists_unsteady"


def messages() -> list[tuple[str, str]]:
    """Each code of a server with a message that the hub has for it."""
    found = [(code, advice.meaning + " " + advice.fix) for code, advice in {**SERVERS, **COMMANDS}.items()]
    for command in ("bunx", "denoo", "npx -y x", "./gone", "/tmp", "gone"):
        with pytest.raises(StartFailed) as failure:
            resolve(command, "/nowhere", "/nowhere", "/nowhere")
        found += [(failure.value.code, str(failure.value)), (failure.value.code, failure.value.brief)]
    for said in (
        'https://a requires a login: run "mcp-hub login team" (HTTP 401)',
        'https://a wants credentials: run "mcp-hub login team", or set "bearer" or "headers" (HTTP 403)',
        'https://a wants credentials: set "bearer" or "headers" (HTTP 401)',
    ):
        found.append(("login_needed", said))
    return [*found, ("login_missing", 'server "a" has no login on this machine. Run mcp-hub login a')]


def test_problem_says_what_is_and_fix_what_to_do() -> None:
    verbs = {advice.fix.split()[0].lower() for advice in CODES.values()}
    for code, message in messages():
        found = verdict(UpstreamState.FAILED, message, code)
        sentences = re.split(r"[.:] ", found.problem)[1:]  # the first says what is
        assert not [one for one in sentences if one.split()[0].lower() in verbs], (message, found.problem)
        fix = found.advice or found.fix
        assert fix and found.problem, message
        assert fix not in found.problem and not {*sentences} & {*re.split(r"[.:] ", fix)}, message
        assert len(found.problem + fix) > len(message) / 2, message
    found = verdict(
        UpstreamState.FAILED, 'https://a requires a login: run "mcp-hub login team" (HTTP 401)', "login_needed"
    )
    assert (found.problem, found.advice) == ("https://a requires a login (HTTP 401)", 'Run "mcp-hub login team".')
    assert told_apart("Error: x. Read timed out.") == ("Error: x. Read timed out.", "")


BROKEN = """\
servers:
  jobs: {local: "mcp_hub.examples.jobs:registry"}
  shop: {command: echo, args: ["${NOT_SET}"], env: {A: "${ALSO_NOT_SET}", B: "${file:/nope/secret}"}}
  away: {command: /nope/program}
  gone: {command: no-such-program}
"""


@pytest.mark.parametrize("words", ["list", "tools", "tokens", "search job", "doctor"])
def test_command_that_lists_servers_names_each_failure_once(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "servers.yaml"
    file.write_text(BROKEN)
    for name in ("HOME", "MCP_HUB_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    done = CliRunner().invoke(main, [*words.split(), "--config", str(file)])
    assert done.exit_code == (0 if words.startswith("search") else 3), done.output
    for failure in (" NOT_SET is not set", "command not found: /nope/program", "command not found: no-such-program"):
        assert done.output.count(failure) == 1, done.output
    assert "Failed:" not in done.output and "path_missing" not in done.output
    if words == "doctor":
        assert f"{file}:3: servers.shop.args[0]\n" in done.output
        assert f"{file}:3: servers.shop.env.A: environment variable ALSO_NOT_SET is not set" in done.output
        assert "that do not exist" in " ".join(done.output.split()) and max(map(len, done.output.splitlines())) < 250
    elif words == "list":
        monkeypatch.setenv("MCP_HUB_CONFIG", str(file))
        assert CliRunner().invoke(main, ["call", "jobs_wait", "seconds=0"]).output.count(" NOT_SET is not set") == 1


@pytest.mark.parametrize(
    ("overlay", "where", "reason"),
    [
        ("disable: [a]\ndisabel: [b]\n", ":2", "disabel: "),
        ("disable: [\n", ":2", "[invalid_yaml]"),
        ("command: [" + "x" * 5000 + "]\n", ":1", "[unknown_key]"),
        ("enable: [jobs, nope]\n", "", 'there is no server "nope" [overlay_in_vain]'),
    ],
)
def test_refused_file_of_a_project_is_named_by_the_commands_that_a_person_looks_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlay: str, where: str, reason: str
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".mcp-hub.yaml").write_text(overlay)
    monkeypatch.chdir(project / "src")
    (tmp_path / "servers.yaml").write_text('servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}')
    for name in ("HOME", "MCP_HUB_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    for words in (["list"], ["doctor"], ["check", "--no-start"], ["status"]):
        said = CliRunner().invoke(main, [*words, "--config", str(tmp_path / "servers.yaml")]).stderr
        lines = [line for line in said.splitlines() if ".mcp-hub.yaml" in line]
        if where:
            assert len(lines) == 1 and f"warning: {project}/.mcp-hub.yaml{where}" in lines[0] and reason in lines[0], (
                said
            )
            assert "start in this project get no tools" in lines[0] and len(lines[0]) < 2500
        else:
            assert any(reason in line for line in lines) is (words != ["status"]), said


def test_servers_whose_names_look_alike_have_one_warning() -> None:
    def flags(server: str, other: str) -> list[FlagInfo]:
        why = "looks like {}_{} of another server"
        found = [FlagInfo(tool, "lookalike", "name", why.format(other, tool), f"{server}_{tool}") for tool in "ab"]
        return [*found, FlagInfo("a", "order", "description", "orders the model", "ignore all")]

    servers = [
        ServerInfo(name, "ready", 2, flags=flags(name, other)) for name, other in (("time", "Time"), ("Time", "time"))
    ]
    texts = [str(one) for one in notices([ServerInfo("x", "ready", 0), *servers])]
    assert len(texts) == 3 and sum("orders the model" in text for text in texts) == 2
    assert "servers.time: its name looks like Time, and so do the names of 2 tools" in texts[0]
    stranger = [ServerInfo("git", "ready", 1, flags=flags("git", "jit_x"))]
    assert len(notices(stranger)) == 3, "the names of the servers do not look alike"


CONFIG = """\
# mine
servers:
  tool: {command: mytool, env: {TOKEN: s3cret-canary}}   # keep me
  path: {command: ./mytool}
  own: {command: mytool, env: {PATH: /somewhere}}
  off: {command: mytool, enabled: false}
  late: {command: "${TOOL:-mytool}"}
  gone: {command: no-such-program}
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """A person with a program that only the shell finds, a private state folder, and a configuration."""
    bin = tmp_path / "tools"
    bin.mkdir()
    (bin / "mytool").write_text("#!/bin/sh\n")
    (bin / "mytool").chmod(stat.S_IRWXU)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "servers.yaml").write_text(CONFIG)
    values = {"HOME": str(tmp_path), "PATH": f"{bin}:/usr/bin:/bin", "MCP_HUB_STATE_DIR": str(tmp_path / "state")}
    values["MCP_HUB_CONFIG"] = str(tmp_path / "servers.yaml")
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(commands, "SYSTEM_PLACES", ())
    return values


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *args])


def test_a_program_that_only_the_shell_finds_is_set_by_its_path_and_no_other_byte_changes(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "servers.yaml"
    (repair,) = found_repairs(path, env)
    program = str(tmp_path / "tools" / "mytool")
    assert (repair.code, repair.is_problem) == ("hidden_command", False)
    assert repair.diff == ["- servers.tool.command: mytool", f"+ servers.tool.command: {program}"]
    assert path.read_text() == CONFIG, "nothing is changed before"
    repair.apply()
    assert path.read_text() == CONFIG.replace("tool: {command: mytool", f"tool: {{command: {program}", 1)
    assert list(found_repairs(path, env)) == []


def test_rights_are_shown_with_their_modes_and_taken_away(env: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text("servers: {}")
    state = tmp_path / "state"
    state.chmod(0o777)
    (repair,) = found_repairs(tmp_path / "servers.yaml", env)
    assert repair.code == "state_untrusted"
    assert repair.diff == [f"- {state}: mode 0777", f"+ {state}: mode 0755"]
    repair.apply()
    assert stat.S_IMODE(state.stat().st_mode) == 0o755


@pytest.mark.parametrize("text", ["servers: {", "servers: {a: {}}", None])
def test_a_broken_configuration_does_not_keep_the_rest_from_being_fixed(
    env: Mapping[str, str], tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "state").chmod(0o777)
    (tmp_path / "servers.yaml").unlink()
    if text is not None:
        (tmp_path / "servers.yaml").write_text(text)
    assert [repair.code for repair in found_repairs(tmp_path / "servers.yaml", env)] == ["state_untrusted"]


def test_the_record_of_a_killed_hub_is_removed_and_that_of_a_running_one_stays(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "servers.yaml").write_text("servers: {}")
    with recorded("/x.yaml", "http://127.0.0.1:1/mcp", env):
        (running,) = (tmp_path / "state" / "hubs").iterdir()
        dead = running.with_name("0123456789abcdef-1.json")
        dead.write_bytes(running.read_bytes())
        (repair,) = found_repairs(tmp_path / "servers.yaml", env)
        assert (repair.code, repair.diff) == ("stale_record", [f"- {dead}"])
        repair.apply()
        assert running.exists() and not dead.exists()


def test_a_client_gets_its_entry_back(env: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text("servers: {}")
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"other": {"command": "x"}}}')
    config = str(tmp_path / "servers.yaml")
    ClientRecords(tmp_path / "state").add_entry(WrittenEntry("cursor", str(file), ("--config", config)))
    left = run()
    assert left.exit_code == 3 and "client_entry_lost: Cursor has lost the hub" in left.output
    fixed = run("--fix", "--json")
    assert fixed.exit_code == 0
    (one,) = json.loads(fixed.stdout)["around"]
    assert (one["code"], one["fixed"]) == ("client_entry_lost", True)
    assert "Cursor has lost the hub" in fixed.stderr and '+ "mcp-hub": {' in fixed.stderr
    servers = json.loads(file.read_text())["mcpServers"]
    assert list(servers) == ["other", "mcp-hub"] and config in servers["mcp-hub"]["args"]
    assert run().exit_code == 0


def test_what_cannot_be_fixed_is_said_with_its_reason(env: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text("servers:\n  tool: &a {command: mytool}\n  more: *a\n")
    outcomes: dict[str, str] = {}
    for repair in found_repairs(tmp_path / "servers.yaml", env):
        try:
            repair.apply()
            outcomes[repair.diff[0]] = "fixed"
        except ConfigError as problem:
            outcomes[repair.diff[0]] = str(problem)
    assert any("[not_editable]" in outcome for outcome in outcomes.values()), outcomes


@pytest.mark.processes
def test_no_secret_is_in_anything_that_doctor_says(env: Mapping[str, str]) -> None:
    try:
        shown = run("tool", "--fix", "--wait", "5")
    finally:
        masking.forget()
    assert "+ servers.tool.command:" in shown.stderr and "canary" not in shown.output + shown.stderr
    assert "canary" in Path(os.environ["MCP_HUB_CONFIG"]).read_text()


@pytest.mark.processes
def test_variables_that_a_failed_server_may_lack_are_named(
    env: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSH_AUTH_SOCK", "KUBECONFIG", "AWS_PROFILE"):
        monkeypatch.setenv(name, "/x")
    script = "import sys; sys.exit('error: KUBECONFIG is not set')"
    servers = {
        "lost": {"command": sys.executable, "args": ["-c", script, "over-ssh"]},
        "passed": {"command": sys.executable, "args": ["-c", script], "pass_env": ["KUBECONFIG"]},
        "gone": {"command": "ssh-gone"},
    }
    (tmp_path / "servers.yaml").write_text(json.dumps({"defaults": {"restart": {"intensity": 0}}, "servers": servers}))
    rows = {row["server"]: row for row in json.loads(run("--json", "--wait", "10").stdout)["servers"]}
    assert {name: row["pass_env"] for name, row in rows.items()} == {
        "lost": ["KUBECONFIG", "SSH_AUTH_SOCK"], "passed": [], "gone": []
    }  # fmt: skip
    assert "pass_env: [KUBECONFIG, SSH_AUTH_SOCK]" in run("lost", "--wait", "10").stdout


def test_paths_and_logins_that_are_not_on_this_machine_are_named(env: Mapping[str, str], tmp_path: Path) -> None:
    there, gone = tmp_path / "servers.yaml", "/nowhere/of-the-old/machine"
    args = f"[--root={gone}/data, {there}, /mcp, x]"
    volumes = f"[run, -v, '{gone}/in:/data/in', '--mount=type=bind,src={gone}/b,dst=/b/c', /in/box]"
    there.write_text(
        "servers:\n"
        f"  tool: {{command: {gone}/tool, cwd: {gone}/work, args: {args}, env: {{A: {gone}/db}}}}\n"
        f'  far: {{url: "https://x.example.com/{gone}", bearer: "${{file:{gone}/token}}"}}\n'
        '  mail: {url: "https://m.example.com/mcp", oauth: {client_id: me}}\n'
        f"  box: {{command: docker, args: {volumes}}}\n"
        f"  off: {{command: {gone}/off, enabled: false}}\n"
    )
    parts = [(part.code, part.problem) for part in missing_parts(there, env)]
    names = [problem.partition(f"{gone}/")[2].partition(" ")[0] for code, problem in parts if code == "path_missing"]
    assert names == ["tool", "work", "data", "db", "token", "in", "b"] and "servers.tool.args[0]" in parts[2][1]
    assert parts[-1] == ("login_missing", 'server "mail" has no login on this machine. Run mcp-hub login mail')
    masking.forget()


def test_servers_that_work_where_they_start_are_named_and_get_the_folder_of_their_client(
    env: Mapping[str, str], tmp_path: Path
) -> None:
    there = tmp_path / "servers.yaml"
    text = """servers:
  git: {command: uvx, args: [mcp-server-git]}   # keep me
  at: {command: uvx, args: [mcp-server-git, --repository, "${client.root}"]}
  set: {command: uvx, args: [mcp-server-git], cwd: /w}
  off: {command: uvx, args: [mcp-server-git], enabled: false}
  time: {command: uvx, args: [mcp-server-time]}
"""
    there.write_text(text)
    (repair,) = (one for one in found_repairs(there, env) if one.code == "start_folder")
    assert 'server "git"' in repair.problem and not repair.is_problem
    repair.apply()
    assert there.read_text().count("${client.cwd}") == 1 and "# keep me" in there.read_text()
    assert all(one.code != "start_folder" for one in found_repairs(there, env))
    there.write_text(text)
    (tmp_path / "project" / ".git").mkdir(parents=True)
    assert all(
        one.code != "start_folder" for one in found_repairs(there.rename(tmp_path / "project/servers.yaml"), env)
    )
