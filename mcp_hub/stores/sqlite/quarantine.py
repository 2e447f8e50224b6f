"""Damaged files: set aside while no hub writes to them, and searched for sessions and whole streams.

Writers hold a shared lock on `<file>.lock`, a rename an exclusive one.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.locks import aside_of, lock_file, take
from mcp_hub.stores.sqlite.reads import is_chunk
from mcp_hub.stores.sqlite.schema import COMPANIONS, connect, opened, prepare

_CARRY_MS: Final = 5000
"""Milliseconds that a stream waits for other hubs that write to the file."""


class Tenancy:
    """This process's lock on the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._lock: int | None = None

    def begin(self, is_over: Callable[[], bool]) -> bool:
        """Takes the shared lock, waiting until `is_over`. Raises `OSError`."""
        make_folder(self._path.parent)
        lock = lock_file(self._path)
        while not take(lock, shared=True):
            if is_over():
                os.close(lock)
                return False
        self._lock = lock
        return True

    def end(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def note(self, text: str) -> None:
        """Leaves a text for waiting processes. Raises `OSError`."""
        self._path.write_text(text)

    @property
    def noted(self) -> str:
        """Empty without any."""
        try:
            return self._path.read_text()
        except (OSError, ValueError):
            return ""

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether the exclusive lock is held in the body. Raises `OSError`."""
        lock = lock_file(self._path)
        try:
            yield take(lock, shared=False)
        finally:
            os.close(lock)


Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Device and inode; None for a missing file."""
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def identities(path: Path) -> dict[str, Identity]:
    """Identities of the file, its log and the index of that, by ending. SQLite keeps them while they are open."""
    inodes = {end: identity(path.with_name(path.name + end)) for end in ("", *COMPANIONS[:2])}
    return {end: inode for end, inode in inodes.items() if inode is not None}


def moved(path: Path, inodes: dict[str, Identity]) -> list[str]:
    """The names of those files that were deleted or replaced since."""
    return [path.name + end for end, inode in inodes.items() if _is_moved(f"{path}{end}", inode)]


def _is_moved(path: str, inode: Identity) -> bool:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (status.st_dev, status.st_ino) != inode


def set_aside(path: Path) -> Path:
    """Renames file and companions to `<file>.corrupt-<time>`, inside `alone`. Raises `OSError`."""
    aside = Path(aside_of(path))
    path.rename(aside)
    for companion in COMPANIONS:
        beside = path.with_name(path.name + companion)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + companion))
    return aside


def remove_set_aside(path: Path) -> None:
    """Removes all that was set aside of this file. Raises `OSError`."""
    for aside in path.parent.glob(f"{escape(path.name)}.corrupt-*"):
        if not aside.is_dir():
            aside.unlink(missing_ok=True)


_Tables = dict[str, list[Any]]
"""Rows of a stream by table."""
_STREAM: Final = "SELECT * FROM streams WHERE number = ?"
_RANGE: Final = "SELECT first, last FROM streams WHERE number = ?"
_EXTRAS: Final = "SELECT * FROM extras WHERE stream = ?"
_MESSAGES: Final = "SELECT * FROM messages NOT INDEXED WHERE stream = ?"
_CHUNKS: Final = "SELECT stream, first, last, body FROM chunks {} WHERE stream = ? ORDER BY last"
_BY_TABLE: Final = "NOT INDEXED ORDER BY number"
_BY_INDEX: Final = "INDEXED BY streams_newest WHERE principal >= '' ORDER BY principal"


def salvage(source: Path, target: Path, is_over: Callable[[], bool]) -> tuple[int, int, bool]:
    """Copies to a new file at `target` until `is_over`; both files must be unused.

    The numbers of copied and unreadable streams, and whether there cannot have been more. Raises `sqlite3.Error`,
    `StoreFault` for the target.
    """
    new = connect(target)
    try:
        prepare(new, target)
        old = opened(source)
        try:
            old.execute("PRAGMA writable_schema = ON")  # a file that is too short is read anyway
            return _copy(old, new, is_over)
        except sqlite3.DatabaseError:
            return 0, 0, False
        finally:
            old.close()
    finally:
        new.close()


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, is_over: Callable[[], bool]) -> tuple[int, int, bool]:
    copied = unreadable = 0
    numbers, is_all = _numbers(old)
    sessions, _ = _readable(old, "SELECT * FROM sessions")
    for number in numbers:
        if is_over():
            return copied, unreadable, False
        stream = _stream(old, number)
        if stream is None or not _write(new, stream):
            unreadable += 1
        else:
            copied += 1
    _write(new, {"sessions": sessions})
    return copied, unreadable, is_all


def _numbers(old: sqlite3.Connection) -> tuple[list[int], bool]:
    """A damaged table is read by table and index, from both ends."""
    numbers: set[int] = set()
    is_all = False
    for index in (_BY_TABLE, _BY_INDEX):
        for order in ("DESC", "ASC"):
            rows, is_whole = _readable(old, f"SELECT number FROM streams {index} {order}")
            numbers.update(number for (number,) in rows)
            is_all = is_all or is_whole
    return sorted(numbers, reverse=True), is_all


def _readable(old: sqlite3.Connection, query: str, *values: int) -> tuple[list[Any], bool]:
    rows: list[Any] = []
    try:
        for row in old.execute(query, values):
            rows.append(row)  # noqa: PERF402  what came before an error counts
    except sqlite3.DatabaseError:
        return rows, False
    return rows, True


def _stream(old: sqlite3.Connection, number: int) -> _Tables | None:
    """None if an event is missing."""
    rows, _ = _readable(old, _STREAM, number)
    ranges, _ = _readable(old, _RANGE, number)
    for index in ("", "NOT INDEXED"):
        chunks, _ = _readable(old, _CHUNKS.format(index), number)
        if ranges and _is_whole(ranges[0], chunks):
            extras, messages = _readable(old, _EXTRAS, number)[0], _readable(old, _MESSAGES, number)[0]
            return {"streams": rows, "extras": extras, "messages": messages, "chunks": chunks}
    return None


def _is_whole(limits: tuple[int, int], chunks: list[tuple[int, int, int, bytes]]) -> bool:
    expected, last = limits
    if type(expected) is not int or type(last) is not int:
        return False
    for _, begins, ends, body in chunks:
        if begins != expected or not is_chunk(begins, ends, body):
            return False
        expected = ends + 1
    return expected == last + 1


def _write(new: sqlite3.Connection, tables: _Tables) -> bool:
    new.execute("BEGIN IMMEDIATE")
    try:
        for table, rows in tables.items():
            for row in rows:
                new.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        new.execute("COMMIT")
        return True
    except sqlite3.IntegrityError:
        return False
    finally:
        if new.in_transaction:
            new.execute("ROLLBACK")


def carry_over(old: sqlite3.Connection, path: Path, owner: str) -> int:
    """Copies the owner's streams over earlier versions in another file; their number.

    Raises `sqlite3.Error`, `StoreFault`.
    """
    new = connect(path)
    try:
        prepare(new, path)
        new.execute(f"PRAGMA busy_timeout = {_CARRY_MS}")
        numbers = old.execute("SELECT number FROM streams WHERE owner = ?", (owner,)).fetchall()
        streams = [stream for (number,) in numbers if (stream := _stream(old, number)) is not None]
        return sum(_write(new, _renumbered(new, stream)) for stream in streams)
    finally:
        new.close()


def _renumbered(new: sqlite3.Connection, stream: _Tables) -> _Tables:
    [(_, id_, *columns)] = stream["streams"]
    for (number,) in new.execute("SELECT number FROM streams WHERE id = ?", (id_,)).fetchall():
        for table in ("extras", "chunks", "messages"):
            new.execute(f"DELETE FROM {table} WHERE stream = ?", (number,))
        new.execute("DELETE FROM streams WHERE number = ?", (number,))
    [(number,)] = new.execute("SELECT coalesce(max(number), 0) + 1 FROM streams").fetchall()
    return {
        "streams": [(number, id_, *columns)],
        "extras": [(number, *row[1:]) for row in stream["extras"]],
        "chunks": [(number, *row[1:]) for row in stream["chunks"]],
        "messages": [(None, number, *row[2:]) for row in stream["messages"]],
    }
