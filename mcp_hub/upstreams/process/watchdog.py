"""Ends processes that outlive their server, and servers that outlive the hub.

Descendants inherit `MCP_HUB_INSTANCE`, the hub's mark, and `MCP_HUB_CHILD`, that of a server's start. After a server's
exit, processes with its mark or in its session are killed; after a kill of the hub, the watchdog process does it. A
process that cleared its environment and left its session is not found.
"""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread

from mcp_hub.attach.machine import interpreter
from mcp_hub.attach.system import set_blocking
from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.process import reaper, watchdog_program
from mcp_hub.upstreams.process.child import Child, open_pidfd, spawn, wait_for_exit
from mcp_hub.upstreams.process.watchdog_program import INSTANCE, TABLE, kill_marked

log = get_logger(__name__)

_END: Final = 0.5
"""Seconds for the process to end after its pipe is closed."""
_STARTS, _PERIOD = 5, 60.0
"""Processes that are started at most, and the seconds within which."""


def can_watch() -> bool:
    """Whether an interpreter can run it: not in frozen programs or on Windows."""
    return sys.platform != "win32" and bool(sys.executable) and not getattr(sys, "frozen", False)


def _path() -> list[str]:
    psutil = None if sys.platform == "linux" else find_spec("psutil")
    return [] if psutil is None or psutil.origin is None else ["--path", str(Path(psutil.origin).parents[1])]


class _WatchdogProcess:
    """A process in its own session, without marks or secrets in its environment."""

    def __init__(self, instance: str, lines: str = "") -> None:
        """Raises `OSError`."""
        read, write = os.pipe()  # close-on-exec: nobody but us has the write end
        self._pipe = open(write, "wb", buffering=0)
        try:
            set_blocking(write, False)
            first = f"{instance}\n{lines}".encode()
            written = os.write(write, first)
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(watchdog_program.__file__)), "--hub", str(os.getpid()), *_path()],
                executable=interpreter(),
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                close_fds=True,
                cwd="/",
                # not empty: a search waits for the environment of a process that shows none
                env={"LC_ALL": "C", **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}},
                start_new_session=True,
            )
        except BaseException:
            self._pipe.close()
            raise
        finally:
            os.close(read)
        self.pid = self._popen.pid
        self._pidfd = open_pidfd(self.pid)
        self.send(first[written:].decode())  # thousands of sessions are more than a pipe holds

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def send(self, lines: str) -> bool:
        data = lines.encode()
        try:
            return self._pipe.write(data) == len(data)
        except (OSError, ValueError):  # ended, or closed by `discard`
            return False

    async def wait(self) -> None:
        if self._pidfd is not None:
            await wait_for_exit(self.pid, self._pidfd)
            return
        pause = 0.01
        while self.is_running:
            await anyio.sleep(pause)
            pause = min(2 * pause, 1.0)

    def discard(self) -> None:
        """Kills and reaps it. Idempotent."""
        with suppress(OSError):
            self._popen.kill()
        self._popen.wait()
        self._pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    async def stop(self) -> None:
        """Closes the pipe and waits at most `_END` seconds. Shielded."""
        self._pipe.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END):
            await self.wait()
        self.discard()


class _WatchdogHandle:
    """Keeps one watchdog process running. `sessions` is a live view."""

    def __init__(self, instance: str, sessions: Collection[int], clock: Clock) -> None:
        self._instance = instance
        self._sessions = sessions
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=_STARTS)
        self.process: _WatchdogProcess | None = None
        self.has_given_up = False
        """Whether too many were started, until one is seen running again."""

    def ensure(self) -> None:
        """Starts a process unless one runs or too many ended."""
        if self.process is not None:
            if self.process.is_running:
                if self.has_given_up:
                    log.warning("guard_recovered", pid=self.process.pid)
                    self.has_given_up = False
                return
            if not self.has_given_up:
                log.warning("guard_ended", pid=self.process.pid)
            self.process.discard()
            self.process = None
        now = self._clock.now()
        if not can_watch():
            return
        if len(self._starts) == _STARTS and now - self._starts[0] < _PERIOD:
            self._give_up()
            return
        self._starts.append(now)
        try:
            self.process = _WatchdogProcess(self._instance, "".join(f"+{pid}\n" for pid in self._sessions))
        except OSError as error:
            log.warning("guard_failed", reason=str(error))

    def _give_up(self) -> None:
        if not self.has_given_up:
            self.has_given_up = True
            consequence = "servers may outlive a hub that is killed"
            log.error("guard_given_up", starts=_STARTS, next_try=f"within {_PERIOD:g} s", consequence=consequence)

    def send(self, lines: str) -> None:
        if self.process is not None and not self.process.send(lines):
            self.process.discard()  # it has ended, or was stopped so long that its pipe is full
            self.ensure()

    async def wait(self) -> None:
        await (anyio.sleep_forever() if self.process is None else self.process.wait())

    async def stop(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            await process.stop()


CHILD: Final = "MCP_HUB_CHILD"
"""The variable that identifies the processes of one start of one server: the instance, a dot, a number."""
_TICK: Final = 2.0
"""Seconds that an adopted process may stay a zombie."""
_ROUNDS: Final = 20
"""Searches after a server's exit: 2 s at most."""


class Watchdog:
    """Starts a hub's servers and ends what they leave behind. A context manager.

    `instance`: by default 128 random bits. `may_adopt`: adopts orphans. Close all children and end `run` before the
    exit.
    """

    def __init__(self, clock: Clock, instance: str | None = None, *, may_adopt: bool = True) -> None:
        self.instance = instance or os.urandom(16).hex()
        self._may_adopt = may_adopt
        self._adopts = False
        self._stamp = reaper.new_stamp()
        self._number = 0
        self._living: dict[str, int] = {}  # MCP_HUB_CHILD → pid of the leader, until nothing of it is left
        self._ended: set[str] = set()
        self._searching = anyio.Lock()
        self._process = _WatchdogHandle(self.instance, self._living.values(), clock)
        self._is_awake = anyio.Event()

    @property
    def process_pid(self) -> int | None:
        return self._process.process.pid if self._process.process is not None else None

    @property
    def has_given_up(self) -> bool:
        return self._process.has_given_up

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        descriptors: Sequence[int] = (),
        *,
        leaves_daemons: bool = False,
    ) -> Child:
        """Starts a child with the two variables in `env`, and with the first one the watchdog process.

        With `leaves_daemons` and `release`, processes outside the group outlive the hub.
        """
        if not self._is_awake.is_set():
            self._adopts = self._may_adopt and reaper.adopt_orphans()
            self._is_awake.set()
            if not can_watch():
                log.info("guard_unavailable", consequence="servers may outlive a hub that is killed")
        self._process.ensure()
        self._number += 1
        mark = f"{self.instance}.{self._number}"
        marks = {CHILD: mark} if leaves_daemons else {INSTANCE: self.instance, CHILD: mark}
        self._process.send("?\n")  # killed in here, we could not name the child, and it has our environment until exec
        # PR_SET_PDEATHSIG is not used: it would rule out vfork, and follow the thread that forked, not the process
        try:
            child = spawn(argv, {**env, **marks}, cwd, partial(self._end_others, mark), descriptors)
        except BaseException:
            self._process.send("!\n")
            raise
        reaper.stamp(child.pid, self._stamp)
        self._living[mark] = child.pid
        self._process.send(f"+{child.pid}\n")
        return child

    def release(self, child: Child) -> None:
        """Forgets an ended child, without searching for its processes."""
        for mark in [mark for mark, pid in self._living.items() if pid == child.pid]:
            del self._living[mark]
        self._process.send(f"-{child.pid}\n")

    async def run(self) -> None:
        """Restarts the watchdog process and reaps orphans, until cancelled."""
        await self._is_awake.wait()
        while True:
            with anyio.move_on_after(_TICK):
                await self._process.wait()
            self._process.ensure()
            reaper.stamp_adopted(self._stamp, f"{INSTANCE}={self.instance}".encode())
            reaper.reap_adopted()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._process.stop()
        reaper.reap_adopted()
        if self._adopts:
            reaper.disown_orphans()
            self._adopts = False

    async def _end_others(self, mark: str) -> None:
        """Ends at the same time share a search."""
        self._ended.add(mark)
        async with self._searching:
            batch = {ended: self._living[ended] for ended in self._ended if ended in self._living}
            self._ended.clear()
            if not batch:
                return
            # a limiter of its own: the search must not wait for the threads that others work in
            search = anyio.to_thread.run_sync(_kill_left, batch, limiter=anyio.CapacityLimiter(1))
            killed, is_clean = await search
            if not is_clean:
                log.warning("children_left", marks=sorted(batch), reason="they did not end after SIGKILL")
            reaper.reap_adopted(killed)
            for ended in batch:
                del self._living[ended]
            self._process.send("".join(f"-{pid}\n" for pid in batch.values()))


def _kill_left(batch: Mapping[str, int]) -> tuple[set[int], bool]:
    """Takes milliseconds. `batch` maps marks to pids of ended leaders."""
    # a number that is a process again is somebody else's: it cannot be while anything is left of the session
    sessions = {pid for pid in batch.values() if not TABLE.exists(pid)}
    return kill_marked({f"{CHILD}={mark}".encode() for mark in batch}, sessions, _ROUNDS)
