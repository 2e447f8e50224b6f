"""The store that replicas share. Needs the extra `redis`."""

from collections.abc import Callable
from typing import Literal

from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.stores.documents.base import DocumentLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.replicas import RedisHistory
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.recovery.shared import failsafe_on_server
from mcp_hub.stores.redis.connection import Server
from mcp_hub.stores.redis.documents import RedisDocuments
from mcp_hub.stores.redis.leases import RedisHoldings
from mcp_hub.stores.redis.store import RedisStore

log = get_logger(__name__)


class _Reconnect:
    """A `Backing` of a server, out of use after a fault until this replica's lease is renewed."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self._beats: int | None = None
        """Number of renewals at the failure; None while the server is in use."""
        self._run = ""

    @property
    def is_fit(self) -> bool:
        return self._beats is None

    @property
    def is_settled(self) -> bool:
        return self.store.log.is_settled

    def for_writing(self) -> RedisStore | None:
        return self.store if self.is_fit else None

    def worked(self) -> None:
        """Does nothing: an answer may have left before the server failed."""

    def failed(self, fault: StoreFault) -> None:
        is_news, self._beats = self.is_fit, self.store.links.leases.beats
        self.store.links.leases.server_failed()
        if is_news:
            log.error("store_failed", store=self.store.links.name, fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        if fault.fault != "busy":
            self.failed(fault)

    async def open(self) -> None:
        try:
            await self.store.open()
        except StoreFault as fault:
            self.failed(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        is_back = self._beats is not None and self.store.links.leases.beats > self._beats
        if is_back:
            self._beats = None
            log.warning("store_recovered", store=self.store.links.name)
        run, self._run = self._run, self.store.run
        if is_back or (run and run != self._run):
            leave()

    async def close(self) -> None:
        await self.store.close()


class RedisReplicas:
    """`Replicas` on a Redis store."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.sessions = store.sessions.live
        self.lists = store.sessions.lists

    @property
    def secret(self) -> bytes | None:
        return self._store.secret

    def holdings(self, kind: str) -> RedisHoldings:
        return RedisHoldings(self._store.links, kind)

    def documents(self, limits: DocumentLimits, now: Callable[[], float]) -> RedisDocuments:
        return RedisDocuments(self._store.links, limits, now)

    def history(self, now: Callable[[], float]) -> RedisHistory:
        return RedisHistory(self._store.links, now)


def replicated(store: RedisStore, limits: StoreLimits, clock: Clock) -> FailsafeStore:
    """The store of one replica."""
    backing, replicas = _Reconnect(store), RedisReplicas(store)
    return failsafe_on_server(backing, limits, store.log.instance, clock, replicas=replicas)


def redis_store(
    url: str, prefix: str, lease: float, acknowledge: Literal["local", "replica"], limits: StoreLimits, clock: Clock
) -> FailsafeStore:
    return replicated(RedisStore(Server(url, prefix, lease, acknowledge), limits, clock), limits, clock)
