"""Tables and connections of the file of streams."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.faults import StoreFault, faulty
from mcp_hub.stores.locks import set_special_aside

BUSY_MS: Final = 200
"""Milliseconds that SQLite waits for another process; patient callers retry."""
COMPANIONS: Final = ("-wal", "-shm", "-journal")
"""Ends of the names of the files that SQLite keeps beside its own."""
EXTRAS: Final = ("continuation", "info")
"""Columns of a stream that are in `extras`."""
_TABLES: Final = """
CREATE TABLE streams (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL, owner TEXT NOT NULL,
    server TEXT NOT NULL, method TEXT NOT NULL, name TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    epoch INTEGER NOT NULL, status TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    session TEXT NOT NULL, ttl REAL NOT NULL, message TEXT, key TEXT, digest TEXT NOT NULL, expires REAL,
    bytes INTEGER NOT NULL
);
CREATE UNIQUE INDEX streams_key ON streams (principal, key) WHERE key IS NOT NULL;
CREATE INDEX streams_newest ON streams (principal, created);
CREATE INDEX streams_running ON streams (owner) WHERE expires IS NULL;
CREATE INDEX streams_expiring ON streams (expires) WHERE expires IS NOT NULL;
CREATE INDEX streams_ended ON streams (updated) WHERE expires IS NOT NULL;
CREATE TABLE extras (stream INTEGER PRIMARY KEY, continuation BLOB, info BLOB);
CREATE TABLE chunks (stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX chunks_place ON chunks (stream, last);
CREATE TABLE messages (number INTEGER PRIMARY KEY, stream INTEGER NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX messages_stream ON messages (stream);
CREATE TABLE sessions (id TEXT PRIMARY KEY, principal TEXT NOT NULL, body BLOB NOT NULL, expires REAL NOT NULL);
CREATE INDEX sessions_expiring ON sessions (expires);
"""


class FileFormat(msgspec.Struct, frozen=True):
    """Table statements, application id, version, and bytes of a page in a new file.

    Large pages suit large values: each page is written twice, and costs two system calls each time.
    """

    application: int
    version: int
    tables: str
    page: int = 4096


_WAL: Final = 4 << 20
"""Bytes of the journal from which it is written into the file."""
_TABLE: Final = re.compile(r"CREATE TABLE (\w+)")
STREAMS: Final = FileFormat(0x6D687562, 2, _TABLES)  # `mhub`
QUARANTINE: Final = "CREATE TABLE IF NOT EXISTS damaged (number INTEGER PRIMARY KEY, reason TEXT, row TEXT)"
"""Rows of `streams` that were set aside; their chunks are those of the stream `-number`."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a private file, which is made if it is missing. Raises `StoreFault`."""
    try:
        _create_private(path)
        connection = opened(path, timeout=BUSY_MS / 1000, cached_statements=64)
    except (sqlite3.Error, OSError) as error:
        raise faulty(error, path) from error
    with closed_on_failure(connection, path):
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def opened(
    database: str | Path, *, uri: bool = False, timeout: float = 5.0, cached_statements: int = 128
) -> sqlite3.Connection:
    """A connection with manual transactions that reads invalid UTF-8 as bytes; as `sqlite3.connect`."""
    return sqlite3.connect(
        database,
        isolation_level=None,
        uri=uri,
        timeout=timeout,
        cached_statements=cached_statements,
        factory=_FileConnection,
    )


class _FileConnection(sqlite3.Connection):
    def __init__(self, *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self.text_factory = _readable


def _readable(text: bytes) -> str | bytes:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


@contextmanager
def closed_on_failure(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Closes the connection on errors. Raises `StoreFault` for SQLite's."""
    try:
        yield
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise faulty(error, path) from error
        raise


def set_specials_aside(path: Path) -> None:
    """Sets pipes and devices at the file's paths aside. Raises `OSError`."""
    for beside in ("", *COMPANIONS):
        set_special_aside(f"{path}{beside}")


def _create_private(path: Path) -> None:
    """SQLite gives companions the file's mode."""
    make_folder(path.parent)
    set_specials_aside(path)
    try:
        # never opened otherwise: closing it would release the locks that SQLite holds on it in this process
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_file() and path.stat().st_mode & 0o077:
            path.chmod(0o600)


def prepare(connection: sqlite3.Connection, path: Path, format_: FileFormat = STREAMS) -> None:
    """Creates the tables in an empty file.

    Raises `StoreFault` for a newer or foreign file, `sqlite3.Error` otherwise.
    """
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        connection.execute(f"PRAGMA page_size = {format_.page}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL // page}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    if is_ours(connection, path, format_):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_ours(connection, path, format_):
            for statement in format_.tables.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {format_.application}")
            connection.execute(f"PRAGMA user_version = {format_.version}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def is_ours(connection: sqlite3.Connection, path: Path, format_: FileFormat = STREAMS) -> bool:
    """Whether the tables exist. Raises `StoreFault` for a newer or foreign file, or one without some of them."""
    # the tables first: another process commits them together with the rest
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables:
        return False
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != format_.application:
        raise StoreFault("unusable", f"store {path}: is a database of another program")
    if version != format_.version:
        origin = "a newer hub" if version > format_.version else "an earlier hub: remove it"
        raise StoreFault("unusable", f"store {path}: has version {version} of {origin}, this one has {format_.version}")
    if missing := sorted(set(_TABLE.findall(format_.tables)) - tables):
        raise StoreFault("corrupt", f"store {path}: has no table {', '.join(missing)}")
    return True
