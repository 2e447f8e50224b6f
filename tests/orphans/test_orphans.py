"""A short `make orphans`, in a process of its own because it adopts."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only process groups are killed")


def test_nothing_is_left_of_servers_children_and_hubs_that_were_killed() -> None:
    command = [sys.executable, "-m", "tests.orphans", "--kills", "10", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("10 kills"), done.stdout
