"""Calls that are followed by the clients for Python and TypeScript, while connections are cut and the hub is killed.

Each connection goes through a proxy that cuts it after so many bytes; the hub gets SIGKILL again and again. Each call
is judged by the log that the hub keeps: no gap, no repeat, one ending, the same result.
"""

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2

from mcp_hub.client import HubStream
from mcp_hub.client.http import connect
from mcp_hub.errors import UpstreamLost, UpstreamUnavailable
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed, Started
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.types import CallId, JsonObject
from rigs.chaos.hubs import Fleet
from rigs.followers.followed import Followed, check, ending_of, log_of
from rigs.followers.node import NodeFollower, node_follower
from tests.e2e.cutting_proxy import cutting_proxy

_PATIENCE = 240.0
_CUTS = (1500, 20_000)
"""Bytes from the hub after which a connection is cut."""
SERVES = (2.0, 5.0)
"""Seconds for which the hub serves before it is killed."""
_PAUSE = 0.2
"""Seconds after a call that could not be begun."""


@dataclass
class Outcome:
    """What a run came to."""

    rounds: Counter[str] = field(default_factory=Counter)
    restarted: int = 0
    connections: int = 0
    events: int = 0
    kills: int = 0
    cuts: int = 0
    not_begun: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def lines(self) -> list[str]:
        return [
            ", ".join(f"{count} rounds of {client}" for client, count in sorted(self.rounds.items())),
            f"{self.kills} kills, {self.cuts} connections cut, {self.events} events, {self.seconds:.0f} s",
            f"{self.restarted} calls ended by a kill; {self.not_begun} were lost before their first event",
        ]


async def followers(
    *,
    rounds: int,
    workers: int,
    seed: int,
    serves: tuple[float, float] = SERVES,
    most_kills: int = sys.maxsize,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """So many rounds of each client. Raises nothing for what it finds; `NotInstalled` without Node.js."""
    rng = random.Random(seed)
    outcome = Outcome()
    began = time.monotonic()
    drawn: list[int] = []
    with tempfile.TemporaryDirectory(prefix="followers-") as folder:
        fleet = Fleet(Path(folder), 1, rng)
        hub = fleet.hubs[0]
        try:
            await fleet.serving(hub, began)
            async with (
                cutting_proxy(hub.url, _cuts(rng, drawn)) as proxy,
                node_follower() as node,
                httpx2.AsyncClient(trust_env=False, timeout=20) as http,
                anyio.create_task_group() as killing,
            ):
                killing.start_soon(_kill, fleet, rng, serves, most_kills)
                rig = _Rig(proxy.url, hub.url, node, http, outcome, say)
                async with anyio.create_task_group() as tasks:
                    for number in range(workers):
                        tasks.start_soon(rig.work, rounds, random.Random(f"{seed} {number}"))
                killing.cancel_scope.cancel()
                outcome.cuts = sum(passed >= cut for passed, cut in zip(proxy.passed, drawn, strict=False))
        finally:
            fleet.stop()
            outcome.kills = fleet.kills
            outcome.seconds = time.monotonic() - began
    return outcome


def _cuts(rng: random.Random, drawn: list[int]) -> Iterator[int]:
    while True:
        drawn.append(rng.randint(*_CUTS))
        yield drawn[-1]


async def _kill(fleet: Fleet, rng: random.Random, serves: tuple[float, float], most: int) -> None:
    while fleet.kills < most:
        await anyio.sleep(rng.uniform(*serves))
        await fleet.kill()


class _Rig:
    def __init__(
        self,
        url: str,
        direct: str,
        node: NodeFollower,
        http: httpx2.AsyncClient,
        outcome: Outcome,
        say: Callable[[str], None],
    ) -> None:
        self._url = url
        self._direct = direct
        self._node = node
        self._http = http
        self._outcome = outcome
        self._say = say
        self._begun: Counter[str] = Counter()
        self._clients: dict[str, Callable[[random.Random, int, float], Awaitable[Followed | None]]] = {
            "Python": self._by_python,
            "TypeScript (handshake)": self._by_node,
            "TypeScript (modern, tasks)": self._by_node_as_task,
        }

    async def work(self, rounds: int, rng: random.Random) -> None:
        """Plays rounds of the client that has had the fewest until each has had enough."""
        while True:
            client = min(self._clients, key=lambda name: (self._begun[name], rng.random()))
            if self._begun[client] >= rounds:
                return
            self._begun[client] += 1
            steps, seconds = rng.randint(5, 40), rng.uniform(0.2, 1.5)
            found = None
            with anyio.move_on_after(_PATIENCE) as limit:
                found = await self._clients[client](rng, steps, seconds)
                if found is not None:
                    found.client, found.steps = client, steps
                    await self._judge(found)
            if limit.cancelled_caught:
                self._outcome.faults.append(f"{client}: no end within {_PATIENCE:g} s")
            elif found is None:
                self._outcome.not_begun += 1
                self._begun[client] -= 1
                await anyio.sleep(_PAUSE)

    async def _judge(self, found: Followed) -> None:
        while True:
            try:
                log = await log_of(self._http, self._direct, found.stream)
                break
            except httpx2.HTTPError:
                await anyio.sleep(0.05)
        outcome = self._outcome
        outcome.rounds[found.client] += 1
        outcome.events += len(log)
        outcome.restarted += log[-1]["type"] == "error"
        outcome.faults += check(found, log)
        if sum(outcome.rounds.values()) % 50 == 0:
            self._say(f"{sum(outcome.rounds.values())} rounds, {len(outcome.faults)} faults")

    async def _by_python(self, rng: random.Random, steps: int, seconds: float) -> Followed | None:
        found = Followed("Python", "")
        leave = rng.choice((0, rng.randint(2, steps)))
        arguments = json.dumps({"steps": steps, "seconds": seconds}).encode()
        async with connect(f"{self._url}/mcp") as client:
            stream = client.stream("run_job", arguments)
            while found.ending is None:
                try:
                    await _take(stream, found, leave)
                except (UpstreamLost, UpstreamUnavailable):
                    if not found.events:
                        return None
                    await anyio.sleep(_PAUSE)
                found.stream = stream.stream or ""
                leave, stream = 0, client.resume(found.stream, stream.cursor)
        return found

    async def _by_node(self, rng: random.Random, steps: int, seconds: float, era: str = "handshake") -> Followed | None:
        arguments = {"steps": steps, "seconds": seconds}
        order: JsonObject = {"url": f"{self._url}/mcp", "era": era, "tasks": True, "name": "run_job", "args": arguments}
        if rng.random() < 0.5:
            order["leave"] = rng.randint(2, steps)
        found = await self._node.follow(**order)
        if "notBegun" in found:
            return None
        events = [(event["seq"], event["type"], event["data"]) for event in found["events"]]
        ending = (
            found["error"]["message"]
            if "error" in found
            else ending_of("end", {"outcome": "", "result": found["result"]})
        )
        return Followed("", found["stream"], events, ending, found["connections"])

    async def _by_node_as_task(self, rng: random.Random, steps: int, seconds: float) -> Followed | None:
        return await self._by_node(rng, steps, seconds, "modern")


async def _take(stream: HubStream, found: Followed, leave: int) -> None:
    """Notes the events of a stream, to its end or to event number `leave`."""
    async with stream:
        async for event in stream:
            kind, data = _plain(event)
            if isinstance(event, Completed | Failed | Cancelled):
                found.ending = ending_of(kind, data)
            elif not isinstance(event, Started):
                found.events.append((stream.cursor, kind, data))
            if stream.cursor == leave:
                break


def _plain(event: CallEvent) -> tuple[str, JsonObject]:
    """Type and data of an event, as on the wire."""
    line = json.loads(encoded(CallId(""), 1, "", event))
    return line["type"], line["data"]
