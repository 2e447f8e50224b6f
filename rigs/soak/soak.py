"""A hub under load for long, its servers killed and its clients gone all the time: nothing lost, nothing left behind.

After each round of calls the hub comes to rest, and what it holds is noted: after half of the rounds it may not grow.
"""

import asyncio
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio
import httpx2

from rigs.report import crashes
from rigs.soak.clients import PATIENCE, Client, HandshakeHttp, ModernHttp, Rest, Stdio, Wrong, new_job
from rigs.soak.hubs import KILLED, SAFE, Killer, Sample, SoakHub
from tests.upstreams.child import PeerClosed, until

_REST = 240.0
"""Seconds in which every server has to be up again after a round."""
_LINGER = 60.0
_LEFT = {"descriptors": 12, "tasks": 8, "threads": 8}
"""What there may be more of at the end than before the first call: threads and files of pools, idle connections."""
_FILLED = 20_000
"""Calls after which the caches of a hub are full, those of its store last; what it takes before says nothing."""
_ENOUGH = 4
"""Samples that make a slope."""
_KINDS = {
    "echo": 66,
    "progress": 10,
    "large": 4,
    "error": 4,
    "tool error": 3,
    "cancel": 4,
    "question": 3,
    "resume": 3,
    "detached": 3,
}
_ASKED = ("good", "m", "q")


@dataclass(frozen=True)
class Plan:
    """How much of it. `slope` is how many kB the hub may grow in 10,000 calls in the second half of the rounds.

    The default is 40 bytes a call, less than the smallest object. `traces` says what was allocated and is still there.
    `dials`: each local server connects all the time.
    """

    calls: int
    front: str = "http"
    rounds: int = 20
    workers: int = 24
    seed: int = 1
    slope: float = 400.0
    traces: bool = False
    calls_to_kill: int = 100
    dials: bool = False


@dataclass
class Outcome:
    """What came of it; `faults` are the promises that were broken."""

    plan: Plan
    answered: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    grown: list[tuple[int, str]] = field(default_factory=list)

    @property
    def slope(self) -> float | None:
        """kB in 10,000 calls, fitted over the second half; None where too little is left of it."""
        half = self.samples[len(self.samples) // 2 :]
        points = [(sample.calls, sample.rss) for sample in half if sample.calls >= _FILLED]
        return _slope(points) * 10_000 if len(points) >= _ENOUGH else None

    def lines(self) -> list[str]:
        plan = self.plan
        head = f"{plan.front}: {sum(self.answered.values())} calls, {self.kills} kills, {self.seconds:.0f} s"
        table = ["   calls   RSS kB  fds threads tasks children zombies"]
        table += [
            f"{s.calls:>8} {s.rss:>8} {s.descriptors:>4} {s.threads:>7} {s.tasks:>5} {s.children:>8} {s.zombies:>7}"
            for s in self.samples
        ]
        kinds = ", ".join(f"{count} {what}" for what, count in self.answered.most_common(16))
        grown = ", ".join(f"{count:+} {name}" for count, name in self.grown)
        return [
            head,
            *table,
            f"answered: {kinds}",
            "memory: too few calls to tell"
            if self.slope is None
            else f"memory: {self.slope:+.0f} kB in 10,000 calls ({plan.slope:.0f} allowed)",
            f"objects in the second half: {grown or 'none more'}",
        ]


async def soak(plan: Plan, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Runs it. Raises nothing for what it finds."""
    outcome = Outcome(plan)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        async with SoakHub(Path(folder), plan.front, traces=plan.traces, dials=plan.dials) as hub:
            try:
                await _Run(hub, plan, outcome, say).all()
            except (TimeoutError, OSError, AssertionError) as problem:
                outcome.faults.append(f"it broke off: {problem!r}; {hub.process.stderr[-1500:]}")
            if (code := await hub.stop()) != 0:
                outcome.faults.append(f"the hub ended with {code}: {hub.process.stderr[-1500:]}")
            bad = [f"{line[:200]} … {line[-700:]}" for line in crashes(hub.process.stderr)]
            outcome.faults += [f"in the hub's log: {line}" for line in bad[:5]]
    outcome.seconds = time.monotonic() - began
    return outcome


class _Run:
    def __init__(self, hub: SoakHub, plan: Plan, outcome: Outcome, say: Callable[[str], None]) -> None:
        self._hub, self._plan, self._outcome, self._say = hub, plan, outcome, say
        self._clients: list[Client] = []
        self._begun = 0

    async def all(self) -> None:
        killer = Killer(self._hub, Random(f"{self._plan.seed} kills"))
        killing = asyncio.ensure_future(killer.run())
        try:
            async with AsyncExitStack() as stack:
                await self._settled()
                base = self._sampled()
                self._clients = [self._client(number) for number in range(self._plan.workers)]
                for client in self._clients:
                    if client.wire is not None:
                        await stack.enter_async_context(client.wire)
                await self._rounds(killer)
            self._judge(base, await self._let_go(base), killer)
        finally:
            self._outcome.kills = killer.kills
            killing.cancel()
            await asyncio.wait([killing])

    def _client(self, number: int) -> Client:
        rng = Random(f"{self._plan.seed} {number}")
        if self._hub.pipe is not None:
            return Stdio(self._hub.pipe, rng)
        return (HandshakeHttp, HandshakeHttp, ModernHttp, Rest)[number % 4](self._hub.url, rng)

    async def _rounds(self, killer: Killer) -> None:
        types: dict[str, int] = {}
        for number in range(self._plan.rounds):
            await self._round(killer, self._plan.calls * (number + 1) // self._plan.rounds)
            self._say(f"{self._begun} calls, {killer.kills} kills, {len(self._outcome.faults)} faults")
            if number == self._plan.rounds // 2 - 1:
                types = await self._hub.types()
        self._compare(types, await self._hub.types())
        self._trace()

    async def _round(self, killer: Killer, most: int) -> None:
        """Calls up to that many, then everybody leaves and the hub comes to rest."""
        await asyncio.gather(*(self._work(client, killer, most) for client in self._clients))
        await until(lambda: killer.is_idle, _REST)
        await asyncio.gather(*(client.leave() for client in self._clients))
        await self._settled()
        self._outcome.samples.append(self._sampled())

    async def _work(self, client: Client, killer: Killer, most: int) -> None:
        kinds = [kind for kind in client.kinds if kind in _KINDS]
        weights = [_KINDS[kind] for kind in kinds]
        while self._begun < most:
            self._begun += 1
            number = self._begun
            (kind,) = client.rng.choices(kinds, weights)
            servers = _ASKED if kind == "question" else (SAFE, *KILLED)
            server = client.rng.choice([one for one in servers if kind == "question" or one != "q"])
            job = new_job(kind, server, is_safe=server == SAFE)
            try:
                with anyio.fail_after(PATIENCE):
                    came = await client.call(job)
            except TimeoutError:
                came = self._fault(f"{job.tool}: no answer within {PATIENCE:g} s")
            except (Wrong, PeerClosed, AssertionError, httpx2.TransportError) as problem:
                came = self._fault(f"{type(client).__name__}: {problem!r}")
                await client.leave()
            self._outcome.answered[came if came.startswith("error") or came == "wrong" else f"{kind}: {came}"] += 1
            if number % self._plan.calls_to_kill == 0:
                await killer.owe()

    def _fault(self, what: str) -> str:
        self._outcome.faults.append(what)
        return "wrong"

    async def _settled(self) -> None:
        """Until every server answers again, and a moment longer for what is swept once in a while."""
        with anyio.fail_after(_REST):
            for name in (SAFE, *KILLED):
                while not await self._hub.answers(name):  # noqa: ASYNC110 - only a call can tell
                    await anyio.sleep(0.05)
        await anyio.sleep(1.2)

    def _sampled(self) -> Sample:
        return self._hub.sample(self._begun)

    def _compare(self, before: dict[str, int], after: dict[str, int]) -> None:
        """What the hub holds more of than when half was over."""
        grown = {name: count - before.get(name, 0) for name, count in after.items()}
        self._outcome.grown = sorted(((n, name) for name, n in grown.items() if n > 200), reverse=True)[:12]

    def _trace(self) -> None:
        if self._hub.trace.exists():
            snapshot = tracemalloc.Snapshot.load(str(self._hub.trace))
            for row in snapshot.statistics("traceback")[:25]:
                self._say(f"{row.size} B in {row.count}\n" + "\n".join(row.traceback.format()))

    async def _let_go(self, base: Sample) -> Sample:
        """The hub once it has closed what it keeps for a while, such as idle connections, or when time is over."""
        until = time.monotonic() + _LINGER
        while True:
            sample = self._sampled()
            more = [what for what, most in _LEFT.items() if getattr(sample, what) > getattr(base, what) + most]
            if not (more or sample.zombies) or time.monotonic() > until:
                return sample
            await anyio.sleep(1)
            await self._hub.answers("w")  # idle connections to it are looked at when one is needed

    def _judge(self, base: Sample, last: Sample, killer: Killer) -> None:
        plan, faults = self._plan, self._outcome.faults
        for what, most in _LEFT.items():
            before, now = getattr(base, what), getattr(last, what)
            if now > before + most:
                faults.append(f"{now} {what} at the end, {before} before the first call")
        if last.children != base.children or last.zombies:
            faults.append(f"{last.children} children and {last.zombies} zombies at the end, {base.children} before")
        slope = self._outcome.slope
        if slope is not None and slope > plan.slope:
            faults.append(f"memory grows by {slope:.0f} kB in 10,000 calls")
        if (pipe := self._hub.pipe) is not None:
            faults += pipe.wrongs + [f"never answered: {id_}" for id_ in pipe.unanswered()]
        if killer.kills < plan.calls // plan.calls_to_kill:
            faults.append(f"only {killer.kills} kills")
        if sum(self._outcome.answered.values()) != self._begun:
            faults.append(f"{self._begun} calls begun, {sum(self._outcome.answered.values())} accounted for")


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line that fits best."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
