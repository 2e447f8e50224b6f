"""Writes as functions of a connection inside a transaction. After a `StoreError` nothing is written."""

from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Connection, Cursor, IntegrityError
from typing import Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import KeyTaken, StoreError
from mcp_hub.masking import hide_head
from mcp_hub.stores.base import (
    ENDINGS,
    MAX_MESSAGES,
    Change,
    Chunk,
    Message,
    SessionRow,
    StoreLimits,
    begin,
    expiry,
    is_wanted,
    joined,
    refuse,
    surplus,
    unknown,
)
from mcp_hub.stores.sqlite.reads import ROWS, row_of
from mcp_hub.stores.sqlite.schema import EXTRAS, QUARANTINE
from mcp_hub.types import CallId

_SLICE: Final = 64
"""Streams that are deleted in one transaction, so that appends need not wait for long."""
_TRIAL: Final = 1 << 16
"""Bytes of a write that only tries whether the disk has room."""
_PAGES: Final = 1024
"""Free pages that one transaction gives back to the file system."""

_SET_ASIDE: Final = 64
"""Damaged rows that are kept."""
_SHOWN: Final = 65_536
_SHOWN_ID: Final = 80
"""Characters that are kept of a damaged row, and of its id in the log."""

_PLAIN: Final = tuple(name for name in StreamInfo.__struct_fields__ if name not in EXTRAS)
_CREATE: Final = f"INSERT INTO streams ({', '.join(_PLAIN)}, bytes) VALUES ({'?, ' * len(_PLAIN)}0)"
_HEAD: Final = "SELECT number, epoch, first, last, bytes, ttl, expires FROM streams WHERE id = ?"
_CHANGE: Final = """
UPDATE streams SET last = ?, bytes = bytes + ?, updated = ?, status = coalesce(?, status),
    message = coalesce(?, message), ttl = coalesce(?, ttl), key = iif(?, NULL, key), expires = ? WHERE number = ?
"""
_RUNS_ON: Final = """
UPDATE streams SET last = ?, bytes = bytes + ?, updated = ?, status = coalesce(?, status),
    message = coalesce(?, message) WHERE number = ?
"""
"""For a stream that runs on: it is in no index by one of these columns."""
_AS_LEFT: Final = f"{_RUNS_ON.rstrip()} AND id = ? AND epoch = ? AND last = ? AND expires IS NULL"
"""Changes nothing unless the stream is as an append has left it."""
_MOST_HEADS: Final = 16_384
"""Running streams that are remembered."""
_EXTRA: Final = """
INSERT INTO extras (stream, continuation, info) VALUES (?, ?, ?) ON CONFLICT (stream) DO UPDATE
    SET continuation = coalesce(excluded.continuation, continuation), info = coalesce(excluded.info, info)
"""
_CHUNK: Final = "INSERT INTO chunks (stream, first, last, body) VALUES (?, ?, ?, ?)"


_TIMES: Final = frozenset((float, type(None)))


class _Head(msgspec.Struct, frozen=True, gc=False):
    number: int
    epoch: int
    first: int
    last: int
    bytes: int
    ttl: float
    expires: float | None

    @property
    def has_ended(self) -> bool:
        return self.expires is not None


def create(db: Connection, row: StreamInfo, chunk: Chunk) -> None:
    """Raises `KeyTaken`; `StoreError` for an existing id."""
    row, body = begin(row, chunk), joined(chunk)
    values = [getattr(row, name) for name in _PLAIN]
    try:
        number = db.execute(_CREATE, values).lastrowid
    except IntegrityError as error:
        if _head(db, row.id) is None and row.key is not None:
            raise KeyTaken(f"idempotency key {row.key!r} is in use") from error
        raise StoreError(f"stream {row.id}: cannot be added: {error}") from error
    if row.continuation is not None or row.info is not None:
        db.execute(_EXTRA, (number, row.continuation, row.info))
    if chunk.lines:
        db.execute(_CHUNK, (number, chunk.first, chunk.last, body))
        db.execute("UPDATE streams SET bytes = ? WHERE number = ?", (len(body), number))


Heads = dict[CallId, _Head]
"""Running streams as an append has left them, which the file confirms before the next one."""
Append = tuple[CallId, int, Chunk, Change]
"""A stream, the epoch of its owner, new events, and the columns that change."""
_ChunkRow = tuple[int, int, int, bytes]


def append(heads: Heads, limits: StoreLimits, db: Connection, appends: Iterable[Append]) -> list[StoreError | None]:
    """The errors of those that cannot be made, such as `Fenced`; all others are."""
    cursor = db.cursor()
    errors: list[StoreError | None] = []
    rows: list[_ChunkRow] = []
    for each in appends:
        try:
            rows += _appended(heads, limits, cursor, *each)
            errors.append(None)
        except StoreError as error:
            errors.append(error)
    cursor.executemany(_CHUNK, rows)
    return errors


def _appended(
    heads: Heads, limits: StoreLimits, db: Cursor, stream: CallId, epoch: int, chunk: Chunk, change: Change
) -> tuple[_ChunkRow, ...]:
    """The row of `chunks` that is missing yet, if the stream runs on."""
    body = joined(chunk)
    head = heads.pop(stream, None)
    missing: tuple[_ChunkRow, ...] = ()
    may_continue = head is not None and chunk.first == head.last + 1 and epoch == head.epoch
    if head is not None and may_continue and _runs_on(head, limits, chunk, len(body), change):
        changes = chunk.last, len(body), change.updated, change.status, change.message
        if db.execute(_AS_LEFT, (*changes, head.number, stream, epoch, head.last)).rowcount == 1:
            missing = ((head.number, chunk.first, chunk.last, body),)
            _put_extras(db, head.number, change)
    if head is None or not missing:
        head = _head(db, stream)
        if head is None:
            raise unknown(stream)
        refuse(stream, head, epoch, chunk)
        _grow(db, limits, head, chunk, change)
        if not _runs_on(head, limits, chunk, len(body), change):
            return ()
    if len(heads) >= _MOST_HEADS:  # some of streams that were lost, which nothing takes away
        heads.clear()
    heads[stream] = msgspec.structs.replace(head, last=chunk.last, bytes=head.bytes + len(body))
    return missing


def _runs_on(head: _Head, limits: StoreLimits, chunk: Chunk, size: int, change: Change) -> bool:
    """Whether the stream only grows, by less than would be trimmed."""
    is_plain = change.status not in ENDINGS and change.ttl is None and not change.frees_key
    has_room = chunk.last - head.first < limits.stream_events and head.bytes + size < limits.stream_bytes
    return is_plain and has_room and bool(chunk.lines)


def _put_extras(db: Connection | Cursor, number: int, change: Change) -> None:
    if change.continuation is not None or change.info is not None:
        db.execute(_EXTRA, (number, change.continuation, change.info))


def _head(db: Connection | Cursor, stream: CallId) -> _Head | None:
    record = db.execute(_HEAD, (stream,)).fetchone()
    if record is None:
        return None
    head = _Head(*record)
    if (
        type(head.number) is not int or type(head.epoch) is not int or type(head.first) is not int
        or type(head.last) is not int or type(head.bytes) is not int or type(head.ttl) is not float
        or type(head.expires) not in _TIMES
    ):  # fmt: skip
        raise StoreError(f"stream {stream}: its record is damaged")
    return head


def _grow(db: Connection | Cursor, limits: StoreLimits, head: _Head, chunk: Chunk, change: Change) -> None:
    body, last, number = joined(chunk), head.last, head.number
    if chunk.lines:
        last = chunk.last
        db.execute(_CHUNK, (number, chunk.first, last, body))
    expires = expiry(change, head.ttl)
    changes = change.updated, change.status, change.message
    if expires is None and change.ttl is None and not change.frees_key:
        db.execute(_RUNS_ON, (last, len(body), *changes, number))
    else:
        more = change.ttl, change.frees_key, expires
        db.execute(_CHANGE, (last, len(body), *changes, *more, number))
    _put_extras(db, number, change)
    if expires is not None:
        db.execute("DELETE FROM messages WHERE stream = ?", (number,))
    if last - head.first >= limits.stream_events or head.bytes + len(body) > limits.stream_bytes:
        _trim(db, limits, number)


def _trim(db: Connection | Cursor, limits: StoreLimits, number: int) -> None:
    ranges = "SELECT first, last, length(body) FROM chunks WHERE stream = ? ORDER BY last"
    chunks = db.execute(ranges, (number,)).fetchall()
    sizes = [(last - first + 1, size) for first, last, size in chunks]
    gone = surplus(sizes, limits.stream_events, limits.stream_bytes)
    if gone:
        first, freed = chunks[gone][0], sum(size for _, size in sizes[:gone])
        db.execute("DELETE FROM chunks WHERE stream = ? AND last < ?", (number, first))
        db.execute("UPDATE streams SET first = ?, bytes = bytes - ? WHERE number = ?", (first, freed, number))


def claim(
    db: Connection, limits: StoreLimits, row: StreamInfo, owner: str, lines: Sequence[bytes], change: Change
) -> bool:
    """Whether `owner` got the stream, with the lines."""
    chunk = Chunk(row.last + 1, tuple(lines))
    joined(chunk)
    taken = db.execute(
        "UPDATE streams SET owner = ?, epoch = epoch + 1 WHERE id = ? AND epoch = ? AND last = ? AND expires IS NULL",
        (owner, row.id, row.epoch, row.last),
    )
    head = _head(db, row.id) if taken.rowcount else None
    if head is None:
        return False
    _grow(db, limits, head, chunk, change)
    return True


def post(db: Connection, message: Message) -> bool:
    """Whether the stream runs. Raises `StoreError` for too many messages."""
    head = _head(db, message.stream)
    if head is None or head.has_ended:
        return False
    waiting = [kind for (kind,) in db.execute("SELECT kind FROM messages WHERE stream = ?", (head.number,))]
    if is_wanted(message, waiting, MAX_MESSAGES):
        row = head.number, message.kind, message.body
        db.execute("INSERT INTO messages (stream, kind, body) VALUES (?, ?, ?)", row)
    return True


def take_messages(db: Connection, owner: str) -> list[Message]:
    """Removes and returns the owner's messages."""
    records = db.execute(
        "SELECT m.number, s.id, m.kind, m.body FROM messages m CROSS JOIN streams s ON s.number = m.stream"
        " WHERE s.owner = ? ORDER BY m.number",
        (owner,),
    ).fetchall()
    db.executemany("DELETE FROM messages WHERE number = ?", [(number,) for number, *_ in records])
    return [Message(stream, kind, body) for _, stream, kind, body in records if _is_message(stream, kind, body)]


def _is_message(stream: object, kind: object, body: object) -> bool:
    return isinstance(stream, str) and kind in ("cancel", "input", "touch") and isinstance(body, bytes)


def set_aside(db: Connection, numbers: Iterable[int], is_gone: Callable[[str], bool]) -> dict[str, str]:
    """Moves gone owners' damaged rows to a table of the newest 64; reasons by id."""
    moved: dict[str, str] = {}
    for number in numbers:
        record = db.execute(f"{ROWS}s.number = ?", (number,)).fetchone()
        reason = "" if record is None else row_of(record[:-1])
        if record is None or not isinstance(reason, str) or (type(record[2]) is str and not is_gone(record[2])):
            continue
        db.execute(QUARANTINE)
        db.execute("INSERT OR REPLACE INTO damaged VALUES (?, ?, ?)", (number, reason, hide_head(repr(record), _SHOWN)))
        db.execute("UPDATE OR REPLACE chunks SET stream = -stream WHERE stream = ?", (number,))
        for table, column in (("extras", "stream"), ("messages", "stream"), ("streams", "number")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
        moved[hide_head(str(record[0]), _SHOWN_ID)] = reason
    if moved:
        old = "SELECT number FROM damaged ORDER BY number DESC LIMIT -1 OFFSET ?"
        for (number,) in db.execute(old, (_SET_ASIDE,)).fetchall():
            db.execute("DELETE FROM chunks WHERE stream = ?", (-number,))
            db.execute("DELETE FROM damaged WHERE number = ?", (number,))
    return moved


def sweep(db: Connection, limits: StoreLimits, now: float) -> int:
    """Deletes some expired or surplus streams; how many, 0 at the end."""
    db.execute("DELETE FROM sessions WHERE expires <= ?", (now,))
    (ended,) = db.execute("SELECT count(*) FROM streams WHERE expires IS NOT NULL").fetchone()
    many = ended - limits.ended
    if used_bytes(db) > limits.total_bytes:
        many = max(many, 1)
    old = db.execute("SELECT number FROM streams WHERE expires <= ? LIMIT ?", (now, _SLICE)).fetchall()
    if not old and many > 0:
        oldest = "SELECT number FROM streams WHERE expires IS NOT NULL ORDER BY updated LIMIT ?"
        old = db.execute(oldest, (min(many, _SLICE),)).fetchall()
    for table, column in (("chunks", "stream"), ("extras", "stream"), ("messages", "stream"), ("streams", "number")):
        db.executemany(f"DELETE FROM {table} WHERE {column} = ?", old)
    if old:
        give_back(db)
    return len(old)


def give_back(db: Connection) -> None:
    """Returns free pages to the file system."""
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, _PAGES)):
        db.execute("PRAGMA incremental_vacuum")  # `sqlite3` steps through one page of it each time


def used_bytes(db: Connection) -> int:
    """Size of the file without free pages."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return int((pages - free) * size)


def touch(db: Connection) -> None:
    """A test write large enough to notice a full disk."""
    db.execute("INSERT INTO sessions (id, principal, body, expires) VALUES ('', '', zeroblob(?), 0)", (_TRIAL,))
    db.execute("DELETE FROM sessions WHERE id = ''")


def put_session(db: Connection, limits: StoreLimits, session: SessionRow) -> None:
    """Over the limit the session that expires first goes."""
    db.execute(
        "INSERT OR REPLACE INTO sessions (id, principal, body, expires) VALUES (?, ?, ?, ?)",
        (session.id, session.principal, session.body, session.expires),
    )
    (count,) = db.execute("SELECT count(*) FROM sessions").fetchone()
    if count > limits.sessions:
        first = "SELECT id FROM sessions WHERE id != ? ORDER BY expires LIMIT ?"
        db.execute(f"DELETE FROM sessions WHERE id IN ({first})", (session.id, count - limits.sessions))


def drop_session(db: Connection, id_: str) -> None:
    db.execute("DELETE FROM sessions WHERE id = ?", (id_,))
