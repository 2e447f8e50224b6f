"""The chain of the audit's lines, its verification, and senders of lines without a file. Calls block.

A line is `{"seq":N,…,"chain":"HASH"}`; HASH is the SHA-256 of the HASH before it and of the line up to `,"chain"`. A
file's first line repeats the HASH before it as `prev`. `seq` counts records: those without a line are `lost`
in the next one.
"""

import glob
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.stores.locks import open_plain

START: Final = "0" * 64
"""The hash before the first line of a chain."""
LONGEST: Final = 1 << 20
"""Bytes of a line; the hub writes shorter ones."""
MOST_HUBS: Final = 64
"""Hubs on one machine that write beside each other."""
COUNTS: Final = 5 * 8
"""Bytes of a file of counts: four of records, and the number of the last line."""
_PATIENCE: Final = 5.0
"""Seconds for a collector to answer."""
_MOST_PROBLEMS: Final = 20
_END: Final = re.compile(rb',"chain":"([0-9a-f]{64})"\}')
_END_SIZE: Final = 10 + 64 + 2


class _AuditLine(msgspec.Struct, frozen=True):
    """The members of a line that the chain needs. `losses` records before it have none, `gone` ones were removed."""

    seq: int
    event: str = ""
    time: str = ""
    losses: int = msgspec.field(name="lost", default=0)
    gone: int = 0
    prev: str = ""


_decode: Final = msgspec.json.Decoder(_AuditLine).decode


class Chain:
    """The end of a chain. `losses` come before the next line."""

    __slots__ = ("head", "losses", "seq")

    def __init__(self, seq: int = 0, head: str = START) -> None:
        self.seq = seq
        self.head = head
        self.losses = 0

    def line(self, members: bytes) -> bytes:
        """The next line; `members` are a JSON object's, without braces."""
        losses = self.losses
        self.seq += losses + 1
        self.losses = 0
        more = b'"lost":%d,' % losses if losses else b""
        body = b'{"seq":%d,%b%b' % (self.seq, more, members)
        self.head = linked(self.head, body)
        return b'%b,"chain":"%b"}\n' % (body, self.head.encode())

    def go_to(self, seq: int, head: str = "") -> None:
        """Continues behind a line with this number, and this or the present hash."""
        self.seq, self.head = seq, head or self.head

    def lose(self, records: int) -> None:
        """So many records come before the next line."""
        self.losses += records

    def copy(self) -> "Chain":
        """A chain with the same end."""
        chain = Chain(self.seq, self.head)
        chain.losses = self.losses
        return chain


def parsed_line(line: bytes) -> tuple[_AuditLine, str] | None:
    """A line without its break, and its hash; None if it is not of the audit."""
    end = _END.fullmatch(line, max(len(line) - _END_SIZE, 0))
    if end is None:
        return None
    try:
        parsed = _decode(line)
    except (ValueError, RecursionError):
        return None
    return parsed, end[1].decode()


class AuditReport(msgspec.Struct):
    """The facts about the lines of one chain, which are numbered `first` to `last`, and from `times` in UTC.

    `losses` were never written, `missing` lines were. `kills`: starts without an end before. `problems` are the
    first 20 of the `breaks`, each with file and line.
    """

    lines: int = 0
    first: int = 0
    last: int = 0
    head: str = START
    times: tuple[str, str] = ("", "")
    losses: int = 0
    missing: int = 0
    kills: int = 0
    breaks: int = 0
    problems: list[str] = []

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

    def file(self, path: Path, file: IO[bytes]) -> None:
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

    def _line(self, line: bytes, position: str) -> None:
        parsed = parsed_line(line)
        if parsed is None:
            self._break(position, "is not a line of the audit")
            self._head = None
            return
        record, declared = parsed
        report = self.report
        if not report.lines:
            report.first, report.times = record.seq, (record.time, record.time)
            self._head = record.prev or None
            if record.event == "cut" and record.gone:
                report.missing = record.gone
                self._break(
                    position, f"{_lines(record.seq - record.gone, record.gone)} missing before it: others cut the file"
                )
            if not record.prev:
                self._break(position, "lines before it are missing: it does not begin a file")
        else:
            self._follow(record, position)
        if self._head is not None and linked(self._head, line[:-_END_SIZE]) != declared:
            self._break(position, _changed(record, report))
        self.heads.discard(declared)
        report.kills += record.event == "start" and self._event != "end"
        report.lines += 1
        report.losses += record.losses
        report.last, report.times, report.head = record.seq, (report.times[0], record.time), declared
        self._head, self._event = declared, record.event

    def _follow(self, record: _AuditLine, position: str) -> None:
        """Looks whether a line follows the one before, by its numbers and the hash that it repeats."""
        report, expected = self.report, self.report.last + record.losses + 1
        if record.prev and self._head is not None and record.prev != self._head:
            missing = max(record.seq - expected, 0)
            report.missing += missing
            self._break(position, f"{_lines(report.last + 1, missing)} missing before it")
            self._head = record.prev
        elif record.seq != expected and (record.prev or self._head is None):
            self._break(position, f"has the number {record.seq}, not {expected}")

    def _break(self, position: str, problem: str) -> None:
        self.report.breaks += 1
        if len(self.report.problems) < _MOST_PROBLEMS:
            self.report.problems.append(f"{position}: {problem}")


def _lines(first: int, count: int) -> str:
    if not count:
        return "lines are"
    return f"line {first} is" if count == 1 else f"lines {first} to {first + count - 1} are"


def _changed(record: _AuditLine, report: AuditReport) -> str:
    expected = report.last + record.losses + 1
    if report.lines and record.seq > expected:
        return f"{_lines(report.last + 1, record.seq - expected)} missing before it"
    return f"line {record.seq} was changed"


def linked(head: str, body: bytes) -> str:
    """The hash of a line without its end, after `head`."""
    return hashlib.sha256(head.encode() + body).hexdigest()


def verify(files: Sequence[Path], heads: set[str]) -> AuditReport:
    """Verifies one chain in its files, oldest first; removes its hashes from `heads`. Raises `OSError`.

    Leaves out a last line without its end, as a killed hub leaves it.
    """
    verifier = _Verifier(heads)
    with ExitStack() as opened:  # all of them first: a hub may rename them meanwhile
        for path, file in [(path, opened.enter_context(open(open_plain(path, os.O_RDONLY), "rb"))) for path in files]:
            verifier.file(path, file)
    return verifier.report


def unwritten(report: AuditReport, path: Path, state: Path) -> int:
    """Records counted after this file's last line; `state` is its hub's state folder."""
    return max((counted(state_file(state, path)) or 0) - report.last, 0)


def chains(path: Path) -> Iterator[list[Path]]:
    """The files of each hub that writes, or wrote, to `path`; each oldest first."""
    for number in range(1, MOST_HUBS + 1):
        if files := generations(path if number == 1 else numbered(path, number)):
            yield files


def numbered(path: Path, number: int) -> Path:
    """The file of a further hub."""
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


def rotated(path: Path, age: int) -> Path:
    """The older file; `age` counts from 1."""
    return path.with_name(f"{path.name}.{age}")


def generations(path: Path) -> list[Path]:
    """The files of one hub that are there, oldest first."""
    suffixes = [sibling.name[len(path.name) + 1 :] for sibling in path.parent.glob(f"{glob.escape(path.name)}.*")]
    ages = sorted((int(suffix) for suffix in suffixes if suffix.isdigit()), reverse=True)
    files = [*(rotated(path, age) for age in ages), path]
    return [file for file in files if file.is_file()]


def counted(path: Path) -> int | None:
    """The number of the last counted record; None without the file."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    return sum(memoryview(text).cast("Q")[:4]) if len(text) == COUNTS else None


def state_file(state: Path, path: Path) -> Path:
    """The counts' file for the audit file at `path`."""
    key = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]
    return state / "audit" / f"{key}.count"


def to_stderr(lines: Sequence[bytes]) -> None:
    """Writes whole lines past the text layer, which another thread may use."""
    view = memoryview(b"".join(lines))
    while view:
        view = view[os.write(sys.stderr.fileno(), view) :]


def to_collector(url: str, headers: Mapping[str, str], service: str) -> Callable[[Sequence[bytes]], None]:
    """A sender of lines as OTLP log records, in JSON over HTTP; it raises `OSError`. Redirects are not followed."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    connect = partial(HTTPSConnection if parts.scheme == "https" else HTTPConnection, parts.hostname or "", parts.port)
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}

    def send(lines: Sequence[bytes]) -> None:
        records = [{"severityNumber": 9, "body": {"stringValue": line.decode().rstrip()}} for line in lines]
        time = str(int(wall_time() * 1e9))
        scope = {"scope": {"name": "mcp_hub.audit"}, "logRecords": [{"timeUnixNano": time, **each} for each in records]}
        body = msgspec.json.encode({"resourceLogs": [{"resource": resource, "scopeLogs": [scope]}]})
        connection = connect(timeout=_PATIENCE)
        try:
            connection.request("POST", target, body, {"content-type": "application/json", **headers})
            with connection.getresponse() as response:  # its body is not read
                status = response.status
        except HTTPException as problem:
            raise OSError(f"the collector does not answer as one: {type(problem).__name__}") from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise OSError(f"the collector answered with HTTP {status}")

    return send
