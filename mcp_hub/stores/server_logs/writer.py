"""The thread that writes server logs, and its queue.

The queue holds 256 KiB for each server, and drops the oldest lines (`lines_dropped`) when full.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub import logs
from mcp_hub.masking import hide_head
from mcp_hub.stores.server_logs.files import LogRecord, append, log_file
from mcp_hub.types import JsonObject

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
_NOT_DATA: Final = frozenset({"event", "level", "timestamp", "upstream", "exc_info", "exception", "stack"})
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
        """Queues stderr lines, which are masked when written."""
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
