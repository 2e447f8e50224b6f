"""Faults of a file of streams, in four classes, and the errors of SQLite that belong to each."""

import sqlite3
from pathlib import Path
from typing import Final, Literal

from mcp_hub.errors import StoreError

Fault = Literal["corrupt", "full", "locked", "unusable", "busy", "away"]
"""`corrupt`: the file is damaged or no database. `full`: nothing more can be written. `locked`: other processes hold it
for too long. `unusable`: it may not be opened or written, or a newer hub made it. `busy`: too much waits to be written.
`away`: the server of the store does not answer.
"""

_BY_CODE: Final[dict[int, Fault]] = {
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
    sqlite3.SQLITE_IOERR_SHORT_READ: "corrupt",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_IOERR: "full",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
}
_UNFIT: Final = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class StoreFault(StoreError):
    """The file cannot be used (now); the stream and what was asked for are all right."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def faulty(error: sqlite3.Error | OSError, path: Path) -> StoreFault:
    """The fault of the file behind an error."""
    code = getattr(error, "sqlite_errorcode", 0)
    fault = _BY_CODE.get(code) or _BY_CODE.get(code & 0xFF, "unusable")
    return StoreFault(fault, f"store {path}: {error}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock, so that trying again makes sense."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def unfit(error: Exception) -> bool:
    """Whether what was to be written is at fault, not the file: text that is none, a number or a body too large."""
    return isinstance(error, (*_UNFIT, ValueError, OverflowError)) or (
        getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_TOOBIG
    )
