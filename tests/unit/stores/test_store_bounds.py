"""What is bounded for the whole store: memory, the file, what waits to be written; and what is synced to the disk."""

import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.stores.sqlite.quarantine import salvage
from mcp_hub.stores.sqlite.store import FILE, SqliteStore
from mcp_hub.stores.sqlite.worker import MOST_BYTES, MOST_JOBS, Job, Worker
from tests.unit.stores.event_stores import GONE, SoleStore, append, create, found, new_row, opened, replayed

pytestmark = pytest.mark.anyio


# -- memory


async def test_in_memory_the_oldest_ended_streams_make_room_at_once() -> None:
    store = MemoryStore(StoreLimits(memory_bytes=10_000))
    running = await create(store, new_row(store, key="r"), 1, 1000)
    for number in range(50):
        await create(store, new_row(store, status="completed", created=float(number), key=str(number)), 1, 4000)
        await append(store, running, number + 2)
    assert [row.key for row in await store.log.rows("local", 99)] == ["r", "49", "48"]
    assert await store.log.find_key("local", "47") is None
    assert len(await replayed(store, running)) == 51


async def test_in_memory_a_stream_that_grows_alone_lets_go_of_its_own_past() -> None:
    store = MemoryStore(StoreLimits(memory_bytes=10_000))
    quiet = await create(store, new_row(store), 1, 3000)
    row = await create(store, new_row(store), 1, 1000)
    for number in range(2, 200):
        await append(store, row, number, size=1000)
        kept = await found(store, row)
        assert (kept.last - kept.first + 1) * 1000 <= 10_000 - 3000
    assert kept.last - kept.first + 1 >= 4
    assert len(await replayed(store, quiet)) == 1
    await append(store, row, 200, size=50_000)
    assert len(await replayed(store, row)) == 1


# -- the file


async def test_a_file_that_is_too_large_is_swept_of_its_oldest_ended_streams_and_shrinks(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path, StoreLimits(total_bytes=500_000))):
        running = await create(store, new_row(store, created=0.0), 1, 100_000)
        for number in range(1, 11):
            age = float(number)
            await create(store, new_row(store, status="failed", created=age, updated=age), 1, 90_000)
        before = pages(tmp_path)
        swept = await store.sweep(20.0)
        rows = await store.log.rows("local", 99)
        assert 6 <= swept <= 8
        assert [row.created for row in rows] == [*range(10, swept, -1), 0]
        assert rows[-1] == running
        assert pages(tmp_path) < before // 2
        assert await store.sweep(20.0) == 0


def pages(folder: Path) -> int:
    db = sqlite3.connect(folder / FILE)
    (count,) = db.execute("PRAGMA page_count").fetchone()
    db.close()
    return int(count)


async def test_beginnings_takeovers_endings_and_firm_changes_alone_are_synced_to_the_disk(
    tmp_path: Path,
) -> None:
    async with opened(store := SoleStore(tmp_path)):
        row = await create(store, new_row(store))
        assert await synced(store)
        await append(store, row, 2)
        assert not await synced(store)
        left = await create(store, new_row(store, owner=GONE))
        await append(store, row, 3)
        assert not await synced(store)
        assert await store.leases.claim(left, [], Change(5.0)) is not None
        assert await synced(store)
        await append(store, row, 4, status="input_required")
        assert not await synced(store)
        await append(store, row, 5, 0, continuation=b"{}", is_firm=True)  # a script that is about to write
        assert await synced(store)
        await append(store, row, 5, status="cancelled")
        assert await synced(store)


async def synced(store: SqliteStore) -> bool:
    """Whether the last batch was (sqlite.org/pragma.html#pragma_synchronous: FULL is 2)."""
    level: int = await store._links.writer.ask(lambda db: db.execute("PRAGMA synchronous").fetchone()[0])
    assert level in (1, 2)
    return level == 2


async def test_salvaging_takes_the_newest_streams_and_stops_in_time(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path)):
        rows = [await create(store, new_row(store, status="failed")) for _ in range(5)]
    (tmp_path / "new").mkdir()
    asked: list[int] = []

    def is_over() -> bool:
        asked.append(1)
        return len(asked) > 2

    assert salvage(tmp_path / FILE, tmp_path / "new" / FILE, is_over) == (2, 0, False)
    async with opened(store := SoleStore(tmp_path / "new")):
        assert [await store.log.find(row.id) is not None for row in rows] == [False] * 3 + [True] * 2


# -- the queue


class Gate:
    """A transactions whose work waits until the gate is open; `batches` says how much came at once."""

    def __init__(self, fault: StoreFault | None = None) -> None:
        self.is_open = threading.Event()
        self.batches: list[int] = []
        self.fault = fault

    def open(self) -> None:
        if self.fault is not None:
            raise self.fault

    def work(self, jobs: Sequence[Job]) -> list[Any]:
        self.is_open.wait(20)
        self.batches.append(len(jobs))
        return [None] * len(jobs)

    def close(self) -> None:
        self.batches.append(0)


def job(told: list[Any], size: int = 0) -> Job:
    return Job(lambda _: None, told.append, size=size)


@asynccontextmanager
async def at_work(gate: Gate) -> AsyncIterator[tuple[Worker, list[Any], list[Any]]]:
    """A worker, and lists for outcomes; it does in the end what it was asked for."""
    worker = Worker("w", gate)
    await worker.start()
    yield worker, [], []
    gate.is_open.set()
    assert await worker.stop(20)


async def finished(told: list[Any], count: int) -> None:
    with anyio.fail_after(240):
        while len(told) < count:
            await anyio.lowlevel.checkpoint()


async def test_what_waits_is_done_together_and_more_than_so_much_is_refused() -> None:
    async with at_work(gate := Gate()) as (worker, told, refused):
        for _ in range(MOST_JOBS):
            worker.submit(job(told))
        worker.submit(job(refused))
        assert [error.fault for error in refused] == ["busy"]
        gate.is_open.set()
        await finished(told, MOST_JOBS)
        assert len(gate.batches) <= 2
        worker.submit(job(told))
        await finished(told, MOST_JOBS + 1)
        assert not any(told)


async def test_too_many_bytes_are_refused_but_not_if_they_come_alone() -> None:
    async with at_work(gate := Gate()) as (worker, told, refused):
        worker.submit(job(told, MOST_BYTES + 1))
        worker.submit(job(refused, 1))
        assert [error.fault for error in refused] == ["busy"]
        gate.is_open.set()
        await finished(told, 1)
        worker.submit(job(told, MOST_BYTES - 1))
        worker.submit(job(told, 1))
        await finished(told, 3)
        assert told == [None] * 3


async def test_a_callback_that_fails_is_nobody_elses_trouble() -> None:
    def fails(_: Any) -> None:
        raise ValueError("of the callback")

    async with at_work(gate := Gate()) as (worker, told, _):
        for done in (fails, told.append, fails, told.append):
            worker.submit(Job(lambda _: None, done))
        gate.is_open.set()
        await finished(told, 2)


async def test_a_thread_that_hangs_is_not_waited_for() -> None:
    gate = Gate()
    worker, told = Worker("w", gate), []  # type: Worker, list[Any]
    await worker.start()
    worker.submit(job(told))
    assert not await worker.stop(0.01)
    gate.is_open.set()
    assert await worker.stop(20)
    assert (told, gate.batches) == ([None], [1, 0])


async def test_a_file_that_does_not_open_leaves_no_thread() -> None:
    worker = Worker("unopened", Gate(StoreFault("unusable", "no")))
    with pytest.raises(StoreFault, match="no"):
        await worker.start()
    assert await worker.stop(20)
    with pytest.raises(StoreError, match="is closed"):
        await worker.ask(lambda _: None)


async def test_a_start_that_is_given_up_ends_its_thread() -> None:
    gate = Gate()
    worker = Worker("given-up", gate)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await worker.start()
    assert await worker.stop(20)
    assert gate.batches == [0]
