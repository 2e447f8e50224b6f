"""The good server's callers, who must not notice anything, and the hub as the kernel sees it."""

import os
import time
from contextlib import suppress
from pathlib import Path

import anyio

from rigs.client import JudgingClient
from tests.interaction.fronts import children
from tests.pace import Pace, paced

_START = 120.0
_GUARD = 2.0
"""Seconds that no call of the good server may take, beside those that the machine's other work takes."""
_PAUSE = 0.01


class Healthy:
    """Calls the good server, one call after the other; `wrongs` has each that failed, was mixed up or hung."""

    def __init__(self, client: JudgingClient) -> None:
        self._client = client
        self._seconds: list[float] = []
        self.wrongs: list[str] = []
        self.is_over = False

    async def ready(self) -> None:
        """Waits until the good server answers. Raises: `TimeoutError`."""
        with anyio.fail_after(_START):
            while True:
                if (await self._client.call("good_echo", {"text": "up"}, seconds=_START)).ending == "result":
                    return
                await anyio.sleep(_PAUSE)

    async def run(self) -> None:
        """Works until it is told to stop, and to the end of the call that it is at."""
        async with paced(self._client.pid) as pace:
            await self._call_on(pace)

    async def _call_on(self, pace: Pace) -> None:
        while not self.is_over:
            text, before = f"call {len(self._seconds)}", pace.lost
            try:
                answer = await self._client.call("good_echo", {"text": text}, seconds=10 * _GUARD)
            except TimeoutError:
                self.wrongs.append(f"a healthy call was not answered within {10 * _GUARD:g} s")
                return
            self._seconds.append(answer.seconds)
            if answer.ending != "result" or answer.message["result"].get("structuredContent") != {"text": text}:
                self.wrongs.append(f"a healthy call was answered with {str(answer.message)[:300]}")
            await anyio.sleep(_PAUSE)  # until after this, a loop that was late has not been noticed
            if answer.seconds > _GUARD + (lost := pace.lost - before):
                self.wrongs.append(f"a healthy call took {answer.seconds:.1f} s, {lost:.1f} s of them the machine's")

    @property
    def p99(self) -> float:
        """Milliseconds."""
        ordered = sorted(self._seconds) or [0.0]
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    @property
    def worst(self) -> float:
        """Milliseconds."""
        return 1000 * max(self._seconds, default=0.0)


class Process:
    """A process and everything that was ever seen below it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seen: set[int] = set()
        self._names: dict[int, str] = {}

    def look(self) -> None:
        """Notes the processes that are there now."""
        for pid in children(self.pid):
            self.seen.add(pid)
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                self._names[pid] = command[-160:]

    def describe(self, pid: int) -> str:
        return f"{pid} {self._names.get(pid, '')}"

    def peak(self) -> float:
        """The most memory that it has had, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024

    def descriptors(self) -> int:
        """Those of the file of the history aside, which is opened after the first call."""
        count, folder = 0, f"/proc/{self.pid}/fd"
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                count += "/history.db" not in os.readlink(f"{folder}/{name}")
        return count

    async def fewer_than(self, limit: int, seconds: float) -> int | None:
        """None as soon as it has fewer descriptors than that, else their number when the time is over."""
        until = time.monotonic() + seconds
        while (count := self.descriptors()) >= limit:
            if time.monotonic() > until:
                return count
            await anyio.sleep(0.05)
        return None
