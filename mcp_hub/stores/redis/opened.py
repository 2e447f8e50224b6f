"""The store of streams on a server, with memory behind it. Importing this needs the extra `redis`."""

from collections.abc import Callable
from typing import Literal

from mcp_hub.clock import Clock
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.shared import SharedFailsafeStore
from mcp_hub.stores.redis.connection import Server
from mcp_hub.stores.redis.leases import Holdings
from mcp_hub.stores.redis.reconnect import Reconnect
from mcp_hub.stores.redis.store import RedisStore


class ReplicatedStore(SharedFailsafeStore):
    """The store of one replica."""

    def __init__(self, store: RedisStore, limits: StoreLimits, clock: Clock) -> None:
        super().__init__(Reconnect(store), limits, store.instance, clock)
        self.documents = store.documents
        self.holdings = store.holdings
        self.news = store.news


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
    return store.documents(limits, now)
