"""Live replicas. Each counts a beat at the server; no clock but the replica's own is read.

A holder counts its lease from just before it sent the last answered beat. Another replica takes it to be gone 1.25
leases after the answer that first showed an unchanged beat, if the server answers a later reading, too: clocks may run
apart by 10 %. All are observed anew after a failure of the server, lost records, or a pause of this replica.
"""

import math
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from mcp_hub.stores.redis.keys import RedisKeys, instance_id, quarantined
from mcp_hub.stores.redis.link import ANSWER, Link, Reply, script
from mcp_hub.stores.redis.records import Quarantine, log_set_aside, pairs
from mcp_hub.stores.redis.scripts import BEAT

NOBODY: Final = ""
"""The owner of a stream whose replica has left."""
LEFT: Final = 0
"""The beat of such a replica."""
_BEATS: Final = 4
"""In one lease."""
_WAIT: Final = 1.25
"""Leases without a beat after which a replica is gone."""
_RETURN: Final = ANSWER + 0.5
"""Seconds in which every live replica notices that the server is back."""
_MARGIN: Final = 0.001
"""Seconds by which a timer may be early."""
_UNKNOWN: Final = -1
"""The beat of a replica without a record: any that is read differs."""


class _Seen(NamedTuple):
    """A beat, and the clock's time of the first answer that showed it."""

    beat: int
    since: float


class _Peers:
    """The other replicas, as readings of their beats show them; `wait` is in seconds."""

    def __init__(self, wait: float) -> None:
        self._wait = wait
        self._seen: dict[str, _Seen] = {}
        self.since = math.inf
        """The first answer since all are observed anew."""
        self.sent = -math.inf
        """The time just before the last answered reading was sent."""

    def read(self, sent: float, answered: float, beats: dict[str, int], bad: Collection[str]) -> list[str]:
        """Takes a reading; replicas whose record nobody can have deleted in order."""
        is_anew = self.since == math.inf or answered - self.sent > self._wait
        absent = {name: _UNKNOWN for name, seen in self._seen.items() if name not in beats and self._is_awaited(name)}
        deleted = [name for name in absent if is_anew or answered - self._seen[name].since < self._wait / 2]
        before = {} if is_anew else self._seen
        seen = {name: _Seen(beat, answered) for name, beat in (beats | absent).items()}
        unchanged = {name: old for name, old in before.items() if name in seen and seen[name].beat == old.beat}
        self._seen = seen | {name: old for name, old in unchanged.items() if name not in bad}
        self.since = answered if is_anew else self.since
        self.sent = sent
        return deleted

    def _is_awaited(self, name: str) -> bool:
        return self._seen[name].beat != LEFT and not (self._seen[name].beat == _UNKNOWN and self.is_gone(name))

    def forget(self, name: str) -> None:
        self._seen.pop(name, None)

    def is_gone(self, name: str) -> bool:
        since = self._seen[name].since if name in self._seen else -math.inf
        return self.sent - max(since, self.since) >= self._wait

    def has_left(self, name: str) -> bool:
        """Whether its record says so, which may be forged: it may own what it has not given up."""
        return name in self._seen and self._seen[name].beat == LEFT

    @property
    def names(self) -> list[str]:
        return list(self._seen)

    @property
    def due(self) -> float:
        """When the next replica is gone unless it beats before."""
        times = [seen.since for name, seen in self._seen.items() if not self.is_gone(name)]
        return max(min(times, default=math.inf), self.since) + self._wait


class Leases:
    """Lease of replica `instance` and its view of the others.

    `seconds` is a lease; `boottime` counts them while the machine is suspended, too.
    """

    def __init__(self, keys: RedisKeys, instance: str, seconds: float, boottime: Callable[[], float]) -> None:
        self._keys = keys
        self._instance = instance
        self._boottime = boottime
        self.peers = _Peers(_WAIT * seconds)
        self._settled_from = math.inf
        self._begun = -math.inf
        self._beat = 0
        self.seconds = seconds
        self.beats = 0
        """That were answered."""
        self.held_from = math.inf
        """The lease has held since then. Streams from before are lost or have to be claimed: a beat gives none back."""

    @property
    def _period(self) -> float:
        """Seconds between beats."""
        return self.seconds / _BEATS

    @property
    def pause(self) -> float:
        """Seconds until the next beat: less than a period if another replica may be gone."""
        return max(min(self._begun + self._period, self.peers.due + _MARGIN) - self._boottime(), 0.0)

    def began(self, uptime: float) -> None:
        """Notes the first connection, to a server up for `uptime` seconds."""
        self._settled_from = self._boottime() + max(_RETURN - uptime, 0)

    def server_failed(self) -> None:
        """Lets nothing be concluded from what was read before."""
        self._settled_from = math.inf
        self.peers.since = math.inf

    async def beat(self, link: Link) -> str:
        """Renews the lease and reads the others; the server's run id. Raises `StoreError`."""
        key = self._keys.replicas
        self._begun = sent = self._boottime()
        [reply] = await link.ask(script(BEAT, [key, quarantined(key)], self._instance))
        deleted = self.answered(sent, reply)
        if deleted:
            await link.ask(*(("HSETNX", key, name, 1) for name in deleted))
        return bytes(reply[3]).decode("ascii", "replace")

    def answered(self, sent: float, reply: Reply) -> list[str]:
        """Takes the answer to a beat sent after `sent`; replicas whose record was lost."""
        answered = self._boottime()
        beat, table, bad, _ = reply
        if bad:
            log_set_aside(self._keys.replicas, "not a replica's beat", bad)
        beats = {name.decode("ascii"): int(count) for name, count in pairs(table).items()}
        if beat <= self._beat:
            self.server_failed()
        if answered > self.held_until:
            self.held_from = answered
        if self._settled_from == math.inf:
            self._settled_from = answered + max(_RETURN, self.seconds)
        self._beat = beat
        self.beats += 1
        return self.peers.read(sent, answered, beats, {name.decode("ascii", "replace") for name in bad})

    async def forget(self, link: Link, instance: str) -> None:
        """Raises `StoreError`."""
        await link.ask(("HDEL", self._keys.replicas, instance))
        self.peers.forget(instance)

    @property
    def held_until(self) -> float:
        """The end of the lease by this replica's clock, counted from just before the last answered beat was sent."""
        return self.peers.sent + self.seconds

    @property
    def is_held(self) -> bool:
        """Whether no other replica can have claimed what this one has had since `held_from`."""
        return self._boottime() < self.held_until

    @property
    def is_trusted(self) -> bool:
        """Whether every live replica has had time to return to the server."""
        return self._boottime() >= self._settled_from

    @property
    def gone(self) -> list[str]:
        """All that are gone, or have left."""
        return [name for name in self.peers.names if self.peers.is_gone(name) or self.peers.has_left(name)]

    def is_gone(self, instance: str) -> bool:
        """True also for an invalid id or no owner."""
        if instance_id(instance.encode("utf-8", "replace")) is None:
            return True
        return instance != self._instance and self.peers.is_gone(instance)

    async def has_gone(self, link: Link, instance: str) -> bool:
        """`is_gone`, by a new reading if it is or the lease does not hold. Raises `StoreError`."""
        if self.is_gone(instance) or not self.is_held:
            await self.beat(link)
        return self.is_gone(instance)


class StoreLinks(NamedTuple):
    """A store's links, server and replica."""

    keys: RedisKeys
    writer: Link
    reader: Link
    quarantine: Quarantine
    leases: Leases
    name: str
    instance: str
