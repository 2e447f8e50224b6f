"""Stores of every type that the hub opens, those on a real server too, for tests."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_hub.app.limits import STORES
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.hub import StoreSettings
from mcp_hub.stores.base import EventStore, StoreLimits
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.redis.link import Server
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import replicated
from tests.redis_server import shared_server
from tests.unit.stores.event_stores import Make, SoleStore

LEASE: Final = 1.0
"""Seconds in which a replica has to say that it is alive."""


Pair = tuple[RedisStore, RedisStore]


def new_redis(folder: Path, limits: StoreLimits | None = None, lease: float = LEASE) -> RedisStore:
    """A store on the server of this test process; the folder's name keeps it apart from others."""
    server = Server(shared_server().url, prefix=f"{folder}:", lease=lease)
    return RedisStore(server, limits or StoreLimits())


def new_shared(folder: Path, limits: StoreLimits | None = None) -> FailsafeStore:
    return replicated(new_redis(folder, limits), limits or StoreLimits(), SystemClock())


def _prefix(folder: Path) -> str:
    return f"{hashlib.sha256(bytes(folder)).hexdigest()[:32]}:"


SERVERS: Final[dict[str, Callable[[Path], dict[str, Any]]]] = {
    "redis": lambda folder: {"url": shared_server().url, "prefix": _prefix(folder), "lease": LEASE},
}
"""The settings of a type that needs a server, by type."""


def of_type(type_: str, folder: Path, limits: StoreLimits) -> EventStore:
    """The store that a hub opens for this type of `hub.store`."""
    more = SERVERS[type_](folder) if type_ in SERVERS else {}
    return STORES[type_].streams(StoreSettings.model_validate({"type": type_, **more}), folder, limits)


EVERY_KIND: Final[dict[str, Make]] = {
    **{type_: partial(of_type, type_) for type_ in STORES},
    **{"sqlite, bare": SoleStore, "redis, bare": new_redis},
}
"""Each type of `hub.store` by itself; and those that have another store around them without it."""
