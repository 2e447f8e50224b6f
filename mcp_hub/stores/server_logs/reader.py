"""Last and new records of server logs."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from mcp_hub.stores.locks import open_plain
from mcp_hub.stores.server_logs.files import LARGEST, LogRecord, generations, log_file

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
