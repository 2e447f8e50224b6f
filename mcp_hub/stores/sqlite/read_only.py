"""Reads a file of streams on a full disk or in a read-only folder.

A file without a write-ahead log is opened as `immutable`, checked around each read.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mcp_hub.stores.faults import StoreFault, faulty
from mcp_hub.stores.sqlite.schema import FileConnection, FileFormat, closed_on_failure, is_ours, set_specials_aside
from mcp_hub.stores.sqlite.transactions import ReadTransactions
from mcp_hub.stores.sqlite.worker import Job

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

    def work(self, jobs: Sequence[Job]) -> list[Any]:
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
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{query}", uri=True, isolation_level=None, factory=FileConnection
        )
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
