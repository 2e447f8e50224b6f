"""Server-Sent Events: writing, and a linear, bounded parser. Pure.

Source: WHATWG HTML, "Server-sent events".
"""

import re
from typing import Final, NamedTuple, Self

import msgspec

from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.framing import TooLong, head_of
from mcp_hub.types import CallId

COMMENT: Final = b": keep-alive\n\n"
"""Keeps proxies and idle time-outs away; clients ignore it."""

_IDLE: Final = re.compile(rb"(?:(?::[^\r\n]*)?(?:\r\n|\n|\r(?!\Z)))+")
"""Comments and blank lines: signs of life, which a server may send without end. A last CR may be half a line end."""
_BOM: Final = b"\xef\xbb\xbf"
_LONGEST_ID: Final = 1024
"""Bytes of an event's id; a longer one would not fit into the header that names it, so it counts as none."""
_SKIPPED: Final = len(_BOM + b"id: ") + _LONGEST_ID + 1
"""Bytes kept of a line of an event that is too long: any id that counts, and of a longer one that it is longer."""
_LONGEST_RETRY: Final = 9
"""Digits of a pause in milliseconds: eleven days."""


def message(frame: bytes, event_id: str | None = None) -> bytes:
    """One JSON-RPC message. A carriage return, which also ends lines, becomes a space."""
    if b"\r" in frame:
        frame = frame.replace(b"\r", b" ")
    head = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return b"%sevent: message\ndata: %s\n\n" % (head, frame.rstrip(b"\n"))


def priming(event_id: str, retry: int) -> bytes:
    """An event without data: the id to resume from, and `retry` in milliseconds."""
    return b"id: %s\nretry: %d\ndata:\n\n" % (event_id.encode(), retry)


class SseEvent(msgspec.Struct, frozen=True):
    """One event; the default `type` is `message`."""

    type: bytes
    data: bytes


class EventParser:
    """Parses one stream. An event over `limit` bytes becomes one `TooLong` at once.

    `last_id` is the last whole event's id (at first `after`), `retry` the reconnection delay in milliseconds.
    """

    def __init__(self, limit: int, after: bytes | None = None) -> None:
        self.last_id = after
        self.retry: int | None = None
        self._limit = limit
        self._parts: list[bytes] = []  # of the line that has not ended
        self._size = 0  # bytes of that line and of the event's data
        self._data: list[bytes] | None = []  # None: of an event that is too long
        self._type = b""
        self._id = after
        self._after_return = False
        self._is_first = True

    def events(self, chunk: bytes) -> list[SseEvent | TooLong]:
        """The events completed by `chunk`."""
        if not chunk:
            return []
        if self._after_return and chunk[:1] == b"\n":  # the second half of a line end that was cut in two
            chunk = chunk[1:]
        self._after_return = chunk[-1:] == b"\r"
        events: list[SseEvent | TooLong] = []
        if self._is_between and (idle := _IDLE.match(chunk)):
            chunk = chunk[idle.end() :]
        *ended, last = _lines(chunk)
        for piece in ended:
            self._keep(piece, events)
            self._end_line(events)
        self._keep(last, events)
        return events

    @property
    def held(self) -> int:
        """Buffered bytes."""
        return self._size

    @property
    def unended(self) -> SseEvent | None:
        """The event without its blank line at the end, if it has data."""
        line = _data_of(b"".join(self._parts))
        data = None if self._data is None else [*self._data, *([] if line is None else [line])]
        return SseEvent(self._type or b"message", b"\n".join(data)) if data else None

    def end(self) -> None:
        self._parts, self._data, self._size = [], [], 0

    @property
    def _is_between(self) -> bool:
        is_idle = self._data is not None and not (self._size or self._type or self._is_first)
        return is_idle and self._id == self.last_id

    def _keep(self, piece: bytes, events: list[SseEvent | TooLong]) -> None:
        if self._data is None:
            piece = piece[: _SKIPPED - self._size]
        if (self._parts[0] if self._parts else piece).startswith(b":"):  # a sign of life may have any length
            piece = b"" if self._parts else b":"
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._data is not None and self._size > self._limit:
            line = head_of(self._parts)
            events.append(TooLong(head_of((*self._data, _data_of(line) or b"")), self._size))
            self._parts, self._data = [line[:_SKIPPED]], None
            self._size = len(self._parts[0])

    def _end_line(self, events: list[SseEvent | TooLong]) -> None:
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        if self._is_first:
            self._is_first = False
            if line.startswith(_BOM):
                line = line[len(_BOM) :]
                self._size -= len(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._type or b"message", b"\n".join(self._data)))
            self.last_id = self._id
            self._data, self._type, self._size = [], b"", 0
        elif self._data is None:
            self._size = 0
            self._take_field(line)
        elif (data := _data_of(line)) is not None:
            self._data.append(data)
        else:
            self._size -= len(line)  # not kept
            self._take_field(line)

    def _take_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self._id = value if 0 < len(value) <= _LONGEST_ID else None
        elif name == b"retry" and value.isdigit() and len(value) <= _LONGEST_RETRY:
            self.retry = int(value)


def _lines(chunk: bytes) -> list[bytes]:
    lines = chunk.splitlines()
    if chunk[-1:] in (b"\n", b"\r", b""):
        lines.append(b"")
    return lines


def _data_of(line: bytes) -> bytes | None:
    if line.startswith(b"data:"):
        return line[6:] if line[5:6] == b" " else line[5:]
    return b"" if line == b"data" else None


_FORM: Final = re.compile(r"(st_[0-9A-HJKMNP-TV-Z]{26}):(0|[1-9][0-9]{0,14})")
"""One way only to write each; 15 digits are more than any stream has events, and fit every reader's numbers."""


class Cursor(NamedTuple):
    """The place after event `seq`; 0 is the beginning."""

    stream: CallId
    seq: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise ValueError(f"not a place in a stream: {hide_head(text, 80)!r}")
        return cls(CallId(form[1]), int(form[2]))

    def __str__(self) -> str:
        return event_id(self.stream, self.seq)


def event_id(stream: CallId, seq: int) -> str:
    return f"{stream}:{seq}"
