"""The store of streams on a server, with memory behind it. Importing this needs the extra `redis`.

A server answers, it does not, it answers again (`Reconnect`). Each change is logged once.
"""

from collections.abc import Callable
from typing import Literal

from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.replicas import RedisHistory
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.shared import SharedFailsafeStore
from mcp_hub.stores.redis.connection import Server
from mcp_hub.stores.redis.documents import RedisDocuments
from mcp_hub.stores.redis.leases import Holdings
from mcp_hub.stores.redis.store import RedisStore

log = get_logger(__name__)


class Reconnect:
    """A `recovery.failsafe.Backing`: after a fault the server is out of use until this replica's lease is renewed."""

    def __init__(self, store: RedisStore) -> None:
        self.file = store
        self._beats: int | None = None
        """The beats that had been heard when it failed; None while the server is in use."""
        self._run = ""

    @property
    def is_fit(self) -> bool:
        return self._beats is None

    @property
    def is_settled(self) -> bool:
        return self.file.is_settled

    def for_writing(self) -> RedisStore | None:
        return self.file if self.is_fit else None

    def worked(self) -> None:
        """Does nothing: an answer may have been on its way when the server failed."""

    def failed(self, fault: StoreFault) -> None:
        is_news, self._beats = self.is_fit, self.file.leases.beats
        self.file.leases.lost()
        if is_news:
            log.error("store_failed", store=self.file.name, fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        if fault.fault != "busy":
            self.failed(fault)

    async def open(self) -> None:
        try:
            await self.file.open()
        except StoreFault as fault:
            self.failed(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        is_back = self._beats is not None and self.file.leases.beats > self._beats
        if is_back:
            self._beats = None
            log.warning("store_recovered", store=self.file.name)
        run, self._run = self._run, self.file.run
        if is_back or (run and run != self._run):
            leave()

    async def close(self) -> None:
        await self.file.close()


class ReplicatedStore(SharedFailsafeStore):
    """The store of one replica."""

    def __init__(self, store: RedisStore, limits: StoreLimits, clock: Clock) -> None:
        super().__init__(Reconnect(store), limits, store.instance, clock)
        self.links = store.links
        self.holdings = store.holdings
        self.news = store.news

    def history(self, now: Callable[[], float]) -> RedisHistory:
        """The place for past calls; `now` are Unix seconds."""
        return RedisHistory(self.links, now)


def redis_store(
    url: str, prefix: str, lease: float, acknowledge: Literal["local", "replica"], limits: StoreLimits, clock: Clock
) -> ReplicatedStore:
    """Still to be opened."""
    return ReplicatedStore(RedisStore(Server(url, prefix, lease, acknowledge), limits, clock), limits, clock)


def redis_holdings(store: EventStore, kind: str) -> Holdings:
    """The things of a kind that one replica has at a time, in a store that `redis_store` has made."""
    assert isinstance(store, ReplicatedStore)
    return store.holdings(kind)


def redis_documents(store: EventStore, limits: DocumentLimits, now: Callable[[], float]) -> Documents:
    """The place for long results beside the streams of a store that `redis_store` has made."""
    assert isinstance(store, ReplicatedStore)
    return RedisDocuments(store.links, limits, now)
