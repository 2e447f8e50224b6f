"""What `check` says of lists, and what only those can say who have seen the lists."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.cli.command import hub

pytestmark = pytest.mark.processes

TEXT = """
hub: {budget: 100, pinned: ["jobs_*", "nothing_*"]}
servers:
  jobs:
    local: mcp_hub.examples.jobs:registry
    tools: {deny: ["waitt", {tag: none}, {destructiveHint: false}]}
    rename: {count_words: words, gone: away}
    per_tool:
      run_job: {description: d, fixed: {seconds: 0}}
      "w*": {hide: true, task: never}
      "x*": {task: never}
  off: {command: x, enabled: false}
profiles:
  small: {tools: {allow: ["jobs_run_job", "run_job"]}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "servers.yaml").write_text(TEXT)
    return tmp_path


def test_check_counts_overrides_and_names_their_file_and_shows_no_value(folder: Path) -> None:
    done = hub(folder, "check", "--no-start")
    assert done.returncode == 0
    assert ": ok, 2 servers, 1 profile, 0 tokens, 4 overrides, 1 warning\n" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[lines.index(next(line for line in lines if line.startswith("  jobs: "))) + 1 :][:4] == [
        "    count_words: changed name",
        "    gone: changed name",
        "    run_job: changed description, fixed",
        "    w*: changed hide",
    ]
    assert "hub.budget: less than the 350 tokens" in done.stderr
    assert places(done.stderr.splitlines(), folder) == [], "nothing was started"
    (folder / "servers.overrides.yaml").write_text("servers: {jobs: {per_tool: {wait: {pin: true}}}}")
    done = hub(folder, "check", "--no-start")
    assert f"  with {folder / 'servers.overrides.yaml'}, which the dashboard writes\n" in done.stdout
    assert "    wait: changed hide, pin" in done.stdout.splitlines()
    found = json.loads(hub(folder, "check", "--no-start", "--json").stdout)
    assert found["overrides_file"] == str(folder / "servers.overrides.yaml")
    (folder / "servers.overrides.yaml").write_text("servers: {jobs: {command: x}}")
    done = hub(folder, "check", "--no-start")
    assert done.returncode == 2 and "servers.overrides.yaml:1: servers.jobs.command: unknown key" in done.stderr


EXPECTED = [
    "servers.yaml:2: hub.pinned[1]",
    "servers.yaml:6: servers.jobs.tools.deny[0]",
    "servers.yaml:6: servers.jobs.tools.deny[1]",
    "servers.yaml:7: servers.jobs.rename.gone",
    'servers.yaml:11: servers.jobs.per_tool["x*"]',
    "servers.yaml:14: profiles.small.tools.allow[1]",
]


def places(lines: Iterable[str], folder: Path) -> list[str]:
    """File, line and path of each warning that has the code of a pattern that matches nothing."""
    found = (line.removeprefix("warning: ") for line in lines if line.endswith("[unmatched_pattern]"))
    return [": ".join(line.removeprefix(f"{folder}/").split(": ")[:2]) for line in found]


@pytest.mark.parametrize("command", ["check", "doctor", "tools"])
def test_pattern_that_matches_nothing_is_named_with_its_line(folder: Path, command: str) -> None:
    assert places(hub(folder, command).stderr.splitlines(), folder) == EXPECTED


def test_check_gives_findings_as_data(folder: Path) -> None:
    told = json.loads(hub(folder, "check", "--json").stdout)
    found = [own for own in told["findings"] if own["code"] == "unmatched_pattern"]
    assert [f"servers.yaml:{own['line']}: {own['path']}" for own in found] == EXPECTED
    assert {own["level"] for own in found} == {"warning"} and found[0]["file"] == str(folder / "servers.yaml")
    assert len(told["warnings"]) == 1 + len(EXPECTED)


def test_check_says_which_servers_patterns_were_not_compared(tmp_path: Path) -> None:
    text = """
servers:
  gone: {local: "no_such_module:r", tools: {deny: [x]}}
  jobs: {local: "mcp_hub.examples.jobs:registry"}
"""
    (tmp_path / "servers.yaml").write_text(text)
    done = hub(tmp_path, "check", "--json")
    found = [(own["path"], own["code"]) for own in json.loads(done.stdout)["findings"]]
    assert done.returncode == 0 and ("servers.gone", "server_not_ready") in found
    assert not any("servers.jobs" in path for path, _ in found)


def test_check_without_patterns_starts_nothing(tmp_path: Path) -> None:
    witness = tmp_path / "started"
    own = {"command": "touch", "args": [str(witness)]}
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": {"a": own}}))
    assert hub(tmp_path, "check").returncode == 0 and not witness.exists()
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": {"a": {**own, "tools": {"deny": ["x"]}}}}))
    assert hub(tmp_path, "check", "--wait", "5").returncode == 0 and witness.exists()


def test_address_that_serve_refuses_is_a_warning_of_check(tmp_path: Path) -> None:
    """Which these are: test_auth_settings."""
    text = "hub:\n  http: {host: 0.0.0.0}\nservers: {a: {local: mcp_hub.examples.jobs:registry}}\n"
    (tmp_path / "servers.yaml").write_text(text)
    done = hub(tmp_path, "check")
    assert done.returncode == 0 and ", 1 warning" in done.stdout
    assert done.stderr.startswith(f"warning: {tmp_path}/servers.yaml:2: hub.http.host: ")
    served = hub(tmp_path, "serve", "--http", "--port", "0")
    assert served.returncode == 2 and "0.0.0.0" in served.stderr
    assert done.stderr.endswith("[public_without_tokens]\n") and served.stderr.endswith("[public_without_tokens]\n")


def test_finding_of_a_server_has_its_line_and_serve_starts_the_rest(folder: Path) -> None:
    (folder / "servers.yaml").write_text("servers:\n  jobs:\n    local: mcp_hub.examples.jobs:registri\n")
    done = hub(folder, "check")
    assert f"{folder}/servers.yaml:3: servers.jobs.local: module mcp_hub.examples.jobs does not have" in done.stderr
    assert 'Did you mean "registry"? [registry_not_found]' in done.stderr
    assert "1 server cannot start" in done.stdout
    bad = "servers:\n  bad: {comand: x}\n  jobs: {local: mcp_hub.examples.jobs:registry}\n"
    (folder / "servers.yaml").write_text(bad)
    assert hub(folder, "check").returncode == 2
    prefix = "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": "2026-07-28", f"{prefix}clientCapabilities": {}}
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    served = hub(folder, "serve", stdin=json.dumps(ask) + "\n")
    assert served.returncode == 0 and "jobs_count_words" in served.stdout
    assert "servers.bad.comand" in served.stderr and "(the server has failed)" in served.stderr


def test_check_runs_the_commands_of_values_and_names_those_that_give_none(tmp_path: Path) -> None:
    file, ran = tmp_path / "servers.yaml", tmp_path / "ran"
    file.write_text(f"""servers:
  good: {{command: sh, env: {{A: "${{cmd:touch {ran}}}x${{cmd:echo a-s3cr3t}}"}}}}
  far:
    url: https://a.example/mcp
    bearer: "${{cmd:echo two s3cr3t}}"
  off: {{command: sh, enabled: false, env: {{A: "${{cmd:false}}"}}}}
""")
    file.chmod(0o600)
    checked = hub(tmp_path, "check", "--no-start")
    assert checked.returncode == 0 and not ran.exists()
    checked = hub(tmp_path, "check", "--json")
    assert checked.returncode == 2 and ran.exists() and "s3cr3t" not in checked.stdout + checked.stderr
    findings = [(one["line"], one["path"], one["code"]) for one in json.loads(checked.stdout)["findings"]]
    assert findings == [(2, "servers.good.env.A", "lookup_failed"), (3, "servers.far", "lookup_failed")]
    file.chmod(0o620)
    checked = hub(tmp_path, "check")
    assert checked.returncode == 2 and f"chmod go-w {file}" in checked.stderr and "[command_refused]" in checked.stderr


def test_command_that_a_person_adds_is_written_as_it_is_and_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = hub(tmp_path, "add", "git", "--env", f"GIT_TOKEN=${{cmd:touch {ran}}}", "--", "sh")
    assert done.returncode == 0 and f"${{cmd:touch {ran}}}" in (tmp_path / "servers.yaml").read_text()
    assert not ran.exists() and not (tmp_path / "secrets").exists()
    hub(tmp_path, "paths")
    assert not ran.exists()
