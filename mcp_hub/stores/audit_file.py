"""The audit file, which one hub at a time writes, and other places of lines. Calls block.

A file beside it is locked meanwhile. Counts of records lie in memory mapped from a file of the state folder: a killed
process leaves them behind.
"""

import mmap
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.logs import get_logger
from mcp_hub.stores.audit import COUNTS, LONGEST, MOST_HUBS, Chain, numbered, parsed_line, rotated, state_file
from mcp_hub.stores.locks import aside_of, is_at, lock_file, open_plain, take

_SENT: Final = 512
"""Lines that a collector gets at once."""
_PORTION: Final = 256 << 10
"""Bytes that are written at once."""
CALLS, EVENTS, _NOTES, _CORRECTION, _WRITTEN = range(5)
"""Slots of the counts."""

log = get_logger(__name__)


class _RecordCount:
    """Records of all times, in a mapped file; without one, this process's.

    `slots`: calls, events, lines of the file itself, a correction, the number of the last line. Each has one writer,
    and no lock.
    """

    def __init__(self, path: Path | None) -> None:
        self.slots: memoryview = memoryview(bytearray(COUNTS)).cast("Q")
        self._map: mmap.mmap | None = None
        if path is not None:
            try:
                self._map = _mapped(path)
            except OSError as problem:
                log.warning("audit_not_counted", file=str(path), reason=problem.strerror or str(problem))
            else:
                self.slots = memoryview(self._map).cast("Q")
        self._before = sum(self.slots[:_WRITTEN])
        self.written = self.slots[_WRITTEN]
        """The number of the last line of earlier processes."""

    def begin(self, last: int) -> int:
        """The number of records that earlier processes counted and did not write, after line `last`."""
        losses = self._before - last
        if losses < 0:
            self.slots[_CORRECTION] -= losses
        self._before = last
        return max(losses, 0)

    def close(self) -> None:
        if self._map is not None:
            slots, self.slots = self.slots, memoryview(bytearray(self.slots)).cast("Q")
            slots.release()
            self._map.close()
            self._map = None


def _mapped(path: Path) -> mmap.mmap:
    make_folder(path.parent)
    file = open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        before = os.read(file, COUNTS).ljust(COUNTS, b"\0")
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, before)  # a page without a block on the disk would end the process when the disk is full
        return mmap.mmap(file, COUNTS)
    finally:
        os.close(file)


class AuditFile:
    """The audit file at `path`: of `size` bytes, then it becomes `.1`, and so on to `.COUNT`.

    If another hub writes there, the file is `NAME-2`, and so on. All methods raise `OSError`; what was not written is
    written by the next call.
    """

    def __init__(self, path: Path, size: int, count: int, state: Path) -> None:
        self._state = state
        self._size = size
        self._count = count
        self._file: int | None = None
        self._lock: int | None = None
        self._end = 0
        """Bytes of the file up to its last whole line."""
        self._due: tuple[str, int] | None = None
        """A line of the file itself that comes first: its event, and the number of lines that are gone."""
        self.path = path
        self.chain = Chain()
        self.counts = _RecordCount(None)

    @property
    def location(self) -> str:
        return str(self.path)

    @property
    def end(self) -> tuple[int, str]:
        return self.chain.seq, self.chain.head

    def count(self, *, is_call: bool) -> None:
        """Counts a record that is to be written."""
        self.counts.slots[CALLS if is_call else EVENTS] += 1

    def lose(self, records: int) -> None:
        """So many counted records get no line."""
        self.chain.lose(records)

    def claim(self) -> None:
        """Takes the first file without another hub, before the first call. Idempotent."""
        if self._lock is not None:
            return
        base = self.path
        make_folder(base.parent)
        for number in range(1, MOST_HUBS + 1):
            path = base if number == 1 else numbered(base, number)
            lock = lock_file(self._lock_path(path))
            try:
                is_free = take(lock, shared=False)
            except OSError:
                os.close(lock)
                raise
            if is_free:
                self._lock, self.path = lock, path
                break
            os.close(lock)
        else:
            raise OSError(f"{MOST_HUBS} hubs write to {base}")
        counts, self.counts = self.counts, _RecordCount(state_file(self._state, self.path))
        for slot, records in enumerate(counts.slots):  # of the time before the folder could be written
            self.counts.slots[slot] += records

    @staticmethod
    def _lock_path(path: Path) -> Path:
        return path.with_name(f"{path.name}.lock")

    def _lock_again(self) -> None:
        """Takes the lock in the place of a removed one. Raises `OSError` if another hub has it."""
        assert self._lock is not None
        lock = lock_file(self._lock_path(self.path))
        has_more = self._file is not None and os.fstat(self._file).st_size > self._end
        if has_more or not take(lock, shared=False):
            os.close(lock)
            raise OSError("its lock was removed, and another hub has written there since. Restart this hub")
        os.close(self._lock)
        self._lock = lock
        log.warning("audit_lock_removed", file=str(self.path))

    def write(self, records: deque[bytes], header: bytes) -> None:
        """Writes lines of these members, and takes the written ones; `header` are members of the file's own."""
        if self._lock is None:
            self.claim()
        elif not is_at(self._lock, self._lock_path(self.path)):
            self._lock_again()
        if self._file is None:
            self._open(header)
        else:
            self._look()
            self._note_due(header)
        while records:
            if self._end >= self._size:
                self._rotate(header)
            self._append(records)

    def _append(self, records: deque[bytes]) -> None:
        """Appends as many lines as there is room, at least one; the chain follows what is written."""
        chain, text, number, room = self.chain.copy(), bytearray(), 0, min(self._size - self._end, _PORTION)
        for record in records:
            text += chain.line(record)
            number += 1
            if len(text) >= room:
                break
        self._put(text)
        self._follow(chain)
        for _ in range(number):
            records.popleft()

    def _put(self, text: bytes | bytearray) -> None:
        assert self._file is not None
        view = memoryview(text)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            with suppress(OSError):  # a part of a line
                os.ftruncate(self._file, self._end)
            raise
        self._end += len(text)

    def _note(self, event: str, header: bytes, **members: int) -> None:
        """Writes a line of the file itself, which repeats the hash before it."""
        more = b"".join(b',"%b":%d' % (name.encode(), value) for name, value in members.items() if value)
        chain = self.chain.copy()
        self.counts.slots[_NOTES] += 1
        line = chain.line(b'"event":"%b","prev":"%b"%b,%b' % (event.encode(), self.chain.head.encode(), more, header))
        try:
            self._put(line)
        except OSError:
            self.counts.slots[_NOTES] -= 1
            raise
        self._follow(chain)

    def _follow(self, chain: Chain) -> None:
        self.chain = chain
        self.counts.slots[_WRITTEN] = chain.seq

    def _open(self, header: bytes) -> None:
        file = _opened(self.path)
        try:
            self._file, self._end = file, os.fstat(file).st_size
            last, self._end = _last_line(file, self._end)
            if last is not None:
                self.chain.go_to(*last)
            elif self._end:
                self._set_aside()
            os.ftruncate(self._file, self._end)  # a line that a killed hub has not finished
            gone = self.counts.written if last is None else 0
            self.chain.go_to(gone or self.chain.seq)
            self.chain.lose(self.counts.begin(self.chain.seq))
            self._note("start" if last else "begin", header, gone=gone)
        except OSError:
            self._close()
            raise

    def _set_aside(self) -> None:
        """Begins a new file: the one that is there has no line at its end."""
        aside = aside_of(self.path)
        log.error("audit_file_set_aside", file=str(self.path), aside=aside, reason="its end is not a line of the audit")
        os.rename(self.path, aside)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Opens the file that is at the path now. If that fails, the one before stays: the next look tries again."""
        assert self._file is not None
        file = _opened(self.path)
        os.close(self._file)
        self._file, self._end = file, 0

    def _note_due(self, header: bytes) -> None:
        """Writes the line that is due; it stays so until there is room."""
        if self._due is not None:
            event, gone = self._due
            self._note(event, header, gone=gone)
            self._due = None

    def _look(self) -> None:
        """Notices that others have moved or cut the file."""
        assert self._file is not None
        if not is_at(self._file, self.path):
            self._begin_anew()
            last, self._end = _last_line(self._file, os.fstat(self._file).st_size)
            log.warning("audit_file_moved", file=str(self.path))
            self._due = "moved", 0
            return
        if os.fstat(self._file).st_size >= self._end:
            return
        last, self._end = _last_line(self._file, os.fstat(self._file).st_size)
        os.ftruncate(self._file, self._end)
        gone = self.chain.seq - (0 if last is None else last[0])
        log.warning("audit_file_cut", file=str(self.path), lines=gone)
        self._due = "cut", gone

    def _rotate(self, header: bytes) -> None:
        assert self._file is not None
        os.fsync(self._file)
        older = [rotated(self.path, age) for age in range(self._count, 0, -1)]
        for to, of in zip(older, [*older[1:], self.path], strict=True):
            with suppress(FileNotFoundError):
                of.replace(to)
        self._begin_anew()
        self._due = "rotated", 0
        self._note_due(header)

    def sync(self) -> None:
        """Waits until the disk has all lines."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self, header: bytes) -> None:
        """Writes the last line. Idempotent."""
        try:
            if self._file is not None:
                self._note_due(header)
                self._note("end", header)
                self.sync()
        finally:
            self._close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
            self.counts.close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _opened(path: Path) -> int:
    file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    if hasattr(os, "fchmod") and os.fstat(file).st_mode & 0o077:
        os.fchmod(file, 0o600)
    return file


def _last_line(file: int, size: int) -> tuple[tuple[int, str] | None, int]:
    """Number and hash of the last whole line, and where it ends; None if there is no such line.

    What follows it is a line that was not finished.
    """
    tail = b""
    position = size
    while position > 0 and tail.count(b"\n") < 2 and len(tail) <= 2 * LONGEST:
        start = max(position - _PORTION, 0)
        os.lseek(file, start, os.SEEK_SET)
        tail = os.read(file, position - start) + tail
        position = start
    end = tail.rfind(b"\n") + 1
    if not end:
        return None, 0 if len(tail) < LONGEST and size == len(tail) else size
    line = tail[tail.rfind(b"\n", 0, end - 1) + 1 : end - 1]
    parsed = parsed_line(line)
    return (None, size) if parsed is None else ((parsed[0].seq, parsed[1]), size - len(tail) + end)


class LinePlace:
    """A place that takes lines by `send`: stderr, or a collector. The chain begins with the process."""

    def __init__(self, location: str, send: Callable[[Sequence[bytes]], object]) -> None:
        self.location = location
        self._send = send
        self._chain = Chain()

    @property
    def end(self) -> tuple[int, str]:
        return self._chain.seq, self._chain.head

    def count(self, *, is_call: bool) -> None:
        """Does nothing: the counts end with the process."""

    def lose(self, records: int) -> None:
        """So many records get no line."""
        self._chain.lose(records)

    def claim(self) -> None:
        """Does nothing."""

    def write(self, records: deque[bytes], header: bytes) -> None:
        if not self._chain.seq:
            self._put([b'"event":"begin","prev":"%b",%b' % (self._chain.head.encode(), header)])
        while records:
            portion = [*islice(records, _SENT)]
            self._put(portion)
            for _ in portion:
                records.popleft()

    def _put(self, records: Sequence[bytes]) -> None:
        chain = self._chain.copy()
        self._send([chain.line(record) for record in records])
        self._chain = chain

    def sync(self) -> None:
        """Does nothing."""

    def close(self, header: bytes) -> None:
        if self._chain.seq:
            self._put([b'"event":"end",%b' % header])
