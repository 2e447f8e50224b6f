"""A hub whose watchdog process keeps ending: it gives up for a while, says so once, and takes that back."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest
import structlog

from mcp_hub.upstreams.process import watchdog_program
from mcp_hub.upstreams.process.watchdog import _WatchdogHandle
from tests.unit.stores.broken_files import HandClock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no watchdog process"),
]


async def test_guard_that_runs_after_all_ends_the_alarm() -> None:
    clock = HandClock()
    handle = _WatchdogHandle("mine", (), clock)
    with structlog.testing.capture_logs() as logs, anyio.fail_after(240):
        for _ in range(5):
            handle.ensure()
            assert handle.process is not None and not handle.has_given_up
            os.kill(handle.process.pid, signal.SIGKILL)
            await handle.wait()
        handle.ensure()
        assert handle.process is None and handle.has_given_up
        handle.ensure()
        clock.seconds += 60
        handle.ensure()
        assert handle.has_given_up, "it may end at once as the others did"
        handle.ensure()
        assert handle.process is not None and not handle.has_given_up
        await handle.stop()
    said = [line["event"] for line in logs]
    assert said == [*["guard_ended"] * 5, "guard_given_up", "guard_recovered"]


@pytest.mark.parametrize(("lines", "is_killed"), [("?\n", True), ("?\n!\n", False)], ids=["in a start", "after one"])
def test_guard_waits_for_a_process_that_was_being_started_when_its_hub_was_killed(lines: str, is_killed: bool) -> None:
    program = [sys.executable, "-I", "-S", str(Path(watchdog_program.__file__)), "--hub", str(os.getpid())]
    mark = f"of-test-{os.getpid()}"
    with subprocess.Popen(program, stdin=subprocess.PIPE) as guard:
        assert guard.stdin is not None
        guard.stdin.write(f"{mark}\n{lines}".encode())
        guard.stdin.close()
        if not is_killed:
            assert guard.wait(20) == 0
            return
        with pytest.raises(subprocess.TimeoutExpired):
            guard.wait(0.3)
        late = subprocess.Popen(["sleep", "60"], env={**os.environ, watchdog_program.INSTANCE: mark})
        try:
            assert late.wait(20) == -signal.SIGKILL
        finally:
            late.kill()
        assert guard.wait(20) == 0


def test_search_reaches_the_sessions_of_marked_processes_that_it_was_not_given() -> None:
    """As after the kill of a hub in the middle of a start; what has no mark is in the session of one that has."""
    mark = f"of-test-{os.getpid()}"
    script = "env -i sh -c 'echo $$; exec sleep 60' & exec sleep 60"
    with subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, env={**os.environ, "MARK": mark}, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        wiped = int(leader.stdout.readline())
        with subprocess.Popen(["env", "-i", "sleep", "60"], start_new_session=True) as stranger:
            killed, is_enough = watchdog_program.kill_marked({f"MARK={mark}".encode()}, ())
            assert {leader.pid, wiped} <= killed and is_enough and stranger.poll() is None
            stranger.kill()


def test_a_process_that_runs_one_program_after_another_cannot_hide_between_them(tmp_path: Path) -> None:
    script = tmp_path / "again"
    script.write_text(f"exec sh {script}\n")
    mark = f"of-test-{os.getpid()}"
    wanted = frozenset({f"MARK={mark}".encode()})
    runner = subprocess.Popen(["sh", str(script)], env={**os.environ, "MARK": mark}, start_new_session=True)
    try:
        looks = Counter(watchdog_program.is_marked(runner.pid, wanted, ()) for _ in range(20_000))
        assert looks[False] == 0 and looks[None] and looks[True]
    finally:
        runner.kill()
        runner.wait()
