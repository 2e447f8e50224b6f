"""Scripts run on hubs that are killed: each ends once with a right account, or by name; no write is sent twice.

Killed are hubs and the processes in which their scripts run; on a shared store replicas are paused beyond their lease
as well, and the server is killed. Some scripts are sent a second time while they run.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from rigs.chaos.hubs import Fleet
from rigs.chaos.jobs import PATIENCE, Job, begun, followed
from rigs.code.counter import counts
from rigs.code.scripts import Script, doubled, judged, script
from rigs.report import crashes
from tests.redis_server import RedisServer

NAMED = ("code_not_resumable", "code_not_stored", "code_crashed")
"""Errors by which a script may end in place of its account."""
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


@dataclass
class Outcome:
    """What a run came to."""

    acts: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    calls: int = 0
    unknown: int = 0
    again: int = 0
    events: int = 0
    seconds: float = 0.0

    def lines(self) -> list[str]:
        ends = ", ".join(f"{count} {name}" for name, count in sorted(self.ended.items()))
        return [
            ", ".join(f"{count} {name}" for name, count in self.acts.items()),
            f"{sum(self.ended.values())} scripts ({ends}), {self.calls} calls, {self.unknown} writes told as unknown, "
            f"{self.again} sent a second time, {self.events} events, {self.seconds:.0f} s",
        ]


class _Site:
    """Hubs on one store, and the file of the counting server."""

    def __init__(self, plan: Plan, folder: Path, rng: random.Random, server: RedisServer | None) -> None:
        self.file = folder / "counted"
        self.server = server
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

    def acts(self) -> dict[str, Callable[[], Any]]:
        acts: dict[str, Callable[[], Any]] = {"kills of a hub": self.kill, "kills of an engine": self.crash}
        if self.server is not None:
            acts |= {"pauses of a hub": self.pause, "kills of the server": self.outage}
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
async def _site(plan: Plan, folder: Path) -> AsyncIterator[_Site]:
    rng, began = random.Random(plan.seed), time.monotonic()
    server = RedisServer(folder / "server", "--appendfsync", "everysec") if plan.on_server else None
    if server is not None:
        server.__enter__()
    try:
        site = _Site(plan, folder, rng, server)
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
            done: list[tuple[Script, Job]] = []
            async with anyio.create_task_group() as acting:
                acting.start_soon(_act, plan, site, outcome, say)
                async with anyio.create_task_group() as working:
                    for _ in range(plan.workers):
                        working.start_soon(_work, plan, site, http, numbers, done, outcome)
                acting.cancel_scope.cancel()
            counted = counts(site.file)
            for each, job in done:
                _judge(each, job, counted, outcome)
            outcome.faults = [*site.crashes(), *outcome.faults]
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
    plan: Plan, site: _Site, http: httpx2.AsyncClient, numbers: Any, done: list[tuple[Script, Job]], outcome: Outcome
) -> None:
    for number in numbers:
        rng = random.Random(f"{plan.seed} {number}")
        each, job = script(number, rng), Job(steps=0, is_task=False)
        done.append((each, job))
        send = partial(begun, tool="run_code", arguments={"code": each.code}, doors=site.fleet, http=http)
        with anyio.move_on_after(PATIENCE):
            if await send(job):
                if rng.random() < 0.2:
                    outcome.again += 1
                    other = Job(steps=0, is_task=False)
                    done.append((each, other))
                    if await send(other):
                        await followed(other, site.fleet, http, rng)
                        other.is_done = True
                await followed(job, site.fleet, http, rng)
                job.is_done = True


def _judge(each: Script, job: Job, counted: dict[str, int], outcome: Outcome) -> None:
    name = job.stream or "not begun"
    faults = [*job.faults, *doubled(each, counted)]
    outcome.events += len(job.lines)
    outcome.calls += len(each.keys) + each.looks
    if not job.lines:
        faults.append(f"no event within {PATIENCE:g} s")
    else:
        faults += _ended(each, job, counted, outcome)
    outcome.faults += [f"{name}: {fault}" for fault in faults]


def _ended(each: Script, job: Job, counted: dict[str, int], outcome: Outcome) -> list[str]:
    events = job.events
    ending, data = events[-1]["type"], events[-1]["data"]
    if not job.is_done or sum(event["type"] in ("end", "error") for event in events) != 1:
        return [f"no end within {PATIENCE:g} s, or not one: {json.dumps(events[-6:])}"]
    if ending == "error":
        code = data.get("code")
        outcome.ended[str(code)] = outcome.ended.get(str(code), 0) + 1
        return [] if code in NAMED else [f"ended with {json.dumps(data)[:500]}"]
    result = data["result"]
    if result.get("isError"):
        text = result["content"][0]["text"]
        code = next((named for named in NAMED if named in text), "error")
        outcome.ended[code] = outcome.ended.get(code, 0) + 1
        return [] if code in NAMED else [f"ended with {text[:500]}"]
    account = result["structuredContent"]
    outcome.ended["with their account"] = outcome.ended.get("with their account", 0) + 1
    outcome.unknown += len(account["unknown"])
    return judged(each, account, counted)
