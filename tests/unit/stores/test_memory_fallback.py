"""Streams that went on in memory while their file could not be written, and their way back into it."""

from pathlib import Path

import anyio
import pytest

from mcp_hub.errors import KeyTaken
from mcp_hub.stores.base import Change, Message, SessionRow
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.recovery import FIRST, MOST, _Retry
from mcp_hub.stores.sqlite.store import FILE
from tests.unit.stores.broken_files import HandClock, empty_disk, fill_disk, locked, recover
from tests.unit.stores.event_stores import (
    GONE,
    SMALL,
    SoleStore,
    append,
    create,
    found,
    new_failsafe,
    new_row,
    numbered,
    opened,
    replayed,
)

pytestmark = pytest.mark.anyio

BIG = 100_000
"""Bytes that a full disk has no room for."""


async def test_any_number_of_ended_streams_return_to_the_file(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        await fill_disk(store)
        rows = [await create(store, new_row(store), size=BIG) for _ in range(20)]
        for row in rows:
            await append(store, row, 2, status="completed")
        await recover(store, clock)
        assert store.log.is_durable
        async with opened(other := SoleStore(tmp_path)):
            assert await other.log.find(rows[0].id) is None
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(store.inbox.has_news)
                    await anyio.lowlevel.checkpoint()
                    tasks.start_soon(store.sweep, 0.0)
                    await anyio.lowlevel.checkpoint()
            for row in rows:
                assert await other.log.find(row.id) == await found(store, row)
                assert len(await replayed(other, row)) == 2


async def test_closing_brings_home_what_has_ended(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store))
        await fill_disk(store)
        await append(store, row, 2, size=BIG, status="completed")
        await recover(store, clock)
    async with opened(again := SoleStore(tmp_path)):
        assert (await found(again, row)).status == "completed"


async def test_a_stream_that_outgrew_its_place_in_memory_stays_there(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock, SMALL)):
        row = await create(store, new_row(store), 10)
        await fill_disk(store)
        await append(store, row, 11, size=BIG)
        for number in range(12, 80):
            await append(store, row, number)
        await recover(store, clock)
        await append(store, row, 80)
        kept = await found(store, row)
        assert kept.last == 80
        assert kept.first > 11, "what is in the file is too far back"
        assert await replayed(store, row) == numbered(kept.first, 80)
        await append(store, row, 81, status="completed")
        await store.inbox.has_news()
        assert (await found(store, row)).last == 81


async def test_a_key_that_was_used_again_meanwhile_stops_nobody(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        first = await create(store, new_row(store, key="k"))
        await fill_disk(store)
        await create(store, new_row(store), 1, BIG)
        second = await create(store, new_row(store, key="k"))
        await create(store, new_row(store, key="away"))
        await append(store, first, 2)
        assert await store.log.find_key("local", "k") == second
        await recover(store, clock)
        assert store.log.is_durable
        with pytest.raises(KeyTaken):
            await create(store, new_row(store, key="away"))
        await append(store, first, 3)
        await append(store, second, 2)
        assert await replayed(store, first) == numbered(1, 3)
        assert await replayed(store, second) == numbered(1, 2)


async def test_a_key_that_was_let_go_of_meanwhile_is_free_in_the_file_too(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store, key="k"))
        await fill_disk(store)
        await append(store, row, 2, size=BIG, status="failed", frees_key=True)
        assert not store.log.is_durable
        await recover(store, clock)
        await store.inbox.has_news()
        again = await create(store, new_row(store, key="k"))
        assert store.log.is_durable
    async with opened(later := SoleStore(tmp_path)):
        assert (await found(later, row)).key is None
        found_again = await later.log.find_key("local", "k")
        assert found_again is not None and found_again.id == again.id


async def test_the_newest_session_counts(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        await fill_disk(store)
        await store.sessions.put(SessionRow("se_1", "local", b"x" * BIG, 9e9))
        assert not store.log.is_durable
        await empty_disk(store)
        clock.seconds += FIRST
        await store.sessions.put(SessionRow("se_1", "local", b"new", 9e9))
        assert store.log.is_durable
        assert await store.sessions.find("se_1") == SessionRow("se_1", "local", b"new", 9e9)
        await store.sessions.drop("se_1")
        assert await store.sessions.find("se_1") is None


@pytest.mark.slow
async def test_with_a_locked_file_others_streams_are_out_of_reach_but_nothing_hangs(tmp_path: Path) -> None:
    clock = HandClock()
    async with opened(other := SoleStore(tmp_path)), opened(store := new_failsafe(tmp_path, clock)):
        foreign, own = await create(other, new_row(other)), await create(store, new_row(store))
        left = await create(other, new_row(other, owner=GONE))
        with locked(tmp_path / FILE):
            clock.step = 2.0
            with pytest.raises(StoreFault):
                await store.inbox.post(Message(foreign.id, "cancel", b""))
            assert await store.inbox.post(Message(own.id, "cancel", b""))
            assert store.log.is_durable, "only what is lost to memory says otherwise"
            assert await store.leases.claim(left, [], Change(300.0)) is None
            assert not store.log.is_durable
            assert await store.inbox.take() == [Message(own.id, "cancel", b"")]
        assert await other.leases.claim(left, [], Change(300.0)) is not None


# -- when to try again


def test_the_first_of_many_failures_is_news_and_counts_once() -> None:
    retry = _Retry()
    assert not retry.is_out
    assert [retry.failed(100.0) for _ in range(50)] == [True] + [False] * 49
    assert retry.is_out
    assert not retry.take(100.0 + FIRST - 0.1)
    assert retry.take(100.0 + FIRST)


def test_one_tries_at_a_time_and_each_time_later() -> None:
    retry, now, waits = _Retry(), 0.0, []
    retry.failed(now)
    for _ in range(9):
        began = now
        while not retry.take(now):
            now += FIRST
        waits.append(now - began)
        assert not retry.take(now)
        assert not retry.failed(now), "that is no news"
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert waits[-1] == MOST


def test_a_try_that_nobody_reports_on_is_not_the_last() -> None:
    retry = _Retry()
    retry.failed(0.0)
    assert retry.take(FIRST)
    assert retry.take(FIRST + MOST)


def test_working_again_is_news_and_only_lasting_it_shortens_the_wait() -> None:
    retry = _Retry()
    assert not retry.worked(0.0)
    retry.failed(0.0)
    assert retry.take(FIRST)
    assert [retry.worked(FIRST), retry.worked(FIRST + 1)] == [True, False]
    assert not retry.is_out
    assert retry.failed(10.0)
    assert not retry.take(10.0 + FIRST)
    assert retry.take(10.0 + 2 * FIRST)
    retry.worked(20.0)
    assert retry.failed(20.0 + MOST)
    assert retry.take(20.0 + MOST + FIRST)
