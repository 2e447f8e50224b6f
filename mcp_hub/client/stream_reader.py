"""Reads a stream's events, and times the pauses of a client that lost its hub. No I/O, no clock."""

from collections.abc import Callable
from typing import Final

import msgspec

from mcp_hub.client.rest import LIMIT
from mcp_hub.events import CallEvent
from mcp_hub.protocol.jsonrpc.framing import TooLong
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.protocol.sse import EventParser

_FIRST: Final = 0.2
_LONGEST: Final = 3.0
"""Seconds of the first pause, doubled each time up to the longest."""


class Patience:
    """Random pauses between failures, for at most `seconds` from the first. `random` gives 0 to 1."""

    def __init__(self, seconds: float, random: Callable[[], float]) -> None:
        self.seconds = seconds
        self._random = random
        self._since: float | None = None
        self._failures = 0

    def worked(self) -> None:
        self._since, self._failures = None, 0

    def pause(self, now: float, retry_after: float = 0.0) -> float | None:
        """Seconds to wait, at least `retry_after`; None: give up, also if that would take too long."""
        if self._since is None:
            self._since = now
        remaining = self._since + self.seconds - now
        if remaining <= 0 or retry_after > remaining:
            return None
        longest = min(_LONGEST, _FIRST * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return min(max(longest * self._random(), retry_after), remaining)


class _StreamHead(msgspec.Struct):
    seq: int
    stream: str


def read_event(line: bytes) -> tuple[_StreamHead, CallEvent | None]:
    """None for an event of an unknown type. Raises `msgspec.DecodeError`."""
    head = msgspec.json.decode(line, type=_StreamHead)
    try:
        return head, decoded(line)[1]
    except ValueError:
        return head, None


class EventDecoder:
    """Reads the events after `after` from one response: each once, without a gap.

    `is_over` when the hub ends it (`is_closed`, or `problem`), sends anything but an event (`broken`), or skips events
    (`is_torn`).
    """

    def __init__(self, url: str, after: int, limit: int = LIMIT) -> None:
        self.stream: str | None = None
        self.is_closed = False
        self.is_torn = False
        self.problem: bytes | None = None
        self.broken: str | None = None
        self._url = url
        self._last = after
        self._limit = limit
        self._parser = EventParser(limit)

    @property
    def is_over(self) -> bool:
        return self.is_closed or self.is_torn or self.problem is not None or self.broken is not None

    def feed(self, chunk: bytes) -> list[tuple[int, CallEvent | None]]:
        """Numbers and events; None for an unknown type."""
        events: list[tuple[int, CallEvent | None]] = []
        for event in self._parser.events(chunk):
            if self.is_over:
                break
            if isinstance(event, TooLong):
                self.broken = f"{self._url} sent an event of more than {self._limit} bytes"
            elif event.type == b"closed":
                self.is_closed = True
            elif event.type == b"problem":
                self.problem = event.data
            else:
                self._take(event.data, events)
        return events

    def _take(self, line: bytes, events: list[tuple[int, CallEvent | None]]) -> None:
        try:
            head, event = read_event(line)
        except (msgspec.DecodeError, RecursionError) as exc:
            self.broken = f"{self._url} sent a message that is not an event of a stream: {exc}"
            return
        self.stream = head.stream
        self.is_torn = head.seq > self._last + 1
        if head.seq == self._last + 1:
            self._last = head.seq
            events.append((head.seq, event))
