"""`make events`: kills a hub and its servers while events happen, and looks for lost, doubled and misplaced ones.

The service behind each server outlives it, so that every event can be replayed from the cursor that the server gave:
none may be missing at a client that keeps its own cursor, none may come twice, and their order has to stay.
"""

import os
import random
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from rigs.report import arguments, reported, say
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, children
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Poller, Service, config

_SERVERS = {"polled": (MODERN, "poll"), "pushed": (MODERN, "push"), "early": (HANDSHAKE, "push")}
_PATIENCE = 300.0
"""Seconds for what has happened to reach its client, on a busy machine."""
_PAUSE = 0.02


@dataclass
class Outcome:
    """Kills by what was killed, the events that happened at each server, and the faults."""

    kills: dict[str, int] = field(default_factory=lambda: {"hub": 0, "server": 0})
    happened: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SERVERS, 0))
    faults: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.kills.values())

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} of {kind}s" for kind, count in self.kills.items())
        return [f"{self.total} kills ({counts})", f"{sum(self.happened.values())} events: {self.happened}"]


class _Run:
    """One run: services, and clients whose cursors survive every hub."""

    def __init__(self, root: Path, rng: random.Random, per_kill: int) -> None:
        self.root = root
        self.outcome = Outcome()
        self.services = {name: Service(root, name) for name in _SERVERS}
        self.cursors: dict[str, str | None] = dict.fromkeys(_SERVERS)
        self.numbers: dict[str, list[int]] = {name: [] for name in _SERVERS}
        self._rng = rng
        self._per_kill = per_kill

    @property
    def text(self) -> str:
        return config({name: self.services[name].argv(era, modes) for name, (era, modes) in _SERVERS.items()})

    async def life(self, kills: int) -> None:
        """One hub, until it is killed, or asked to stop once there were enough kills."""
        async with AsyncExitStack() as stack:
            hub = await stack.enter_async_context(hub_process(self.text, self.root))
            client = await stack.enter_async_context(HttpClient(hub.url))
            pollers = {
                name: Poller(Peer(client, MODERN), f"{name}_build_done", self.cursors[name]) for name in _SERVERS
            }
            for poller in pollers.values():
                await poller.poll()
            for _ in range(self._rng.randint(1, 6)):
                if self.outcome.total >= kills:
                    await self._catch_up(pollers)
                    return
                self._happens()
                await self._some(pollers)
                if self._rng.random() < 0.7:
                    self._kill_server(hub)
            if self.outcome.total < kills:
                self._keep(pollers)
                self._happens()
                hub.send_signal(signal.SIGKILL)
                await hub.wait()
                self.outcome.kills["hub"] += 1

    def _happens(self) -> None:
        for name, service in self.services.items():
            first = self.outcome.happened[name] + 1
            count = self._rng.randint(1, 2 * self._per_kill)
            service.happens(*range(first, first + count))
            self.outcome.happened[name] += count

    def _kill_server(self, hub: Hub) -> None:
        if running := sorted(children(hub.pid)):
            os.kill(self._rng.choice(running), signal.SIGKILL)
            self.outcome.kills["server"] += 1

    async def _some(self, pollers: dict[str, Poller]) -> None:
        for _ in range(self._rng.randint(0, 4)):
            for poller in pollers.values():
                await poller.poll()
            await anyio.sleep(_PAUSE)
        self._keep(pollers)

    async def _catch_up(self, pollers: dict[str, Poller]) -> None:
        with anyio.move_on_after(_PATIENCE):
            while any(self._last(name, poller) < self.outcome.happened[name] for name, poller in pollers.items()):
                for poller in pollers.values():
                    await poller.poll()
                await anyio.sleep(_PAUSE)
        self._keep(pollers)

    def _last(self, name: str, poller: Poller) -> int:
        return [0, *self.numbers[name], *poller.numbers][-1]

    def _keep(self, pollers: dict[str, Poller]) -> None:
        for name, poller in pollers.items():
            self.cursors[name] = poller.cursor
            self.numbers[name] += poller.numbers
            poller.numbers = []
            if poller.gaps:
                self.outcome.faults.append(f"{name}: {poller.gaps} gaps, though its server replays everything")
                poller.gaps = 0

    def judge(self) -> None:
        for name, numbers in self.numbers.items():
            expected = list(range(1, self.outcome.happened[name] + 1))
            if numbers != expected:
                missing, doubled = set(expected) - set(numbers), len(numbers) - len(set(numbers))
                fault = f"{name}: {len(missing)} of {len(expected)} events are missing, {doubled} came twice"
                self.outcome.faults.append(fault if missing or doubled else f"{name}: events are not in order")


async def events(kills: int, count: int, seed: int, root: Path) -> Outcome:
    """Kills so many processes while about `count` events happen."""
    run = _Run(root, random.Random(seed), max(1, count // max(1, kills) // len(_SERVERS)))
    while run.outcome.total < kills:
        await run.life(kills)
        say(f"{run.outcome.total}: {run.outcome.kills} {run.outcome.happened} {len(run.outcome.faults)} faults")
    await run.life(kills)
    run.judge()
    return run.outcome


def main() -> int:
    parser = arguments("events", __doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = anyio.run(events, options.kills, options.events, options.seed, Path(folder))
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.total >= options.kills)


if __name__ == "__main__":
    sys.exit(main())
