"""Ways to break the file of a store, and a clock that tests move."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mcp_hub.call import StreamInfo
from mcp_hub.stores.base import SessionRow
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.recovery.recovery import FIRST
from mcp_hub.stores.sqlite.schema import STREAMS
from mcp_hub.stores.sqlite.store import FILE, SqliteStore
from tests.unit.stores.event_stores import create, new_failsafe, new_row, opened


class HandClock:
    """Stands still until it is moved; `step` seconds pass each time it is read."""

    def __init__(self, step: float = 0.0) -> None:
        self.seconds = 1000.0
        self.step = step

    def now(self) -> float:
        self.seconds += self.step
        return self.seconds


def in_use(store: FailsafeStore) -> SqliteStore:
    """The file of a store."""
    file = store.backing.store
    assert isinstance(file, SqliteStore)
    return file


async def recover(store: FailsafeStore, clock: HandClock) -> None:
    """Room on the disk again, and the next write, which shows it."""
    await empty_disk(store)
    clock.seconds += FIRST
    await create(store, new_row(store))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process writes to the file meanwhile, and never commits."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield


async def fill_disk(store: FailsafeStore) -> None:
    """No further page can be had: what SQLite says then is what it says when the disk is full."""
    await in_use(store)._links.writer.ask(_limit_pages)


async def empty_disk(store: FailsafeStore) -> None:
    await in_use(store)._links.writer.ask(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchall())


def _limit_pages(db: sqlite3.Connection) -> None:
    (count,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {count}").fetchall()


def rows_of(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Executes statements in a database as another process does; the rows of the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return [db.execute(statement).fetchall() for statement in statements][-1]


def damage(folder: Path, table: str) -> None:
    """Overwrites the first page of a table of a file that nobody has open."""
    path = folder / FILE
    [(page,)] = rows_of(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    [(size,)] = rows_of(path, "PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def set_aside(folder: Path) -> list[str]:
    """Names of the databases that were set aside."""
    found = (path.name for path in folder.glob(f"{FILE}.corrupt-*"))
    return sorted(name for name in found if not name.endswith(("-wal", "-shm")))


async def damage_under(store: FailsafeStore, folder: Path, table: str) -> None:
    """Damages a table of the file that the store has open, and lets it notice that the file has changed."""
    await in_use(store)._links.writer.ask(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    damage(folder, table)
    rows_of(folder / FILE, f"PRAGMA user_version = {STREAMS.version}")


def said(logs: list[Any], level: str = "error") -> list[str]:
    """Events of that level, in order."""
    return [entry["event"] for entry in logs if entry["log_level"] == level]


async def written(folder: Path, count: int = 3) -> list[StreamInfo]:
    """A file with that many streams, which ended, of 50 events each."""
    async with opened(new_failsafe(folder)) as store:
        rows = [await create(store, new_row(store, created=float(n), status="completed"), 50) for n in range(count)]
        await store.sessions.put(SessionRow("se_1", "local", b"{}", 9e9))
        return rows
