"""The audit file: lines of JSON in a hash chain, written by one hub at a time, and their verification. Calls block.

A line is `{"seq":N,…,"chain":"HASH"}`; HASH is the SHA-256 of the HASH before it and of the line up to `,"chain"`. The
first line of a file repeats the HASH before it as `prev`. `seq` counts records: those without a line are `lost` in the
next one. A file beside it is locked while a hub writes. The counts of records are in memory that is mapped from a file
of the state folder: a killed process leaves them behind.
"""

import glob
import hashlib
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import aside_of, is_at, lock_file, open_plain, take

START: Final = "0" * 64
"""The hash before the first line of a chain."""
LONGEST: Final = 1 << 20
"""Bytes of a line; the hub writes shorter ones."""
_MOST_HUBS: Final = 64
"""Hubs on one machine that write beside each other."""
_MOST_PROBLEMS: Final = 20
_PORTION: Final = 256 << 10
"""Bytes that are written at once."""
_END: Final = re.compile(rb',"chain":"([0-9a-f]{64})"\}')
_END_SIZE: Final = 12 + 64 + 1
CALLS, EVENTS, _NOTES, _CORRECTION = range(4)
"""Slots of the counts."""
_STATE: Final = 4 * 8
"""Bytes of the counts."""

log = get_logger(__name__)


class AuditLine(msgspec.Struct, frozen=True):
    """What the chain needs of a line. `lost` records before it have no line; `gone` lines were removed by others."""

    seq: int
    event: str = ""
    time: str = ""
    lost: int = 0
    gone: int = 0
    prev: str = ""


_decode: Final = msgspec.json.Decoder(AuditLine).decode


class Chain:
    """The end of a chain: number and hash of the last line. `lost` records come before the next one."""

    __slots__ = ("head", "lost", "seq")

    def __init__(self, seq: int = 0, head: str = START) -> None:
        self.seq = seq
        self.head = head
        self.lost = 0

    def line(self, members: bytes) -> bytes:
        """The next line; `members` are those of a JSON object, without braces."""
        lost = self.lost
        self.seq += lost + 1
        self.lost = 0
        body = b'{"seq":%d,"lost":%d,%b' % (self.seq, lost, members) if lost else b'{"seq":%d,%b' % (self.seq, members)
        self.head = linked(self.head, body)
        return b'%b,"chain":"%b"}\n' % (body, self.head.encode())

    def copy(self) -> "Chain":
        chain = Chain(self.seq, self.head)
        chain.lost = self.lost
        return chain


class RecordCount:
    """Records of all times, in a mapped file; without one, those of this process.

    `slots` are calls, events, lines of the file itself, and a correction. Each has one writer, and no lock.
    """

    def __init__(self, path: Path | None) -> None:
        self.slots: memoryview = memoryview(bytearray(_STATE)).cast("Q")
        self._map: mmap.mmap | None = None
        if path is not None:
            try:
                self._map = _mapped(path)
            except OSError as problem:
                log.warning("audit_not_counted", file=str(path), reason=problem.strerror or str(problem))
            else:
                self.slots = memoryview(self._map).cast("Q")
        self._before = sum(self.slots)

    def begin(self, last: int) -> int:
        """The number of records that earlier processes counted and did not write, after line `last`."""
        lost = self._before - last
        if lost < 0:
            self.slots[_CORRECTION] -= lost
        self._before = last
        return max(lost, 0)

    @property
    def before(self) -> int:
        """All records of earlier processes."""
        return self._before

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
        before = os.read(file, _STATE).ljust(_STATE, b"\0")
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, before)  # a page without a block on the disk would end the process when the disk is full
        return mmap.mmap(file, _STATE)
    finally:
        os.close(file)


def counted(path: Path) -> int | None:
    """The number of the last record that was counted; None without the file."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    return sum(memoryview(text).cast("Q")) if len(text) == _STATE else None


def state_file(state: Path, path: Path) -> Path:
    """The file of the counts of the audit file at `path`, in the state folder."""
    key = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]
    return state / "audit" / f"{key}.count"


class AuditFile:
    """The audit file at `path`: of `size` bytes, then it becomes `.1`, and so on to `.COUNT`.

    If another hub writes there, the file is `NAME-2`, and so on. All methods raise `OSError`; what was not written is
    written by the next call.
    """

    def __init__(self, path: Path, size: int, count: int, state: Path) -> None:
        self._wanted = path
        self._state = state
        self._size = size
        self._count = count
        self._file: int | None = None
        self._lock: int | None = None
        self._end = 0
        """Bytes of the file up to its last whole line."""
        self.path = path
        self.chain = Chain()
        self.counts = RecordCount(None)

    def claim(self) -> None:
        """Takes the first file that no other hub writes, before the first call. Idempotent."""
        if self._lock is not None:
            return
        for number in range(1, _MOST_HUBS + 1):
            path = self._wanted if number == 1 else numbered(self._wanted, number)
            lock = lock_file(path.with_name(f"{path.name}.lock"))
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
            raise OSError(f"{_MOST_HUBS} hubs write to {self._wanted}")
        counts, self.counts = self.counts, RecordCount(state_file(self._state, self.path))
        for slot, records in enumerate(counts.slots):  # of the time before the folder could be written
            self.counts.slots[slot] += records

    def write(self, records: Sequence[bytes], about: bytes) -> int:
        """Writes lines of these members, and how many of them it was. `about` are members of the file's own lines."""
        if self._lock is None:
            make_folder(self._wanted.parent)
            self.claim()
        if self._file is None:
            self._open(about)
        else:
            self._look(about)
        written = 0
        while written < len(records):
            if self._end >= self._size:
                self._rotate(about)
            written += self._append(records[written:], self._size - self._end)
        return written

    def _append(self, records: Sequence[bytes], room: int) -> int:
        """Appends as many lines as there is room, at least one; the chain follows what is written."""
        chain, text, number = self.chain.copy(), bytearray(), 0
        for record in records:
            text += chain.line(record)
            number += 1
            if len(text) >= min(_PORTION, room):
                break
        self._put(text)
        self.chain = chain
        return number

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

    def _note(self, event: str, about: bytes, **members: int) -> None:
        """Writes a line of the file itself, which repeats the hash before it."""
        more = b"".join(b',"%b":%d' % (name.encode(), value) for name, value in members.items() if value)
        chain = self.chain.copy()
        self.counts.slots[_NOTES] += 1
        line = chain.line(b'"event":"%b","prev":"%b"%b,%b' % (event.encode(), self.chain.head.encode(), more, about))
        try:
            self._put(line)
        except OSError:
            self.counts.slots[_NOTES] -= 1
            raise
        self.chain = chain

    def _open(self, about: bytes) -> None:
        file = _opened(self.path)
        try:
            self._file, self._end = file, os.fstat(file).st_size
            last, self._end = _last_line(file, self._end)
            if last is not None:
                self.chain.seq, self.chain.head = last
            elif self._end:
                self._set_aside()
            os.ftruncate(self._file, self._end)  # a line that a killed hub has not finished
            before = self.counts.before
            gone = before if last is None else 0
            if gone:
                self.chain.seq = before
            self.chain.lost += self.counts.begin(self.chain.seq)
            self._note("start" if last else "begin", about, gone=gone)
        except OSError:
            self._close()
            raise

    def _set_aside(self) -> None:
        """Begins a new file: the one that is there has no line at its end."""
        assert self._file is not None
        aside = aside_of(self.path)
        log.error("audit_file_set_aside", file=str(self.path), aside=aside, reason="its end is not a line of the audit")
        os.rename(self.path, aside)
        os.close(self._file)
        self._file, self._end = _opened(self.path), 0

    def _look(self, about: bytes) -> None:
        """Notices that others have moved or cut the file."""
        assert self._file is not None
        if not is_at(self._file, self.path):
            os.close(self._file)
            self._file, self._end = _opened(self.path), 0
            last, self._end = _last_line(self._file, os.fstat(self._file).st_size)
            log.warning("audit_file_moved", file=str(self.path))
            self._note("moved", about)
            return
        if os.fstat(self._file).st_size >= self._end:
            return
        last, self._end = _last_line(self._file, os.fstat(self._file).st_size)
        os.ftruncate(self._file, self._end)
        gone = self.chain.seq - (0 if last is None else last[0])
        log.warning("audit_file_cut", file=str(self.path), lines=gone)
        self._note("cut", about, gone=gone)

    def _rotate(self, about: bytes) -> None:
        assert self._file is not None
        os.fsync(self._file)
        older = [_rotated(self.path, age) for age in range(self._count, 0, -1)]
        for to, of in zip(older, [*older[1:], self.path], strict=True):
            with suppress(FileNotFoundError):
                of.replace(to)
        os.close(self._file)
        self._file, self._end = _opened(self.path), 0
        self._note("rotated", about)

    def sync(self) -> None:
        """Waits until the disk has all lines."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self, about: bytes) -> None:
        """Writes the last line. Idempotent."""
        try:
            if self._file is not None:
                self._note("end", about)
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


def numbered(path: Path, number: int) -> Path:
    """The file of a further hub."""
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def _rotated(path: Path, age: int) -> Path:
    return path.with_name(f"{path.name}.{age}")


def generations(path: Path) -> list[Path]:
    """The files of one hub that are there, oldest first."""
    suffixes = [other.name[len(path.name) + 1 :] for other in path.parent.glob(f"{glob.escape(path.name)}.*")]
    ages = sorted((int(suffix) for suffix in suffixes if suffix.isdigit()), reverse=True)
    files = [*(_rotated(path, age) for age in ages), path]
    return [file for file in files if file.is_file()]


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


def parsed_line(line: bytes) -> tuple[AuditLine, str] | None:
    """A line without its break, and its hash; None if it is not a line of the audit."""
    end = _END.fullmatch(line, max(len(line) - _END_SIZE, 0))
    if end is None:
        return None
    try:
        parsed = _decode(line)
    except (ValueError, RecursionError):
        return None
    return parsed, end[1].decode()


class AuditReport(msgspec.Struct):
    """What the lines of one chain say. `lost` records were never written, `missing` lines were.

    `unfinished`: the last line has no end. `unwritten` records were counted after the last line.
    """

    lines: int = 0
    first: int = 0
    last: int = 0
    head: str = START
    since: str = ""
    until: str = ""
    lost: int = 0
    missing: int = 0
    kills: int = 0
    unfinished: bool = False
    unwritten: int = 0
    breaks: int = 0
    problems: list[str] = []
    """The first 20 of the breaks, each with file and line."""

    @property
    def is_whole(self) -> bool:
        return not self.breaks and not self.missing


class _Verifier:
    """Follows one chain, line after line; `heads` are hashes to look for."""

    def __init__(self, heads: set[str]) -> None:
        self.report = AuditReport()
        self.heads = heads
        self._head: str | None = None
        self._event = ""

    def file(self, path: Path) -> None:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                if line.endswith(b"\n"):
                    self._line(line[:-1], f"{path}:{number}")
                elif len(line) > LONGEST:
                    self._break(f"{path}:{number}", "is longer than a line of the audit")
                    self._head = None
                    while line and not line.endswith(b"\n"):
                        line = file.readline(LONGEST)
                else:
                    self.report.unfinished = True

    def _line(self, line: bytes, place: str) -> None:
        parsed = parsed_line(line)
        if parsed is None:
            self._break(place, "is not a line of the audit")
            self._head = None
            return
        record, declared = parsed
        report = self.report
        if not report.lines:
            report.first, report.since = record.seq, record.time
            self._head = record.prev or None
            if not record.prev:
                self._break(place, "lines before it are missing: it does not begin a file")
        else:
            self._follow(record, place)
        if self._head is not None and linked(self._head, line[:-_END_SIZE]) != declared:
            self._break(place, _changed(record, report))
        self.heads.discard(declared)
        report.kills += record.event == "start" and self._event != "end"
        report.lines += 1
        report.lost += record.lost
        report.last, report.until, report.head = record.seq, record.time, declared
        self._head, self._event = declared, record.event

    def _follow(self, record: AuditLine, place: str) -> None:
        """Looks whether a line follows the one before, by its numbers and the hash that it repeats."""
        report, expected = self.report, self.report.last + record.lost + 1
        if record.prev and self._head is not None and record.prev != self._head:
            missing = max(record.seq - expected, 0)
            report.missing += missing
            self._break(place, f"{_lines(report.last + 1, missing)} missing before it")
            self._head = record.prev
        elif record.seq != expected and (record.prev or self._head is None):
            self._break(place, f"has the number {record.seq}, not {expected}")

    def _break(self, place: str, problem: str) -> None:
        self.report.breaks += 1
        if len(self.report.problems) < _MOST_PROBLEMS:
            self.report.problems.append(f"{place}: {problem}")


def _lines(first: int, count: int) -> str:
    if not count:
        return "lines are"
    return f"line {first} is" if count == 1 else f"lines {first} to {first + count - 1} are"


def _changed(record: AuditLine, report: AuditReport) -> str:
    expected = report.last + record.lost + 1
    if report.lines and record.seq > expected:
        return f"{_lines(report.last + 1, record.seq - expected)} missing before it"
    return f"line {record.seq} was changed, or something before it was"


def linked(head: str, body: bytes) -> str:
    """The hash of a line without its end, behind the hash `head`."""
    return hashlib.sha256(head.encode() + body).hexdigest()


def verify(files: Sequence[Path], heads: set[str], state: Path | None = None) -> AuditReport:
    """Verifies one chain in its files, oldest first; removes the `heads` that it has. Raises `OSError`.

    `state`: the folder with the counts of the hub that wrote it.
    """
    verifier = _Verifier(heads)
    for path in files:
        verifier.file(path)
    report = verifier.report
    if state is not None and files and (total := counted(state_file(state, files[-1]))) is not None:
        report.unwritten = max(total - report.last, 0)
    return report


def chains(path: Path) -> Iterator[list[Path]]:
    """The files of each hub that writes, or wrote, to `path`; each oldest first."""
    for number in range(1, _MOST_HUBS + 1):
        if files := generations(path if number == 1 else numbered(path, number)):
            yield files
