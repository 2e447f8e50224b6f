"""`mcp-hub logs`: of hubs that have ended, and with -f of those that come."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.terminal import terminal
from tests.fork_server import forked_command
from tests.unit.cli.command import SECONDS, command_env, hub

pytestmark = pytest.mark.processes

SPEAKS = "import sys; sys.stderr.write('hello from ' + sys.argv[1] + '\\nPW=s3cret-pass\\x1b[2J\\n'); sys.exit(3)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration of two servers that write two lines to stderr and end."""
    servers = {
        name: {"command": sys.executable, "args": ["-c", SPEAKS, name], "env": {"PW": "s3cret-pass"}}
        for name in ("one", "two")
    }
    settings = {"servers": servers, "defaults": {"restart": {"intensity": 0}}}
    (tmp_path / "servers.yaml").write_text(json.dumps(settings))
    return tmp_path


def test_logs_of_a_hub_that_has_ended_are_shown_masked_and_can_be_read_by_programs(folder: Path) -> None:
    none = hub(folder, "logs")
    assert (none.returncode, none.stdout) == (0, "") and "There is no log of" in none.stderr
    assert hub(folder, "list").returncode == 3
    shown = hub(folder, "logs").stdout.splitlines()
    assert [line.partition(" one | ")[2] for line in shown if " one | " in line][:2] == [
        "hello from one",
        "PW=***\\x1b[2J",
    ]
    assert any("two | hub: upstream_state state=failed code=start_crashed" in line for line in shown)
    records = [json.loads(line) for line in hub(folder, "logs", "two", "--json", "--lines", "2").stdout.splitlines()]
    assert [record.get("stderr", record.get("event")) for record in records] == ["PW=***\x1b[2J", "upstream_state"]
    assert "s3cret-pass" not in "".join(path.read_text() for path in (folder / "state" / "logs").rglob("*.jsonl"))
    unknown = hub(folder, "logs", "tow")
    assert unknown.returncode == 2 and "unknown_server" in unknown.stderr


def test_nothing_is_written_where_it_is_switched_off(folder: Path) -> None:
    settings = json.loads((folder / "servers.yaml").read_text())
    (folder / "servers.yaml").write_text(json.dumps({**settings, "hub": {"log": {"files": False}}}))
    assert hub(folder, "list").returncode == 3
    assert not (folder / "state" / "logs").exists()


def test_following_goes_on_with_the_next_hub_until_ctrl_c(folder: Path) -> None:
    with terminal(folder, "logs", "one", "-f") as seen:
        seen.until("There is no log")
        for _ in range(2):
            subprocess.run([*forked_command(), "list"], env=command_env(folder), timeout=SECONDS, capture_output=True)
            seen.until("hello from one")
            seen.until("upstream_state")
        seen.type("\x03")
        assert seen.end() == 130
    assert "two" not in seen.text.replace(str(folder), "")
