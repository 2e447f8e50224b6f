"""Past calls in a SQLite file shared by hubs, or in memory.

Commits are not synced: a system crash may lose the last batches.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.files import HISTORY_FILE
from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault, faulty
from mcp_hub.stores.history.base import (
    HIGHEST_NUMBER,
    MOST_LOSSES,
    NO_CHANGE,
    RUNNING,
    SOUND_ROW,
    Batch,
    BatchKey,
    CallTexts,
    HistoryLimits,
    LostCalls,
    RunningChange,
    batch_of,
    encode,
    is_shown,
    is_sound_loss,
    texts_of_body,
)
from mcp_hub.stores.sqlite.quarantine import Tenancy, identity, remove_set_aside, set_aside
from mcp_hub.stores.sqlite.schema import FileFormat, closed_on_failure, opened, prepare
from mcp_hub.stores.sqlite.transactions import ReadOnlyTransactions, WriteTransactions
from mcp_hub.stores.sqlite.worker import Worker
from mcp_hub.stores.sqlite.writes import give_back, used_bytes

_MEMORY: Final = Path("memory")
_FORMAT: Final = FileFormat(
    0x6D686869,  # `mhhi`
    1,
    """
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, hub TEXT NOT NULL, base INTEGER NOT NULL, first REAL NOT NULL, last REAL NOT NULL,
    calls INTEGER NOT NULL);
CREATE UNIQUE INDEX batches_key ON batches (hub, base);
CREATE TABLE heads (number INTEGER PRIMARY KEY, head BLOB NOT NULL);
CREATE TABLE texts (place INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE runs (hub TEXT PRIMARY KEY, written REAL NOT NULL);
CREATE TABLE losses (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, hub TEXT NOT NULL, count INTEGER NOT NULL,
    reason TEXT NOT NULL);
""",
    page=1 << 14,
)
_BITS: Final = 16  # of `texts.place`, for the index of the first call; the batch's number is above them
_NEXT: Final = (
    f"SELECT number + 1 FROM batches AS each WHERE number BETWEEN 0 AND {HIGHEST_NUMBER - 1} AND NOT EXISTS"
    " (SELECT 1 FROM batches WHERE number = each.number + 1) ORDER BY number DESC LIMIT 1"
)
_PAST: Final = f"(base < {RUNNING} OR hub NOT IN (SELECT hub FROM runs))"
"""Rows of calls that do not run now; the number of calls is bounded for them alone."""
_STATE: Final = (
    "SELECT count(*) - coalesce(sum(sound), 0), min(CASE WHEN sound THEN last END),"
    f" coalesce(sum(CASE WHEN sound AND {_PAST} THEN calls END), 0)"
    f" FROM (SELECT *, {SOUND_ROW} AS sound FROM batches LIMIT -1)"  # with a limit each row is judged once
)
_UNSOUND: Final = f"SELECT number FROM batches WHERE NOT ({SOUND_ROW}) LIMIT 64"
_OLDEST: Final = (
    f"SELECT number, last, CASE WHEN {_PAST} THEN calls ELSE 0 END FROM batches"
    f" WHERE {SOUND_ROW} AND ({_PAST} OR last < ? OR ?) ORDER BY last LIMIT 64"
)
_PUT_TEXTS: Final = "INSERT OR REPLACE INTO texts (place, body) VALUES (?, ?)"
_TEXTS_AT: Final = (  # one statement: numbers of removed batches are used again
    f"WITH row AS (SELECT number << {_BITS} AS start, calls FROM batches WHERE hub = ?1 AND base = ?2)"
    " SELECT place - start, coalesce((SELECT min(place) - start FROM texts WHERE place > at.place"
    " AND place < start + calls), calls), body FROM row, texts AS at WHERE place >= start AND place <= start + ?3"
    " ORDER BY place DESC LIMIT 1"
)
_CLOSING: Final = 1.0  # seconds that closing may take
_FREE: Final = 256  # free pages that may stay in the file
_ROW: Final = 1 << 16  # bytes for rows and parts of pages beside new texts

T = TypeVar("T")
log = get_logger(__name__)


class _InMemory(WriteTransactions):
    def open(self) -> None:
        connection = opened(":memory:")
        with closed_on_failure(connection, self._path):
            prepare(connection, self._path, self._format)
        self._connection = connection


class _Moved(StoreFault):
    """The path now holds another file."""


class HistoryFile:
    """A `HistoryStore` in `<folder>/history.db`, or in memory without a folder.

    `hub` is this process's id; `is_gone` checks another; `now` returns Unix seconds.
    """

    def __init__(
        self, folder: Path | None, hub: str, is_gone: Callable[[str], bool], now: Callable[[], float], clock: Clock
    ) -> None:
        self._path = _MEMORY if folder is None else folder / HISTORY_FILE
        self._hub = hub
        self._is_gone = is_gone
        self._now = now
        self._clock = clock
        self._lock = anyio.Lock(fast_acquire=True)
        self._transactions: WriteTransactions | None = None
        self._worker: Worker | None = None
        self._losses: list[LostCalls] = []  # about the file itself, to be stored next
        self._damaged: dict[BatchKey, LostCalls] = {}  # batches that could not be read

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def _is_in_memory(self) -> bool:
        return self._path is _MEMORY

    async def write(
        self, batch: Batch, fresh: int, texts: bytes, losses: Sequence[LostCalls], limits: HistoryLimits,
        running: RunningChange = NO_CHANGE,
    ) -> bool:  # fmt: skip
        run = partial(self._write, batch=batch, fresh=fresh, texts=texts, losses=losses, limits=limits, running=running)
        return await self._ask(run, writes=True)

    async def index(self) -> list[BatchKey]:
        return await self._read(self._past, [])

    async def scan(self, keys: Sequence[BatchKey], extract: Callable[[Batch], T]) -> list[T]:
        damaged: list[BatchKey] = []
        results = await self._read(partial(_scan, keys=keys, extract=extract, damaged=damaged), list[T]())
        for key in damaged[: MOST_LOSSES - len(self._damaged)]:
            self._damaged[key] = LostCalls("damaged", key.last, key.hub, key.calls, reason="A record is damaged.")
        return results

    async def texts(self, key: BatchKey, indexes: Sequence[int]) -> dict[int, CallTexts]:
        return await self._read(partial(_texts, key=key, indexes=indexes), {})

    async def losses(self) -> list[LostCalls]:
        stored = await self._read(self._stored_losses, list[LostCalls]())
        return sorted([*self._losses, *self._damaged.values(), *stored], key=lambda loss: -loss.at)

    async def clear(self, loss: LostCalls) -> int:
        """Also erases the calls from free pages, and files that were set aside."""
        if not self._is_there():
            return 0
        count = await self._ask(partial(self._clear, loss=loss), writes=True)
        self._damaged.clear()
        await self._ask(_shrink)
        return count

    async def close(self, *, is_complete: bool = True) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            try:
                if self._worker is not None and is_complete:
                    end = "DELETE FROM runs WHERE hub = ?", (self._hub,)
                    await self._worker.ask(lambda db: db.execute(*end), writes=True)
            except StoreError as error:
                log.debug("history_not_closed", place=self.location, reason=str(error))
            await self._stop()

    def _is_there(self) -> bool:
        return self._worker is not None or (not self._is_in_memory and self._path.exists())

    async def _read(self, run: Callable[[Connection], T], nothing: T) -> T:
        if not self._is_there():
            return nothing
        try:
            return await self._ask(run)
        except StoreFault as fault:
            if self._is_in_memory or fault.fault == "corrupt":
                raise
        reader = Worker("history-reader", ReadOnlyTransactions(self._path, self._clock, _FORMAT))
        await reader.start()
        try:
            return await reader.ask(run)
        finally:
            await reader.stop(_CLOSING)

    async def _ask(self, run: Callable[[Connection], T], *, writes: bool = False) -> T:
        for _ in range(2):
            async with self._lock:
                worker = self._worker or await self._started()
                await self._note_losses(worker)
            try:
                return await worker.ask(run, writes=writes)
            except _Moved:
                await self._stop()
            except StoreFault as fault:
                if fault.fault != "corrupt":
                    raise
                await self._set_aside(worker, fault)
        raise StoreFault("unusable", f"history {self.location}: is replaced again and again")

    async def _note_losses(self, worker: Worker) -> None:
        losses, self._losses = self._losses, []
        try:
            if losses:
                await worker.ask(partial(_add_losses, losses=losses), writes=True)
        except StoreError:
            self._losses = losses

    async def _started(self) -> Worker:
        factory = _InMemory if self._is_in_memory else WriteTransactions
        transactions = factory(self._path, self._clock, _FORMAT)
        worker = Worker("history-writer", transactions)
        try:
            await worker.start()
        except StoreFault as fault:
            if fault.fault != "corrupt" or not await self._moved_aside(transactions.identity, fault):
                raise
            transactions = factory(self._path, self._clock, _FORMAT)
            worker = Worker("history-writer", transactions)
            await worker.start()
        self._transactions, self._worker = transactions, worker
        return worker

    async def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and self._transactions is not None:
            self._transactions.is_closing.set()
            await worker.stop(_CLOSING)

    async def _set_aside(self, worker: Worker, fault: StoreFault) -> None:
        """Raises `fault` while another hub has the file open."""
        async with self._lock:
            if self._worker is not worker or self._transactions is None:
                return
            seen = self._transactions.identity
            await self._stop()
            if not await self._moved_aside(seen, fault):
                raise fault

    async def _moved_aside(self, seen: tuple[int, int] | None, fault: StoreFault) -> bool:
        try:
            aside = await anyio.to_thread.run_sync(self._try_set_aside, seen)
        except OSError as error:
            raise faulty(error, self._path) from error
        if aside:
            log.error("history_set_aside", place=self.location, file=aside, reason=str(fault))
            reason = f"The file was damaged. It is {aside} now, and a new one was begun."
            self._losses.append(LostCalls("damaged", self._now(), self._hub, reason=reason))
        return aside is not None

    def _try_set_aside(self, seen: tuple[int, int] | None) -> str | None:
        """The new name; empty if another hub did it; None while one has the file open."""
        with Tenancy(self._path).alone() as is_alone:
            if identity(self._path) != seen:
                return ""
            return str(set_aside(self._path)) if is_alone else None

    def _write(
        self, db: Connection, batch: Batch, fresh: int, texts: bytes, losses: Sequence[LostCalls],
        limits: HistoryLimits, running: RunningChange,
    ) -> bool:  # fmt: skip
        if not self._is_in_memory and self._transactions and identity(self._path) != self._transactions.identity:
            raise _Moved("unusable", f"history {self.location}: was replaced")
        db.execute("INSERT OR REPLACE INTO runs (hub, written) VALUES (?, ?)", (self._hub, self._now()))
        _add_losses(db, self._killed(db))
        db.execute("PRAGMA secure_delete = ON")  # free pages hold nothing of what is removed
        _prune(db, limits, self._now(), (fresh, len(texts) + _ROW if texts else 0))  # new texts take its pages
        number = _put(db, batch, len(batch) > fresh) if fresh else 0
        if number is None:
            return False
        if texts:
            db.execute(_PUT_TEXTS, (number << _BITS | (len(batch) - fresh), texts))
        begun, ended = running
        _remove_running(db, {*ended, *(call.base for call, _ in begun)})
        for call, body in begun:
            db.execute(_PUT_TEXTS, ((_put(db, call, False) or 0) << _BITS, body))
        _add_losses(db, losses)
        if used_bytes(db) > limits.size:
            _prune(db, limits, self._now())
        if db.execute("PRAGMA freelist_count").fetchone()[0] > _FREE:
            give_back(db)
        return True

    def _past(self, db: Connection) -> list[BatchKey]:
        rows = db.execute(f"SELECT hub, base, first, last, calls FROM batches WHERE {SOUND_ROW}")
        return [key for row in rows if is_shown(key := BatchKey(*row), self._is_gone)]

    def _clear(self, db: Connection, loss: LostCalls) -> int:
        calls = sum(key.calls for key in self._past(db))
        for table in ("batches", "heads", "texts", "losses"):
            db.execute(f"DELETE FROM {table}")
        _add_losses(db, [loss])
        return calls

    def _killed(self, db: Connection) -> list[LostCalls]:
        losses = _killed_hubs(db, self._hub, self._is_gone)
        db.executemany("DELETE FROM runs WHERE hub = ?", [(loss.hub,) for loss in losses])
        return losses

    def _stored_losses(self, db: Connection) -> list[LostCalls]:
        rows = db.execute("SELECT kind, at, hub, count, reason FROM losses ORDER BY number DESC").fetchall()
        killed = _killed_hubs(db, self._hub, self._is_gone)
        return [*filter(is_sound_loss, [*killed, *(LostCalls(*row) for row in rows)])]


def _put(db: Connection, batch: Batch, is_known: bool) -> int | None:
    key, head = batch.key, encode(batch)
    existing = db.execute("SELECT number FROM batches WHERE hub = ? AND base = ?", (key.hub, key.base)).fetchone()
    if existing is not None and not 0 < existing[0] <= HIGHEST_NUMBER:
        existing = db.execute("DELETE FROM batches WHERE number = ?", existing).fetchone()
    if is_known and existing is None:
        return None
    if existing is None:
        [number] = db.execute(_NEXT).fetchone() or (1,)
        row = number, key.hub, key.base, key.first, key.last, key.calls
        db.execute("INSERT INTO batches (number, hub, base, first, last, calls) VALUES (?, ?, ?, ?, ?, ?)", row)
    else:
        number = int(existing[0])
        db.execute("UPDATE batches SET last = ?, calls = ? WHERE number = ?", (key.last, key.calls, number))
    db.execute("INSERT OR REPLACE INTO heads (number, head) VALUES (?, ?)", (number, head))
    return number


def _scan(db: Connection, keys: Sequence[BatchKey], extract: Callable[[Batch], T], damaged: list[BatchKey]) -> list[T]:
    chosen = "SELECT head FROM heads WHERE number = (SELECT number FROM batches WHERE hub = ? AND base = ?)"
    results: list[T] = []
    for key in keys:
        row = db.execute(chosen, (key.hub, key.base)).fetchone()
        if row is not None and (batch := batch_of(row[0])) is not None:
            results.append(extract(batch))
        elif row is not None:
            damaged.append(key)
    return results


def _texts(db: Connection, key: BatchKey, indexes: Sequence[int]) -> dict[int, CallTexts]:
    texts_by_index: dict[int, CallTexts] = {}
    for index in sorted(indexes, reverse=True):
        at = (key.hub, key.base, index)
        for start, end, body in db.execute(_TEXTS_AT, at).fetchall() if index not in texts_by_index else ():
            texts_by_index |= enumerate(texts_of_body(body, end - start), start)
    return texts_by_index


def _add_losses(db: Connection, losses: Sequence[LostCalls]) -> None:
    if losses:
        rows = [(loss.kind, loss.at, loss.hub, loss.count, loss.reason) for loss in losses]
        db.executemany("INSERT INTO losses (kind, at, hub, count, reason) VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("DELETE FROM losses WHERE number <= (SELECT max(number) FROM losses) - ?", (MOST_LOSSES,))


def _killed_hubs(db: Connection, hub_id: str, is_gone: Callable[[str], bool]) -> list[LostCalls]:
    runs = db.execute("SELECT hub, written FROM runs WHERE hub != ?", (hub_id,)).fetchall()
    return [LostCalls("killed", written, hub) for hub, written in runs if isinstance(hub, str) and is_gone(hub)]


def _remove(db: Connection, number: int) -> None:
    first = (number if 0 < number <= HIGHEST_NUMBER else 0) << _BITS  # others have no texts
    db.execute("DELETE FROM texts WHERE place >= ? AND place < ?", (first, first + (1 << _BITS)))
    db.execute("DELETE FROM heads WHERE number = ?", (number,))
    db.execute("DELETE FROM batches WHERE number = ?", (number,))


def _remove_running(db: Connection, bases: Collection[int]) -> None:
    rows = db.execute("SELECT number, base FROM batches WHERE base >= ?", (RUNNING,)).fetchall() if bases else ()
    for number in [number for number, base in rows if base in bases]:
        _remove(db, number)


def _prune(db: Connection, limits: HistoryLimits, now: float, coming: tuple[int, int] = (0, 0)) -> None:
    """Makes room for `coming` calls and bytes."""
    damaged, first_last, calls = db.execute(_STATE).fetchone()  # one look at the rows: each is slow to judge
    for (number,) in db.execute(_UNSOUND).fetchall() if damaged else ():
        _remove(db, number)
    calls, used = calls + coming[0], used_bytes(db) + coming[1]
    if calls < limits.calls and used <= limits.size and (first_last is None or first_last >= now - limits.keep):
        return
    oldest = db.execute(_OLDEST, (now - limits.keep, used > limits.size)).fetchall()
    for number, last, count in oldest:
        has_room = used <= limits.size or count == calls > 0  # the newest calls stay, however large
        if last >= now - limits.keep and calls - count < limits.calls and has_room:
            continue
        _remove(db, number)
        calls, used = calls - count, used_bytes(db) + coming[1]


def _shrink(db: Connection) -> None:
    db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if path := db.execute("PRAGMA database_list").fetchone()[2]:  # empty in memory
        remove_set_aside(Path(path))
