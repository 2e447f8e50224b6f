"""The edges of a process: standard streams that are not there, and a SIGHUP that comes while a hub still starts."""

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


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
CLOSED, FULL = "Bad file descriptor", "No space left on device"


@pytest.mark.parametrize(
    ("command", "output", "unbuffered", "reason"),
    [
        ("--help", "&-", "", CLOSED),
        ("call jobs_wait --arg seconds=0", "&-", "", CLOSED),
        pytest.param("list --json", "/dev/full", "1", FULL, marks=needs_full),
        pytest.param("call jobs_wait --arg seconds=0", "/dev/full", "1", FULL, marks=needs_full),
        pytest.param("check", "/dev/full", "", FULL, marks=needs_full),
    ],
)
def test_output_that_cannot_be_written_is_one_line_on_stderr(
    tmp_path: Path, command: str, output: str, unbuffered: str, reason: str
) -> None:
    env = command_env(tmp_path, PYTHONUNBUFFERED=unbuffered)
    line = f"{shlex.join(COMMAND)} {command} >{output}"
    done = subprocess.run(line, shell=True, capture_output=True, env=env, timeout=SECONDS)
    assert (done.returncode, done.stderr.decode()) == (1, f"Cannot write the output: {reason}.\n")


@pytest.mark.parametrize("has_output", [True, False])
def test_a_hub_without_a_terminal_says_once_where_it_serves(tmp_path: Path, has_output: bool) -> None:
    line = f"exec {shlex.join(COMMAND)} serve --http --port 0 --log-level error {'2>&1' if has_output else '>&-'}"
    pipes: dict[str, Any] = {"stdout" if has_output else "stderr": subprocess.PIPE}
    with subprocess.Popen(line, shell=True, env=command_env(tmp_path), **pipes) as hub:
        pipe = hub.stdout if has_output else hub.stderr
        assert pipe is not None
        assert pipe.readline().startswith(b"mcp-hub serves 1 server (jobs) at http://127.0.0.1:")
        hub.terminate()
        assert (hub.wait(SECONDS), pipe.read()) == (0, b"")


START = """
import os, signal, anyio
from mcp_hub.cli import main
from mcp_hub.cli.signals import received_signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup

async def serve():
    async with received_signals() as signals:
        with anyio.fail_after(240):
            await signals.reload_wanted()
        assert not signals.stopped.is_set()

def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)
"""


IMPORTING = """
import importlib, mcp_hub.cli as cli

def imported(name):
    hang_up()
    return importlib.import_module(name)
cli.import_module = imported
main.get_command(None, "serve")
anyio.run(serve)
"""
IGNORING = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
main.get_command(None, "serve")
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [(IMPORTING, 0), (IGNORING, 0), ("main.get_command(None, 'list'); hang_up()", -1)],
    ids=["remembered from before the import", "ignored stays so", "ends other commands"],
)
def test_hang_up_before_a_hub_serves_does_not_end_it(then: str, code: int) -> None:
    line = [sys.executable, "-c", START + then]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SECONDS, start_new_session=True)
    assert done.returncode == code, done
