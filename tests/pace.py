"""What a busy machine takes, so that a guard of seconds judges the hub and not who else is running."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

_TICK = 0.01


class Pace:
    """Tells the seconds that others took from those that were there.

    Others' are the seconds that this process's event loop came late by, plus those that the main thread of process
    `pid` waited for a core. What waits at the same time counts twice: a busy machine is judged mildly.
    """

    def __init__(self, pid: int) -> None:
        self._schedule = Path(f"/proc/{pid}/schedstat")
        self._late = 0.0
        self._waited = 0.0
        self._began, self._lost = time.perf_counter(), self.lost

    @property
    def lost(self) -> float:
        """The seconds of others, since some time in the past; the last known ones once the process is gone."""
        self._look()
        return self._late + self._waited

    @property
    def seconds(self) -> float:
        """The hub's own seconds since this was made."""
        return time.perf_counter() - self._began - (self.lost - self._lost)

    async def tick(self) -> None:
        while True:
            due = time.perf_counter() + _TICK
            await anyio.sleep(_TICK)
            self._late += max(0.0, time.perf_counter() - due)
            self._look()

    def _look(self) -> None:
        with suppress(OSError, IndexError):
            self._waited = int(self._schedule.read_text().split()[1]) / 1e9


@asynccontextmanager
async def paced(pid: int) -> AsyncIterator[Pace]:
    """A `Pace` that begins here."""
    pace = Pace(pid)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pace.tick)
        yield pace
        tasks.cancel_scope.cancel()
