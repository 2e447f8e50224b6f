"""What a hub's log says while its servers start: a line for each change, and one for the whole at the end."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.interaction.fronts import http_hub

pytestmark = pytest.mark.anyio

CRASHING = "import sys; print('starting', file=sys.stderr); import absent_module_of_test"


async def test_each_change_is_a_line_and_the_last_one_has_the_number_of_servers(tmp_path: Path) -> None:
    servers: dict[str, Any] = {
        "jobs": {"local": "mcp_hub.examples.jobs:registry"},
        "time": {"command": sys.executable, "args": ["-c", CRASHING], "restart": {"intensity": 2, "period": "60s"}},
    }
    with anyio.fail_after(240):
        async with http_hub(json.dumps({"servers": servers}), tmp_path) as hub:
            await hub.wait_stderr('"state": "failed"')
            await hub.wait_stderr("servers_settled")
    lines = [json.loads(line) for line in hub.stderr.splitlines() if line.startswith("{")]
    said = [
        (line["state"], line.get("failures", 1), line["reason"]) for line in lines if line["event"] == "upstream_state"
    ]
    cause = "ModuleNotFoundError: No module named 'absent_module_of_test' (exited with code 1)"
    assert said == [("backing_off", 1, cause), ("failed", 3, f"{cause} (gave up after 3 failures in 60 s)")]
    (settled,) = [line["summary"] for line in lines if line["event"] == "servers_settled"]
    assert settled == f"1 of 2 servers ready; time failed: {cause}"
    assert {line["event"] for line in lines} <= {"upstream_state", "servers_settled", "hub_stopping"}
