"""The hub's end of the watchdog process."""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.attach.machine import interpreter
from mcp_hub.attach.system import set_blocking
from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.process import watchdog_program
from mcp_hub.upstreams.process.child import open_pidfd, wait_for_exit

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


class WatchdogProcess:
    """A watchdog process in its own session, without marks or secrets in its environment."""

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
        """Reaps an ended process."""
        return self._popen.poll() is None

    def send(self, lines: str) -> bool:
        """False if the process has ended or does not read."""
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


class WatchdogHandle:
    """Keeps one watchdog process running. `sessions` is a live view."""

    def __init__(self, instance: str, sessions: Collection[int], clock: Clock) -> None:
        self._instance = instance
        self._sessions = sessions
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=_STARTS)
        self.process: WatchdogProcess | None = None
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
            self.process = WatchdogProcess(self._instance, "".join(f"+{pid}\n" for pid in self._sessions))
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
        """Waits for the process's end; forever without one."""
        await (anyio.sleep_forever() if self.process is None else self.process.wait())

    async def stop(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            await process.stop()
