"""The program of the watchdog process: it waits until its hub is gone, and kills what the hub could not end itself.

An isolated interpreter without `site` runs this file (`watchdog_process`), so that it is small and starts at once:
nothing but the standard library. The hub imports the search, which is the same after the exit of a single server.

Standard input is a pipe that only the hub writes to. Its first line is the hub's instance; then comes `+pid` for the
leader of a session that was started, `-pid` when nothing of that session is left. End of file, or the end of the hub's
process, is the sign to act.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

INSTANCE = "MCP_HUB_INSTANCE"
"""The variable that every process of a hub has in its environment."""
_ROUNDS = 100
"""Searches, each of which waits a tenth of a second at most: a process that fork()s as fast as it is killed, or one
that is stuck in the kernel, must not keep the process for ever."""
_PAUSE = 0.01
"""Seconds between two empty searches: a process that was just being started shows its own environment by then."""
_DEATH = 50
"""Looks, 2 ms apart, that killed processes have to be gone."""


def processes() -> Iterator[int]:
    """Every process of the machine but this one; none where there is no /proc."""
    own = os.getpid()
    with suppress(OSError):
        yield from (pid for name in os.listdir("/proc") if name.isdigit() and (pid := int(name)) != own)


def kill_marked(marks: Collection[bytes], sessions: Collection[int], rounds: int = _ROUNDS) -> tuple[set[int], bool]:
    """SIGKILL to all that have one of `marks` ("NAME=value") in their environment or are in one of `sessions`.
    Again and again, until two searches in a row find none. Returns the pids, and whether `rounds` searches were enough.
    A process that belongs to somebody else by now (set-uid) is left alone.
    """
    wanted, empty = frozenset(marks), 0
    killed, spared = set[int](), set[int]()
    for _ in range(rounds):
        found = [pid for pid in processes() if pid not in spared and _is_marked(pid, wanted, sessions)]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                spared.add(pid)
        if found:
            empty = 0
            killed.update(found)
            _wait_until_gone(found)
        elif empty:
            return killed - spared, True
        else:
            empty = 1
            time.sleep(_PAUSE)
    return killed - spared, False


def _is_marked(pid: int, marks: frozenset[bytes], sessions: Collection[int]) -> bool:
    """Whether it is to be killed, which a zombie is not."""
    with suppress(OSError):
        if os.getsid(pid) in sessions:
            return _runs(pid)
    return has_mark(pid, marks)


def has_mark(pid: int, marks: frozenset[bytes]) -> bool:
    """Whether it started with one of `marks` in its environment; not if it has ended, or is somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return not marks.isdisjoint(file.read().split(b"\0"))
    except OSError:
        return False


def _wait_until_gone(pids: Collection[int]) -> None:
    for _ in range(_DEATH):
        if not any(map(_runs, pids)):
            return
        time.sleep(0.002)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _follow(hub: int) -> tuple[str, set[int]]:
    """Reads what the hub tells until it is gone: its instance, and the sessions that are left."""
    ready = select.poll()
    ready.register(0, select.POLLIN)
    patience = None if _register_exit(ready, hub) else 100
    lines: list[bytes] = [b""]
    instance, sessions = "", set[int]()
    while 0 in dict(ready.poll(patience)):
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (lines[-1] + data).split(b"\n")
        for line in lines:
            if line.startswith(b"+"):
                sessions.add(int(line[1:]))
            elif line.startswith(b"-"):
                sessions.discard(int(line[1:]))
            else:
                instance = line.decode()
        lines = [rest]
    return instance, sessions


def _register_exit(ready: "select.poll", hub: int) -> bool:
    """Also wakes for the end of the hub: a fork() without exec() could hold the pipe open. False if it has ended."""
    if sys.platform == "linux":
        with suppress(OSError):
            pidfd = os.pidfd_open(hub)
            if os.getppid() == hub:  # else the number may be another's
                ready.register(pidfd, select.POLLIN)
    return os.getppid() == hub


def main() -> None:
    """Lives as long as its hub. Signals that are meant for the hub's whole family do not end it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    instance, sessions = _follow(int(sys.argv[-1]))
    for session in sessions:
        with suppress(OSError):
            os.killpg(session, signal.SIGKILL)
    if instance:
        kill_marked({f"{INSTANCE}={instance}".encode()}, sessions)


if __name__ == "__main__":
    main()
