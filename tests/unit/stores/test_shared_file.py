"""Several hubs on one file, as two stores in this process: each has connections, threads and a lock of its own."""

import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores.base import Change, Message
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.recovery import FIRST
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.sqlite import writes
from mcp_hub.stores.sqlite.store import FILE, SqliteStore
from mcp_hub.stores.sqlite.worker import Job
from tests.unit.stores.broken_files import HandClock, locked
from tests.unit.stores.event_stores import (
    SMALL,
    SoleStore,
    append,
    create,
    events,
    fetch,
    found,
    new_failsafe,
    new_row,
    numbered,
    opened,
    replayed,
)
from tests.unit.stores.redis_stores import new_redis

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, SqliteStore]]:
    async with opened(one := SoleStore(tmp_path)), opened(two := SoleStore(tmp_path)):
        yield one, two


Sharing = tuple[SqliteStore | RedisStore, SqliteStore | RedisStore]
KINDS: dict[str, Callable[[Path], SqliteStore | RedisStore]] = {"a file": SoleStore, "a server": new_redis}


@pytest.fixture(params=["a file", pytest.param("a server", marks=pytest.mark.processes)])
async def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sharing]:
    """Two stores on one file, and two on one server."""
    new = KINDS[request.param]
    async with opened(one := new(tmp_path)), opened(two := new(tmp_path)):
        yield one, two


async def test_others_read_what_one_writes_and_keys_are_given_once(sharing: Sharing) -> None:
    one, two = sharing
    row = await create(one, new_row(one, key="k"), 2)
    assert await two.log.find(row.id) == row == await two.log.find_key("local", "k")
    await append(one, row, 3, 5)
    assert await replayed(two, row) == numbered(1, 7)
    assert (await fetch(two, row, 6)).row == await found(one, row)
    with pytest.raises(KeyTaken):
        await create(two, new_row(two, key="k"))


async def test_only_what_others_write_is_news_and_once(pair: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = pair
    row = await create(one, new_row(one))
    await append(one, row, 2)
    assert not await one.inbox.has_news()
    assert [await two.inbox.has_news(), await two.inbox.has_news()] == [True, False]
    await append(one, row, 3)
    await create(two, new_row(two))
    assert await one.inbox.has_news()
    assert await two.inbox.has_news(), "writing oneself does not hide it"
    assert [await one.inbox.has_news(), await two.inbox.has_news()] == [False, False]


async def test_news_end_a_wait_that_may_be_long(pair: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = pair
    row = await create(one, new_row(one))
    for seq in (2, 3):  # whose thread sleeps without an end in between
        assert await two.inbox.has_news()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, one, row, seq)
            with anyio.fail_after(240):
                await two.inbox.wait(0.05, 3600)


@pytest.mark.parametrize("change", ["epoch = 2", "last = 7", "expires = 1.0", "id = 'st_other'"])
async def test_what_another_process_has_changed_counts_and_not_what_an_append_has_left(
    tmp_path: Path, change: str
) -> None:
    async with opened(store := SoleStore(tmp_path)):
        row = await create(store, new_row(store))
        for seq in (2, 3):
            await append(store, row, seq)
        with closing(sqlite3.connect(tmp_path / FILE)) as other, other:
            other.execute(f"UPDATE streams SET {change}")
        with pytest.raises(Fenced):
            await append(store, row, 4)


async def test_an_append_that_was_rolled_back_with_another_job_is_made_once(tmp_path: Path) -> None:
    def fails(_: sqlite3.Connection) -> None:
        raise ValueError("of the job")

    async with opened(store := SoleStore(tmp_path)):
        row = await create(store, new_row(store))
        await append(store, row, 2)
        heads, chunk, change = store.log._heads, events(3, 1), Change(101.0)
        run = partial(writes.append, heads, SMALL, appends=[(row.id, row.epoch, chunk, change)])
        jobs = [Job(each, lambda _: None, writes=True) for each in (run, fails)]
        first, second = await store._links.writer.ask(lambda _: store._transactions[0].work(jobs))
        assert first == [None] and isinstance(second, StoreError)
        await append(store, row, 4)
        assert await replayed(store, row) == numbered(1, 4)


async def test_appends_of_one_pass_share_a_transaction_and_one_that_cannot_be_made_fails_alone(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path)):
        rows = [await create(store, new_row(store)) for _ in range(40)]
        for row in rows[::2]:  # with and without what is remembered of them
            await append(store, row, 2)
        statements: list[str] = []
        await store._links.writer.ask(lambda db: db.set_trace_callback(statements.append))
        failed = await appended_together(store, rows)
        assert not any(failed) and statements.count("BEGIN IMMEDIATE") == 1
        failed = await appended_together(store, rows, {3: {"message": "\ud800"}, 5: {"epoch": 9}})
        assert [type(error) for error in failed if error] == [StoreError, Fenced] and failed[3] and failed[5]
        for number, row in enumerate(rows):
            assert await replayed(store, row) == numbered(1, 3 - number % 2 + (number not in (3, 5)))


async def appended_together(
    store: SqliteStore, rows: Sequence[StreamInfo], odd: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
) -> list[StoreError | None]:
    """The outcomes of an append of each stream's next event, all in one pass."""
    outcomes: dict[int, StoreError | None] = {}
    stored = [await found(store, row) for row in rows]
    are_done = anyio.Event()

    def done(number: int, error: StoreError | None) -> None:
        outcomes[number] = error
        if len(outcomes) == len(rows):
            are_done.set()

    for number, row in enumerate(stored):
        how = odd.get(number, {})
        change = Change(102.0, message=how.get("message"))
        epoch, chunk = how.get("epoch", row.epoch), events(row.last + 1, 1)
        store.log.append(row.id, epoch, chunk, change, partial(done, number))
    with anyio.fail_after(240):
        await are_done.wait()
    return [outcomes[number] for number in range(len(rows))]


async def test_closing_store_writes_what_the_same_pass_has_appended(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path)):
        row = await create(store, new_row(store))
        store.log.append(row.id, row.epoch, events(2, 1), Change(101.0), lambda error: None)
    async with opened(store := SoleStore(tmp_path)):
        assert await replayed(store, row) == numbered(1, 2)


async def test_messages_wake_and_reach_the_owner_alone(sharing: Sharing) -> None:
    one, two = sharing
    row = await create(one, new_row(one))
    await one.inbox.has_news(), await two.inbox.has_news()
    message = Message(row.id, "cancel", b"enough\nof it")
    assert await two.inbox.post(message)
    while not await one.inbox.has_news():
        await one.inbox.wait(5)
    assert await two.inbox.take() == []
    assert await one.inbox.take() == [message]
    assert await one.inbox.take() == []


async def test_messages_whose_reader_gave_up_come_next_time(sharing: Sharing) -> None:
    one, two = sharing
    row = await create(one, new_row(one))
    messages = [Message(row.id, "input", b"%d" % number) for number in range(5)]
    taken: list[Message] = []
    for message in messages:
        await two.inbox.post(message)
        for _ in range(4):  # given up at one place or another between asking and being told
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_give_up, scope)
                    taken += await one.inbox.take()
    while len(taken) < len(messages):
        taken += await one.inbox.take()
    assert taken == messages


async def _give_up(scope: anyio.CancelScope) -> None:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    scope.cancel()


async def test_the_owner_is_fenced_once_its_stream_was_claimed(tmp_path: Path) -> None:
    async with opened(one := SoleStore(tmp_path)), opened(two := SoleStore(tmp_path)):
        row = await create(one, new_row(one))
        assert await two.leases.claim(row, numbered(2, 2), Change(5.0)) is None, "its owner lives"
        one._instances.leave()  # as if its lock were lost, which a frozen machine or a network drive may do
        claimed = await two.leases.claim(row, numbered(2, 2), Change(5.0))
        assert claimed is not None
        with pytest.raises(Fenced, match="epoch 1"):
            await append(one, row, 2)
        await append(two, claimed, 3)
        assert await replayed(one, row) == numbered(1, 3)


async def test_reading_does_not_wait_for_writing(pair: tuple[SqliteStore, SqliteStore]) -> None:
    one, two = pair
    row = await create(one, new_row(one), 3)
    told: list[StoreError | None] = []
    with locked(one.path):
        one.log.append(row.id, 1, events(4, 1), Change(5.0), told.append)
        assert await replayed(one, row) == await replayed(two, row) == numbered(1, 3)
        assert told == []
    await append(one, await found(one, row), 5)
    assert told == [None]
    assert await replayed(two, row) == numbered(1, 5)


@pytest.mark.slow
async def test_a_file_that_is_locked_for_too_long_is_a_fault(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := SoleStore(tmp_path, clock=clock)):
        row = await create(store, new_row(store))
        with locked(store.path):
            clock.step = 2.0
            with pytest.raises(StoreFault) as caught:
                await append(store, row, 2)
            assert caught.value.fault == "locked"
        await append(store, row, 2)


@pytest.mark.slow
async def test_with_memory_behind_it_nobody_waits_for_a_locked_file_twice(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        rows = [await create(store, new_row(store)) for _ in range(3)]
        with locked(tmp_path / FILE):
            clock.step = 2.0
            await append(store, rows[0], 2)
            clock.step = 0.0
            for row in rows[1:]:
                await append(store, row, 2)
            assert not store.log.is_durable
        clock.seconds += FIRST
        for row in rows:
            await append(store, row, 3)
        assert store.log.is_durable
    async with opened(again := SoleStore(tmp_path)):
        for row in rows:
            assert await replayed(again, row) == numbered(1, 3)


# -- closing and opening


async def test_closing_commits_what_was_asked_for(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path)):
        rows = [await create(store, new_row(store)) for _ in range(50)]
        told: list[StoreError | None] = []
        for row in rows:
            store.log.append(row.id, 1, events(2, 10), Change(5.0, status="completed"), told.append)
    assert told == [None] * 50
    async with opened(again := SoleStore(tmp_path)):
        for row in rows:
            assert await replayed(again, row) == numbered(1, 11)
        assert await again.leases.orphans() == []


async def test_closing_does_not_wait_for_a_locked_file(tmp_path: Path) -> None:
    told: list[Any] = []
    with ExitStack() as stack:
        async with opened(store := SoleStore(tmp_path, clock=HandClock())):
            row = await create(store, new_row(store))
            stack.enter_context(locked(store.path))
            store.log.append(row.id, 1, events(2, 1), Change(5.0), told.append)
    assert [error.fault for error in told] == ["locked"], "its patience has no end on this clock"


async def test_a_closed_stores_streams_are_orphans(tmp_path: Path) -> None:
    async with opened(one := SoleStore(tmp_path)), opened(two := SoleStore(tmp_path)):
        row = await create(one, new_row(one))
        assert await two.leases.orphans() == []
        await one.close()
        assert await two.leases.orphans() == [row]


async def test_nobody_else_may_look_at_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    async with opened(store := SoleStore(folder)):
        await create(store, new_row(store))
        paths = [folder, folder / "instances", *folder.glob("*.*"), *folder.glob("instances/*")]
        modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in paths}
    own = f"{store.log.instance}.lock"
    files = [FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}.lock", own]
    assert modes == {"state": "0o700", "instances": "0o700"} | dict.fromkeys(files, "0o600")
    (folder / FILE).chmod(0o644)
    async with opened(SoleStore(folder)):
        assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600


async def test_many_stores_may_begin_one_file_at_once(tmp_path: Path) -> None:
    stores = [SoleStore(tmp_path) for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for store in stores:
            tasks.start_soon(store.open)
    rows = [await create(store, new_row(store)) for store in stores]
    for row in rows:
        assert await stores[0].log.find(row.id) == row
    for store in stores:
        await store.close()


# -- one batch


async def test_what_cannot_be_stored_is_left_out_of_its_batch(tmp_path: Path) -> None:
    async with opened(store := SoleStore(tmp_path)):
        told: list[StoreError | None] = []
        rows = [new_row(store, last=2, name="\ud800" if number % 4 == 2 else "fine") for number in range(12)]
        with locked(store.path):  # so that all but the first wait together
            for row in rows:
                store.log.create(row, events(1, 2), told.append)
        await create(store, new_row(store))
        assert [error is None for error in told] == [number % 4 != 2 for number in range(12)]
        assert "cannot be stored" in str(told[2])
        for number, row in enumerate(rows):
            assert (await store.log.find(row.id) is None) is (number % 4 == 2)
