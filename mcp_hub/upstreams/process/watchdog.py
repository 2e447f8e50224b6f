"""Ensures that no process outlives the server that it belongs to, and no server the hub.

Whatever a server starts, however it daemonises, lives as long as the server's own process and no longer. Every child
gets two variables, which its descendants inherit: `MCP_HUB_INSTANCE` names this hub, `MCP_HUB_CHILD` the one start of
one server. When a server has exited and its group was killed (`child`), everything with its `MCP_HUB_CHILD`, or in
its session, is killed too. When the hub itself is killed, the watchdog process does that for all of them.

A process that wiped its environment *and* left its session cannot be found. A parent-death signal (PR_SET_PDEATHSIG)
is not used: it would have to be set between fork and exec, which rules out vfork, is unsafe with threads, and follows
the thread that forked rather than the process. Where there is no `/proc`, psutil searches (macOS).
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Self

import anyio
import anyio.to_thread

from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.process import reaper
from mcp_hub.upstreams.process.child import Child, spawn
from mcp_hub.upstreams.process.watchdog_process import WatchdogHandle, can_watch
from mcp_hub.upstreams.process.watchdog_program import INSTANCE, TABLE, kill_marked

log = get_logger(__name__)

CHILD: Final = "MCP_HUB_CHILD"
"""The variable that identifies the processes of one start of one server: the instance, a dot, a number."""
_TICK: Final = 2.0
"""Seconds that an adopted process may stay a zombie."""
_ROUNDS: Final = 20
"""Searches after the exit of a server: 2 s at most, nearly all of it for processes that are stuck in the kernel."""


class Watchdog:
    """Starts the servers of one hub and ends what they leave behind. `instance`: 128 random bits unless given.

    Without `may_adopt` the process does not become the parent of orphans: it is a host program's.

    A context manager; on the way out, when all children are closed and `run` has ended, the watchdog process ends, too.
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
        self._process = WatchdogHandle(self.instance, self._living.values(), clock)
        self._is_awake = anyio.Event()

    @property
    def process_pid(self) -> int | None:
        """The watchdog process, if there is one at the moment."""
        return self._process.process.pid if self._process.process is not None else None

    @property
    def has_given_up(self) -> bool:
        """Whether watchdog processes ended so often that there is none for a while."""
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
        """As `child.spawn`, with the two variables in `env`. The first child brings up the watchdog process.

        With `leaves_daemons` what has left its group outlives the hub, if the child is given to `release`.
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
        """Forgets a child that has ended, whose group was killed; what has left its group is not looked for."""
        for mark in [mark for mark, pid in self._living.items() if pid == child.pid]:
            del self._living[mark]
        self._process.send(f"-{child.pid}\n")

    async def run(self) -> None:
        """Starts another watchdog process if one has ended, and reaps what was adopted, until cancelled."""
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
        """Kills the remaining processes of one child. Those that end at the same time share a search."""
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
    """Of children that are gone: `MCP_HUB_CHILD` → pid of the leader that was. Takes milliseconds; for a thread."""
    # a number that is a process again is somebody else's: it cannot be while anything is left of the session
    sessions = {pid for pid in batch.values() if not TABLE.exists(pid)}
    return kill_marked({f"{CHILD}={mark}".encode() for mark in batch}, sessions, _ROUNDS)
