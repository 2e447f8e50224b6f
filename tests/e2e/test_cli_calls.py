"""`mcp-hub call` as it is really run: in a pipe, as JSON lines, on a terminal, interrupted."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.command import COMMAND, JOBS, SECONDS, command_env, hub
from tests.upstreams.launch import argv, events, received


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration with the fixture server, the example jobs, and a server that never starts."""
    fixture = argv(journal=tmp_path / "journal")
    servers = {
        "fix": {"command": fixture[0], "args": fixture[1:]},
        "jobs": JOBS,
        "gone": {"command": "no-such-program-anywhere"},
    }
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": servers}))
    return tmp_path


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_pipe_gets_the_result_and_nothing_else(folder: Path) -> None:
    done = hub(folder, "call", "fix_echo", "--arg", "text=5")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"text": "5"}\n', "")


def test_progress_comes_as_json_lines(folder: Path) -> None:
    done = hub(folder, "call", "fix_progress", "--arg", "n=3", "--json")
    assert done.returncode == 0
    *progress, result = lines(done)
    assert progress == [{"type": "progress", "progress": n, "total": 3, "message": str(n)} for n in (1, 2, 3)]
    assert (result["type"], result["isError"]) == ("result", False)
    assert result["result"]["content"][0]["text"] == '{"n": 3, "nonce": ""}'


def test_streamed_content_and_logs_come_as_json_lines(folder: Path) -> None:
    job = lines(hub(folder, "call", "--json", "jobs_run_job", "--arg", "steps=2", "--arg", "seconds=0"))
    assert [line["type"] for line in job] == ["progress", "delta", "progress", "delta", "result"]
    assert job[1]["content"] == [{"type": "text", "text": "step 1 done\n"}]
    wait = lines(hub(folder, "call", "jobs_wait", "--json", '{"seconds": 0}'))
    assert wait[0] == {"type": "log", "level": "info", "data": {"waiting_seconds": 0.0}}


@pytest.mark.parametrize(
    ("options", "stdin"),
    [(["--args-json", '{"text": "a"}'], ""), (["--args-json", "-"], '{"text": "a"}'), (["--args-json", "@a.json"], "")],
)
def test_arguments_come_as_json_too(folder: Path, options: list[str], stdin: str) -> None:
    (folder / "a.json").write_text('{"text": "a"}')
    done = hub(folder, "call", "fix_echo", *options, "--output", "json", stdin=stdin)
    assert done.returncode == 0
    assert json.loads(done.stdout)["structuredContent"] == {"text": "a"}


def test_tool_that_says_error_ends_with_1(folder: Path) -> None:
    done = hub(folder, "call", "fix_tool_error", "--arg", "text=sorry")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "sorry\n", 1)


def test_json_rpc_error_ends_with_1_code_and_message(folder: Path) -> None:
    arguments = ["--arg", "code=-5", "--arg", "message=no"]
    done = hub(folder, "call", "fix_error", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error -5: no\n")
    assert lines(hub(folder, "call", "fix_error", "--json", *arguments)) == [
        {"type": "error", "code": -5, "message": "no"}
    ]


def test_unknown_tool_ends_with_2_and_names_the_nearest(folder: Path) -> None:
    done = hub(folder, "call", "fix_ecko")
    assert done.returncode == 2
    assert "fix_ecko" in done.stderr and "fix_echo" in done.stderr


def test_server_that_is_down_or_dies_ends_with_3(folder: Path) -> None:
    down = hub(folder, "call", "gone_anything")
    assert down.returncode == 3
    assert '"gone"' in down.stderr and "no-such-program-anywhere" in down.stderr
    lost = hub(folder, "call", "fix_crash", "--json")
    assert lost.returncode == 3
    assert [line["code"] for line in lines(lost)] == [1002]


def test_call_does_not_wait_for_other_servers(folder: Path) -> None:
    settings = json.loads((folder / "servers.yaml").read_text())
    hanging = argv(mode="hang-start")
    settings["servers"]["slow"] = {"command": hanging[0], "args": hanging[1:], "start_timeout": "10m"}
    (folder / "servers.yaml").write_text(json.dumps(settings))
    done = hub(folder, "call", "fix_echo", "--arg", "text=5", "--wait", "600")
    assert (done.returncode, done.stdout) == (0, '{"text": "5"}\n')


def test_bad_arguments_end_with_2_and_start_nothing(folder: Path) -> None:
    for options, message in [
        (["--arg", "text"], "as name=value"),
        (["--args-json", "[1]"], "as a JSON object"),
        (["--json", "{oops"], "JSON is malformed"),
        (["--json", "{}", "--args-json", "{}"], "both give arguments"),
    ]:
        done = hub(folder, "call", "fix_echo", *options)
        assert done.returncode == 2
        assert message in done.stderr
    assert events(folder / "journal", "start") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_cancels_the_call_upstream(folder: Path, number: signal.Signals) -> None:
    call = [*COMMAND, "call", "fix_progress", "--json", '{"n": 100000, "delay": 0.01}']
    with subprocess.Popen(call, env=command_env(folder), cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], SECONDS)[0]
        process.send_signal(number)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 130
    [asked] = received(folder / "journal", "tools/call")
    [cancelled] = received(folder / "journal", "notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]
    [start] = events(folder / "journal", "start")
    assert not Path(f"/proc/{start['pid']}").exists()


def on_terminal(folder: Path, *args: str) -> tuple[int, str]:
    """Runs the command with a terminal of 100 columns as stdin, stdout and stderr: exit code and all it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    env = {**command_env(folder), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_hub", *args], stdin=slave, stdout=slave, stderr=slave, env=env, cwd=folder
    )
    os.close(slave)
    written = bytearray()
    while select.select([master], [], [], SECONDS)[0]:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            break
        written += chunk
    os.close(master)
    return process.wait(SECONDS), written.decode()


def test_terminal_shows_a_progress_bar_then_the_result(folder: Path) -> None:
    code, shown = on_terminal(folder, "call", "jobs_run_job", "--arg", "steps=3", "--arg", "seconds=1.2")
    assert code == 0
    assert "━━━" in shown
    assert "1/3" in shown
    assert "step 2 of 3" in shown
    for words in ("step 1 done\r\n", "step 3 done\r\n"):
        assert shown.count(words) == 1
    assert shown.endswith('{"steps":3,"seconds":1.2,"status":"done"}\r\n')
