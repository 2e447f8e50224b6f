"""A child process, which leads its own session and process group.

The group of an exited child is killed before the reaping: until then nobody else can have its id. Servers take open
files: their limit is raised, and a server is refused before it is reached.
"""

import contextlib
import errno
import io
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.files import encoded
from mcp_hub.logs import get_logger
from mcp_hub.types import Cause

EndOthers = Callable[[], Awaitable[None]]
"""Ends what has left a child's group, when the leader is gone; may be called more than once."""
NO_LOCAL_SERVERS: Final = (
    "the hub starts no programs on Windows. Run it in WSL, where it does: wsl --install -d Ubuntu, then, with mcp-hub "
    "installed in Ubuntu: mcp-hub install --all --import"
)
KILL_GRACE = 5.0
"""Seconds for SIGKILL to take effect; only processes stuck in the kernel need more."""
LEADERS: Final[set[int]] = set()
"""Pids of started, unreaped children of all hubs in this process, which only their owners reap."""


class Child:
    """A task of its owner stays in `wait()`; `close()` ends the process.

    `stdin`, `stdout` and `stderr` are blocking, unbuffered pipes, closed by `close()`.
    """

    def __init__(self, popen: subprocess.Popen[bytes], pidfd: int | None, end_others: EndOthers | None = None) -> None:
        self._popen = popen
        self._pidfd = pidfd
        self._end_others = end_others
        self._owns_pipes = True
        self.pid = popen.pid
        self.returncode: int | None = None
        """None until the leader was reaped; negative for a signal, as in `subprocess`."""
        pipes = popen.stdin, popen.stdout, popen.stderr
        self.stdin, self.stdout, self.stderr = cast(tuple[io.FileIO, io.FileIO, io.FileIO], pipes)

    def hand_over(self) -> tuple[io.FileIO, io.FileIO, io.FileIO]:
        """The pipes, for a caller that closes them: stdin before `close()`, the others after reading."""
        self._owns_pipes = False
        return self.stdin, self.stdout, self.stderr

    async def wait(self) -> int:
        """Waits for the exit and kills the group. Any number of tasks may wait."""
        if self.returncode is not None:
            await anyio.lowlevel.checkpoint()
            return self.returncode
        await wait_for_exit(self.pid, self._pidfd)
        return self._reap()

    def kill(self) -> None:
        """Sends SIGKILL to the group."""
        if sys.platform == "win32":
            raise NotImplementedError
        if self.returncode is None:
            self._signal_group(signal.SIGKILL)

    async def close(self, grace_eof: float, grace_term: float) -> None:
        """Ends the group: end of file, SIGTERM after `grace_eof` seconds, SIGKILL after `grace_term` more.

        Shielded; takes at most `KILL_GRACE` and `end_others` longer. Idempotent.
        """
        with anyio.CancelScope(shield=True):
            if self._owns_pipes:
                self.stdin.close()
            if not await self._exits_within(grace_eof):
                self._signal_group(signal.SIGTERM)
                if not await self._exits_within(grace_term):
                    self.kill()
                    await self._exits_within(KILL_GRACE)
            if self._end_others is not None:
                await self._end_others()
            if self._owns_pipes:
                self.stdout.close()
                self.stderr.close()

    async def _exits_within(self, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            await self.wait()
        return self.returncode is not None

    def _reap(self) -> int:
        if self.returncode is None:
            self.kill()
            self.returncode = self._popen.wait()
            LEADERS.discard(self.pid)
            if self._pidfd is not None:
                os.close(self._pidfd)
        return self.returncode

    def _signal_group(self, number: signal.Signals) -> None:
        # macOS answers EPERM for a group of zombies
        if sys.platform == "win32":
            raise NotImplementedError
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def refuse_here(platform: str = sys.platform) -> None:
    """Raises `StartFailed` on Windows."""
    if platform == "win32":
        raise StartFailed("no_local_servers", NO_LOCAL_SERVERS)


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    end_others: EndOthers | None = None,
    descriptors: Sequence[int] = (),
) -> Child:
    """Starts `argv`, whose first item is an absolute path, with exactly this environment.

    Blocks for milliseconds. Raises `StartFailed`.
    """
    if sys.platform == "win32":
        raise StartFailed("no_local_servers", NO_LOCAL_SERVERS)
    try:
        popen = subprocess.Popen(
            [encoded(text) for text in argv],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=True,
            pass_fds=descriptors,
            cwd=cwd if cwd is None else encoded(cwd),
            env={encoded(name): encoded(value) for name, value in env.items()},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        problem = _start_problem(error, argv[0], cwd)
        raise StartFailed(problem.code, f"cannot start {argv[0]}: {problem.reason}") from error
    LEADERS.add(popen.pid)
    return Child(popen, open_pidfd(popen.pid), end_others)


def describe_exit(returncode: int) -> str:
    """For people: "exited with code 3", "killed by SIGSEGV"."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


def _start_problem(error: OSError | ValueError, program: str, cwd: str | None) -> Cause:
    if cwd is not None and not os.path.isdir(cwd):
        return Cause("cwd_not_found", f"working directory {cwd} does not exist")
    match error:
        case FileNotFoundError() if os.path.exists(program):
            return Cause("interpreter_not_found", "the interpreter that its first line (#!) names does not exist")
        case FileNotFoundError():
            return Cause("command_not_found", "no such file")
        case PermissionError() if cwd is not None and not os.access(cwd, os.X_OK):
            return Cause("cwd_not_accessible", f"no permission to enter working directory {cwd}")
        case PermissionError():
            return Cause("not_executable", "no permission to execute it")
        case OSError():
            return Cause("cannot_start", error.strerror or str(error))
        case _:
            return Cause("cannot_start", str(error))  # a NUL in an argument or in the environment


def open_pidfd(pid: int) -> int | None:
    """A descriptor, readable at the exit; None where unavailable."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


async def wait_for_exit(pid: int, pidfd: int | None) -> None:
    """Waits for a child's exit without reaping it."""
    if pidfd is not None:
        await _wait_for_pidfd(pidfd)
        return
    # a limiter of its own: waiting for a child must not use up the threads that others work in
    limiter = anyio.CapacityLimiter(1)
    await anyio.to_thread.run_sync(_block_until_exit, pid, abandon_on_cancel=True, limiter=limiter)


async def _wait_for_pidfd(pidfd: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    descriptor = os.dup(pidfd)  # anyio allows one reader a descriptor
    exited = select.poll()
    exited.register(descriptor, select.POLLIN)
    try:
        await anyio.wait_readable(descriptor)
        while not exited.poll(0):  # a wake-up meant for another descriptor must not get a living process killed
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _block_until_exit(pid: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    with contextlib.suppress(ChildProcessError, ProcessLookupError):  # another waiter's thread was faster
        if sys.platform == "darwin":  # its waitid leaves nothing to reap before Python 3.13
            watch = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            with contextlib.closing(select.kqueue()) as queue:
                (event,) = queue.control([watch], 1, None)
            if event.flags & select.KQ_EV_ERROR and event.data != errno.ESRCH:  # that one has exited before
                raise OSError(event.data, os.strerror(event.data))
        else:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


with suppress(ImportError):  # Windows
    import resource

log = get_logger(__name__)

PER_SERVER: Final = 10
"""Descriptors of one process: its pipes with a copy of each, its exit, one that is open for a moment, and those of a
sandbox: its notifications and its private home.
"""
HUB: Final = 48
"""Descriptors of the hub itself: 28, and some for reading files."""
_COPIES: Final = 4
"""Descriptors that a process which is being started still opens."""
_SPARE: Final = 16
_RECOUNT: Final = 0.1
"""Seconds between counts of open files: a count looks at each, and servers start by the hundred."""
_FAR: Final = 256
"""Files that clients do not open within that time."""
_ROOM: Final = 4096
"""The limit is raised at least to this, for sessions and connections."""


class _Starts:
    """Processes that are being started, and the open files when they were last counted."""

    def __init__(self) -> None:
        self.count = 0
        self._files: int | None = None
        self._counted = -math.inf

    def files(self, allowed: int) -> int | None:
        """Open files; counted again after 0.1 s, or when there may soon be more than `allowed`."""
        time_now = SystemClock.now()
        if self._files is None or self._files > allowed - _FAR or time_now - self._counted > _RECOUNT:
            self._files, self._counted = _open_files(), time_now
        return self._files

    @contextmanager
    def begin(self) -> Iterator[None]:
        if self._files is not None:
            self._files += PER_SERVER
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


_STARTS: Final = _Starts()


def provide(needed: int) -> None:
    """Raises the process's limit if possible."""
    if sys.platform != "win32":
        _raise_limit(needed)


def _raise_limit(needed: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    more = max(needed, _ROOM) if hard == resource.RLIM_INFINITY else min(hard, max(needed, _ROOM))
    if more > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            log.info("open_files_raised", before=soft, now=more, needed=needed)
        except (OSError, ValueError) as problem:
            log.debug("open_files_not_raised", reason=str(problem))
            more = soft
    if more < needed:
        log.warning("open_files_few", allowed=more, needed=needed, fix="raise the hard limit: ulimit -Hn")


@contextmanager
def room_for_server() -> Iterator[None]:
    """Reserves one process's descriptors. Raises `StartFailed` if too few are left."""
    limit, room = _limit(), PER_SERVER + _STARTS.count * _COPIES + _SPARE
    if limit is not None and (files := _STARTS.files(limit - room)) is not None and files + room > limit:
        needed = files + room
        reason = f"the hub may open {limit} files, and needs {needed} with this server. Raise the limit: ulimit -n"
        raise StartFailed("too_many_files", reason)
    with _STARTS.begin():
        yield


def _limit() -> int | None:
    if sys.platform == "win32":
        return None
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft


def _open_files() -> int | None:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return None
