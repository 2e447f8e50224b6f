"""A stream whose server is lost while a page of it is asked for: only its later events are in memory then."""

from pathlib import Path

import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, Chunk, EventPage, StoreLimits
from mcp_hub.stores.replicated import redis_store
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.event_stores import append, create, found, line, new_row, numbered, opened
from tests.upstreams.child import until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(binary() is None, reason=NO_SERVER),
]


class LaterClock(SystemClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


async def test_events_that_only_the_lost_server_has_are_not_said_to_be_gone(tmp_path: Path) -> None:
    clock = LaterClock()
    with RedisServer(tmp_path) as server:
        async with opened(redis_store(server.url, "test:", 5.0, "local", StoreLimits(), clock)) as store:
            row = await create(store, new_row(store), 3)
            clock.ahead = 60  # what was confirmed lately stays in memory, too
            await append(store, row, 4)
            pages: list[EventPage | StoreError | None] = []
            appended: list[StoreError | None] = []
            server.kill()
            store.log.append(row.id, row.epoch, Chunk(5, (line(5),)), Change(2.0), appended.append)
            for after in (0, 3):
                store.log.fetch(row.id, after, 100, pages.append)
            await until(lambda: len(pages) == 2 and appended)
            assert appended == [None]
            assert isinstance(pages[0], StoreError), pages[0]
            assert isinstance(pages[1], EventPage) and list(pages[1].lines) == numbered(4, 5)
            row = await found(store, row)
            assert (row.first, row.last) == (1, 5)
            server.start()
