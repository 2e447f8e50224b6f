"""Stores on a real server, for tests."""

from pathlib import Path
from typing import Final

from mcp_hub.clock import SystemClock
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.redis.link import Server
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import replicated
from tests.redis_server import shared_server
from tests.unit.stores.event_stores import KINDS, Make

LEASE: Final = 1.0
"""Seconds in which a replica has to say that it is alive."""


def new_redis(folder: Path, limits: StoreLimits | None = None, lease: float = LEASE) -> RedisStore:
    """A store on the server of this test process; the folder's name keeps it apart from others."""
    server = Server(shared_server().url, prefix=f"{folder}:", lease=lease)
    return RedisStore(server, limits or StoreLimits(), SystemClock())


def new_shared(folder: Path, limits: StoreLimits | None = None) -> FailsafeStore:
    return replicated(new_redis(folder, limits), limits or StoreLimits(), SystemClock())


EVERY_KIND: Final[dict[str, Make]] = {**KINDS, "redis": new_redis, "redis, failsafe": new_shared}
