"""Ends processes that outlive their server, and servers that outlive the hub.

Descendants inherit `MCP_HUB_INSTANCE`, which names the hub, and `MCP_HUB_CHILD`, which names the start of a server.
After a server's exit, processes with its mark or in its session are killed; after a kill of the hub, the watchdog
process does it. A process that cleared its environment and left its session is not found.
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
"""Searches after a server's exit: 2 s at most."""


class Watchdog:
    """Starts a hub's servers and ends what they leave behind. A context manager.

    `instance` defaults to 128 random bits. Without `may_adopt` this process does not adopt orphans. Close all children
    and end `run` before the exit.
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
        """Forgets an ended child and does not search for its processes."""
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
