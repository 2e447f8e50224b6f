"""Files that cannot be used, are full or read-only: calls go on, what was confirmed is kept, and it is said aloud."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
import structlog

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.events import ToolCall
from mcp_hub.stores.base import Change, Message, SessionRow, StoreLimits
from mcp_hub.stores.locks import Instances
from mcp_hub.stores.recovery.recovery import FIRST
from mcp_hub.stores.sqlite import transactions
from mcp_hub.stores.sqlite.store import FILE, SqliteStore
from tests.unit.calls.durable_hub import DurableHub
from tests.unit.stores.broken_files import HandClock, empty_disk, fill_disk, in_use, rows_of, said, set_aside, written
from tests.unit.stores.event_stores import (
    GONE,
    append,
    create,
    fetch,
    found,
    new_failsafe,
    new_row,
    numbered,
    opened,
    replayed,
    works,
)
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

# -- at the start


@pytest.mark.parametrize(("version", "origin"), [(99, "a newer hub"), (1, "an earlier hub: remove it")])
async def test_file_of_another_version_is_left_alone(tmp_path: Path, version: int, origin: str) -> None:
    await written(tmp_path)
    rows_of(tmp_path / FILE, f"PRAGMA user_version = {version}")
    before = (tmp_path / FILE).read_bytes()
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path)):
            assert not store.log.is_durable
            await works(store)
    assert f"version {version} of {origin}" in logs[0]["reason"]
    assert said(logs) == ["store_failed"]
    assert (tmp_path / FILE).read_bytes() == before


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    rows_of(tmp_path / FILE, "CREATE TABLE precious (a)")
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path)):
            assert not store.log.is_durable
            await works(store)
    assert "another program" in logs[0]["reason"]
    assert set_aside(tmp_path) == []
    assert rows_of(tmp_path / FILE, "SELECT count(*) FROM precious") == [(0,)]


def directory_for_file(folder: Path) -> None:
    (folder / FILE).mkdir(parents=True)


def file_for_folder(folder: Path) -> None:
    folder.write_text("")


def file_for_instances(folder: Path) -> None:
    folder.mkdir()
    (folder / "instances").write_text("")


@pytest.mark.parametrize("block", [directory_for_file, file_for_folder, file_for_instances])
async def test_where_no_file_can_be_made_everything_is_in_memory(tmp_path: Path, block: Callable[[Path], None]) -> None:
    folder, clock = tmp_path / "state", HandClock()
    block(folder)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(folder, clock)):
            assert not store.log.is_durable
            await works(store)
            row = await create(store, new_row(store, key="k"))
            assert await store.log.find_key("local", "k") == row
            with pytest.raises(KeyTaken):
                await create(store, new_row(store, key="k"))
            assert await store.inbox.post(Message(row.id, "cancel", b""))
            assert await store.inbox.take() == [Message(row.id, "cancel", b"")]
            assert await store.leases.orphans() == []
            assert not await store.inbox.post(Message(new_row(store).id, "cancel", b""))
            await store.sessions.put(SessionRow("se_1", "local", b"", 9e9))
            assert await store.sessions.find("se_1") is not None
            clock.seconds += FIRST
            assert not await store.inbox.has_news()
            assert await store.sweep(1e12) == 1
    assert said(logs) == ["store_failed"], "once"


async def test_a_file_that_can_be_made_later_is(tmp_path: Path, clock: HandClock) -> None:
    (tmp_path / FILE).mkdir()
    async with opened(store := new_failsafe(tmp_path, clock)):
        running = await create(store, new_row(store, key="k"), 3)
        ended = await create(store, new_row(store, status="completed"), 2)
        await store.inbox.has_news()
        (tmp_path / FILE).rmdir()
        await store.inbox.has_news()
        assert not store.log.is_durable, "not before it is time"
        clock.seconds += FIRST
        await store.inbox.has_news()
        assert store.log.is_durable
        await append(store, running, 4)
    async with opened(again := new_failsafe(tmp_path)):
        assert await replayed(again, running) == numbered(1, 4)
        assert await replayed(again, ended) == numbered(1, 2)
        assert (await found(again, ended)).has_ended
        assert [row.id for row in await again.leases.orphans()] == [running.id]


# -- while it runs


async def test_a_stream_continues_in_memory_when_the_disk_is_full(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path, HandClock())):
        row = await create(store, new_row(store, key="k", created=5.0), 30)
        other = await create(store, new_row(store, created=4.0), 1)
        await fill_disk(store)
        with structlog.testing.capture_logs() as logs:
            await append(store, row, 31, 10, size=20_000, message="on")
            assert store.log.survives(other.id) and not store.log.survives(row.id)
            await append(store, row, 41, 10, size=20_000)
            await append(store, other, 2, 10)
            await works(store)
        assert said(logs) == ["store_failed"], "once"
        assert (logs[0]["fault"], logs[0]["durable"], store.log.is_durable) == ("full", False, False)
        kept = await found(store, row)
        assert (kept.first, kept.last, kept.message, kept.status) == (1, 50, "on", "working")
        assert await replayed(store, row, 7) == [*numbered(1, 30), *numbered(31, 50, 20_000)]
        assert (await fetch(store, row, 28, 2)).row == kept
        assert await store.log.find_key("local", "k") == kept
        assert [row.id for row in await store.log.rows("local", 3)][1:] == [row.id, other.id]
        assert (await store.log.rows("local", 3))[1] == kept
        with pytest.raises(Fenced):
            await append(store, row, 50)
        await append(store, row, 51, status="completed")
        with pytest.raises(Fenced):
            await append(store, row, 52)


async def test_after_a_full_disk_everything_comes_home(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        rows = [await create(store, new_row(store, message="old"), 3) for _ in range(4)]
        await fill_disk(store)
        for row in rows:
            await append(store, row, 4, size=100_000, message="away")
        born = await create(store, new_row(store, info=b"born"))
        await append(store, rows[1], 5, status="completed", message="over")
        assert await store.inbox.post(Message(rows[0].id, "input", b"{}"))
        await empty_disk(store)
        await append(store, rows[0], 5)
        assert not store.log.is_durable, "not before it is time"
        clock.seconds += FIRST
        with structlog.testing.capture_logs() as logs:
            await append(store, rows[0], 6, continuation=b"c")
        assert (said(logs, "warning"), store.log.is_durable) == (["store_recovered"], True)
        await append(store, rows[2], 5)
        assert store.log.survives(rows[0].id) and not store.log.survives(born.id)
        await append(store, born, 2)
        await store.inbox.has_news()
        assert await store.inbox.take() == [Message(rows[0].id, "input", b"{}")]
        assert await replayed(store, rows[0], 2) == [*numbered(1, 3), *numbered(4, 4, 100_000), *numbered(5, 6)]
        await append(store, rows[2], 6, status="failed")
    async with opened(again := new_failsafe(tmp_path)):
        assert [(await found(again, row)).last for row in (*rows, born)] == [6, 5, 6, 3, 2]
        for row in rows[:3]:
            assert await replayed(again, row) == [
                *numbered(1, 3),
                *numbered(4, 4, 100_000),
                *numbered(5, row_last(row, rows)),
            ]
        over = await found(again, rows[1])
        assert (over.status, over.message, over.expires) == ("completed", "over", 101.0 + 86400)
        assert (await found(again, rows[0])).continuation == b"c"
        assert ((await found(again, born)).info, (await found(again, born)).message) == (b"born", None)
        assert {row.id for row in await again.leases.orphans()} == {rows[0].id, rows[3].id, born.id}


def row_last(row: StreamInfo, rows: list[StreamInfo]) -> int:
    return 5 if row is rows[1] else 6


# -- files that cannot be written from the start

SHM = FILE + "-shm"


def no_lock(folder: Path) -> None:
    """No instance can have a lock, as in a folder that may only be read."""
    (folder / "instances").rmdir()
    (folder / "instances").write_text("")


def lock(folder: Path) -> None:
    (folder / "instances").unlink()


def no_companion(folder: Path) -> None:
    """SQLite can make no companion of the file, as on a full disk."""
    (folder / SHM).symlink_to(folder / "none" / SHM)


def companion(folder: Path) -> None:
    (folder / SHM).unlink()


@pytest.mark.parametrize(("block", "free"), [(no_lock, lock), (no_companion, companion)])
async def test_what_is_in_a_file_that_cannot_be_written_is_found(
    tmp_path: Path, block: Callable[[Path], None], free: Callable[[Path], None], clock: HandClock
) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        row = await create(store, new_row(store, key="k", status="completed"), 50)
    block(tmp_path)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path, clock)):
            assert not store.log.is_durable
            kept = await found(store, row)
            assert (kept.status, kept.last) == ("completed", 50)
            assert await store.log.find_key("local", "k") == kept
            assert await store.log.rows("local", 9) == [kept]
            assert await replayed(store, row) == numbered(1, 50)
            assert (await fetch(store, row, 48, 9)).row == kept
            await works(store)
            born = await create(store, new_row(store, key="new"), 3)
            assert await store.log.find_key("local", "new") == await found(store, born)
            assert await store.log.find_key("local", "none") is None
            assert await store.leases.claim(kept, [], Change(0.0)) is None
            clock.seconds += FIRST
            await store.inbox.has_news()
            assert not store.log.is_durable and await found(store, row) == kept
            free(tmp_path)
            clock.seconds += 2 * FIRST
            await store.inbox.has_news()
            assert store.log.is_durable and await found(store, row) == kept
            await append(store, born, 4)
    assert said(logs) == ["store_failed"], "once"
    assert said(logs, "warning") == ["store_recovered"]
    assert set_aside(tmp_path) == []
    async with opened(again := new_failsafe(tmp_path)):
        assert await replayed(again, born) == numbered(1, 4) and await replayed(again, row) == numbered(1, 50)


async def test_the_log_that_a_killed_hub_left_beside_the_file_is_read_too(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with opened(store := new_failsafe(tmp_path / "state")):
        row = await create(store, new_row(store, key="k"), 50)
        for path in (tmp_path / "state").glob(FILE + "*"):
            shutil.copy(path, left)
        assert (left / (FILE + "-wal")).stat().st_size
    (left / "instances").write_text("")
    async with opened(store := new_failsafe(left)):
        assert not store.log.is_durable
        assert await replayed(store, row) == numbered(1, 50)
        assert (await found(store, row)).key == "k"


async def test_what_another_hub_writes_meanwhile_is_read(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        first = await create(store, new_row(store), 5)
    no_companion(tmp_path)
    async with opened(store := new_failsafe(tmp_path, HandClock())):
        assert await replayed(store, first) == numbered(1, 5)
        companion(tmp_path)
        async with opened(other := new_failsafe(tmp_path)):
            second = await create(other, new_row(other), 7)
            assert await replayed(store, second) == numbered(1, 7)
        assert await replayed(store, second) == numbered(1, 7)
        assert not store.log.is_durable


async def test_a_file_that_changes_each_time_it_is_read_is_not_taken_for_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(written := new_failsafe(tmp_path)):
        row = await create(written, new_row(written), 5)
    no_companion(tmp_path)
    store = SqliteStore(tmp_path, StoreLimits(), HandClock(), Instances(tmp_path, GONE), is_read_only=True)
    async with opened(store):
        assert await store.log.find(row.id)
        states = iter(range(1000))
        monkeypatch.setattr(transactions, "_without_log", lambda _: (next(states), 0, 0, 0))
        with pytest.raises(StoreError, match="is being written"):
            await store.log.find(row.id)


@pytest.mark.parametrize("text", [b"", b"no database " * 100])
async def test_a_file_with_nothing_in_it_to_read_is_not_read(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    (tmp_path / "instances").write_text("")
    async with opened(store := new_failsafe(tmp_path)):
        assert not store.log.is_durable
        await works(store)
    assert (tmp_path / FILE).read_bytes() == text


async def test_a_lock_holds_though_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    one, other = Instances(tmp_path, "in_1"), Instances(tmp_path, "in_2")
    one.enter()
    assert not other.is_gone("in_1")
    one.leave()
    assert other.is_gone("in_1")


async def test_owner_serves_a_cursor_from_memory_while_the_file_cannot_be_read(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        hub = DurableHub(store)
        call = hub.call()
        hub.streams.begin(call.record)
        call.says(*(ToolCall(f"c{number}", "t", b"{}") for number in range(3)))
        await hub.streams.open("p", call.id)
        await until(lambda: call.record.stream is not None and call.record.stream.row.last == 4)
        gate = threading.Event()
        async with anyio.create_task_group() as tasks:
            try:
                tasks.start_soon(in_use(store)._links.reader.ask, lambda db: gate.wait(60))
                with anyio.fail_after(20):
                    follower = await hub.follow(call.id, 1)
                    await until(lambda: follower.seqs == [2, 3, 4])
            finally:
                gate.set()
        call.ends()
        await until(lambda: follower.at_end)
        follower.reader.close()
        await hub.registry.close(0)
