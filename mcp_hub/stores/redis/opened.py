"""The store of streams on a server, with memory behind it. Importing this needs the extra `redis`."""

from typing import Literal

from mcp_hub.clock import Clock
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.shared import SharedFailsafeStore
from mcp_hub.stores.redis.connection import Server
from mcp_hub.stores.redis.reconnect import Reconnect
from mcp_hub.stores.redis.store import RedisStore


def redis_store(
    url: str, prefix: str, lease: float, acknowledge: Literal["local", "replica"], limits: StoreLimits, clock: Clock
) -> SharedFailsafeStore:
    """Still to be opened."""
    store = RedisStore(Server(url, prefix, lease, acknowledge), limits, clock)
    return SharedFailsafeStore(Reconnect(store), limits, store.instance)
