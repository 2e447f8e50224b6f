"""Replicas on one server, step by step: the hub's own leases and writes, over a network and clocks that do anything.

A request may be lost, or its answer, or it arrives long after it was given up. Replicas are cut from the server both
ways or one way, die and are replaced; the server starts anew, with all that it had. Clocks run apart by 10 %. What is
told to a reader is compared with what the server has.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import ENDINGS, Change, Chunk, EventPage, StoreLimits
from mcp_hub.stores.memory import MemoryStreams
from mcp_hub.types import CallId
from rigs.model.replica import Replica

_MOST: Final = 12
"""Streams that run at a time."""


class Contradiction(AssertionError):
    """Somebody was told what is not so, or may not be."""


@dataclass
class Counts:
    """How much of what a run came to."""

    steps: int = 0
    confirmed: int = 0
    alone: int = 0
    claims: int = 0
    fenced: int = 0
    cuts: int = 0
    ended: int = 0


@dataclass(eq=False)
class World:
    """The server, replicas, and what readers were told; `step` does one thing at random."""

    rng: random.Random
    time: float = 0.0
    run: str = "1"
    beats: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    seen: dict[CallId, dict[int, bytes]] = field(default_factory=dict)
    """What readers were told of each stream."""

    def __post_init__(self) -> None:
        self.streams = MemoryStreams(StoreLimits(), "server")
        self._number = 0
        self.replicas = [self._joined() for _ in range(3)]
        self._acts: Sequence[tuple[Callable[[Replica], None], int]] = (
            (lambda replica: replica.arrives(), 30),
            (lambda replica: replica.answered(), 30),
            (lambda replica: self._passes(), 12),
            (lambda replica: replica.says(), 16),
            (lambda replica: self._begins(replica), 4),
            (lambda replica: replica.tends(), 8),
            (lambda replica: replica.claims(), 6),
            (lambda replica: replica.haunts(), 2),
            (lambda replica: self._asks(replica), 6),
            (lambda replica: self._slows(replica), 1),
            (lambda replica: self._cuts(replica), 1),
            (lambda replica: self._mends(replica), 8),
        )
        self._do, self._weights = zip(*self._acts, strict=True)

    # -- the server

    def new_row(self, owner: str) -> StreamInfo:
        self._number += 1
        return StreamInfo(
            id=CallId(f"st_{self._number}"), principal="p", owner=owner, server="s", method="tools/call", name="t",
            created=1.0, updated=1.0,
        )  # fmt: skip

    def create(self, row: StreamInfo, chunk: Chunk) -> StoreError | None:
        return self.streams.create(row, chunk)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change) -> StoreError | None:
        return self.streams.append(stream, epoch, chunk, change)

    def claim(self, name: str, row: StreamInfo, chunk: Chunk, change: Change) -> StreamInfo | None:
        self.streams.instance = name
        claimed = self.streams.claim(row, chunk.lines, change)
        if claimed is not None:
            self.counts.claims += 1
            for replica in self.replicas:
                if replica.name == row.owner and replica.writes.is_held(row.id) and row.id in replica.owned:
                    raise Contradiction(f"{row.id} was claimed by {name} while {row.owner} held it")
        return claimed

    def beat(self, name: str) -> list[Any]:
        table = [part for peer, beat in self.beats.items() if peer != name for part in (peer.encode(), b"%d" % beat)]
        self.beats[name] = self.beats.get(name, 0) + 1
        return [self.beats[name], table, [], b"1"]

    # -- what readers are told

    def told(self, replica: Replica, row: StreamInfo, chunk: Chunk) -> None:
        """A reader gets these events under their numbers; nobody may have got others."""
        stored, is_alone = self.streams.row(row.id), replica.writes._is_alone(row.id)
        self.counts.confirmed += not is_alone
        self.counts.alone += is_alone
        told = self.seen.setdefault(row.id, {})
        for number, line in enumerate(chunk.lines, chunk.first):
            if told.setdefault(number, line) != line:
                raise Contradiction(f"{row.id}: event {number} is {line!r}, and was {told[number]!r}")
            if not is_alone and (stored is None or self._line(row.id, number) != line):
                has = self._line(row.id, number)
                raise Contradiction(
                    f"{row.id}: {replica.name} told {line!r} as {number}, the server has {has!r}: {stored}"
                )
        if row.has_ended and not is_alone and (stored is None or stored.status != row.status):
            raise Contradiction(f"{row.id}: {replica.name} told {row.status}, the server has {stored}")

    def _line(self, stream: CallId, number: int) -> bytes | None:
        page = self.streams.page(stream, number - 1, 1)
        return page.lines[0] if isinstance(page, EventPage) and page.lines and page.first == number else None

    def left(self, replica: Replica, before: StreamInfo, error: StoreError | None) -> None:
        """A writer has nothing more to do with a stream."""
        self.counts.fenced += isinstance(error, Fenced)
        stream, row = before.id, self.streams.row(before.id)
        if row is not None and not row.has_ended and isinstance(error, Fenced) and row.owner == replica.name:
            raise Contradiction(f"{stream}: {replica.name} gave up a stream that nobody else has claimed: {error}")
        if error is None or (row is not None and row.has_ended):
            self._forget(stream)

    def _forget(self, stream: CallId) -> None:
        """An ended stream, so that the world stays small."""
        row = self.streams.row(stream)
        if row is not None and row.has_ended and not any(replica.knows(stream) for replica in self.replicas):
            self._check_seen(row)
            self.counts.ended += 1
            self.streams.drop(stream)
            self.seen.pop(stream, None)

    def _check_seen(self, row: StreamInfo) -> None:
        for number, line in self.seen.get(row.id, {}).items():
            if self._line(row.id, number) != line:
                raise Contradiction(f"{row.id}: event {number} was told, and is {self._line(row.id, number)!r} now")

    # -- steps

    def step(self) -> None:
        """Does one thing. Raises `Contradiction`."""
        self.counts.steps += 1
        [do] = self.rng.choices(self._do, self._weights)
        do(self.rng.choice(self.replicas))
        if self.counts.steps % 5000 == 0:
            self._dies()
        if self.counts.steps % 7001 == 0:
            self._restarts()
        if self.counts.steps % 500 == 0:
            self._sweep()

    def _joined(self) -> Replica:
        self._number += 1
        return Replica(self, f"in_{self._number}")

    def _passes(self) -> None:
        self.time += self.rng.choice((0.01, 0.05, 0.1))
        for replica in self.replicas:
            if replica.leases.pause <= 0:
                replica.beats()

    def _begins(self, replica: Replica) -> None:
        if sum(len(each.owned) + len(each.busy) for each in self.replicas) < _MOST:
            replica.begins()

    def _asks(self, replica: Replica) -> None:
        """A client asks for the state of a stream where its writer is."""
        if not replica.owned:
            return
        row = replica.owned[self.rng.choice(list(replica.owned))]
        if replica.writes.is_held(row.id) and not replica.writes._is_alone(row.id):
            stored = self.streams.row(row.id)
            if stored is not None and (stored.owner, stored.epoch) != (row.owner, row.epoch):
                raise Contradiction(f"{row.id}: {replica.name} answers for a stream of {stored}")

    def _slows(self, replica: Replica) -> None:
        replica.pace = self.rng.choice((1.0, 1.0, 0.05))

    def _cuts(self, replica: Replica) -> None:
        self.counts.cuts += 1
        replica.is_heard, replica.hears = self.rng.choice(((False, False), (True, False), (False, True)))

    def _mends(self, replica: Replica) -> None:
        if not (replica.is_heard and replica.hears) and self.rng.random() < 0.08:
            replica.is_heard = replica.hears = True
            replica.lose_connection()

    def _dies(self) -> None:
        place = self.rng.randrange(len(self.replicas))
        self.replicas[place] = self._joined()

    def _restarts(self) -> None:
        """The server starts anew, with all that it had."""
        self.run = f"{int(self.run) + 1}"
        for replica in self.replicas:
            replica.ghosts.clear()
            replica.lose_connection()
            replica.ghosts.clear()

    def _sweep(self) -> None:
        for row in self.streams.rows():
            if row.has_ended:
                self._forget(row.id)

    def settles(self) -> None:
        """Everything works again; no write waits for ever, and no stream is left to nobody."""
        for replica in self.replicas:
            replica.is_heard = replica.hears = True
            replica.pace = 1.0
            replica.lose_connection()
        for _ in range(4000):
            self.time += 0.02
            for replica in self.replicas:
                if replica.leases.pause <= 0:
                    replica.beats()
                replica.arrives()
                replica.answered()
                replica.tends()
                replica.claims()
        refused = [id_ for replica in self.replicas for id_ in replica.owned if not replica.writes.is_held(id_)]
        if refused:
            raise Contradiction(f"streams are refused though the server answers: {refused}")
        waiting = [id_ for replica in self.replicas for id_ in replica.busy]
        if waiting:
            raise Contradiction(f"writes wait though the server answers: {waiting}")
        names = {replica.name for replica in self.replicas}
        orphans = [row.id for row in self.streams.rows() if row.status not in ENDINGS and row.owner not in names]
        if orphans:
            raise Contradiction(f"nobody takes over {orphans}")


def walk(steps: int, seed: int) -> Counts:
    """So many steps from a fresh start, and its end. Raises `Contradiction`."""
    world = World(random.Random(seed))
    for _ in range(steps):
        world.step()
    world.settles()
    return world.counts
