"""Reads as functions of a connection; a damaged row counts as missing and goes to `damaged`."""

import math
from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Connection
from typing import Any, Final, get_args

from mcp_hub.call import StreamInfo
from mcp_hub.stores.base import PAGE_BYTES, EventPage, SessionRow, damage
from mcp_hub.stores.sqlite.schema import EXTRAS
from mcp_hub.types import CallId, Status

Damaged = Callable[[int, str], None]
"""Given the number of a row and the reason."""

_COLUMNS: Final = ", ".join(f"{'e' if name in EXTRAS else 's'}.{name}" for name in StreamInfo.__struct_fields__)
ROWS: Final = f"SELECT {_COLUMNS}, s.number FROM streams s LEFT JOIN extras e ON e.stream = s.number WHERE "
_RUNNING: Final = ROWS.replace("streams s", "streams s INDEXED BY streams_running")
_FOUND: Final = ROWS + "s.id = ?"
_OPTIONAL: Final = type(None)
_NUMBERS: Final = dict.fromkeys(("created", "updated", "ttl"), (float, int)) | {"expires": (float, int, _OPTIONAL)}
_INTEGERS: Final = dict.fromkeys(("epoch", "first", "last"), (int,))
_TEXTS: Final = dict.fromkeys(("message", "key"), (str, _OPTIONAL)) | dict.fromkeys(EXTRAS, (bytes, _OPTIONAL))
_TYPES: Final = [(name, (_NUMBERS | _INTEGERS | _TEXTS).get(name, (str,))) for name in StreamInfo.__struct_fields__]
"""Types that the hub writes in each column; SQLite allows any."""
_STATUSES: Final = frozenset(get_args(Status))


def row_of(values: Sequence[Any]) -> StreamInfo | str:
    """The row, or the reason for its damage."""
    for (name, types), value in zip(_TYPES, values, strict=True):
        if type(value) not in types:
            return f"{name} is of another type"
    row = StreamInfo(*values)
    return damage(row) or ("" if row.status in _STATUSES else "its status is unknown") or row


def _sound(records: Iterable[Sequence[Any]], damaged: Damaged) -> list[StreamInfo]:
    rows: list[StreamInfo] = []
    for *values, number in records:
        row = row_of(values)
        if isinstance(row, str):
            damaged(number, row)
        else:
            rows.append(row)
    return rows


def fetch(db: Connection, stream: CallId, after: int, limit: int, damaged: Damaged) -> EventPage | None:
    """A page and its row, from one snapshot."""
    db.execute("BEGIN")
    try:
        record = db.execute(_FOUND, (stream,)).fetchone()
        if record is None:
            return None
        if not (rows := _sound([record], damaged)):
            return None
        row, number = rows[0], record[-1]
        lines, start = _lines(db, number, max(after + 1, row.first), max(limit, 1))
        return EventPage(row, tuple(lines), start if lines else row.last + 1)
    finally:
        if db.in_transaction:  # an error may have ended it
            db.execute("ROLLBACK")


def _lines(db: Connection, number: int, start: int, limit: int) -> tuple[list[bytes], int]:
    lines: list[bytes] = []
    room = PAGE_BYTES
    places = "SELECT first, last, body FROM chunks WHERE stream = ? AND last >= ? ORDER BY last"
    for first, last, body in db.execute(places, (number, start)):
        if not is_chunk(first, last, body):
            continue
        if first > start + len(lines):
            if lines:
                return lines, start
            start = first
        more = body.split(b"\n")
        if first < start + len(lines):
            del more[: start + len(lines) - first]
        if len(body) <= room and len(lines) + len(more) <= limit:
            lines += more
            room -= len(body)
            continue
        for line in more:
            room -= len(line)
            if lines and (len(lines) >= limit or room < 0):
                return lines, start
            lines.append(line)
    return lines, start


def is_chunk(first: object, last: object, body: object) -> bool:
    """Whether the columns are a valid chunk."""
    if type(first) is not int or type(last) is not int or type(body) is not bytes:
        return False
    return body.count(b"\n") == last - first


def find(db: Connection, stream: CallId, damaged: Damaged) -> StreamInfo | None:
    return next(iter(_sound(db.execute(_FOUND, (stream,)).fetchall(), damaged)), None)


def find_key(db: Connection, principal: str, key: str, damaged: Damaged) -> StreamInfo | None:
    r"""The row with this key, else with `KEY\n…`."""
    # no key of a client has a character below the space: only those of further calls are between the two
    first = ROWS + "s.principal = ? AND s.key >= ? AND s.key < ? ORDER BY s.key LIMIT 1"
    return next(iter(_sound(db.execute(first, (principal, key, f"{key}\v")).fetchall(), damaged)), None)


def rows(db: Connection, principal: str | None, limit: int, damaged: Damaged) -> list[StreamInfo]:
    """Newest first."""
    if principal is None:  # by number, which needs no index of its own
        records = db.execute(ROWS + "1 ORDER BY s.number DESC LIMIT ?", (max(limit, 0),))
    else:
        newest = ROWS + "s.principal = ? ORDER BY s.created DESC, s.number DESC LIMIT ?"
        records = db.execute(newest, (principal, max(limit, 0)))
    return _sound(records, damaged)


def running(db: Connection, damaged: Damaged) -> list[StreamInfo]:
    return _sound(db.execute(_RUNNING + "s.expires IS NULL ORDER BY s.number"), damaged)


def has_messages(db: Connection, owner: str) -> bool:
    """Whether messages wait for `owner`."""
    waiting = "SELECT 1 FROM messages m CROSS JOIN streams s ON s.number = m.stream WHERE s.owner = ? LIMIT 1"
    return db.execute(waiting, (owner,)).fetchone() is not None


def session(db: Connection, id_: str) -> SessionRow | None:
    """None also for a damaged record."""
    record = db.execute("SELECT id, principal, body, expires FROM sessions WHERE id = ?", (id_,)).fetchone()
    if record is None or [type(value) for value in record] != [str, str, bytes, float]:
        return None
    session = SessionRow(*record)
    return session if 0 <= session.expires < math.inf else None
