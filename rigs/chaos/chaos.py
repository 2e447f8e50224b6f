"""Hubs that share a store are killed at random while jobs run on them: nothing that was acknowledged may be lost.

Each job is begun over REST or as a task, followed through whichever hub is there, and judged: one sequence without gap
or repeat, one ending, the right one; no stream of a living hub ended by another's start.
"""

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2

from rigs.chaos.hubs import Fleet
from rigs.chaos.jobs import Job, check, run_job


@dataclass
class Outcome:
    """What a run came to."""

    kills: int = 0
    jobs: list[Job] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        begun = [job for job in self.jobs if job.stream]
        ended = sum(job.events[-1]["type"] == "end" for job in begun if job.lines)
        events = sum(len(job.lines) for job in begun)
        starts = sorted(self.starts)
        return [
            f"{self.kills} kills, {len(begun)} streams ({sum(job.is_task for job in begun)} of them tasks), "
            f"{events} events, {sum(job.reconnects for job in begun)} reconnects, {self.seconds:.0f} s",
            f"{ended} ended well, {len(begun) - ended} with hub_restarted",
            f"restart to serving: median {starts[len(starts) // 2]:.2f} s, longest {starts[-1]:.2f} s",
        ]


async def chaos(
    *, kills: int, hubs: int, workers: int, seed: int, say: Callable[[str], None] = lambda line: None
) -> Outcome:
    """Runs jobs until that many hubs were killed, then lets the last ones end. Raises nothing for what it finds."""
    rng = random.Random(seed)
    outcome = Outcome()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        fleet = Fleet(Path(folder), hubs, rng)
        try:
            for hub in fleet.hubs:
                await fleet.serving(hub, began)
            over = anyio.Event()
            async with httpx2.AsyncClient(trust_env=False, timeout=httpx2.Timeout(20, connect=2), verify=False) as http:
                async with anyio.create_task_group() as tasks:
                    for number in range(workers):
                        worker = random.Random(f"{seed} {number}")
                        tasks.start_soon(_work, fleet, http, worker, over, outcome)
                    while fleet.kills < kills:
                        await anyio.sleep(rng.uniform(0.05, 0.6))
                        await fleet.kill()
                        if fleet.kills % 20 == 0:
                            say(f"{fleet.kills} kills, {len(outcome.jobs)} jobs, {len(outcome.faults)} faults")
                    over.set()
        finally:
            fleet.stop()
            outcome.kills = fleet.kills
            outcome.starts = [seconds for hub in fleet.hubs for seconds in hub.starts]
            outcome.seconds = time.monotonic() - began
    return outcome


async def _work(
    fleet: Fleet, http: httpx2.AsyncClient, rng: random.Random, over: anyio.Event, outcome: Outcome
) -> None:
    while not over.is_set():
        job = await run_job(fleet, http, rng)
        outcome.jobs.append(job)
        outcome.faults += [f"{job.stream or 'not begun'}: {fault}" for fault in check(job)]
