"""The program of the watchdog process: waits until its hub is gone, and kills the remaining processes.

Runs without `site`: only the standard library, and psutil where `/proc` is missing. Lines on standard input: the hub's
instance; then `?` before a start, `+pid` for a started session, `!` for a failed start, `-pid` for an ended session.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any

INSTANCE = "MCP_HUB_INSTANCE"
"""The variable that every process of a hub has in its environment."""
_ROUNDS = 100
"""Searches, each of which waits a tenth of a second at most: a process that fork()s as fast as it is killed, or one
that is stuck in the kernel, must not keep the process for ever."""
_PAUSE = 0.01
"""Seconds between two empty searches: a process that was just being started shows its own environment by then."""
_DEATH = 50
"""Looks, 2 ms apart, that killed processes have to be gone."""
_STARTING = 150
"""Searches, of 10 ms and more, that a process may take to show its mark when its hub was killed in the middle of
starting it. Until then it has the hub's own environment."""
_HIDDEN = 10
"""Searches that wait for a process to show its environment: one between two programs soon does, others have none."""


class _ProcTable:
    """The machine's processes by `/proc` (Linux)."""

    def pids(self) -> "Iterable[int]":
        with suppress(OSError):
            return [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return []

    def environment(self, pid: int) -> bytes:
        """The process's variables at its start; `?` if unreadable."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return file.read()
        except OSError:
            return b"?"

    def has_memory(self, pid: int) -> bool:
        """False for zombies and kernel threads."""
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return not file.read().startswith(b"0 ")
        except OSError:
            return False

    def is_running(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
        except OSError:
            return False

    def exists(self, pid: int) -> bool:
        """True also for zombies."""
        return os.path.exists(f"/proc/{pid}")


class _PsutilTable:
    """The machine's processes by psutil (macOS); empty without it."""

    def __init__(self, load: "Callable[[], Any]") -> None:
        self._load = load
        self._loaded: Any = None

    def _psutil(self) -> "Any":
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _process(self, pid: int, look: "Callable[[Any], Any]", otherwise: "Any") -> "Any":
        try:
            psutil = self._psutil()
            try:
                return look(psutil.Process(pid))
            except (psutil.Error, OSError):
                return otherwise
        except ImportError:
            return otherwise

    def pids(self) -> "Iterable[int]":
        try:
            pids: Iterable[int] = self._psutil().pids()
        except ImportError:
            return ()
        return pids

    def environment(self, pid: int) -> bytes:
        variables = self._process(pid, lambda process: process.environ(), None)
        if variables is None:
            return b"?"
        return b"\0".join(os.fsencode(f"{name}={value}") for name, value in variables.items())

    def has_memory(self, pid: int) -> bool:
        return bool(self._process(pid, lambda process: process.memory_info().rss, 0))

    def is_running(self, pid: int) -> bool:
        state = self._process(pid, lambda process: process.status(), None)
        return state not in (None, "zombie", "dead")

    def exists(self, pid: int) -> bool:
        return bool(self._process(pid, lambda process: True, False))


Table = _ProcTable | _PsutilTable
TABLE: Table = _ProcTable() if sys.platform == "linux" else _PsutilTable(lambda: __import__("psutil"))


def processes(table: Table = TABLE) -> "Iterator[int]":
    """Every process but this one."""
    this_process = os.getpid()
    yield from (pid for pid in table.pids() if pid != this_process)


def kill_marked(
    marks: "Collection[bytes]", sessions: "Collection[int]", rounds: int = _ROUNDS, table: Table = TABLE
) -> tuple[set[int], bool]:
    """Sends SIGKILL to processes with one of `marks` ("NAME=value"), in one of `sessions`, or in a session those began.

    Repeats until two searches find none. Returns the pids, and whether `rounds` sufficed. Spares other users'
    processes.
    """
    if sys.platform == "win32":
        raise NotImplementedError
    marked, empty, reached = frozenset(marks), 0, set(sessions)
    killed, spared, matches, hidden = set[int](), set[int](), list[int](), dict[int, int]()
    for _ in range(rounds):
        looks = {pid: is_marked(pid, marked, reached, table) for pid in processes(table) if pid not in spared}
        matches = [pid for pid, is_found in looks.items() if is_found]
        hidden = {pid: hidden.get(pid, 0) + 1 for pid, is_found in looks.items() if is_found is None}
        reached.update(session for pid in matches if (session := _begun_session(pid, marked, table)))
        is_hidden = any(searches <= _HIDDEN for searches in hidden.values())
        for pid in matches:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                spared.add(pid)
        if matches:
            empty = 0
            killed.update(matches)
            _wait_until_gone(matches, table)
        elif empty and not is_hidden:
            return killed - spared, True
        else:
            empty = 0 if is_hidden else 1
            time.sleep(_PAUSE)
    return killed - spared, not matches


def is_marked(pid: int, marks: frozenset[bytes], sessions: "Collection[int]", table: Table = TABLE) -> bool | None:
    """Whether to kill the process; None during an exec, which hides the environment."""
    if sys.platform == "win32":
        raise NotImplementedError
    with suppress(OSError):
        if os.getsid(pid) in sessions:
            return table.is_running(pid)
    environment = table.environment(pid)
    if environment == b"" and table.has_memory(pid):
        return None
    return not marks.isdisjoint(environment.split(b"\0"))


def _begun_session(pid: int, marks: frozenset[bytes], table: Table) -> int:
    """The process's session, if its leader is marked or has ended; else 0."""
    if sys.platform == "win32":
        raise NotImplementedError
    with suppress(OSError):
        session = os.getsid(pid)
        if session != os.getsid(0) and (has_mark(session, marks, table) or not table.is_running(session)):
            return session
    return 0


def has_mark(pid: int, marks: frozenset[bytes], table: Table = TABLE) -> bool:
    """Whether one of `marks` is in its initial environment."""
    return not marks.isdisjoint(table.environment(pid).split(b"\0"))


def _wait_until_gone(pids: "Collection[int]", table: Table) -> None:
    for _ in range(_DEATH):
        if not any(map(table.is_running, pids)):
            return
        time.sleep(0.002)


def _follow(hub: int) -> tuple[str, set[int], bool]:
    """The instance, the remaining sessions, and whether a start was under way."""
    if sys.platform == "win32":
        raise NotImplementedError
    ready = select.poll()
    ready.register(0, select.POLLIN)
    patience = None if _register_exit(ready, hub) else 100
    lines: list[bytes] = [b""]
    instance, sessions, is_starting = "", set[int](), False
    while 0 in dict(ready.poll(patience)):
        data = os.read(0, 65536)
        if not data:
            break
        *lines, partial = (lines[-1] + data).split(b"\n")
        for line in lines:
            if line in (b"?", b"!"):
                is_starting = line == b"?"
            elif line.startswith(b"+"):
                sessions.add(int(line[1:]))
                is_starting = False
            elif line.startswith(b"-"):
                sessions.discard(int(line[1:]))
            else:
                instance = line.decode()
        lines = [partial]
    return instance, sessions, is_starting


def _register_exit(ready: "Any", hub: int) -> bool:
    """Needed besides the pipe, which a fork() may hold open."""
    if sys.platform == "linux":
        with suppress(OSError):
            pidfd = os.pidfd_open(hub)
            if os.getppid() == hub:  # else the number may be another's
                ready.register(pidfd, select.POLLIN)
    return os.getppid() == hub


def main() -> None:
    """Runs until the hub ends; ignores other signals."""
    if sys.platform == "win32":
        raise NotImplementedError
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    options = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if "--path" in options:
        sys.path.append(options["--path"])
    instance, sessions, is_starting = _follow(int(options["--hub"]))
    for session in sessions:
        with suppress(OSError):
            os.killpg(session, signal.SIGKILL)
    if not instance:
        return
    marks = {f"{INSTANCE}={instance}".encode()}
    for _ in range(_STARTING if is_starting else 1):
        if kill_marked(marks, sessions)[0]:
            return


if __name__ == "__main__":
    main()
