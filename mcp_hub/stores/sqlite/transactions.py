"""Work of a store's writing and reading thread.

Pending writes share a transaction, synced if one is vital. After a failed job the others run again.

On a full disk or in a read-only folder a file is only read; without a write-ahead log it is opened as `immutable`,
checked around each read.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault, faulty, is_busy, unfit
from mcp_hub.stores.locks import aside_of
from mcp_hub.stores.sqlite.quarantine import Identity, Tenancy, identities, identity, moved
from mcp_hub.stores.sqlite.schema import (
    STREAMS,
    FileFormat,
    closed_on_failure,
    connect,
    is_ours,
    opened,
    prepare,
    set_specials_aside,
)
from mcp_hub.stores.sqlite.worker import Job

_PATIENCE: Final = 5.0
"""Seconds for which other processes may hold the file before a batch is given up."""
_NOTED: Final = 1024
"""Damaged rows that are remembered."""
_LOOK: Final = 0.25
"""Seconds between two looks whether the file and its log are still the open ones."""
_PAUSE: Final = 0.005
"""Seconds between two tries: some locks SQLite does not wait for."""

log = get_logger(__name__)


class _Transactions:
    def __init__(self, path: Path, clock: Clock, format_: FileFormat = STREAMS) -> None:
        self._path = path
        self._clock = clock
        self._format = format_
        self._connection: sqlite3.Connection | None = None
        self.identity: Identity | None = None
        """The open file's device and inode."""
        self.opened: dict[str, Identity] = {}
        """Identities of the open file, its log and the index of that."""
        self.is_closing = threading.Event()
        """Set from outside: be quick now, do not wait for other processes."""

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def open(self) -> None:
        try:
            connection = connect(self._path)
        finally:
            self.identity = identity(self._path)
        with closed_on_failure(connection, self._path):
            self._patiently(lambda: prepare(connection, self._path, self._format))
        self._connection, self.opened = connection, identities(self._path)

    def close(self) -> None:
        try:
            self._db.close()
        except sqlite3.Error as error:
            log.warning("store_close_failed", store=str(self._path), reason=str(error))

    def _patiently(self, do: Callable[[], object]) -> None:
        until = self._clock.now() + _PATIENCE
        while True:
            try:
                do()
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or self._clock.now() >= until or self.is_closing.wait(_PAUSE):
                    raise

    def _failure(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        if unfit(error):
            return StoreError(f"store {self._path}: cannot be stored: {error}")
        if isinstance(error, sqlite3.Error | OSError):
            return faulty(error, self._path)
        log.error("store_job_failed", store=str(self._path), exc_info=error)
        return StoreError(f"store {self._path}: {type(error).__name__}: {error}")


class ReadTransactions(_Transactions):
    """Reads without waiting for writers; collects damaged rows."""

    def __init__(self, path: Path, clock: Clock, format_: FileFormat = STREAMS) -> None:
        super().__init__(path, clock, format_)
        self._damaged: set[int] = set()
        self._earlier_note = ""

    def note(self, number: int, reason: str) -> None:
        """Runs in the thread."""
        if number not in self._damaged and len(self._damaged) < _NOTED:
            self._damaged.add(number)
            log.warning("record_damaged", store=str(self._path), row=number, reason=reason)

    def noted(self) -> list[int]:
        """Damaged rows since the last call."""
        noted, self._damaged = self._damaged, set()
        return list(noted)

    def open(self) -> None:
        super().open()
        self._earlier_note = Tenancy(self._path).noted
        self._db.execute("PRAGMA query_only = ON")

    def rescue(self, db: sqlite3.Connection) -> None:
        """Writes a deleted or replaced log to the file, which no process may be writing to; opens it anew.

        Raises `StoreFault`, `sqlite3.Error`, `OSError`.
        """
        log_path = self._path.with_name(self._path.name + "-wal")
        if log_path.name in moved(self._path, self.opened) and log_path.exists() and log_path.stat().st_size:
            aside = aside_of(log_path)
            log_path.rename(aside)
            log.error("store_log_set_aside", store=str(self._path), file=aside)
        is_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise StoreFault("moved", f"store {self._path}: its log was deleted or replaced, and somebody reads it")
        log.warning("store_log_rescued", store=str(self._path))
        Tenancy(self._path).note(f"{sorted(self.opened.items())} {os.urandom(8).hex()}")  # inodes are used again
        self.renew(db)

    def was_rescued(self, note: str) -> bool:
        """Whether another process has rescued this log, as its note says."""
        return note != self._earlier_note and note.startswith(f"{sorted(self.opened.items())} ")

    def renew(self, db: sqlite3.Connection) -> None:
        """Raises `StoreFault`."""
        db.close()
        self.open()

    def work(self, jobs: Sequence[Job]) -> list[object]:
        return [self._run_job(job) for job in jobs]

    def _run_job(self, job: Job) -> object:
        try:
            return job.run(self._db)
        except Exception as error:
            return self._failure(error)


class WriteTransactions(_Transactions):
    """Writes, and holds the shared lock on the file. `watches`: fails once the file or its log was moved."""

    def __init__(self, path: Path, clock: Clock, format_: FileFormat = STREAMS, *, watches: bool = False) -> None:
        super().__init__(path, clock, format_)
        self._watches = watches
        self._tenancy = Tenancy(path)
        self._is_full_sync = False
        self._looked = 0.0
        self._moved: list[str] = []

    def open(self) -> None:
        until = self._clock.now() + _PATIENCE
        try:
            if not self._tenancy.begin(lambda: self._clock.now() >= until or self.is_closing.wait(_PAUSE)):
                raise StoreFault("locked", f"store {self._path}: another process is repairing it")
            super().open()
        except OSError as error:
            raise faulty(error, self._path) from error
        except BaseException:
            self._tenancy.end()
            raise
        self._looked, self._moved, self._is_full_sync = self._clock.now(), [], False

    def close(self) -> None:
        super().close()
        self._tenancy.end()

    def work(self, jobs: Sequence[Job]) -> list[object]:
        if self._watches and not self._moved and self._clock.now() - self._looked >= _LOOK:
            self._looked, self._moved = self._clock.now(), moved(self._path, self.opened)
        if self._moved:
            names = " and ".join(self._moved)
            return [StoreFault("moved", f"store {self._path}: {names}: deleted or replaced")] * len(jobs)
        results: dict[int, object] = {}
        while pending := [(number, job) for number, job in enumerate(jobs) if number not in results]:
            results.update(self._commit(pending))
        return [results[number] for number in range(len(jobs))]

    def _commit(self, jobs: list[tuple[int, Job]]) -> dict[int, object]:
        """All results; or one failure, and nothing committed."""
        results: dict[int, object] = {}
        writes = any(job.writes for _, job in jobs)
        try:
            if writes:
                self._begin(any(job.is_vital for _, job in jobs))
            for number, job in jobs:
                try:
                    results[number] = job.run(self._db)
                except StoreFault:
                    raise
                except StoreError as error:  # has written nothing
                    results[number] = error
                except Exception as error:
                    if isinstance(error, sqlite3.Error) and not unfit(error):
                        raise
                    self._roll_back()
                    return {number: self._failure(error)}
            if writes:
                self._db.execute("COMMIT")
            return results
        except Exception as error:
            self._roll_back()
            failure = self._failure(error)
            return {number: failure for number, _ in jobs}

    def _begin(self, is_vital: bool) -> None:
        if is_vital is not self._is_full_sync:
            self._db.execute(f"PRAGMA synchronous = {'FULL' if is_vital else 'NORMAL'}")
            self._is_full_sync = is_vital
        self._patiently(lambda: self._db.execute("BEGIN IMMEDIATE"))

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error as error:
                log.warning("store_rollback_failed", store=str(self._path), reason=str(error))


_TRIES: Final = 5
_State = tuple[int, int, int, int]


class ReadOnlyTransactions(ReadTransactions):
    """Never writes or creates a file."""

    _seen: _State | None = None
    """The file as it was opened without its log; None if SQLite itself sees to changes."""

    def open(self) -> None:
        try:
            connection, self._seen = _look(self._path, self._format, "mode=ro"), None
        except StoreFault:
            if (seen := _without_log(self._path)) is None:
                raise
            connection, self._seen = _look(self._path, self._format, "mode=ro&immutable=1"), seen
        self._connection = connection

    def work(self, jobs: Sequence[Job]) -> list[object]:
        fault: StoreFault = StoreFault("locked", f"store {self._path}: is being written")
        for _ in range(_TRIES):
            if self._is_current():
                results = super().work(jobs)
                if self._is_current():
                    return results
            try:
                self._renew()
            except StoreFault as problem:
                fault = problem
        return [fault] * len(jobs)

    def _is_current(self) -> bool:
        return self._seen is None or self._seen == _without_log(self._path)

    def _renew(self) -> None:
        old = self._db
        self.open()
        old.close()


def _look(path: Path, format_: FileFormat, query: str) -> sqlite3.Connection:
    try:
        set_specials_aside(path)
        connection = opened(f"{path.absolute().as_uri()}?{query}", uri=True)
    except (sqlite3.Error, OSError) as error:
        raise faulty(error, path) from error
    with closed_on_failure(connection, path):
        connection.execute("PRAGMA query_only = ON")
        if not is_ours(connection, path, format_):
            raise StoreFault("unusable", f"store {path}: is empty")
    return connection


def _without_log(path: Path) -> _State | None:
    """None for a file with a log."""
    log = path.with_name(path.name + "-wal")
    try:
        if log.exists() and log.stat().st_size:
            return None
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
