"""Live replicas: each renews its lease five times per lease, by the server's clock.

No replica counts as gone for one lease after a lost connection, a server start or damaged records.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from mcp_hub.clock import Clock
from mcp_hub.stores.redis.keys import RedisKeys, instance_id, quarantined
from mcp_hub.stores.redis.link import Link, Reply, script
from mcp_hub.stores.redis.records import Quarantine, log_set_aside, pairs
from mcp_hub.stores.redis.scripts import BEAT

NOBODY: Final = ""
"""The owner of a stream whose replica has left."""
_BEATS: Final = 5
"""In one lease."""


class Leases:
    """Lease of replica `instance` and its view of the others; `seconds` is a lease."""

    def __init__(self, keys: RedisKeys, instance: str, seconds: float, clock: Clock) -> None:
        self._keys = keys
        self._instance = instance
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
        """Seconds between renewals."""
        return self.seconds / _BEATS

    def began(self, uptime: float) -> None:
        """Notes the first connection, to a server up for `uptime` seconds."""
        self._last_beat = self._clock.now()
        self._trusted_from = self._last_beat + max(self.seconds - uptime, 0)

    def server_failed(self) -> None:
        self._trusted_from = math.inf

    async def beat(self, link: Link) -> None:
        """Renews the lease and reads the others. Raises `StoreError`."""
        key = self._keys.replicas
        replies = await link.ask(script(BEAT, [key, quarantined(key)], self._instance))
        is_new = bool(replies[0][3])
        if is_new and not self.beats:
            [is_new] = await link.ask(("EXISTS", self._keys.every))
        missing = self._take(replies, are_deleted=bool(is_new))
        if missing:
            again = int(self.server_time * 1000)
            await link.ask(*(("HSETNX", key, name, again) for name in missing))

    def _take(self, replies: list[Reply], *, are_deleted: bool) -> list[str]:
        """Returns recently live replicas without a record."""
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
        """Raises `StoreError`."""
        await link.ask(("HSET", self._keys.replicas, self._instance, 0))

    async def forget(self, link: Link, instance: str) -> None:
        """Raises `StoreError`."""
        await link.ask(("HDEL", self._keys.replicas, instance))

    @property
    def is_trusted(self) -> bool:
        """Whether every live replica has had time to renew."""
        return self._clock.now() >= self._trusted_from

    @property
    def gone(self) -> list[str]:
        return [name for name in self._alive if self.is_gone(name)]

    def is_gone(self, instance: str) -> bool:
        """True also for an invalid id or no owner."""
        if instance_id(instance.encode("utf-8", "replace")) is None:
            return True
        if instance == self._instance or not self.is_trusted:
            return False
        return self._alive.get(instance, math.inf) > self.seconds

    @property
    def is_fresh(self) -> bool:
        return self._clock.now() - self._last_beat < 2 * self.period


class StoreLinks(NamedTuple):
    """A store's links, server and replica."""

    keys: RedisKeys
    writer: Link
    reader: Link
    quarantine: Quarantine
    leases: Leases
    name: str
    instance: str
