"""One replica of the model: the hub's own leases and writes over a line on which requests and answers are lost."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, Fetched, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.memory_fallback import MemoryFallback, OwnedStreams
from mcp_hub.stores.recovery.writes import ServerWrites
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.leases import Leases
from mcp_hub.stores.replicated import _Reconnect
from mcp_hub.types import CallId

LEASE: Final = 1.2
ANSWER: Final = 3.0
"""Seconds after which an answer is not waited for any more."""
_DRIFT: Final = 0.1
"""By which clocks run apart at most."""
_GHOSTS: Final = 4
"""Requests of one replica that arrive too late."""


@dataclass(eq=False)
class Job:
    """A request under way: what it does at the server, and who hears of it. `answer` once it was executed."""

    act: Callable[[], Any]
    callback: Callable[[Any], None]
    sent: float
    is_executed: bool = False
    answer: Any = None


class _Clock:
    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    def now(self) -> float:
        return self._replica.time()


class _Log:
    """The server's log as one replica reaches it."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica
        self.is_settled = True

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        self._replica.send(lambda: self._replica.world.create(row, chunk), callback)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        self._replica.send(lambda: self._replica.world.append(stream, epoch, chunk, change), callback)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        self._replica.send(lambda: self._replica.world.streams.page(stream, after, limit), callback)


class Replica:
    """A replica, which owns streams, and writes one thing of each at a time."""

    def __init__(self, world: Any, name: str) -> None:
        self.world = world
        self.name = name
        self._rate = 1 + world.rng.uniform(-_DRIFT, _DRIFT) / 2
        self._offset = world.rng.uniform(0, 1000)
        self.jobs: deque[Job] = deque()
        self.ghosts: list[Job] = []
        self.hears = self.is_heard = True
        """Whether answers arrive, and requests."""
        self.pace = 1.0
        """How often a request or an answer goes on when it could."""
        self.is_beating = False
        self.leases = Leases(RedisKeys("m:"), name, LEASE, self.time)
        self.leases.began(60)
        self.owned: dict[CallId, StreamInfo] = {}
        """The streams that have a writer here, as it knows them."""
        self.busy: set[CallId] = set()
        self.claiming: set[CallId] = set()
        store: Any = SimpleNamespace(
            links=SimpleNamespace(leases=self.leases, name="m"), run="1", secret=b"k", log=_Log(self)
        )
        self.store = store
        self.backing: Any = _Reconnect(store)
        limits = StoreLimits()
        self.streams = OwnedStreams(self.backing, MemoryFallback(limits, name), _Clock(self))
        self.writes = ServerWrites(self.backing, store, self.leases, self.streams)

    def time(self) -> float:
        now: float = self.world.time * self._rate + self._offset
        return now

    # -- the network

    def send(self, act: Callable[[], Any], callback: Callable[[Any], None]) -> None:
        self.jobs.append(Job(act, callback, self.world.time))

    def arrives(self) -> None:
        """The server executes the next request."""
        job = next((job for job in self.jobs if not job.is_executed), None)
        if job is not None and self.is_heard and self._goes_on:
            job.answer, job.is_executed = job.act(), True

    def answered(self) -> None:
        """The next answer arrives, or is given up."""
        if not self.jobs:
            return
        job = self.jobs[0]
        if job.is_executed and self.hears and self._goes_on:
            self.jobs.popleft().callback(job.answer)
        elif self.world.time - job.sent > ANSWER:
            self.lose_connection()

    @property
    def _goes_on(self) -> bool:
        return self.pace == 1.0 or bool(self.world.rng.random() < self.pace)

    def lose_connection(self) -> None:
        """All that is under way fails; what was sent may still arrive."""
        jobs, self.jobs = list(self.jobs), deque()
        self.ghosts = [*self.ghosts, *(job for job in jobs if not job.is_executed)][-_GHOSTS:]
        for job in jobs:
            job.callback(StoreFault("unreachable", "no answer"))

    def haunts(self) -> None:
        """A request arrives that was given up."""
        if self.ghosts and self.is_heard:
            self.ghosts.pop(self.world.rng.randrange(len(self.ghosts))).act()

    # -- beats

    def beats(self, then: Callable[[], None] = lambda: None, failed: Callable[[], None] = lambda: None) -> None:
        if self.is_beating:
            return
        self.is_beating, sent = True, self.time()

        def taken(reply: Any) -> None:
            self.is_beating = False
            if isinstance(reply, StoreFault):
                self.leases.server_failed()
                failed()
                return
            for name in self.leases.answered(sent, reply):
                self.world.beats.setdefault(name, 1)
            then()

        self.send(lambda: self.world.beat(self.name), taken)

    def tends(self) -> None:
        """What a hub does when it is told of news, and now and then."""
        self.writes.look()
        self.store.run = self.world.run if self.is_heard and self.hears else self.store.run
        _run(self.backing.recover(self.streams.leave_all))
        if self.backing.is_fit:
            for stream in self.writes.returnable:
                self.writes.bring_back(stream)

    # -- streams

    def begins(self) -> None:
        row = self.world.new_row(self.name)
        chunk = self._events(row, 1)
        begun = msgspec.structs.replace(row, last=1)
        self._write(begun, chunk, lambda told: self.writes.create(begun, chunk, told))

    def says(self) -> None:
        """A writer has news: events, an ending, or a change of its row alone."""
        free = [id_ for id_ in self.owned if id_ not in self.busy]
        if not free:
            return
        row = self.owned[self.world.rng.choice(free)]
        count = self.world.rng.choice((0, 1, 1, 2))
        status = "completed" if count and self.world.rng.random() < 0.2 else None  # noqa: RUF100
        chunk, change = self._events(row, count), Change(row.updated + 1, status)  # type: ignore[arg-type]
        after = base.changed(row, chunk, change)
        self._write(after, chunk, lambda told: self.writes.append(row.id, row.epoch, chunk, change, told))

    def _events(self, row: StreamInfo, count: int) -> Chunk:
        """Lines that nobody else writes."""
        mark = f"{self.name} {row.epoch} {self.world.rng.random()}"
        return Chunk(row.last + 1, tuple(f"{row.last + 1 + index} {mark}".encode() for index in range(count)))

    def _write(self, after: StreamInfo, chunk: Chunk, start: Callable[[Appended], None]) -> None:
        self.busy.add(after.id)

        def told(error: StoreError | None) -> None:
            self.busy.discard(after.id)
            if error is None:
                self.world.told(self, after, chunk)
                self.owned[after.id] = after
            if error is not None or after.has_ended:
                self.owned.pop(after.id, None)
                self.world.left(self, after, error)

        start(told)

    def knows(self, stream: CallId) -> bool:
        """Whether it may write to the stream yet."""
        is_writer = stream in self.owned or stream in self.busy or stream in self.claiming
        return is_writer or self.streams.fallback.row(stream) is not None

    def claims(self) -> None:
        """Takes over a stream whose owner is gone: looks again, then claims; ends it, or goes on with it."""
        rows = [row for row in self.world.streams.rows() if not row.has_ended and row.id not in self.claiming]
        gone = [row for row in rows if row.owner != self.name and self.leases.is_gone(row.owner)]
        if not gone or not self.leases.is_held or not self.backing.is_fit:
            return
        row = self.world.rng.choice(gone)
        if not self.is_beating:
            self.claiming.add(row.id)
            self.beats(lambda: self._claim(row), lambda: self.claiming.discard(row.id))

    def _claim(self, row: StreamInfo) -> None:
        if not self.leases.is_gone(row.owner):
            self.claiming.discard(row.id)
            return
        goes_on = self.world.rng.random() < 0.4
        chunk = self._events(msgspec.structs.replace(row, epoch=row.epoch + 1), 1)
        change = Change(row.updated + 1, "working" if goes_on else "failed")

        def claimed(answer: Any) -> None:
            self.claiming.discard(row.id)
            if isinstance(answer, StreamInfo):
                self.streams.confirm(answer, chunk.lines)
                self.world.told(self, answer, chunk)
                if goes_on:
                    self.owned[row.id] = answer

        self.send(lambda: self.world.claim(self.name, row, chunk, change), claimed)


def _run(coroutine: Any) -> None:
    """A coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError
