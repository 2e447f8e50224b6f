"""`mcp-hub call` with servers of its own: arguments, waiting, interrupts, a terminal. Results: test_cli_url."""

import json
import os
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.terminal import terminal
from tests.fork_server import forked_command
from tests.unit.cli.command import JOBS, SECONDS, command_env, hub
from tests.upstreams.launch import entry, events, received


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration with the fixture server, the example jobs, and a server that never starts."""
    gone = {"command": "no-such-program-anywhere"}
    servers = {"fix": entry(journal=tmp_path / "journal"), "jobs": JOBS, "gone": gone}
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": servers}))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "stdin"),
    [(["--args-json", '{"text": "a"}'], ""), (["--args-json", "-"], '{"text": "a"}'), (["--args-json", "@a.json"], "")],
)
@pytest.mark.first(1)
def test_arguments_come_as_json_too(folder: Path, options: list[str], stdin: str) -> None:
    (folder / "a.json").write_text('{"text": "a"}')
    done = hub(folder, "call", "fix_echo", *options, "--output", "json", stdin=stdin)
    assert done.returncode == 0
    assert json.loads(done.stdout)["structuredContent"] == {"text": "a"}


@pytest.mark.first(1)
@pytest.mark.parametrize("form", ["text", "json"])
def test_images_are_saved_where_the_user_says(folder: Path, form: str) -> None:
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    given = json.dumps({"json": json.dumps({"content": [{"type": "text", "text": "a"}, image]})})
    done = hub(folder, "call", "fix_raw", "--args-json", given, "--output", "pictures", "--format", form)
    assert (done.returncode, done.stderr) == (0, "saved pictures/2.png (image/png, 8 bytes)\n")
    assert (folder / "pictures" / "2.png").read_bytes() == b"\x89PNG\r\n\x1a\n"
    if form == "text":
        assert done.stdout == "a\n[image image/png 8 bytes]\n"
    done = hub(folder, "call", "fix_raw", "--args-json", given, "--output", "servers.yaml")
    assert done.returncode == 2 and "[output_unwritable]" in done.stderr


def test_text_goes_into_a_pipe_as_it_comes(folder: Path) -> None:
    call = [*forked_command(), "call", "jobs_run_job", "steps=10000", "seconds=3600"]
    with subprocess.Popen(call, env=command_env(folder), cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], SECONDS)[0]
        assert os.read(process.stdout.fileno(), 100).startswith(b"step 1 done\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130


def test_server_that_is_down_ends_with_3(folder: Path) -> None:
    down = hub(folder, "call", "gone_anything")
    assert down.returncode == 3
    assert '"gone"' in down.stderr and "command not found: no-such-program-anywhere" in down.stderr


def test_call_does_not_wait_for_other_servers(folder: Path) -> None:
    settings = json.loads((folder / "servers.yaml").read_text())
    settings["servers"]["slow"] = {**entry(mode="hang-start"), "start_timeout": "10m"}
    (folder / "servers.yaml").write_text(json.dumps(settings))
    done = hub(folder, "call", "fix_echo", "--arg", "text=5", "--wait", "600")
    assert (done.returncode, done.stdout) == (0, '{"text": "5"}\n')


def test_bad_arguments_end_with_2_and_start_nothing(folder: Path) -> None:
    for options, message in [
        (["--arg", "text"], "as name=value"),
        (["text=a", "--arg", "text=b"], "given twice"),
        (["--args-json", "[1]"], "as a JSON object"),
        (["--json", "{oops"], "the text is not JSON"),
        (["--json", "{}", "--args-json", "{}"], "both give arguments"),
    ]:
        done = hub(folder, "call", "fix_echo", *options)
        assert done.returncode == 2
        assert message in done.stderr
    assert events(folder / "journal", "start") == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_cancels_the_call_upstream(folder: Path, number: signal.Signals) -> None:
    call = [*forked_command(), "call", "fix_progress", "--json", '{"n": 100000, "delay": 0.01}']
    pipe = subprocess.PIPE
    with subprocess.Popen(call, env=command_env(folder), cwd=folder, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], SECONDS)[0]
        process.send_signal(number)
        said = process.communicate(timeout=SECONDS)[1].decode()
        assert process.returncode == 130
    shown = re.fullmatch(r"cancelled \(stream (st_\w+)\)\n", said)
    assert shown is not None, said
    [last] = hub(folder, "resume", shown[1], "--json").stdout.splitlines()[-1:]
    ended = json.loads(last)
    assert (ended["type"], ended["outcome"]) == ("end", "cancelled")
    [asked] = received(folder / "journal", "tools/call")
    [cancelled] = received(folder / "journal", "notifications/cancelled")
    assert cancelled["params"]["requestId"] == asked["id"]
    [start] = events(folder / "journal", "start")
    assert not Path(f"/proc/{start['pid']}").exists()


def test_terminal_shows_a_progress_bar_then_the_result(folder: Path) -> None:
    with terminal(folder, "call", "jobs_run_job", "--arg", "steps=3", "--arg", "seconds=1.2") as person:
        assert person.end() == 0
        shown = person.text
    assert "━━━" in shown
    assert "1/3" in shown
    assert "step 2 of 3" in shown
    for words in ("step 1 done\r\n", "step 3 done\r\n"):
        assert shown.count(words) == 1
    assert shown.endswith('{"steps":3,"seconds":1.2,"status":"done"}\r\n')
