"""SIGKILL at any step of a change or its undo: each file is as it was or as it is to be, and can be brought back."""

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.proof)])
def test_kill_at_any_step_loses_no_byte(tmp_path: Path, stride: int) -> None:
    argv = [sys.executable, "-m", "tests.unit.cli.killed_acts", str(tmp_path), str(stride)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    installing, undoing = map(int, done.stdout.split())
    assert installing > 50 and undoing > 20  # it was killed at many steps indeed
