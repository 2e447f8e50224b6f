"""Scripts run on hubs that are killed: each ends once with a right account, or by name; no write is sent twice.

Killed are hubs and the processes in which their scripts run; on a shared store replicas are paused beyond their lease
as well, and the server is killed. Some scripts are sent a second time while they run.
"""

import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from rigs.attach.desktop import Skipped
from rigs.attach.files import fill, mounted
from rigs.chaos.hubs import Fleet, Hub
from rigs.chaos.jobs import PATIENCE, Job, begun, followed
from rigs.code.counter import counts
from rigs.code.judge import GONE, Outages, Outcome, Sent, judge
from rigs.code.scripts import Script, script, written
from rigs.report import crashes
from tests.redis_server import RedisServer

_LOST = ("unknown_stream", "invalid_cursor")
_UNKNOWN = 20.0
"""Seconds after which an unknown stream is given up."""
_CANCELS = 0.1
_SETTLED = 2.0
"""Seconds after a cancel for what was on its way."""
_STOP = 30.0
"""Seconds for a hub to end after SIGTERM."""
_LONGER = 8.0
"""Seconds for which another process has the file: longer than a hub waits, whose streams are in memory from then on."""
_DISK = "256m"
_SETTINGS: dict[str, Any] = {"code": "all", "limits": {"detached_calls": 4096, "running_calls": 4096}}


@dataclass(frozen=True)
class Plan:
    """How many scripts, on what, and how often what is killed, in seconds between two acts at most."""

    scripts: int = 200
    hubs: int = 2
    workers: int = 8
    seed: int = 1
    pause: float = 1.5
    lease: float = 1.0
    on_server: bool = False


class _Site:
    """Hubs on one store, and the file of the counting server."""

    def __init__(
        self, plan: Plan, folder: Path, rng: random.Random, server: RedisServer | None, *, has_disk: bool
    ) -> None:
        self.file = folder / "counted"
        self.server = server
        self.has_disk = has_disk
        self.slow_stops = 0
        self.outages = Outages()
        self._rng = rng
        self._lease = plan.lease
        store = None if server is None else {"url": server.url, "lease": plan.lease}
        counter = {"command": sys.executable, "args": ["-m", "rigs.code.counter", str(self.file)]}
        self.fleet = Fleet(folder, plan.hubs, rng, store, settings=_SETTINGS, servers={"count": counter})

    def crashes(self) -> list[str]:
        logs = [log.read_text(errors="replace") for log in self.fleet.folder.glob("hub-*.log")]
        return [line for log in logs for line in crashes(log)]

    async def kill(self) -> None:
        await self.fleet.kill()

    async def crash(self) -> None:
        """The processes of one hub in which scripts run."""
        pid = self.fleet.one().life.process.pid
        for child in _children(pid):
            if b"monty" in _command(child):
                _send(child, signal.SIGKILL)

    async def pause(self) -> None:
        """SIGSTOP for longer than the lease: another replica has taken the scripts over when it wakes up."""
        hub = self.fleet.one()
        hub.life.process.send_signal(signal.SIGSTOP)
        try:
            await anyio.sleep(self._lease * 1.5 + self._rng.uniform(0.5, 2.0))
        finally:
            hub.life.process.send_signal(signal.SIGCONT)

    async def outage(self) -> None:
        assert self.server is not None
        self.server.kill()
        await anyio.sleep(self._lease * self._rng.uniform(0.05, 2.0))
        await anyio.to_thread.run_sync(self.server.start)

    async def stop_gracefully(self) -> None:
        """SIGTERM for one hub; it leaves its scripts to the next one."""
        hub = self.fleet.one()
        await self._stopped(hub)
        await self._started(hub)

    async def _stopped(self, hub: Hub) -> None:
        hub.life.process.terminate()
        with anyio.move_on_after(_STOP):
            while hub.life.process.poll() is None:  # noqa: ASYNC110 - not of this process
                await anyio.sleep(0.02)
        if hub.life.process.poll() is None:
            self.slow_stops += 1
            hub.life.process.kill()
            hub.life.process.wait()

    async def _started(self, hub: Hub) -> None:
        began = time.monotonic()
        hub.life = self.fleet.started(hub.port)
        await self.fleet.serving(hub, began)

    async def kill_counter(self) -> None:
        """The counting server of one hub, in the middle of calls."""
        for child in _children(self.fleet.one().life.process.pid):
            if b"rigs.code.counter" in _command(child):
                _send(child, signal.SIGKILL)

    async def lock(self) -> None:
        """Another process holds the file of streams, at times for longer than a hub waits."""
        with closing(sqlite3.connect(self._streams, timeout=5, isolation_level=None)) as file:
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # the hubs are quicker
                return
            seconds = self._rng.choice([0.5, 2.0, _LONGER])
            with self.outages.outage() if seconds == _LONGER else nullcontext():
                await anyio.sleep(seconds)
                file.execute("ROLLBACK")

    async def fill(self) -> None:
        """The disk of the state folder is full for a while, and no log of SQLite has room left."""
        async with self._full():
            await anyio.sleep(self._rng.uniform(0.5, 4.0))

    async def stop_when_full(self) -> None:
        """SIGTERM for one hub while the disk is full: what is stored of its scripts is continued."""
        async with self._full():
            await anyio.sleep(self._rng.uniform(0.0, 2.0))
            hub = self.fleet.one()
            await self._stopped(hub)
        await self._started(hub)

    async def kill_when_full(self) -> None:
        async with self._full():
            await anyio.sleep(self._rng.uniform(0.0, 2.0))
            hub = self.fleet.one()
            hub.life.kill()
            hub.life.process.wait()
        await self._started(hub)

    @asynccontextmanager
    async def _full(self) -> AsyncIterator[None]:
        path = self._streams.parent / "ballast"
        with closing(sqlite3.connect(self._streams, timeout=2, isolation_level=None)) as file, suppress(sqlite3.Error):
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self.outages.outage():
            await anyio.to_thread.run_sync(fill, path)
            try:
                yield
            finally:
                path.unlink()

    @property
    def _streams(self) -> Path:
        return self.fleet.folder / "state" / "streams.db"

    def acts(self) -> dict[str, Callable[[], Any]]:
        acts: dict[str, Callable[[], Any]] = {
            "kills of a hub": self.kill,
            "stops of a hub": self.stop_gracefully,
            "kills of an engine": self.crash,
            "kills of a counting server": self.kill_counter,
        }
        if self.server is not None:
            return acts | {"pauses of a hub": self.pause, "kills of the server": self.outage}
        acts["locks of the file"] = self.lock
        if self.has_disk:
            acts["full disks"] = self.fill
            acts["stops on a full disk"] = self.stop_when_full
            acts["kills on a full disk"] = self.kill_when_full
        return acts


def _children(pid: int) -> list[int]:
    """All descendants."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found = [pid]
    for known in found:
        found += [child for child, parent in parents.items() if parent == known]
    return found[1:]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


@asynccontextmanager
async def _disk(folder: Path) -> AsyncIterator[bool]:
    """A small disk at this folder, where one can be mounted; whether it is there."""
    folder.mkdir()  # noqa: ASYNC240 - once, before anything runs
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(mounted(folder, f"size={_DISK},mode=700"))
        except Skipped:
            yield False
        else:
            yield True


@asynccontextmanager
async def _site(plan: Plan, folder: Path) -> AsyncIterator[_Site]:
    rng, began = random.Random(plan.seed), time.monotonic()
    server = RedisServer(folder / "server", "--appendfsync", "everysec") if plan.on_server else None
    if server is not None:
        server.__enter__()
    try:
        async with _disk(folder / "state") as has_disk:
            site = _Site(plan, folder, rng, server, has_disk=has_disk)
            try:
                for hub in site.fleet.hubs:
                    await site.fleet.serving(hub, began)
                yield site
            finally:
                await anyio.to_thread.run_sync(site.fleet.stop)
    finally:
        if server is not None:
            server.__exit__(None, None, None)


async def kills(plan: Plan, *, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Runs that many scripts while hubs and engines are killed, and judges each one. Raises: `NotInstalled`."""
    outcome, began = Outcome(), time.monotonic()
    numbers = iter(range(plan.scripts))
    with tempfile.TemporaryDirectory(prefix="code-") as name:
        timeout = httpx2.Timeout(20, connect=2)
        async with (
            _site(plan, Path(name)) as site,
            httpx2.AsyncClient(trust_env=False, timeout=timeout, verify=False) as http,
        ):
            done: list[Sent] = []
            async with anyio.create_task_group() as acting:
                acting.start_soon(_act, plan, site, outcome, say)
                async with anyio.create_task_group() as working:
                    for _ in range(plan.workers):
                        working.start_soon(_work, plan, site, http, numbers, done, outcome)
                acting.cancel_scope.cancel()
            counted = counts(site.file)
            for each in done:
                judge(each, counted, site.outages, outcome)
            outcome.faults = [*site.crashes(), *outcome.faults]
            if outcome.faults:
                kept = Path(tempfile.mkdtemp(prefix="faults-of-code-"))
                await anyio.to_thread.run_sync(partial(shutil.copytree, name, kept, dirs_exist_ok=True, symlinks=True))
                say(f"files and logs: {kept}")
    outcome.seconds = time.monotonic() - began
    return outcome


async def _act(plan: Plan, site: _Site, outcome: Outcome, say: Callable[[str], None]) -> None:
    rng = random.Random(f"acts {plan.seed}")
    acts = site.acts()
    while True:
        await anyio.sleep(rng.uniform(0.2, plan.pause))
        name = rng.choice([*acts, "kills of a hub"])
        with anyio.CancelScope(shield=True):
            await acts[name]()
        outcome.acts[name] = outcome.acts.get(name, 0) + 1
        if sum(outcome.acts.values()) % 20 == 0:
            say(", ".join(f"{count} {kind}" for kind, count in outcome.acts.items()))


async def _work(
    plan: Plan,
    site: _Site,
    http: httpx2.AsyncClient,
    numbers: Any,
    done: list[Sent],
    outcome: Outcome,
) -> None:
    for number in numbers:
        rng = random.Random(f"{plan.seed} {number}")
        each = script(number, rng)
        first = Sent(each, Job(steps=0, is_task=False))
        done.append(first)
        with anyio.move_on_after(PATIENCE):
            if await _begun(first, site, http):
                if rng.random() < _CANCELS:
                    await anyio.sleep(rng.uniform(0, 3))
                    each.is_cancelled = True
                    each.counted = await _cancelled(first.job, each, site, http)
                    outcome.cancelled += 1
                elif rng.random() < 0.2:
                    outcome.again += 1
                    other = Sent(each, Job(steps=0, is_task=False), is_first=False, others=[first])
                    first.others.append(other)
                    done.append(other)
                    if await _begun(other, site, http):
                        await _followed(other, site, http, rng)
                        other.job.is_done = True
                await _followed(first, site, http, rng)
            first.job.is_done = True


async def _begun(sent: Sent, site: _Site, http: httpx2.AsyncClient) -> bool:
    """Sends it until a hub acknowledges it."""
    is_begun = await begun(sent.job, "run_code", {"code": sent.script.code}, site.fleet, http)
    sent.begun = time.monotonic()
    return is_begun


async def _followed(sent: Sent, site: _Site, http: httpx2.AsyncClient, rng: random.Random) -> None:
    """Follows to the end, anew where only one hub knew the newest events, since the file was away, and was killed."""
    job, until = sent.job, math.inf
    while True:
        await followed(job, site.fleet, http, rng)
        is_lost = bool(job.faults) and any(each in job.faults[-1] for each in _LOST)
        if not (is_lost and site.outages.was_away(sent.began, time.monotonic())):
            return
        until = min(math.inf if job.lines else until, time.monotonic() + _UNKNOWN)  # it was found since
        if time.monotonic() > until:
            job.faults[-1] = GONE
            return
        job.faults.pop()
        job.lines.clear()
        await anyio.sleep(0.2)


async def _cancelled(job: Job, each: Script, site: _Site, http: httpx2.AsyncClient) -> int | None:
    """Cancels the script through any hub; how many of its writes there were a moment later.

    None if it cannot be held against the hub: while the file is away a cancel is in memory alone.
    """
    until = time.monotonic() + _UNKNOWN
    while time.monotonic() < until:
        since = time.monotonic()
        with suppress(httpx2.HTTPError):
            answer = await http.delete(f"{site.fleet.any().url}/v1/streams/{job.stream}")
            if answer.is_success:
                await anyio.sleep(_SETTLED)
                was_away = site.outages.was_away(since, time.monotonic())
                return None if was_away else written(each, counts(site.file))
        await anyio.sleep(0.05)
    return None
