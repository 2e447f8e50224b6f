"""Replicas whose server goes away, and writes that wait for it."""

from typing import Any

import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.replicated import redis_store
from tests.redis_server import RedisServer
from tests.unit.stores.event_stores import events, new_row

FailsafePair = tuple[FailsafeStore, FailsafeStore]
Answers = list[StoreError | None]


def new_store(server: RedisServer, lease: float = 1.0) -> FailsafeStore:
    return redis_store(server.url, "test:", lease, "local", StoreLimits(), SystemClock())


async def is_back(store: FailsafeStore) -> None:
    """Returns when the store uses the server again, and has brought everything home."""
    while not store.log.is_durable:
        await store.inbox.has_news()
        await store.inbox.wait(0.05)
    await store.inbox.has_news()


def written(store: FailsafeStore, row: StreamInfo, first: int, count: int = 1, **changes: Any) -> Answers:
    """What a write was answered, once it is."""
    answers: Answers = []
    store.log.append(row.id, row.epoch, events(first, count), Change(**{"updated": 101.0, **changes}), answers.append)
    return answers


async def is_away(*stores: FailsafeStore) -> None:
    """Returns when the stores have noticed it."""
    for store in stores:
        with pytest.raises(StoreFault):
            await store.log.find(new_row(store).id)
