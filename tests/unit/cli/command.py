"""Running the real command against real servers, each wait bounded."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fork_server import forked_command

COMMAND = [sys.executable, "-m", "mcp_hub"]
"""A real start; most tests need none, and use `forked_command`."""
JOBS = {"local": "mcp_hub.examples.jobs:registry"}
SECONDS = 240


def command_env(folder: Path, **more: str) -> Mapping[str, str]:
    """Our environment with a configuration and a state of this test's own."""
    own = {"MCP_HUB_CONFIG": str(folder / "servers.yaml"), "MCP_HUB_STATE_DIR": str(folder / "state")}
    return {**os.environ, **own, **more}


def hub(folder: Path, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One run of the command to its end."""
    return subprocess.run(
        [*forked_command(), *args],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=command_env(folder),
        cwd=folder,
        timeout=SECONDS,
    )
