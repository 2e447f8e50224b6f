"""Classes of store failures, their SQLite errors and texts."""

import sqlite3
from pathlib import Path
from typing import Final, Literal

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError, StoreUnavailable
from mcp_hub.events import Failed
from mcp_hub.protocol.shape.stream_events import encoded, timestamp
from mcp_hub.stores.base import NO_ANSWER

Fault = Literal["corrupt", "moved", "full", "locked", "unusable", "busy", "unreachable"]
"""`corrupt`: a damaged file or not a database. `moved`: deleted or replaced, or its log. `full`: no space. `locked`: by
other processes for too long. `unusable`: no permission, or a newer hub's file. `busy`: too many pending writes.
`unreachable`: the server does not answer.
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
    """The store is unusable now; the stream and the request are valid."""

    is_outage = True

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def no_answer() -> StoreFault:
    """A server's silence."""
    return StoreFault("unreachable", NO_ANSWER)


def not_sent(row: StreamInfo, wall: float) -> bytes:
    """The last event of a stream whose beginning was not confirmed, so that nothing came of its call."""
    error = StoreUnavailable("The store had not confirmed that the call began. It was not sent.")
    return encoded(row.id, row.last + 1, timestamp(wall), Failed(error))


def faulty(error: sqlite3.Error | OSError, path: Path) -> StoreFault:
    """The `StoreFault` for an error of the file."""
    code = getattr(error, "sqlite_errorcode", 0)
    fault = _BY_CODE.get(code) or _BY_CODE.get(code & 0xFF, "unusable")
    return StoreFault(fault, f"store {path}: {error}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock: a retry makes sense."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def unfit(error: Exception) -> bool:
    """Whether the data is invalid, not the file."""
    return isinstance(error, (*_UNFIT, ValueError, OverflowError)) or (
        getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_TOOBIG
    )
