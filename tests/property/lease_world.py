"""Replicas with clocks of their own and the real `Leases`, on a server in virtual time.

Nobody reads the server's clock, so that it has none here.
"""

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from mcp_hub.config.schema.hub import StoreSettings
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.leases import Leases

LEASE: Final = StoreSettings().lease
STREAMS: Final = 3
ANSWER: Final = 3.0
"""Seconds after which an answer is not waited for any more."""
FAST: Final = 0.002


class World:
    """A server with beats and streams, and messages under way; `delays` gives the seconds to the server and back."""

    def __init__(self, delays: Callable[[], tuple[float, float]] = lambda: (FAST, FAST)) -> None:
        self.time = 0.0
        self.delays = delays
        self.run = 0
        self.is_down = False
        self.beats: dict[str, int] = {}
        self.bad: list[str] = []
        self.owners = [("", 0)] * STREAMS
        """The owner and the epoch of each stream."""
        self.takeovers: list[tuple[float, str, str]] = []
        """When whose stream went to whom."""
        self.replicas: list[Replica] = []
        self.broken = ""
        """The rule that replicas break on purpose."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def at(self, time: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.time), next(self._number), do))

    def pass_by(self, seconds: float) -> None:
        until = self.time + seconds
        while self._events and self._events[0][0] <= until:
            self.time, _, do = heapq.heappop(self._events)
            do()
        self.time = until

    def join(self, rate: float = 1.0, offset: float = 0.0) -> "Replica":
        replica = Replica(self, f"in_{len(self.replicas)}", rate, offset)
        self.replicas.append(replica)
        replica.beat()
        return replica

    def beat(self, name: str) -> list[Any]:
        """The script's work."""
        bad, self.bad = self.bad, []
        self.beats |= dict.fromkeys(bad, 1)
        table = [part for peer, beat in self.beats.items() if peer != name for part in (peer, str(beat))]
        self.beats[name] = self.beats.get(name, 0) + 1
        return [self.beats[name], [part.encode() for part in table], [name.encode() for name in bad], b""]

    def claim(self, stream: int, epoch: int, name: str) -> bool:
        owner, current = self.owners[stream]
        if current != epoch:
            return False
        self.owners[stream] = name, epoch + 1
        self.takeovers.append((self.time, owner, name))
        return True

    def holders(self, stream: int) -> list[str]:
        return [replica.name for replica in self.replicas if replica.holds(stream)]


class Replica:
    """A replica with a clock, which sends its messages in order and claims what is left."""

    def __init__(self, world: World, name: str, rate: float, offset: float) -> None:
        self.world = world
        self.name = name
        self._rate, self._offset = rate, offset
        self.awake = self._slept = 0.0
        self.leases = Leases(RedisKeys("m:"), name, LEASE, self.clock)
        self.leases.began(60)
        self.acquired: dict[int, float] = {}
        """The streams that it takes to be its own, with the time before it asked for each."""
        self.claiming: set[int] = set()
        self.is_dead = False
        self.is_deaf = False
        """Whether its next answer is lost."""
        self.is_cut = False
        """Whether nothing that it sends arrives."""
        self.claims = 0.0
        """Seconds for which its claims are under way."""
        self.delays = world.delays
        self.pauses: Callable[[], float] = lambda: 0.0
        """Seconds for which it is late with its next beat."""
        self.answers = 0
        self._arrived = self._returned = 0.0

    def clock(self) -> float:
        slept = self._slept - max(self.awake - self.world.time, 0) if self.world.broken == "suspension" else 0
        return (self.world.time - slept) * self._rate + self._offset

    def suspend(self, seconds: float) -> None:
        """Stops the process, and its timers with it."""
        self._slept += max(self.world.time + seconds - max(self.awake, self.world.time), 0)
        self.awake = max(self.awake, self.world.time + seconds)

    def holds(self, stream: int) -> bool:
        acquired = self.acquired.get(stream)
        if acquired is None or self.is_dead or self.clock() >= self.leases.held_until:
            return False
        return self.world.broken == "gap" or self.leases.held_from <= acquired

    def _awake(self, do: Callable[[], None]) -> None:
        """Does it, or at the end of a suspension; never in a dead process."""
        if self.world.time < self.awake:
            self.world.at(self.awake, lambda: self._awake(do))
        elif not self.is_dead:
            do()

    def ask(self, act: Callable[[], Any], take: Callable[[Any], None], failed: Callable[[], None]) -> None:
        """Sends a message; its answer comes behind those before it, or never."""
        world, run, began = self.world, self.world.run, self.world.time
        there, back = self.delays()
        self._arrived = max(self._arrived, world.time + there)

        def arrives() -> None:
            if self.is_cut:
                world.at(began + ANSWER, lambda: self._awake(failed))
                return
            if world.is_down or world.run != run:
                self._awake(failed)
                return
            answer = act()
            self._returned = max(self._returned, world.time + back)
            is_lost, self.is_deaf = self.is_deaf, False
            if is_lost or self._returned > began + ANSWER:
                world.at(began + ANSWER, lambda: self._awake(failed))
            else:
                world.at(self._returned, lambda: self._awake(lambda: take(answer)))

        world.at(self._arrived, arrives)

    def beat(self, then: Callable[[], None] | None = None) -> None:
        """Beats, and looks for streams that are left; without `then` this goes on for ever."""
        sent = self.clock()
        self.leases._begun = sent

        def answered(reply: Any) -> None:
            self.answers += 1
            for name in self.leases.answered(sent, reply):
                self.world.beats.setdefault(name, 1)
            if then is not None:
                then()
                return
            for stream in range(STREAMS):
                self._look(stream)
            self._later()

        def failed() -> None:
            self.leases.server_failed()
            if then is None:
                self._later()

        self.ask(lambda: self.world.beat(self.name), answered, failed)

    def _later(self) -> None:
        seconds = self.leases.pause / self._rate
        late = self.pauses()
        self.world.at(self.world.time + seconds, lambda: self._awake(self._paused(late)))

    def _paused(self, late: float) -> Callable[[], None]:
        return lambda: self.world.at(self.world.time + late, lambda: self._awake(self.beat))

    def create(self, stream: int) -> None:
        """Begins a stream that nobody has, or one that has ended."""
        asked = self.clock()

        def made(epoch: Any) -> None:
            self.acquired[stream] = asked

        def make() -> int:
            self.world.owners[stream] = self.name, self.world.owners[stream][1] + 1
            return self.world.owners[stream][1]

        if self.world.owners[stream][0] == "" and self.clock() < self.leases.held_until:
            self.world.owners[stream] = "nobody else", self.world.owners[stream][1]
            self.ask(make, made, lambda: None)

    def _look(self, stream: int) -> None:
        owner, epoch = self.world.owners[stream]
        if owner == self.name or stream in self.claiming or not owner.startswith("in_"):
            return
        if not self.leases.is_gone(owner):
            return
        self.claiming.add(stream)

        def over() -> None:
            self.claiming.discard(stream)

        def claim() -> None:
            if not self.leases.is_gone(owner):
                over()
                return
            asked = self.clock()

            def claimed(is_mine: Any) -> None:
                over()
                if is_mine:
                    self.acquired[stream] = asked

            send = partial(self.ask, lambda: self.world.claim(stream, epoch, self.name), claimed, over)
            self.world.at(self.world.time + self.claims, lambda: self._awake(send))

        if self.world.broken == "look":
            claim()
        else:
            self.beat(claim)
            self.world.at(self.world.time + 2 * ANSWER, over)
