"""Processes on Linux and macOS: the same cases for both. Calls of macOS are noted, and made by those of Linux."""

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import anyio
import pytest

from mcp_hub.attach.folder import peer_uid
from mcp_hub.clock import SystemClock
from mcp_hub.upstreams.process import watchdog, watchdog_program
from mcp_hub.upstreams.process.child import spawn
from mcp_hub.upstreams.process.watchdog import CHILD, Watchdog
from mcp_hub.upstreams.process.watchdog_program import Table, _ProcTable, _PsutilTable, is_marked, kill_marked
from tests.unit.wire.raw_lines import within

psutil = pytest.importorskip("psutil")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux"),
]
TABLES = [_ProcTable(), _PsutilTable(lambda: psutil)]
LEAVES = "setsid sh -c 'echo $$; exec sleep 60' & exec cat"
"""A shell command whose child leaves its process group and prints its pid."""
ENV = {"PATH": os.environ["PATH"]}


class Kevent(NamedTuple):
    ident: int
    filter: int
    flags: int
    fflags: int
    data: int = 0


class System:
    """The system calls of macOS, noted. They wait as Linux does, or answer with an error number as kevent(2) does."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.error = 0

    def control(self, changes: list[Kevent], size: int, seconds: None) -> list[Kevent]:
        (change,) = changes
        self.calls.append(("kevent", *change))
        if self.error == errno.ESRCH:
            os.waitid(os.P_PID, change.ident, os.WEXITED | os.WNOWAIT)
        if self.error:
            return [change._replace(flags=0x4000, data=self.error)]
        os.waitid(os.P_PID, change.ident, os.WEXITED | os.WNOWAIT)
        return [change]

    def close(self) -> None:
        self.calls.append(("close",))


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    names = {"KQ_FILTER_PROC": -5, "KQ_EV_ADD": 1, "KQ_NOTE_EXIT": 1 << 31, "KQ_EV_ERROR": 0x4000}
    for name, value in {**names, "kevent": Kevent, "kqueue": lambda: system}.items():
        monkeypatch.setattr(select, name, value, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    return system


@pytest.fixture(params=["linux", "darwin"])
def system(request: pytest.FixtureRequest) -> Iterator[System | None]:
    yield request.getfixturevalue("macos") if request.param == "darwin" else None


def noting(system: System | None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The calls about groups and zombies, in order, besides those that the system has noted."""
    calls = [] if system is None else system.calls
    killpg, wait = os.killpg, subprocess.Popen.wait

    def noted_killpg(group: int, number: int) -> None:
        calls.append(("killpg", group, number))
        killpg(group, number)

    def noted_wait(popen: Any, timeout: float | None = None) -> int:
        calls.append(("wait", popen.pid))
        return wait(popen, timeout)

    monkeypatch.setattr(os, "killpg", noted_killpg)
    monkeypatch.setattr(subprocess.Popen, "wait", noted_wait)
    return calls


async def test_group_is_killed_before_a_leader_is_reaped(
    system: System | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = noting(system, monkeypatch)
    child = spawn(["/bin/sh", "-c", "exit 3"], ENV, None)
    assert await within(child.wait()) == 3
    watched = [] if system is None else [("kevent", child.pid, -5, 1, 1 << 31, 0), ("close",)]
    assert calls == [*watched, ("killpg", child.pid, signal.SIGKILL), ("wait", child.pid)]
    await child.close(0, 0)


async def test_leader_is_ended_by_eof_sigterm_sigkill(system: System | None, monkeypatch: pytest.MonkeyPatch) -> None:
    child = spawn(["/bin/sh", "-c", "trap '' TERM; echo; while :; do sleep 60; done"], ENV, None)
    with anyio.fail_after(240):
        await anyio.wait_readable(child.stdout)
        calls = noting(system, monkeypatch)
        await child.close(0.01, 0.01)
    signals = [call[2] for call in calls if call[0] == "killpg"]
    assert signals == [signal.SIGTERM, signal.SIGKILL, signal.SIGKILL] and child.returncode == -signal.SIGKILL


async def test_a_process_that_has_exited_before_it_is_watched_counts_as_exited(macos: System) -> None:
    macos.error = errno.ESRCH
    child = spawn(["/bin/sh", "-c", "exit 4"], ENV, None)
    assert await within(child.wait()) == 4
    await child.close(0, 0)


async def test_a_process_that_cannot_be_watched_is_not_taken_to_have_exited(macos: System) -> None:
    child = spawn(["/bin/sh", "-c", "exec sleep 60"], ENV, None)
    macos.error = errno.EACCES
    with anyio.fail_after(240), pytest.raises(OSError, match="ermission"):
        await child.wait()
    macos.error = 0
    await child.close(0, 0)
    assert child.returncode == -signal.SIGTERM


async def test_a_group_of_zombies_may_answer_eperm(macos: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", refuse)
    child = spawn(["/bin/sh", "-c", "exit 0"], ENV, None)
    assert await within(child.wait()) == 0
    await child.close(0, 0)


@pytest.mark.parametrize("table", TABLES, ids=["proc", "psutil"])
def test_both_tables_say_what_a_process_is(table: Table) -> None:
    mark = b"MARK=of-the-test"
    with subprocess.Popen(["sleep", "60"], env={"MARK": "of-the-test", "A": "b=c", "EMPTY": ""}) as process:
        while b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes():
            os.sched_yield()
        assert {process.pid, os.getpid()} <= {*table.pids()}
        assert {*table.environment(process.pid).split(b"\0")} >= {mark, b"A=b=c", b"EMPTY="}
        assert table.exists(process.pid) and table.is_running(process.pid) and table.has_memory(process.pid)
        assert is_marked(process.pid, frozenset([mark]), (), table)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert table.exists(process.pid) and not table.is_running(process.pid) and not table.has_memory(process.pid)
        assert not is_marked(process.pid, frozenset([mark]), (), table)
    assert not table.exists(process.pid) and not table.is_running(process.pid) and not table.has_memory(process.pid)
    assert table.environment(process.pid) == b"?"


@pytest.mark.parametrize("table", TABLES, ids=["proc", "psutil"])
async def test_process_that_left_its_group_ends_with_its_server(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "TABLE", table)
    monkeypatch.setattr(
        watchdog, "kill_marked", lambda marks, sessions, rounds: kill_marked(marks, sessions, rounds, table)
    )
    with anyio.fail_after(240):
        async with Watchdog(SystemClock()) as hub:
            child = hub.spawn(["/bin/sh", "-c", LEAVES], ENV, None)
            await anyio.wait_readable(child.stdout)
            gone = os.pidfd_open(int(child.stdout.read(100)))
            assert b"%b=%b" % (CHILD.encode(), hub.instance.encode()) in table.environment(child.pid)
            await child.close(0, 0)
            await anyio.wait_readable(gone)
            os.close(gone)


def test_the_watchdog_process_of_macos_ends_what_has_left_its_group(tmp_path: Path) -> None:
    """It is isolated, so it is given the folder of psutil, which is that of Linux here."""
    folder = str(Path(psutil.__file__).parents[1])
    lines = ("import sys", "sys.platform = 'linux'", f"sys.path.insert(0, {folder!r})", "del sys.modules['psutil']")
    (tmp_path / "psutil.py").write_text("\n".join((*lines, "import psutil")))
    program = str(Path(watchdog_program.__file__))
    arguments = [program, "--hub", str(os.getpid()), "--path", str(tmp_path)]
    run = f"runpy.run_path({program!r}, None, '__main__')"
    start = f"import runpy, sys; sys.platform = 'darwin'; sys.argv = {arguments}; {run}"
    mark = f"of-test-{os.getpid()}-macos"
    env = {**ENV, watchdog_program.INSTANCE: mark}
    with (
        subprocess.Popen([sys.executable, "-I", "-S", "-c", start], stdin=subprocess.PIPE) as guard,
        subprocess.Popen(["setsid", "sleep", "60"], env=env) as escaped,
    ):
        assert guard.stdin is not None
        guard.stdin.write(f"{mark}\n".encode())
        guard.stdin.close()
        assert escaped.wait(60) == -signal.SIGKILL and guard.wait(60) == 0


def test_without_psutil_no_process_is_seen_and_nothing_fails() -> None:
    def load() -> Any:
        raise ImportError

    table = _PsutilTable(load)
    assert (table.pids(), table.environment(1), table.exists(os.getpid())) == ((), b"?", False)
    assert kill_marked({b"A=b"}, {1}, table=table) == (set(), True)


@pytest.mark.parametrize(
    ("platform", "option", "answer"),
    [
        ("linux", (1, 17, 12), (7).to_bytes(4, sys.byteorder) + (501).to_bytes(4, sys.byteorder) + bytes(4)),
        ("darwin", (0, 1, 76), bytes(4) + (501).to_bytes(4, sys.byteorder) + bytes(68)),
    ],
)
def test_each_system_says_whose_the_other_end_of_a_socket_is(
    platform: str, option: tuple[int, ...], answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`struct ucred` has the user behind the pid, `struct xucred` behind the version."""
    calls: list[tuple[int, ...]] = []

    def getsockopt(*about: int) -> bytes:
        calls.append(about)
        return answer

    connection: Any = SimpleNamespace(getsockopt=getsockopt)
    monkeypatch.setattr(sys, "platform", platform)
    assert peer_uid(connection) == 501 and calls == [option]
