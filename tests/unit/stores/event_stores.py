"""Stores for tests: how one is made, and its callbacks as something to wait for."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock, SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.ids import new_call_id
from mcp_hub.stores.base import Change, Chunk, EventPage, EventStore, StoreLimits
from mcp_hub.stores.locks import Instances, new_instance_id
from mcp_hub.stores.recovery.failsafe import FailsafeStore, failsafe_on_file
from mcp_hub.stores.sqlite.store import SqliteStore

GONE = "in_00000000000000000000000000"
"""An instance that no process has."""
Make = Callable[[Path, StoreLimits], EventStore]


class SoleStore(SqliteStore):
    """A SQLite store that takes and leaves the lock of an instance of its own."""

    replicas = None

    def __init__(self, folder: Path, limits: StoreLimits | None = None, clock: Clock | None = None) -> None:
        super().__init__(folder, limits or StoreLimits(), clock or SystemClock(), Instances(folder, new_instance_id()))

    async def open(self) -> None:
        self._instances.enter()
        await super().open()

    async def close(self) -> None:
        await super().close()
        self._instances.leave()


def new_failsafe(folder: Path, clock: Clock | None = None, limits: StoreLimits | None = None) -> FailsafeStore:
    return failsafe_on_file(folder, limits or StoreLimits(), clock or SystemClock())


SMALL = StoreLimits(stream_events=40, stream_bytes=4000, ended=5, sessions=3)


@asynccontextmanager
async def opened(store: EventStore) -> AsyncIterator[EventStore]:
    with anyio.fail_after(240):
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def new_row(store: EventStore, **known: Any) -> StreamInfo:
    """A row of a stream that `store` owns, unless `known` says otherwise."""
    plain = {
        **{"id": new_call_id(), "principal": "local", "owner": store.log.instance, "server": "ci"},
        **{"method": "tools/call", "name": "ci_run", "created": 100.0, "updated": 100.0},
    }
    return StreamInfo(**{**plain, **known})


def events(first: int, count: int, size: int = 0) -> Chunk:
    """Lines that say their number, padded to `size`."""
    return Chunk(first, tuple(line(number, size) for number in range(first, first + count)))


def line(number: int, size: int = 0) -> bytes:
    return b'{"seq":%d}' % number + b" " * size


async def settled(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    """What a callback is given, once."""
    told: list[Any] = []
    is_told = anyio.Event()

    def done(result: Any) -> None:
        assert not told, "called back twice"
        told.append(result)
        is_told.set()

    ask(done)
    await is_told.wait()
    if isinstance(told[0], StoreError):
        raise told[0]
    return told[0]


async def create(store: EventStore, row: StreamInfo, count: int = 1, size: int = 0) -> StreamInfo:
    """Adds the stream with that many events more; the row as the store has it."""
    chunk = events(row.last + 1, count, size)
    await settled(lambda done: store.log.create(replace(row, last=chunk.last), chunk, done))
    return await found(store, row)


async def lost(store: EventStore, row: StreamInfo) -> StreamInfo:
    """The row, once the store takes its owner to be gone."""
    while not await store.leases.is_orphan(row):
        await store.inbox.wait(0.05)
    return row


async def append(
    store: EventStore, row: StreamInfo, first: int, count: int = 1, *, size: int = 0, **changes: Any
) -> None:
    change = Change(**{"updated": 101.0, **changes})
    await settled(lambda done: store.log.append(row.id, row.epoch, events(first, count, size), change, done))


async def found(store: EventStore, row: StreamInfo) -> StreamInfo:
    found = await store.log.find(row.id)
    assert found is not None
    return found


async def fetch(store: EventStore, row: StreamInfo, after: int = 0, most: int = 1000) -> EventPage:
    page: EventPage | None = await settled(lambda done: store.log.fetch(row.id, after, most, done))
    assert page is not None
    return page


async def replayed(store: EventStore, row: StreamInfo, most: int = 1000) -> list[bytes]:
    """All that is kept, page by page."""
    lines: list[bytes] = []
    after = 0
    while (page := await fetch(store, row, after, most)).lines:
        assert page.first == max(after + 1, page.row.first)
        lines += page.lines
        after = page.first + len(page.lines) - 1
    return lines


def numbered(first: int, last: int, size: int = 0) -> Sequence[bytes]:
    return [line(number, size) for number in range(first, last + 1)]


async def works(store: EventStore) -> None:
    """Plays one stream from beginning to end."""
    row = await create(store, new_row(store))
    await append(store, row, 2, 3)
    await append(store, row, 5, status="completed")
    assert await replayed(store, row) == numbered(1, 5)
    assert (await found(store, row)).has_ended
