"""Damaged files, and streams in memory while their file cannot be written: what can be read or was kept comes back."""

import threading
from pathlib import Path

import anyio
import pytest
import structlog

from mcp_hub.errors import KeyTaken
from mcp_hub.stores.base import Change, Message, SessionRow
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.recovery import FIRST, MOST, _Retry
from mcp_hub.stores.sqlite.store import FILE
from tests.unit.stores.broken_files import (
    HandClock,
    damage,
    damage_under,
    empty_disk,
    fill_disk,
    locked,
    recover,
    said,
    set_aside,
    written,
)
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
    works,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "text",
    [b"not a database", b"\x00" * 100_000, b"SQLite format 3\x00" + b"\xff" * 8192],
    ids=["text", "zeros", "head"],
)
async def test_garbage_is_set_aside_and_a_new_file_begun(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path)):
            assert store.log.is_durable
            await works(store)
    assert said(logs) == ["store_set_aside"]
    (aside,) = set_aside(tmp_path)
    assert (tmp_path / aside).read_bytes() == text, "somebody may still want it"
    async with opened(again := new_failsafe(tmp_path)):
        assert len(await again.log.rows("local", 10)) == 1
    assert len(set_aside(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
async def test_of_a_truncated_file_what_is_left_is_kept(tmp_path: Path, share: float) -> None:
    rows = await written(tmp_path, 200)
    size = (tmp_path / FILE).stat().st_size
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate(int(size * share))
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path, HandClock())):
            assert store.log.is_durable
            kept = [row for row in rows if await store.log.find(row.id) is not None]
            for row in kept:
                assert await replayed(store, row) == numbered(1, 50)
            await works(store)
    (entry,) = [entry for entry in logs if entry["event"] == "store_set_aside"]
    assert entry["kept"] == len(kept)
    assert len(kept) < 200
    assert entry["lost"] or not entry["all_found"], "what is missing is said to be"
    assert kept or share < 0.9


@pytest.mark.parametrize("place", ["messages_stream", "messages", "chunks_place", "streams_key", "extras"])
async def test_damage_that_is_found_later_costs_only_what_it_hit(tmp_path: Path, place: str, clock: HandClock) -> None:
    rows = await written(tmp_path)
    damage(tmp_path, place)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path, clock)):
            assert store.log.is_durable, "nothing was read of it yet"
            hit = await create(store, new_row(store, key="k", info=b"i"), 2)
            await store.inbox.post(Message(hit.id, "input", b""))
            await append(store, hit, 3, status="completed")
            assert not store.log.is_durable
            assert await replayed(store, hit) == numbered(1, 3)
            await works(store)
            clock.seconds += FIRST
            await store.inbox.has_news()
            assert store.log.is_durable
            assert await store.sessions.find("se_1") is not None
            for row in rows:
                assert await replayed(store, row) == numbered(1, 50)
            await works(store)
            running = [thread.name for thread in threading.enumerate()]
            assert [running.count(name) for name in ("store-writer", "store-reader")] == [1, 1]
    assert said(logs) == ["store_failed", "store_set_aside"]


async def test_a_damaged_file_is_not_set_aside_while_others_write_to_it(tmp_path: Path, clock: HandClock) -> None:
    async with opened(one := new_failsafe(tmp_path)):
        row = await create(one, new_row(one, status="completed"))
    damage(tmp_path, "messages_stream")
    async with opened(one := new_failsafe(tmp_path)):
        async with opened(two := new_failsafe(tmp_path, clock)):
            hit = await create(two, new_row(two))
            await append(two, hit, 2, status="completed")
            assert not two.log.is_durable
            clock.seconds += FIRST
            with structlog.testing.capture_logs() as logs:
                await two.inbox.has_news()
            assert [entry for entry in logs if entry["log_level"] != "debug"] == [], "it has been said"
            assert (two.log.is_durable, set_aside(tmp_path)) == (False, [])
            other = await create(one, new_row(one))
            assert await replayed(one, other) == await replayed(two, other) == numbered(1, 1)
            await one.close()
            clock.seconds += 2 * FIRST
            await two.inbox.has_news()
            assert (two.log.is_durable, len(set_aside(tmp_path))) == (True, 1)
            assert await two.log.find(row.id) == row
            assert await replayed(two, hit) == numbered(1, 2)
            await create(two, new_row(two))
            assert (tmp_path / f"{FILE}-wal").stat().st_size > 0
    async with opened(again := new_failsafe(tmp_path)):
        assert len(await again.log.rows("local", 10)) == 4


async def test_two_hubs_that_find_the_same_damage_end_up_on_one_new_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"garbage")
    stores = [new_failsafe(tmp_path) for _ in range(3)]
    with structlog.testing.capture_logs():
        async with anyio.create_task_group() as tasks:
            for store in stores:
                tasks.start_soon(store.open)
    assert len(set_aside(tmp_path)) == 1
    durable = [store for store in stores if store.log.is_durable]
    row = await create(durable[0], new_row(durable[0]))
    for store in durable:
        assert await store.log.find(row.id) == row
    for store in stores:
        await store.close()


async def test_of_two_hubs_that_find_the_same_damage_one_repairs_it(tmp_path: Path, clock: HandClock) -> None:
    await written(tmp_path)
    damage(tmp_path, "messages_stream")
    async with opened(one := new_failsafe(tmp_path, clock)), opened(two := new_failsafe(tmp_path, clock)):
        rows = []
        for store in (one, two):
            rows.append(await create(store, new_row(store)))
            await append(store, rows[-1], 2, status="completed")
        for wait in (1, 2):
            clock.seconds += FIRST * wait
            for store in (one, two):
                await store.inbox.has_news()
        assert [one.log.is_durable, two.log.is_durable, len(set_aside(tmp_path))] == [True, True, 1]
        for store in (one, two):
            await store.inbox.has_news()
            await works(store)
        for row in rows:
            assert await replayed(one, row) == await replayed(two, row) == numbered(1, 2)
            assert (await found(one, row)) == (await found(two, row))


async def test_streams_whose_beginning_is_lost_go_on_with_their_numbers(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        hit, untouched = [await create(store, new_row(store), 10) for _ in range(2)]
        await damage_under(store, tmp_path, "chunks")
        await append(store, hit, 11)
        assert not store.log.is_durable
        clock.seconds += FIRST
        with structlog.testing.capture_logs() as logs:
            await store.inbox.has_news()
        assert (logs[0]["kept"], logs[0]["lost"]) == (0, 2)
        assert store.log.is_durable
        for number in (12, 13):
            await append(store, hit, number)
        for number in (11, 12, 13):
            await append(store, untouched, number, message=str(number))
        for row in (hit, untouched):
            kept = await found(store, row)
            assert (kept.first, kept.last) == (11, 13)
    async with opened(again := SoleStore(tmp_path)):
        for row in (hit, untouched):
            assert await replayed(again, row) == numbered(11, 13)
        assert (await found(again, untouched)).message == "13"


async def test_a_damaged_file_is_not_written_to_again(tmp_path: Path, clock: HandClock) -> None:
    await written(tmp_path)
    damage(tmp_path, "messages_stream")
    async with opened(store := new_failsafe(tmp_path, clock)):
        hit = await create(store, new_row(store))
        await append(store, hit, 2, status="completed")
        clock.seconds += FIRST
        born = await create(store, new_row(store))
        async with opened(other := SoleStore(tmp_path)):
            assert await other.log.find(hit.id) is not None
            assert await other.log.find(born.id) is None


# -- in memory meanwhile, and the way back

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


async def test_an_idle_hub_tries_its_store_again_when_it_is_time(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store), 3)
        await fill_disk(store)
        await append(store, row, 4, size=100_000)
        assert not store.log.is_durable
        clock.seconds += FIRST
        await store.leases.orphans()
        assert not store.log.is_durable, "the disk is still full"
        await empty_disk(store)
        await store.leases.orphans()
        assert not store.log.is_durable, "not before it is time"
        clock.seconds += 2 * FIRST
        await store.leases.orphans()
        assert store.log.is_durable
        assert await store.sessions.find("") is None, "nothing is left of the trial"
