"""Real child processes: nothing of a group outlives its leader, and closing always ends."""

import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.process.child import Child, describe_exit, spawn

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, uses pidfds")]

POLITE = "import sys; sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.read(); sys.exit(3)"
SLEEPER = "import time\nwhile True: time.sleep(600)"
STUBBORN = f"""
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
{SLEEPER}
"""
WITH_CHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
child.stdout.readline()
print(child.pid, flush=True)
"""


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param})


@asynccontextmanager
async def running(program: str, *, with_pidfd: bool = True) -> AsyncIterator[Child]:
    """A Python program as a child, closed at the end; the test as a whole may take 20 s."""
    child = spawn([sys.executable, "-c", program], os.environ, None)
    if not with_pidfd:
        assert child._pidfd is not None
        os.close(child._pidfd)
        child._pidfd = None  # as on a system without pidfds
    try:
        with anyio.fail_after(240):
            yield child
    finally:
        await child.close(0, 0)


async def line(child: Child) -> str:
    text = b""
    while not text.endswith(b"\n"):
        await anyio.wait_readable(child.stdout)
        part = child.stdout.read(100)  # None: the loop may have made it non-blocking
        assert part != b"", "the child ended before the line did"
        text += part or b""
    return text.decode().splitlines()[0]


@asynccontextmanager
async def grandchild(child: Child) -> AsyncIterator[int]:
    """A pidfd of the process that `WITH_CHILD` started: it stays valid whoever reaps it."""
    pidfd = os.pidfd_open(int(await line(child)))
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_leader_has_a_group_and_session_of_its_own() -> None:
    async with running(SLEEPER) as child:
        assert os.getpgid(child.pid) == os.getsid(child.pid) == child.pid


async def test_exit_code_is_reported_and_no_zombie_stays() -> None:
    async with running("import sys; sys.exit(3)") as child:
        assert await child.wait() == 3
        assert child.returncode == 3
        assert is_gone(child.pid)


WATCHED = pytest.mark.parametrize("with_pidfd", [True, False], ids=["pidfd", "thread"])


@WATCHED
@pytest.mark.parametrize(("program", "end"), [("", 0), (SLEEPER, -signal.SIGKILL)], ids=["by itself", "killed"])
async def test_grandchild_dies_when_the_leader_ends(with_pidfd: bool, program: str, end: int) -> None:
    async with running(WITH_CHILD + program, with_pidfd=with_pidfd) as child, grandchild(child) as orphan:
        if program:
            os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == end
        await anyio.wait_readable(orphan)


async def test_grandchild_dies_on_close_of_a_polite_leader() -> None:
    async with running(WITH_CHILD + POLITE) as child, grandchild(child) as orphan:
        await child.close(10, 0)
        assert child.returncode == 3
        await anyio.wait_readable(orphan)


@pytest.mark.parametrize(
    ("program", "times", "end", "is_stopped"),
    [
        ("print('ready', flush=True)\n" + SLEEPER, (0, 10), signal.SIGTERM, False),
        (STUBBORN, (0.05, 0.05), signal.SIGKILL, False),
        (POLITE, (0.05, 0.05), signal.SIGKILL, True),
    ],
    ids=["ignores the end of file", "ignores SIGTERM, too", "is stopped"],
)
async def test_leader_that_does_not_go_is_ended(
    program: str, times: tuple[float, float], end: signal.Signals, is_stopped: bool
) -> None:
    async with running(program) as child:
        await line(child)
        if is_stopped:
            os.kill(child.pid, signal.SIGSTOP)
        await child.close(*times)
        assert child.returncode == -end


async def test_close_ends_the_child_when_the_caller_is_cancelled() -> None:
    async with running(STUBBORN) as child:
        await line(child)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await child.close(0.05, 0.05)
        assert child.returncode == -signal.SIGKILL


async def test_close_may_be_repeated_and_doubled() -> None:
    async with running(POLITE) as child:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.close, 10, 0)
            tasks.start_soon(child.close, 10, 0)
        await child.close(0, 0)
        assert child.returncode == 3
        child.kill()


async def test_kill_is_immediate_and_wait_reaps() -> None:
    async with running(WITH_CHILD + SLEEPER) as child, grandchild(child) as orphan:
        child.kill()
        assert await child.wait() == -signal.SIGKILL
        await anyio.wait_readable(orphan)


@WATCHED
async def test_every_waiter_gets_the_code_and_a_cancelled_one_harms_nobody(with_pidfd: bool) -> None:
    codes: list[int] = []

    async def waiter() -> None:
        codes.append(await child.wait())

    async with running(POLITE, with_pidfd=with_pidfd) as child:
        with anyio.move_on_after(0.01):
            await child.wait()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(waiter)
            await line(child)
            child.stdin.close()
        assert codes == [3, 3, 3]


async def test_pipes_that_were_handed_over_stay_open() -> None:
    async with running(POLITE) as child:
        stdin, stdout, stderr = child.hand_over()
        stdin.close()
        await child.close(10, 0)
        assert child.returncode == 3
        assert stdout.readall() == b"ready\n"
        stdout.close()
        stderr.close()


async def test_fifty_children_leave_no_descriptor_and_no_zombie() -> None:
    async with running(POLITE) as child:  # what the loop opens on first use is not a leak
        await child.close(10, 0)
    before = descriptors()
    for number in range(50):
        child = spawn(["/bin/sh", "-c", f"exit {number}"], os.environ, None)
        with anyio.fail_after(240):
            assert await child.wait() == number
            await child.close(1, 1)
        assert is_gone(child.pid)
    gc.collect()
    assert descriptors() == before


async def test_children_see_only_their_own_descriptors_and_environment() -> None:
    child = spawn(
        ["/bin/sh", "-c", "ls /proc/self/fd; echo $ONLY$HOME"], {"ONLY": "this", "PATH": "/usr/bin:/bin"}, "/"
    )
    with anyio.fail_after(240):
        await child.wait()
        seen = child.stdout.readall().split()
        await child.close(0, 0)
    assert seen == [b"0", b"1", b"2", b"3", b"this"]  # 3 is the folder that ls reads


def test_missing_program_folder_or_interpreter_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    plain = tmp_path / "plain"
    plain.write_text("text")
    for argv, cwd, code, named in [
        (["/no/such/program"], None, "command_not_found", "/no/such/program"),
        ([sys.executable], "/no/such/folder", "cwd_not_found", "/no/such/folder"),
        ([str(script)], None, "interpreter_not_found", str(script)),
        ([str(plain)], None, "not_executable", str(plain)),
        (["/bin/sh", "a\0b"], None, "cannot_start", "/bin/sh"),
    ]:
        before = descriptors()
        with pytest.raises(StartFailed, match=named) as caught:
            spawn(argv, {}, cwd)
        assert caught.value.code == code
        assert descriptors() == before


def test_exits_are_described_for_people() -> None:
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert describe_exit(-40) == "killed by signal 40"
