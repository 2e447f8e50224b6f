"""The modules that a client's start loads: a gate, because each of them costs every client time and memory."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

SHIM = """
import os, sys
before = set(sys.modules)
import mcp_hub.__main__
import mcp_hub.attach.client
print(*sorted(set(sys.modules) - before))
"""
ALLOWED = {"_socket", "fcntl", "select"}
"""Beside the modules of attach itself. Each is a C module without imports of its own."""


def test_a_client_that_joins_a_hub_loads_next_to_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", SHIM],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    loaded = set(done.stdout.split())
    others = {name for name in loaded if name.split(".")[0] != "mcp_hub"}
    own = {name for name in loaded - others if not name.startswith("mcp_hub.attach")}
    assert others <= ALLOWED
    assert own == {"mcp_hub", "mcp_hub.__main__"}
    assert not {"mcp_hub.attach.start"} & loaded, "nobody starts a hub that runs"
