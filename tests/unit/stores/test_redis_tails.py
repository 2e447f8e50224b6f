"""A stream whose server is lost while a page of it is asked for: only its later events are in memory then."""

from pathlib import Path

import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, Chunk, EventPage
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.shared import SharedFailsafeStore
from mcp_hub.stores.redis.connection import Server
from mcp_hub.stores.redis.reconnect import Reconnect
from mcp_hub.stores.redis.store import RedisStore
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.event_stores import create, found, line, new_row, numbered, opened
from tests.upstreams.child import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(binary() is None, reason=NO_SERVER),
]


async def test_events_that_only_the_lost_server_has_are_not_said_to_be_gone(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        kept = RedisStore(Server(server.url, lease=1), StoreLimits(), SystemClock())
        async with opened(SharedFailsafeStore(Reconnect(kept), StoreLimits(), kept.instance)) as store:
            row = await create(store, new_row(store), 3)
            pages: list[EventPage | StoreError | None] = []
            appended: list[StoreError | None] = []
            server.kill()
            store.append(row.id, row.epoch, Chunk(4, (line(4),)), Change(2.0), appended.append)
            for after in (0, 3):
                store.fetch(row.id, after, 100, pages.append)
            await until(lambda: len(pages) == 2 and appended)
            assert appended == [None]
            assert isinstance(pages[0], StoreError), pages[0]
            assert isinstance(pages[1], EventPage) and list(pages[1].lines) == numbered(4, 4)
            row = await found(store, row)
            assert (row.first, row.last) == (1, 4)
            server.start()
