"""Logs of servers: stderr and the hub's events about a server, masked. 5 files of 1 MiB for a server, 200 servers.

A thread writes them. Its queue holds 256 KiB for each server, and drops the oldest lines (`lines_dropped`) when full.
"""

import hashlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from mcp_hub import logs
from mcp_hub.attach.folder import make_folder
from mcp_hub.files import may_be_full, note_count
from mcp_hub.masking import hide_head
from mcp_hub.stores.locks import lock_file, open_plain, remove, take
from mcp_hub.types import JsonObject

LARGEST: Final = 1 << 20
"""Bytes of a file."""
GENERATIONS: Final = 5
"""Files of a server: the current one, and `.1` to `.4`, the oldest."""
MOST: Final = 200
"""Servers of all configurations that have logs."""
_NAME: Final = 40
"""Characters of a server's name that are in the name of its file."""
_PATIENCE: Final = 2.0
"""Seconds to wait for the lock, which others hold for milliseconds."""
_STEP: Final = 0.01


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of stderr, or an event (pid `hub`); `time` is ISO 8601 in UTC."""

    time: str
    server: str
    hub: int
    stderr: str | None = None
    event: str = ""
    level: str = ""
    data: JsonObject = {}


def log_folder(state: Path, config: str, kind: str = "logs") -> Path:
    return state / kind / hashlib.sha256(config.encode(errors="surrogateescape")).hexdigest()[:16]


def log_file(folder: Path, server: str) -> Path:
    """The server's current file, unique for any name."""
    key = hashlib.sha256(server.encode(errors="surrogatepass")).hexdigest()[:8]
    return folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', server)[:_NAME]}-{key}.jsonl"


def generations(path: Path) -> list[Path]:
    """Oldest first."""
    return [*(path.with_suffix(f".jsonl.{age}") for age in range(GENERATIONS - 1, 0, -1)), path]


def append(path: Path, text: bytes) -> None:
    """Appends whole lines, at most `LARGEST` bytes. Raises `OSError`, also without the lock for 2 s."""
    make_folder(path.parent.parent)
    make_folder(path.parent)
    with _locked(path.parent.parent / "lock"):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
            _make_room(path)
        if size + len(text) > LARGEST:
            _rotate(path)
        file = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, text)
        finally:
            os.close(file)


def _rotate(path: Path) -> None:
    older = generations(path)
    for to, of in zip(older, older[1:], strict=False):
        with suppress(FileNotFoundError):
            of.replace(to)


def _make_room(path: Path) -> None:
    folder = path.parent.parent
    if not may_be_full(folder, MOST):
        return
    logs = list(folder.glob("*/*.jsonl"))
    note_count(folder, MOST, len(logs))
    if len(logs) < MOST:
        return
    ages: list[tuple[float, Path]] = []
    for log in logs:
        with suppress(OSError):
            ages.append((log.stat().st_mtime, log))
    for _, log in sorted(ages)[: max(0, len(ages) + 1 - MOST)]:
        for file in generations(log):
            remove(file)
        if log.parent != path.parent:
            with suppress(OSError):
                log.parent.rmdir()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = lock_file(path)
    try:
        for _ in range(int(_PATIENCE / _STEP)):
            if take(file, shared=False):
                break
            time.sleep(_STEP)
        else:
            raise OSError(f"{path} is locked by another process for more than {_PATIENCE:g} s")
        yield
    finally:
        os.close(file)


_TAIL: Final = 128 << 10


def last_records(folder: Path, server: str, limit: int) -> list[LogRecord]:
    """The last records within 128 KiB of each of the two newest files. Blocks."""
    reader, path = ServerLogReader(folder, server), log_file(folder, server)
    records: list[LogRecord] = []
    for generation in generations(path)[:-3:-1]:
        if len(records) < limit:
            with suppress(OSError), open(open_plain(generation, os.O_RDONLY), "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
                records[:0] = reader.parsed(file.read(_TAIL))
    return records[-limit:]


class ServerLogReader:
    """Logs in `folder`, of `server` or all. Blocks.

    Reads each record once, unless all files of a server are replaced between calls.
    """

    def __init__(self, folder: Path, server: str | None = None) -> None:
        self._folder = folder
        self._server = server
        self._read: dict[Path, tuple[int, int]] = {}
        """The inode of the file that was read last, and up to which byte, by the current file."""

    def servers(self) -> list[str]:
        """Servers with unread records, which count as read then."""
        return sorted({record.server for record in self.fresh()})

    def fresh(self) -> list[LogRecord]:
        """New records in order of time."""
        records = [record for path in sorted(self._folder.glob("*.jsonl")) for record in self._fresh_of(path)]
        return sorted(records, key=lambda record: record.time)

    def _fresh_of(self, path: Path) -> Iterator[LogRecord]:
        inode, offset = self._read.get(path, (0, 0))
        with ExitStack() as opened:
            # from the newest on: a file that is renamed meanwhile is met again, and none is left out
            files: dict[int, IO[bytes]] = {}
            file: IO[bytes]
            for generation in reversed(generations(path)):
                with suppress(OSError):
                    file = opened.enter_context(open(open_plain(generation, os.O_RDONLY), "rb"))
                    files.setdefault(os.fstat(file.fileno()).st_ino, file)
                if inode in files:
                    break
            for number, file in reversed(files.items()):
                file.seek(offset if number == inode else 0)
                text = file.read(2 * LARGEST)
                whole = text[: text.rfind(b"\n") + 1]
                self._read[path] = number, file.tell() - len(text) + len(whole)
                yield from self.parsed(whole)

    def parsed(self, text: bytes) -> Iterator[LogRecord]:
        for line in text.splitlines():
            with suppress(ValueError, RecursionError):  # msgspec's errors are of the former
                record = msgspec.json.decode(line, type=LogRecord)
                if self._server in (None, record.server):
                    yield record


log = logs.get_logger(__name__)

_ROOM: Final = 256 << 10
"""Bytes of a server's lines that wait."""
_EACH: Final = 64
"""Bytes that a line counts for beside its own, so that empty ones have a bound, too."""
_LONGEST: Final = 4000
"""Characters of a line, and of each value of an event."""
_HEAD: Final = 1 << 18
"""Bytes of a line that wait: enough to mask a long secret in it as a whole."""
_PIECE: Final = 256 << 10
"""Bytes of lines that are written at once."""
_PACE: Final = 0.25
"""Seconds between two writes."""
_LAST: Final = 0.5
"""Seconds for the last lines when the hub ends."""
_NOT_DATA: Final = frozenset({"event", "level", "timestamp", "upstream", "exc_info", "exception", "stack", "audit"})
_PLAIN: Final = (bool, int, float, type(None))


class _Waiting:
    def __init__(self) -> None:
        self.lines: deque[tuple[float, bytes | LogRecord]] = deque()
        self.size = self.dropped = 0

    def add(self, now: float, line: bytes | LogRecord) -> None:
        self.lines.append((now, line))
        self.size += _size(line)
        while self.size > _ROOM and len(self.lines) > 1:
            self.size -= _size(self.lines.popleft()[1])
            self.dropped += 1


class ServerLogWriter:
    """Writes logs in `folder`; `now` returns Unix seconds.

    `output` and `event` are thread-safe and never wait.
    """

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self.folder = folder
        self._now = now
        self._waiting: dict[str, _Waiting] = {}
        self._lock = threading.Lock()
        self._filled, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._has_failed = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Also records the hub's events in the block, then flushes within half a second."""
        with logs.teed(self.event):
            try:
                yield
            finally:
                self._closing.set()
                self._filled.set()
                if self._thread is not None:
                    self._thread.join(_LAST)

    def output(self, server: str, lines: Sequence[bytes]) -> None:
        """Queues stderr lines, masked when written."""
        now = self._now()
        self._add(server, now, [line[:_HEAD] for line in lines if line.strip()])

    def event(self, event: Mapping[str, object]) -> None:
        """Queues an event about a server, unless `debug`."""
        server, level = event.get("upstream"), str(event.get("level", ""))
        if not isinstance(server, str) or level == "debug":
            return
        now = self._now()
        data: JsonObject = {key: _text(value) for key, value in event.items() if key not in _NOT_DATA}
        record = LogRecord(_iso(now), server, os.getpid(), event=str(event.get("event", "")), level=level, data=data)
        self._add(server, now, [record])

    def _add(self, server: str, now: float, lines: Sequence[bytes | LogRecord]) -> None:
        if not lines or self._closing.is_set():
            return
        with self._lock:
            waiting = self._waiting.setdefault(server, _Waiting())
            for line in lines:
                waiting.add(now, line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="server logs", daemon=True)
                self._thread.start()
        self._filled.set()

    def _main(self) -> None:
        is_last = False
        while not is_last:
            self._filled.wait()
            self._filled.clear()
            is_last = self._closing.is_set()
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            for server, lines in waiting.items():
                self._write(server, lines)
            self._closing.wait(_PACE)

    def _write(self, server: str, waiting: _Waiting) -> None:
        path, piece = log_file(self.folder, server), b""
        try:
            for record in _records(server, waiting):
                line = msgspec.json.encode(record) + b"\n"
                if piece and len(piece) + len(line) > _PIECE:
                    append(path, piece)
                    piece = b""
                piece += line
            append(path, piece)
        except OSError as problem:
            if not self._has_failed:
                log.warning("server_log_not_written", path=str(path), reason=problem.strerror or str(problem))
            self._has_failed = True


def _records(server: str, waiting: _Waiting) -> Iterator[LogRecord]:
    hub = os.getpid()
    if waiting.dropped:
        first = _iso(waiting.lines[0][0])
        yield LogRecord(first, server, hub, event="lines_dropped", level="warning", data={"count": waiting.dropped})
    for now, line in waiting.lines:
        if isinstance(line, LogRecord):
            yield line
        elif text := hide_head(line.rstrip(), _LONGEST):
            yield LogRecord(_iso(now), server, hub, stderr=text)


def _size(line: bytes | LogRecord) -> int:
    if isinstance(line, bytes):
        return len(line) + _EACH
    return _EACH + sum(len(value) if isinstance(value, str) else _EACH for value in line.data.values())


def _text(value: object) -> object:
    return value if isinstance(value, _PLAIN) else hide_head(str(value), _LONGEST)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
