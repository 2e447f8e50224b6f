"""The end of a hub whose output nobody reads any more."""

import os
import subprocess
import sys

import pytest

LEAVING = "import sys; from mcp_hub.cli.setup import leave; sys.%s.write('unread'); leave()"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_hub_that_nobody_reads_any_more_ends_well(stream: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-c", LEAVING % stream], **{stream: write}, env=env, timeout=60)
    finally:
        os.close(write)
    assert done.returncode == 0
