"""`mcp-hub import --yes` starts the imported servers once, counts the tokens of their tools, and stops them."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.command import COMMAND, command_env
from tests.upstreams.launch import argv

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_import_measures_what_the_tools_cost(tmp_path: Path) -> None:
    command, *args = argv()
    servers = {"one": {"command": command, "args": args}, "gone": {"command": "/nowhere/x"}}
    servers["unset"] = {"command": command, "args": args, "env": {"A": "${env:NOT_SET_HERE}"}}
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = subprocess.run(
        [*COMMAND, "import", "cursor", "--yes", "--json"],
        capture_output=True, text=True, env=command_env(tmp_path, HOME=str(tmp_path)), cwd=tmp_path, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)["tokens"]
    assert tokens["tools"] > 0 and tokens["before"] > 0 and tokens["after"] > 0
    assert (tokens["working"], tokens["absent"]) == (1, ["gone", "unset"])
