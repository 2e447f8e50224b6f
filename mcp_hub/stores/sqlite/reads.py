"""Reads from the file, as plain functions of a connection."""

from sqlite3 import Connection
from typing import Final

from mcp_hub.call import StreamInfo
from mcp_hub.stores.base import EventPage, SessionRow
from mcp_hub.stores.limits import PAGE_BYTES
from mcp_hub.stores.sqlite.schema import EXTRAS
from mcp_hub.types import CallId

_COLUMNS: Final = ", ".join(f"{'e' if name in EXTRAS else 's'}.{name}" for name in StreamInfo.__struct_fields__)
_ROWS: Final = f"SELECT {_COLUMNS}, s.number FROM streams s LEFT JOIN extras e ON e.stream = s.number WHERE "
_RUNNING: Final = _ROWS.replace("streams s", "streams s INDEXED BY streams_running")
_FOUND: Final = _ROWS + "s.id = ?"


def fetch(db: Connection, stream: CallId, after: int, most: int) -> EventPage | None:
    """A page and its row, from one state of the file."""
    db.execute("BEGIN")
    try:
        found = db.execute(_FOUND, (stream,)).fetchone()
        if found is None:
            return None
        *values, number = found
        row = StreamInfo(*values)
        start = max(after + 1, row.first)
        lines = _lines(db, number, start, max(most, 1))
        return EventPage(row, tuple(lines), start if lines else row.last + 1)
    finally:
        if db.in_transaction:  # an error may have ended it
            db.execute("ROLLBACK")


def _lines(db: Connection, number: int, start: int, most: int) -> list[bytes]:
    lines: list[bytes] = []
    room = PAGE_BYTES
    places = "SELECT first, body FROM chunks WHERE stream = ? AND last >= ? ORDER BY last"
    for first, body in db.execute(places, (number, start)):
        more = body.split(b"\n")
        if first < start:
            del more[: start - first]
        if len(body) <= room and len(lines) + len(more) <= most:
            lines += more
            room -= len(body)
            continue
        for line in more:
            room -= len(line)
            if lines and (len(lines) >= most or room < 0):
                return lines
            lines.append(line)
    return lines


def find(db: Connection, stream: CallId) -> StreamInfo | None:
    """The row of a stream."""
    found = db.execute(_FOUND, (stream,)).fetchone()
    return None if found is None else StreamInfo(*found[:-1])


def find_key(db: Connection, principal: str, key: str) -> StreamInfo | None:
    """The row of the stream that has this idempotency key, or one whose key continues it behind a line break."""
    # no key of a client has a character below the space: only those of further calls are between the two
    first = _ROWS + "s.principal = ? AND s.key >= ? AND s.key < ? ORDER BY s.key LIMIT 1"
    found = db.execute(first, (principal, key, f"{key}\v")).fetchone()
    return None if found is None else StreamInfo(*found[:-1])


def rows(db: Connection, principal: str | None, most: int) -> list[StreamInfo]:
    """The streams of a principal, of all for None; the newest first."""
    if principal is None:  # by number, which needs no index of its own
        found = db.execute(_ROWS + "1 ORDER BY s.number DESC LIMIT ?", (max(most, 0),))
    else:
        newest = _ROWS + "s.principal = ? ORDER BY s.created DESC, s.number DESC LIMIT ?"
        found = db.execute(newest, (principal, max(most, 0)))
    return [StreamInfo(*row[:-1]) for row in found]


def running(db: Connection) -> list[StreamInfo]:
    """The streams that have not ended, of any owner."""
    return [StreamInfo(*found[:-1]) for found in db.execute(_RUNNING + "s.expires IS NULL ORDER BY s.number")]


def has_messages(db: Connection, owner: str) -> bool:
    """Whether messages wait for streams of `owner`."""
    waiting = "SELECT 1 FROM letters l CROSS JOIN streams s ON s.number = l.stream WHERE s.owner = ? LIMIT 1"
    return db.execute(waiting, (owner,)).fetchone() is not None


def session(db: Connection, id_: str) -> SessionRow | None:
    """A stored session."""
    found = db.execute("SELECT id, principal, body, expires FROM sessions WHERE id = ?", (id_,)).fetchone()
    return None if found is None else SessionRow(*found)
