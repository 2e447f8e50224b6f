"""`mcp-hub doctor --fix`: each change is shown before it is made, and no secret is in it."""

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mcp_hub import masking
from mcp_hub.cli import main
from mcp_hub.cli.access.running import recorded
from mcp_hub.cli.commands.repairs import found_repairs, missing_parts
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.changes.written import WrittenEntries, WrittenEntry
from mcp_hub.upstreams.process import commands

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
    WrittenEntries(tmp_path / "state").add(WrittenEntry("cursor", str(file), ("--config", config)))
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
