"""Standard streams that are not there: closed before the start, or read by nobody any more."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command import COMMAND, JOBS, SECONDS, command_env

pytestmark = pytest.mark.processes

LEAVING = "import sys; from mcp_hub.cli.setup import leave; sys.%s.write('unread'); leave()"


@pytest.fixture(autouse=True)
def _config(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": {"jobs": JOBS}}))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_hub_that_nobody_reads_any_more_ends_well(stream: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    try:
        pipes: dict[str, Any] = {stream: write}
        done = subprocess.run([sys.executable, "-c", LEAVING % stream], env=env, timeout=240, **pipes)
    finally:
        os.close(write)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("command", "closed", "ends_with"),
    [
        ("serve", "<&- >&- 2>&-", 0),
        ("serve", "2>&-", 0),
        ("list", "<&-", 0),
        ("list", "2>&-", 0),
        ("list", "<&- >&- 2>&-", 1),
    ],
)
@pytest.mark.first(2)
def test_a_hub_that_is_started_without_a_standard_stream_ends_well(
    tmp_path: Path, command: str, closed: str, ends_with: int
) -> None:
    line = f"{shlex.join([*COMMAND, command])} {closed}"
    done = subprocess.run(line, shell=True, input=b"", capture_output=True, env=command_env(tmp_path), timeout=SECONDS)
    assert (done.returncode, b"Traceback" in done.stderr) == (ends_with, False)


@pytest.mark.parametrize("command", ["doctor", "list", "tools", "tokens", "check", "search job", "list --json"])
@pytest.mark.first(3)
def test_command_whose_reader_has_left_ends_quietly(tmp_path: Path, command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        line = [*COMMAND, *command.split()]
        done = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, env=command_env(tmp_path), timeout=SECONDS)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("command", ["--help", "call jobs_wait --arg seconds=0"])
def test_output_that_is_closed_cannot_be_written(tmp_path: Path, command: str) -> None:
    line = f"{shlex.join(COMMAND)} {command} >&-"
    done = subprocess.run(line, shell=True, capture_output=True, env=command_env(tmp_path), timeout=SECONDS)
    assert (done.returncode, done.stderr) == (1, b"Cannot write the output: Bad file descriptor.\n")


def test_hub_without_a_standard_output_serves(tmp_path: Path) -> None:
    line = f"exec {shlex.join(COMMAND)} serve --http --port 0 --log-level error >&-"
    with subprocess.Popen(line, shell=True, stderr=subprocess.PIPE, env=command_env(tmp_path)) as hub:
        assert hub.stderr is not None
        assert hub.stderr.readline().startswith(b"mcp-hub serves 1 server (jobs) at http://127.0.0.1:")
        hub.terminate()
        assert (hub.wait(SECONDS), hub.stderr.read()) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize(
    ("command", "unbuffered"), [("list --json", "1"), ("call jobs_wait --arg seconds=0", "1"), ("check", "")]
)
def test_output_that_cannot_be_written_is_one_line_on_stderr(tmp_path: Path, command: str, unbuffered: str) -> None:
    env = command_env(tmp_path, PYTHONUNBUFFERED=unbuffered)
    with open("/dev/full", "wb") as full:
        line = [*COMMAND, *command.split()]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, env=env, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (1, b"Cannot write the output: No space left on device.\n")


def test_a_hub_without_a_terminal_says_once_where_it_serves(tmp_path: Path) -> None:
    line = [*COMMAND, "serve", "--http", "--port", "0", "--log-level", "error"]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=subprocess.STDOUT, env=command_env(tmp_path)) as hub:
        assert hub.stdout is not None
        assert hub.stdout.readline().startswith(b"mcp-hub serves 1 server (jobs) at http://127.0.0.1:")
        hub.terminate()
        assert (hub.wait(SECONDS), hub.stdout.read()) == (0, b"")
