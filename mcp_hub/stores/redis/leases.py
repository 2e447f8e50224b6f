"""The replicas that are alive: each says so every fifth of a lease, by the server's clock.

A replica that has not said so for a whole lease is gone, and so is one that has left. After a connection was lost, or
soon after the server was started, nobody is taken to be gone for one lease: the others could not speak either. So it is
after somebody has deleted or damaged the records.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from mcp_hub.clock import Clock
from mcp_hub.stores.redis.keys import RedisKeys, instance_id, quarantined
from mcp_hub.stores.redis.link import Link, LinkJob, Reply, script
from mcp_hub.stores.redis.quarantine import Quarantine, log_set_aside
from mcp_hub.stores.redis.records import pairs
from mcp_hub.stores.redis.scripts import BEAT, HOLD, LET_GO

NOBODY: Final = ""
"""The owner of a stream whose replica has left."""
_BEATS: Final = 5
"""In one lease."""
_HELD: Final = 7 * 86400
"""Seconds after which something is held no longer in any case."""


class Leases:
    """`seconds` is the length of a lease; `own` the id of this replica."""

    def __init__(self, keys: RedisKeys, own: str, seconds: float, clock: Clock) -> None:
        self._keys = keys
        self._own = own
        self._clock = clock
        self._last_beat = -math.inf
        self._trusted_from = math.inf
        self._alive: Mapping[str, float] = {}
        self.seconds = seconds
        self.beats = 0
        """That were answered."""
        self.server_time = 0.0
        """Unix seconds of the server, at the last beat."""

    @property
    def period(self) -> float:
        """Seconds between two beats."""
        return self.seconds / _BEATS

    def began(self, uptime: float) -> None:
        """The first connection stands, to a server that has run for so many seconds."""
        self._last_beat = self._clock.now()
        self._trusted_from = self._last_beat + max(self.seconds - uptime, 0)

    def lost(self) -> None:
        """The server did not answer."""
        self._trusted_from = math.inf

    async def beat(self, link: Link) -> None:
        """Says that this replica is alive, and learns of the others. Raises `StoreError`."""
        key = self._keys.replicas
        replies = await link.ask(script(BEAT, [key, quarantined(key)], self._own))
        is_new = bool(replies[0][3])
        if is_new and not self.beats:
            [is_new] = await link.ask(("EXISTS", self._keys.every))
        missing = self._take(replies, are_deleted=bool(is_new))
        if missing:
            again = int(self.server_time * 1000)
            await link.ask(*(("HSETNX", key, name, again) for name in missing))

    def _take(self, replies: list[Reply], *, are_deleted: bool) -> list[str]:
        """Takes the beats in; replicas that were alive a moment ago and have no record any more."""
        now = self._clock.now()
        time, table, bad, _ = replies[0]
        if bad:
            log_set_aside(self._keys.replicas, "not a time at which a replica was alive", bad)
        if are_deleted or now - self._last_beat > self.seconds or self._trusted_from == math.inf:
            self._trusted_from = now + self.seconds
        self._last_beat = now
        self.beats += 1
        self.server_time = int(time) / 1000
        alive = {name.decode("ascii"): (int(time) - int(when)) / 1000 for name, when in pairs(table).items()}
        fresh = 2 * self.period
        missing = [name for name, age in self._alive.items() if age < fresh and name not in alive]
        self._alive = alive | dict.fromkeys(missing, 0.0)
        return missing

    async def leave(self, link: Link) -> None:
        """This replica counts as gone from now on. Raises `StoreError`."""
        await link.ask(("HSET", self._keys.replicas, self._own, 0))

    async def forget(self, link: Link, instance: str) -> None:
        """A replica that is gone has left nothing behind. Raises `StoreError`."""
        await link.ask(("HDEL", self._keys.replicas, instance))

    @property
    def is_trusted(self) -> bool:
        """Whether every replica that is alive has had the time to say so."""
        return self._clock.now() >= self._trusted_from

    @property
    def gone(self) -> list[str]:
        """Replicas that are gone and have left something behind, as of the last beat."""
        return [name for name in self._alive if self.is_gone(name)]

    def is_gone(self, instance: str) -> bool:
        """As of the last beat; no owner at all has left its streams, nor has something that is not a replica's id."""
        if instance_id(instance.encode("utf-8", "replace")) is None:
            return True
        if instance == self._own or not self.is_trusted:
            return False
        return self._alive.get(instance, math.inf) > self.seconds

    @property
    def is_fresh(self) -> bool:
        """Whether the last beat is recent."""
        return self._clock.now() - self._last_beat < 2 * self.period


class StoreLinks(NamedTuple):
    """The links of a store, which opens and closes them, and what else is known of its server and of this replica."""

    keys: RedisKeys
    writer: Link
    reader: Link
    quarantine: Quarantine
    leases: Leases
    name: str
    instance: str


class RedisHoldings:
    """Things that one replica has at a time, as long as it is alive; `kind` tells those of one name apart."""

    def __init__(self, links: StoreLinks, kind: str) -> None:
        self._keys = links.keys
        self._kind = kind
        self._instance = links.instance
        self._leases = links.leases
        self._writer = links.writer

    async def hold(self, what: str) -> bool:
        """Whether this replica has it, from now on if none had. Raises `StoreError`."""
        other = await self._held_by_another(what, b"")
        if other and self._leases.is_gone(other.decode("ascii", "replace")):
            other = await self._held_by_another(what, other)
        return not other

    async def _held_by_another(self, what: str, gone: bytes) -> bytes:
        [reply] = await self._writer.ask(script(HOLD, [self._key(what)], self._instance, gone, _HELD))
        return bytes(reply)

    def _key(self, what: str) -> str:
        return self._keys.held(f"{self._kind}\n{what}")

    def release(self, what: str) -> None:
        """Any replica may have it; one whose request to the server fails keeps it while it is alive."""
        self._writer.submit(LinkJob([script(LET_GO, [self._key(what)], self._instance)], lambda _: None))
