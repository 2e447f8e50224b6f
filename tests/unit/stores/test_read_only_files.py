"""Files that cannot be written from the start: what is in them is found, new streams are in memory until they can."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, StoreLimits
from mcp_hub.stores.locks import Instances
from mcp_hub.stores.recovery.recovery import FIRST
from mcp_hub.stores.sqlite import transactions
from mcp_hub.stores.sqlite.store import FILE, SqliteStore
from tests.unit.stores.broken_files import HandClock, said, set_aside
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

pytestmark = pytest.mark.anyio

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
