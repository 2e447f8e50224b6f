"""Nothing outlives its server, and no server its hub; what is not ours is left alone. Real processes."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.upstreams.process import reaper
from mcp_hub.upstreams.process import watchdog as module
from mcp_hub.upstreams.process.child import Child
from mcp_hub.upstreams.process.watchdog import CHILD, Watchdog, _WatchdogProcess
from mcp_hub.upstreams.process.watchdog_program import INSTANCE
from tests.interaction.fronts import is_alive
from tests.upstreams.child import until
from tests.upstreams.family import descriptors, start_time

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

SLEEP = "exec sleep 1000"
OWN_GROUP = 'import os; os.setpgid(0, 0); print(os.getpid(), flush=True); os.execvp("sleep", ["sleep", "1000"])'
ESCAPES = {
    "setsid": f"setsid sh -c 'echo $$; {SLEEP}' &",
    "double fork": f"(setsid sh -c 'echo $$; {SLEEP}' &)",
    "ignores SIGTERM": f"setsid sh -c 'trap \"\" TERM HUP INT; echo $$; {SLEEP}' &",
    "no environment": f"env -i {sys.executable} -I -S -c '{OWN_GROUP}' &",
}
"""Shell commands that leave the process group and print the pid; the last one stays in the session."""
OUTSIDER = f"env -i setsid sh -c 'echo $$; {SLEEP}' &"
"""The documented exception: neither environment nor session."""
STAY = "cat >/dev/null"


@asynccontextmanager
async def guarding(**options: Any) -> AsyncIterator[Watchdog]:
    """A watchdog that runs; a test may take 20 s."""
    with anyio.fail_after(240):
        async with Watchdog(SystemClock(), **options) as watchdog, anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            try:
                yield watchdog
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def shell(watchdog: Watchdog, script: str) -> AsyncIterator[Child]:
    child = watchdog.spawn(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, None)
    try:
        yield child
    finally:
        await child.close(0, 0)


async def lines(child: Child, count: int) -> list[str]:
    text = b""
    while text.count(b"\n") < count:
        await anyio.wait_readable(child.stdout)
        chunk = child.stdout.read(1000)
        assert chunk != b"", f"ended after {text!r}: {child.stderr.read(1000)!r}"
        text += chunk or b""
    return text.decode().splitlines()


async def pids(child: Child, count: int = 1) -> list[int]:
    return [int(line) for line in await lines(child, count)]


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    """Starts a process of somebody else, in a session of its own, with this environment; its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def run(**env: str) -> int:
        started.append(subprocess.Popen(["sleep", "1000"], env={**os.environ, **env}, start_new_session=True))
        return started[-1].pid

    yield run
    for process in started:
        process.kill()
        process.wait()


def is_stamped(pid: int) -> bool:
    limits = [resource.prlimit(each, resource.RLIMIT_RTTIME)[0] for each in (pid, os.getpid())]
    return limits[0] >= 1 << 62 and limits[0] != limits[1]


def gone(pid: int) -> Callable[[], bool]:
    """Not even a zombie is left."""
    start = start_time(pid)
    return lambda: start_time(pid) != start


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_children_carry_the_hub_and_their_own_start_whatever_is_configured() -> None:
    async with guarding() as watchdog:
        assert len(bytes.fromhex(watchdog.instance)) == 16
        seen = []
        for _ in range(2):
            script = f"echo ${INSTANCE}; echo ${CHILD}"
            child = watchdog.spawn(["/bin/sh", "-c", script], {INSTANCE: "x", CHILD: "y"}, "/")
            seen.append(await lines(child, 2))
            await child.close(1, 0)
        assert [instance for instance, _ in seen] == [watchdog.instance] * 2
        assert seen[0][1] != seen[1][1]


@pytest.mark.parametrize("way", ESCAPES)
@pytest.mark.parametrize("end", ["exit", "kill", "close"])
async def test_nothing_outlives_its_server(way: str, end: str) -> None:
    async with guarding() as watchdog, shell(watchdog, f"{ESCAPES[way]}\n{STAY}") as child:
        (left,) = await pids(child)
        is_gone = gone(left)
        if end == "exit":
            child.stdin.close()
        elif end == "kill":
            os.kill(child.pid, signal.SIGKILL)
        await child.close(5, 5)
        assert is_gone()


async def test_only_what_belongs_to_the_server_that_ended_is_killed(start: Callable[..., int]) -> None:
    script = f"{ESCAPES['setsid']}\n{STAY}"
    async with guarding() as watchdog, guarding() as other:
        async with shell(watchdog, script) as a, shell(watchdog, script) as b, shell(other, script) as c:
            ours, neighbour, foreign = [(await pids(child))[0] for child in (a, b, c)]
            strangers = [start(), start(**{INSTANCE: "else"}), start(**{CHILD: f"{watchdog.instance}.11"})]
            await a.close(0, 5)
            assert not is_alive(ours)
            assert all(map(is_alive, [neighbour, foreign, *strangers]))


async def test_what_has_neither_environment_nor_session_is_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK", 0.02)
    async with guarding() as watchdog, shell(watchdog, f"{OUTSIDER}\n{STAY}") as child:
        (left,) = await pids(child)
        await child.close(5, 5)
        assert is_alive(left)
        is_gone = gone(left)
        os.kill(left, signal.SIGKILL)
        await until(is_gone)  # adopted, so reaped here


async def test_servers_that_end_together_share_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []
    kill = module._kill_left

    def counted(batch: dict[str, int]) -> tuple[set[int], bool]:
        batches.append(len(batch))
        return kill(batch)

    monkeypatch.setattr(module, "_kill_left", counted)
    async with guarding() as watchdog:
        children = [watchdog.spawn(["/bin/sh", "-c", STAY], {}, None) for _ in range(20)]
        async with anyio.create_task_group() as tasks:
            for child in [*children, *children]:
                tasks.start_soon(child.close, 5, 5)
        assert sum(batches) == 20
        assert len(batches) < 20


# -- adoption ----------------------------------------------------------------------------------------------------


async def test_daemon_of_a_living_server_is_adopted_and_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK", 0.02)
    async with guarding() as watchdog, shell(watchdog, f"{ESCAPES['double fork']}\n{STAY}") as child:
        (daemon,) = await pids(child)
        await until(lambda: f"PPid:\t{os.getpid()}\n" in Path(f"/proc/{daemon}/status").read_text())
        await until(lambda: is_stamped(daemon))  # which it may have escaped at first
        is_gone = gone(daemon)
        os.kill(daemon, signal.SIGKILL)
        await until(is_gone)


async def test_zombies_of_a_server_are_reaped_with_it() -> None:
    unreaped = """
import os, sys
if not (pid := os.fork()):
    os.setsid()
    os._exit(0)
print(pid, flush=True)
sys.stdin.read()
"""
    async with guarding() as watchdog:
        child = watchdog.spawn([sys.executable, "-I", "-S", "-c", unreaped], {}, None)
        (zombie,) = await pids(child)
        await until(lambda: state(zombie) == "Z")
        is_gone = gone(zombie)
        await child.close(5, 5)
        await until(is_gone)


@pytest.fixture(params=[False, True], ids=["on its own", "under another hub"])
def hub_above(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under another hub this process, and what others in it start, has that one's stamp."""
    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    if request.param:
        reaper.stamp(os.getpid(), reaper.new_stamp())
    yield
    resource.setrlimit(resource.RLIMIT_RTTIME, before)


@pytest.mark.usefixtures("hub_above")
async def test_children_of_others_in_this_process_are_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TICK", 0.01)
    async with guarding() as watchdog, guarding() as other:
        async with shell(watchdog, f"{ESCAPES['double fork']}\n{STAY}") as child, shell(other, STAY):
            foreign = subprocess.Popen(["/bin/sh", "-c", "exit 7"])  # noqa: ASYNC220 - not to be waited for yet
            await until(lambda: state(foreign.pid) == "Z")
            (daemon,) = await pids(child)
            await until(lambda: is_stamped(daemon))
            is_gone = gone(daemon)
            os.kill(daemon, signal.SIGKILL)
            await until(is_gone)  # so both have looked for zombies
            assert foreign.wait() == 7


async def test_process_adopts_as_long_as_one_of_its_hubs_has_servers() -> None:
    assert not reaper._is_subreaper()
    async with guarding() as first:
        assert not reaper._is_subreaper()
        async with shell(first, STAY), guarding() as second, shell(second, STAY):
            assert reaper._is_subreaper()
        assert reaper._is_subreaper()
    assert not reaper._is_subreaper()


def test_limit_that_somebody_chose_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_RTTIME, (1000, resource.RLIM_INFINITY))
            reaper.stamp(process.pid, reaper.new_stamp())
        assert resource.prlimit(process.pid, resource.RLIMIT_RTTIME) == (1000, resource.RLIM_INFINITY)
        process.kill()


# -- the watchdog process ----------------------------------------------------------------------------------------


HUB = """
import os, sys
from mcp_hub.upstreams.process.watchdog import _WatchdogProcess
guard = _WatchdogProcess("mine", sys.argv[1])
if not os.fork():
    os.read(0, 1)  # holds the guard's pipe as long as the test wants
    os._exit(0)
print(guard.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def killed_hub(told: str) -> Iterator[int]:
    """The guard of a hub that is dead, while something else still holds the pipe open."""
    with subprocess.Popen([sys.executable, "-c", HUB, told], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hub:
        assert hub.stdout is not None
        pid = int(hub.stdout.readline())
        hub.kill()
        yield pid


@pytest.mark.parametrize("is_told", [True, False], ids=["end of file", "end of the hub's process"])
async def test_guard_kills_what_is_marked_and_nothing_else(start: Callable[..., int], is_told: bool) -> None:
    """Marked here is what has the environment, and what is in a session that the guard was told of."""
    ours = [start(**{INSTANCE: "mine"}), start(**{INSTANCE: "mine", CHILD: "mine.1"}), start()]
    strangers = [start(), start(**{INSTANCE: "mine2"}), start(**{"X_" + INSTANCE: "mine"}), start(X=f"{INSTANCE}=mine")]
    if is_told:
        guard = _WatchdogProcess("mine", f"+{ours[2]}\n+{strangers[0]}\n")
        assert guard.send(f"-{strangers[0]}\n")
        await guard.stop()
    else:
        with killed_hub(f"+{ours[2]}\n") as guard_pid:
            await until(lambda: not is_alive(guard_pid))
    assert not any(map(is_alive, ours))
    assert all(map(is_alive, strangers))


async def test_guard_starts_with_the_first_server_and_ends_with_the_hub(start: Callable[..., int]) -> None:
    marked = start(**{INSTANCE: "late"})
    async with guarding(instance="late") as watchdog:
        assert watchdog.process_pid is None
        async with shell(watchdog, STAY), shell(watchdog, STAY):
            pid = watchdog.process_pid
            assert pid is not None and is_alive(pid)
    assert start_time(pid) is None
    assert not is_alive(marked)


def environment(pid: int) -> dict[str, str]:
    items = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(item.split("=", 1) for item in items if item)


async def test_guard_has_nothing_of_ours_but_its_end_of_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSTANCE, "a hub that this one is a server of")
    monkeypatch.setenv("SECRET", "x")
    async with guarding() as watchdog, shell(watchdog, STAY) as child:
        process = watchdog._process.process
        assert process is not None and watchdog.process_pid is not None
        pipe = os.readlink(f"/proc/self/fd/{process._pipe.fileno()}")
        guard, ours = watchdog.process_pid, {pipe, "/dev/null", "anon_inode:[pidfd]"}
        await until(lambda: set(descriptors(guard).values()) <= ours)  # its program, once it is read
        links = descriptors(guard)
        assert {name: links.pop(name) for name in "012"} == {"0": pipe, "1": "/dev/null", "2": "/dev/null"}
        assert set(links.values()) <= {"anon_inode:[pidfd]"}
        assert pipe not in descriptors(child.pid).values()
        assert environment(watchdog.process_pid).keys() <= {"LC_ALL", "LD_LIBRARY_PATH"}
        assert os.getsid(watchdog.process_pid) == watchdog.process_pid


async def test_guard_ignores_signals_that_are_meant_for_the_family() -> None:
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    mask = sum(1 << number - 1 for number in ignored)
    async with guarding() as watchdog, shell(watchdog, STAY):
        pid = watchdog.process_pid
        assert pid is not None
        await until(lambda: _ignored(pid) & mask == mask)  # it needs a moment to start
        for number in ignored:
            os.kill(pid, number)
        await anyio.sleep(0.05)
        assert watchdog.process_pid == pid and is_alive(pid)


def _ignored(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn")]
    return int(line.split()[1], 16)


async def test_guard_that_was_killed_is_replaced_by_one_that_knows_as_much() -> None:
    async with guarding() as watchdog:
        child = watchdog.spawn(["/usr/bin/env", "-i", "sleep", "1000"], {"PATH": os.environ["PATH"]}, None)
        first = watchdog.process_pid
        assert first is not None
        is_gone = gone(first)
        os.kill(first, signal.SIGKILL)
        await until(lambda: watchdog.process_pid not in (None, first))
        assert is_gone()
        await watchdog._process.stop()  # as when this process is killed
        with anyio.fail_after(240):
            assert await child.wait() == -signal.SIGKILL
        await child.close(0, 0)


async def test_guard_that_was_stopped_is_replaced_when_its_pipe_is_full() -> None:
    async with guarding() as watchdog, shell(watchdog, STAY):
        first, guard = watchdog.process_pid, watchdog._process.process
        assert first is not None and guard is not None
        os.kill(first, signal.SIGSTOP)
        for line in ("+1\n" * 1000, "+1\n"):
            while guard.send(line):
                pass
        async with shell(watchdog, STAY):
            assert watchdog.process_pid not in (None, first)
            assert not is_alive(first)


async def test_guard_that_cannot_run_is_tried_a_few_times_and_servers_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_TICK", 0.01)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    started: list[_WatchdogProcess] = []
    real = _WatchdogProcess

    def counted(instance: str, lines: str) -> _WatchdogProcess:
        started.append(real(instance, lines))
        return started[-1]

    monkeypatch.setattr(module, "_WatchdogProcess", counted)
    async with guarding() as watchdog, shell(watchdog, "echo here; cat") as child:
        await until(lambda: len(started) == 5 and watchdog.process_pid is None)
        assert await lines(child, 1) == ["here"]
        async with shell(watchdog, "echo there; cat") as other:
            assert await lines(other, 1) == ["there"]
        await until(lambda: watchdog.has_given_up)
        await anyio.sleep(0.1)
        assert len(started) == 5


async def test_without_an_interpreter_there_is_no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    async with guarding() as watchdog, shell(watchdog, f"{ESCAPES['setsid']}\n{STAY}") as child:
        (left,) = await pids(child)
        assert watchdog.process_pid is None
        await child.close(0, 5)
        assert not is_alive(left)
