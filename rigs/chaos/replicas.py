"""Replicas on one Redis or Valkey, while they are killed and paused, the server is killed, and connections are cut.

Jobs run on them as in `chaos`, half of the requests through a round-robin balancer. Besides what is judged there, each
ending of a lost replica has to be seen on another one within 1.5 leases and a second, and a replica that was paused, or
cut from the server, may not write any more to what it owned. A clock that is set wrong ends nothing. What was seen of a
stream is what every replica shows afterwards, and a call that was answered well has ended well.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from rigs.chaos.hubs import Door, Fleet
from rigs.chaos.jobs import Job, agreed, check, run_job
from rigs.chaos.lines import Line, any_cut, lines
from rigs.chaos.talks import ASKING, run_talk, talks_agree
from rigs.replicas.balancer import Balancer, balancer
from tests.pace import paced
from tests.redis_server import RedisServer

_SEEN = 1.0
"""Seconds behind the takeover in which the ending has to be seen on another replica."""
_TAKEOVER = 1.5
"""Leases until another replica takes over: one beat in which it sees the last one, and its wait."""
_LOOK = 0.1
_AWAY = (0.05, 2.0)
"""Leases for which the server is away."""
_STEPS = (-3600.0, -30.0, -0.5, 0.0, 0.5, 30.0, 3600.0)
"""Seconds by which a clock is set wrong."""
_WRONG = 1500.0
"""Seconds from now that no event has by a right clock."""
_SUSPENDED = 0.2
"""Share of steps with a replica suspended."""
_CUT = (0.1, 3.0)
"""Leases for which one replica cannot reach it."""


@dataclass(frozen=True)
class Plan:
    """How many of what is done to the replicas, one after the other."""

    kills: int = 50
    zombies: int = 20
    outages: int = 20
    flips: int = 20
    cuts: int = 20
    replicas: int = 3
    workers: int = 12
    seed: int = 1
    steps: int = 0
    """Of the wall clock of one replica, now and then while another one is suspended."""
    talks: float = 0.0
    """Share of calls that ask, or are a session's, while single replicas are cut."""
    lease: float = 3.0
    """Seconds for which a replica owns what it runs without a sign of life."""
    slack: float = 0.0
    """Seconds for which an ending may come late, where others use the machine as well."""
    fsync: str = "everysec"
    """When the server writes to disk what it has confirmed: with `everysec` up to 2 s later."""


class _Busy:
    """Tells the seconds that other processes of the machine took from this one."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    async def watch(self) -> None:
        async with paced(os.getpid()) as pace:
            while True:
                self._seen.append((time.monotonic(), pace.lost))
                await anyio.sleep(_LOOK)

    def lost(self, since: float, until: float) -> float:
        lost = [lost for at, lost in self._seen if since - _LOOK <= at <= until + _LOOK]
        return max(lost, default=0.0) - min(lost, default=0.0)


@dataclass
class Outcome:
    """What a run came to; `waits` are the seconds from each death of an owner to its jobs' ending elsewhere."""

    done: dict[str, int] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    cut: int = 0
    seconds: float = 0.0
    lease: float = 0.0
    most: float = 0.0
    """Seconds that such a wait may take."""
    misdated: int = 0
    """Events with a wrong time."""

    def lines(self) -> list[str]:
        begun = [job for job in self.jobs if job.stream]
        ended = sum(job.events[-1]["type"] == "end" for job in begun if job.lines)
        waits = sorted(self.waits) or [0.0]
        return [
            ", ".join(f"{count} {name}" for name, count in self.done.items()) + f", {self.cut} connections cut",
            f"{len(begun)} streams ({sum(job.is_task for job in begun)} of them tasks), "
            f"{sum(len(job.lines) for job in begun)} events, {sum(job.reconnects for job in begun)} reconnects, "
            f"{self.seconds:.0f} s",
            f"{ended} ended well, {len(begun) - ended} with their replica",
            f"{self.misdated} events with a wrong time",
            f"{sum(bool(job.messages) for job in self.jobs)} calls of sessions, "
            f"{sum(event['type'] == 'input-received' for job in begun for event in job.events)} questions answered",
            f"death of an owner to its ending elsewhere, with leases of {self.lease:g} s: median "
            f"{waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s of {len(self.waits)} (at most {self.most:g} s)",
        ]


class _Site:
    """The server, the replicas and the balancer; requests go to a replica or to the balancer, as it falls."""

    def __init__(
        self, server: RedisServer, fleet: Fleet, ways: Sequence[Line], proxy: Balancer, rng: random.Random, lease: float
    ) -> None:
        self.server = server
        self.fleet = fleet
        self._ways = ways
        self.proxy = proxy
        self._rng = rng
        self._lease = lease

    @property
    def urls(self) -> list[str]:
        return self.fleet.urls

    def any(self) -> Door:
        return Door(self.proxy.url) if self._rng.random() < 0.5 else self.fleet.any()

    async def kill(self) -> None:
        await self.fleet.kill()

    async def pause(self, *, wakes_wrong: bool = False) -> None:
        """SIGSTOP for longer than the lease: others have ended its streams when it wakes up."""
        hub = self.fleet.one()
        hub.life.kill(signal.SIGSTOP)
        process = hub.life.process
        if wakes_wrong:
            self.fleet.step_clock(hub, self._rng.choice(_STEPS))
        try:
            await anyio.sleep(self._lease * _TAKEOVER + self._rng.uniform(0.5, 2.0))
        finally:
            process.send_signal(signal.SIGCONT)
        hub.life = hub.life.returned()
        await self.fleet.serving(hub, time.monotonic())

    async def step(self) -> None:
        """Sets the clock of one replica wrong; at times that of another one, too, which is suspended meanwhile."""
        self.fleet.step_clock(self.fleet.one(), self._rng.choice(_STEPS))
        if self._rng.random() < _SUSPENDED:
            await self.pause(wakes_wrong=True)

    async def outage(self) -> None:
        self.server.kill()
        await anyio.sleep(self._lease * self._rng.uniform(*_AWAY))
        await anyio.to_thread.run_sync(self.server.start)

    async def flip(self) -> None:
        self.proxy.flip()

    async def cut(self) -> None:
        """One replica alone loses the server, for less or more than its lease."""
        place = self._rng.randrange(len(self._ways))
        hub, way = self.fleet.hubs[place], self._ways[place]
        hub.life.lose()
        way.cut(any_cut(self._rng))
        try:
            await anyio.sleep(self._lease * self._rng.uniform(*_CUT))
        finally:
            way.mend()
        hub.life = hub.life.returned()


@asynccontextmanager
async def _site(plan: Plan, folder: Path) -> AsyncIterator[_Site]:
    rng = random.Random(plan.seed)
    began = time.monotonic()
    with RedisServer(folder / "server", "--appendfsync", plan.fsync) as server:
        async with lines(plan.replicas, server.port) as ways:
            store = {"url": "${STORE_URL}", "lease": plan.lease}
            servers = ASKING if plan.talks else None
            urls, has_clocks = [way.url for way in ways], plan.steps > 0
            fleet = Fleet(folder, plan.replicas, rng, store, urls=urls, servers=servers, has_clocks=has_clocks)
            try:
                for hub in fleet.hubs:
                    await fleet.serving(hub, began)
                async with balancer([hub.url for hub in fleet.hubs]) as proxy:
                    yield _Site(server, fleet, ways, proxy, rng, plan.lease)
            finally:
                await anyio.to_thread.run_sync(fleet.stop)


def _folder(keep: Path | None, seed: int) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="replicas-")
    keep.mkdir(parents=True, exist_ok=True)
    return nullcontext(tempfile.mkdtemp(prefix=f"replicas-{seed}-", dir=keep))


async def replicas(plan: Plan, *, keep: Path | None = None, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Runs jobs until all was done, then lets the last ones end. The hubs' logs stay in a folder of `keep`.

    Raises: `NotInstalled` without a server's program.
    """
    outcome = Outcome(lease=plan.lease, most=plan.lease * _TAKEOVER + _SEEN + plan.slack)
    began = time.monotonic()
    with _folder(keep, plan.seed) as name:
        async with (
            _site(plan, Path(name)) as site,
            httpx2.AsyncClient(trust_env=False, timeout=httpx2.Timeout(10, connect=2), verify=False) as http,
        ):
            acts: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
                "kills of a replica": (plan.kills, site.kill),
                "replicas paused": (plan.zombies, site.pause),
                "kills of the server": (plan.outages, site.outage),
                "flips of the balancer": (plan.flips, site.flip),
                "cuts of a replica": (plan.cuts, site.cut),
                "steps of a clock": (plan.steps, site.step),
            }
            for act, (count, do) in acts.items():
                steps = partial(_repeat, act, count, do, outcome, say)
                talks, has_clocks = plan.talks if do in (site.cut, site.step) else 0.0, do == site.step
                await _phase(plan, site, http, outcome, steps, talks=talks, has_clocks=has_clocks)
            outcome.cut = site.proxy.flips
    outcome.seconds = time.monotonic() - began
    return outcome


async def _phase(
    plan: Plan,
    site: _Site,
    http: httpx2.AsyncClient,
    outcome: Outcome,
    acts: Callable[[random.Random], Awaitable[None]],
    *,
    talks: float = 0.0,
    has_clocks: bool = False,
) -> None:
    """Jobs during one kind of act, so that what is seen belongs to it; judged at its end."""
    over = anyio.Event()
    jobs: list[Job] = []
    busy = _Busy()

    async def work(rng: random.Random) -> None:
        while not over.is_set():
            run = run_talk if rng.random() < talks else run_job
            jobs.append(await run(site, http, rng))

    async with anyio.create_task_group() as watching:
        watching.start_soon(busy.watch)
        async with anyio.create_task_group() as tasks:
            for number in range(plan.workers):
                tasks.start_soon(work, random.Random(f"{plan.seed} {number} {len(outcome.jobs)}"))
            await acts(random.Random(f"{plan.seed} {len(outcome.jobs)}"))
            over.set()
        watching.cancel_scope.cancel()
        urls = site.urls
        outcome.faults += [*await agreed(jobs, urls, http), *await talks_agree(jobs, urls, http)]
    outcome.jobs += jobs
    outcome.misdated += sum(abs(_time_of(event) - time.time()) > _WRONG for job in jobs for event in job.events)
    for job in jobs:
        faults = [*check(job), *(() if has_clocks else _late(job, busy, outcome))]  # whose events say when it was
        outcome.faults += [f"{job.stream or 'not begun'}: {fault}" for fault in faults]


async def _repeat(
    name: str,
    count: int,
    do: Callable[[], Awaitable[None]],
    outcome: Outcome,
    say: Callable[[str], None],
    rng: random.Random,
) -> None:
    outcome.done[name] = 0
    while outcome.done[name] < count:
        await anyio.sleep(rng.uniform(0.3, 1.0))
        await do()
        outcome.done[name] += 1
        if outcome.done[name] % 10 == 0:
            say(f"{outcome.done[name]} {name}, {len(outcome.faults)} faults before")


def _time_of(event: dict[str, Any]) -> float:
    """When it was written, in Unix seconds."""
    return datetime.fromisoformat(event["ts"]).timestamp()


def _late(job: Job, busy: _Busy, outcome: Outcome) -> list[str]:
    """Notes how long the ending took that another replica wrote, and complains if that was too long."""
    if not job.is_done or job.owner is None or job.owner.died is None or job.events[-1]["type"] == "end":
        return []
    if _time_of(job.events[0]) > job.owner.died_at:  # its request waited for the next life of that replica
        return []
    life = job.owner.loss(_time_of(job.events[-1]), outcome.most - _SEEN)
    assert life.died is not None
    wait, lost = job.ended - life.died, busy.lost(life.died, job.ended)
    if life.is_paused:  # its client may have waited for that very replica
        wait = _time_of(job.events[-1]) - life.died_at
    outcome.waits.append(wait)
    is_late = wait > outcome.most + lost
    return [f"its ending was seen {wait:.2f} s after its replica's death ({lost:.2f} s to others)"] if is_late else []
