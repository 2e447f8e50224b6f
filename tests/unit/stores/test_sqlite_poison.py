"""Records of the file that another process damaged, in a file that SQLite finds sound."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from structlog.testing import capture_logs

from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Message, SessionRow
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.locks import Instances
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.sqlite.quarantine import salvage
from mcp_hub.stores.sqlite.store import FILE
from tests.unit.stores.broken_files import rows_of, said, written
from tests.unit.stores.event_stores import (
    GONE,
    append,
    create,
    fetch,
    new_failsafe,
    new_row,
    numbered,
    opened,
    replayed,
    works,
)

pytestmark = pytest.mark.anyio

VALUES: Final[dict[str, str]] = {
    "a word": "'abc'",
    "an empty text": "''",
    "a negative number": "-1",
    "2^63": "9223372036854775807",
    "infinity": "9e999",
    "invalid UTF-8": "CAST(x'ff' AS TEXT)",
    "a blob": "x'00ff'",
    "NUL": "char(0)",
    "1 MiB": "zeroblob(1048576)",
    "a path": "'../../x'",
    "deep JSON": f"'{'[' * 5000}'",
}
COLUMNS: Final = {
    "streams": (
        *("id", "principal", "owner", "server", "method", "name", "created", "updated", "epoch", "status", "first"),
        *("last", "session", "ttl", "message", "key", "digest", "expires", "bytes"),
    ),
    "extras": ("continuation", "info"),
    "chunks": ("first", "last", "body"),
    "messages": ("kind", "body"),
    "sessions": ("principal", "body", "expires"),
}
EVERY: Final = [(table, column) for table, columns in COLUMNS.items() for column in columns]
SESSION: Final = SessionRow("se_1", "target", b"{}", 9e9)


def change(folder: Path, statement: str) -> None:
    """As another process would; a value that the tables refuse changes nothing."""
    with suppress(sqlite3.IntegrityError):
        rows_of(folder / FILE, statement)


async def _use(store: FailsafeStore, target: Any, other: Any) -> None:
    assert await replayed(store, other) == numbered(1, 3)
    for request in (store.log.find, lambda id_: store.inbox.post(Message(id_, "touch", b""))):
        try:
            await request(target.id)
        except StoreError as error:
            assert not isinstance(error, StoreFault), "the file as a whole"
    rows = await store.log.rows(None, 100)
    assert other.id in {row.id for row in rows}
    assert all(row.principal == "target" for row in await store.log.rows("target", 100))
    assert {row.id for row in await store.leases.orphans()} >= {other.id}
    await store.inbox.take()
    await store.log.find_key("target", "k")
    await store.sweep(200.0)
    await store.sessions.find("se_1")
    await store.sessions.put(SESSION)
    assert await store.sessions.find("se_1") == SESSION
    assert store.log.is_durable


@pytest.mark.parametrize(("table", "column"), EVERY)
async def test_damaged_column_is_of_no_account_to_other_streams(tmp_path: Path, table: str, column: str) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        other = await create(store, new_row(store, principal="other", owner=GONE), 3)
        with capture_logs() as logs:
            for value in VALUES.values():
                known = {"continuation": b"{}", "info": b"{}", "message": "m"}
                target = await create(store, new_row(store, principal="target", owner=GONE, **known), 3)
                await store.sessions.put(SESSION)
                await store.inbox.post(Message(target.id, "input", b"{}"))
                where = "id = 'se_1'" if table == "sessions" else f"stream = {_number(tmp_path, target.id)}"
                if table == "streams":
                    where = f"id = '{target.id}'"
                change(tmp_path, f"UPDATE {table} SET {column} = {value} WHERE {where}")
                with anyio.fail_after(240):
                    await _use(store, target, other)
        assert [entry for entry in logs if entry.get("exc_info")] == []
    async with opened(again := new_failsafe(tmp_path)):
        assert await replayed(again, other) == numbered(1, 3)
        fresh = await create(again, new_row(again), 2)
        assert await replayed(again, fresh) == numbered(1, 2)


def _number(folder: Path, id_: str) -> int:
    [(number,)] = rows_of(folder / FILE, f"SELECT number FROM streams WHERE id = '{id_}'")
    return int(number)


async def test_damaged_rows_are_set_aside_and_the_newest_64_are_kept(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        for _ in range(70):
            await create(store, new_row(store, owner=GONE), 2)
        whole = await create(store, new_row(store, owner=GONE), 2)
        change(tmp_path, f"UPDATE streams SET status = 'lost' WHERE id != '{whole.id}'")
        assert [row.id for row in await store.log.rows(None, 100)] == [whole.id]
        with capture_logs() as logs:
            await store.sweep(0.0)
        assert [entry["event"] for entry in logs].count("record_set_aside") == 70
    counts = {"damaged": 64, "streams": 1, "chunks": 65}
    assert {table: rows_of(tmp_path / FILE, f"SELECT count(*) FROM {table}")[0][0] for table in counts} == counts


async def test_damaged_row_of_a_process_that_lives_stays_and_its_stream_is_written_on(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        row = await create(store, new_row(store), 2)
        change(tmp_path, f"UPDATE streams SET name = x'00' WHERE id = '{row.id}'")
        assert await store.log.find(row.id) is None
        await store.sweep(0.0)
        await append(store, row, 3)
        change(tmp_path, f"UPDATE streams SET name = 'n' WHERE id = '{row.id}'")
        assert await replayed(store, row) == numbered(1, 3)


async def test_damaged_chunk_is_left_out_and_later_events_keep_their_numbers(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        row = await create(store, new_row(store), 2)
        for first in (3, 5):
            await append(store, row, first, 2)
        change(tmp_path, "UPDATE chunks SET body = 'x' WHERE first = 3")
        assert list((await fetch(store, row)).lines) == numbered(1, 2)
        page = await fetch(store, row, 2)
        assert (page.first, list(page.lines)) == (5, numbered(5, 6))


async def test_owner_in_a_damaged_row_leads_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "other.lock").write_text("")
    instances = Instances(tmp_path, GONE)
    instances.enter()
    assert instances.is_gone("../other")
    assert (tmp_path / "other.lock").exists()
    instances.leave()


async def test_salvage_keeps_whole_streams_beside_rows_of_other_types(tmp_path: Path) -> None:
    async with opened(store := new_failsafe(tmp_path)):
        rows = [await create(store, new_row(store), 2) for _ in range(3)]
    change(tmp_path, f"UPDATE chunks SET body = CAST(x'ff' AS TEXT) WHERE stream = {_number(tmp_path, rows[0].id)}")
    change(tmp_path, f"UPDATE streams SET first = 'x' WHERE id = '{rows[1].id}'")
    copied, unreadable, _ = salvage(tmp_path / FILE, tmp_path / "new.db", lambda: False)
    assert (copied, unreadable) == (1, 2)


@pytest.mark.parametrize("table", ["streams", "chunks", "messages", "sessions", "extras"])
async def test_a_file_without_a_table_is_set_aside_and_what_is_left_is_kept(tmp_path: Path, table: str) -> None:
    await written(tmp_path)
    rows_of(tmp_path / FILE, f"DROP TABLE {table}")
    with capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path)):
            assert store.log.is_durable
            await works(store)
    assert said(logs) == ["store_set_aside"]
