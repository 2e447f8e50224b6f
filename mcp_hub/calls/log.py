"""The log of one call: append-only, read by cursor, held in memory.

One delivery path (architecture.md): every consumer pulls `fetch(after)`; live is "resume from 0". What the slowest
reader has seen is let go; what it has not is bounded by merging (`coalesce`). Sequence numbers are 1, 2, 3… without
holes.
"""

from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.calls import coalesce
from mcp_hub.calls.machine import CallStatus, IllegalEvent, advance, has_ended
from mcp_hub.events import CallEvent, Log

__all__ = ["CallLog", "Reader"]

_KEPT: Final = 64
"""Seen events that may stay before they are let go together: most calls end sooner and never pay for it."""


class CallLog:
    """Events of one call and the readers that follow it."""

    __slots__ = ("_events", "_first", "_readers", "_room", "_suppressed", "refused", "status")

    def __init__(self) -> None:
        self._events: list[CallEvent] = []
        self._first = 1  # sequence number of _events[0]
        self._readers: list[Reader] = []
        self._room: anyio.Event | None = None
        self._suppressed = 0
        self.status: CallStatus | None = None
        self.refused = 0

    @property
    def ended(self) -> bool:
        return has_ended(self.status)

    @property
    def last_seq(self) -> int:
        return self._first + len(self._events) - 1

    def append(self, event: CallEvent) -> bool:
        """Adds an event and wakes readers; one that the call's status does not allow is counted and dropped."""
        try:
            status = advance(self.status, event)
        except IllegalEvent:
            self.refused += 1
            return False
        if len(self._events) >= coalesce.LAG and self._unread() >= coalesce.LAG and not has_ended(status):
            if self._merge(event):
                return True
        elif self._suppressed:
            self._events.append(coalesce.suppressed(self._suppressed))
            self._suppressed = 0
        self._events.append(event)
        self.status = status
        for reader in self._readers:
            reader.wake()
        return True

    def _unread(self) -> int:
        return self.last_seq - min((reader.cursor for reader in self._readers), default=self.last_seq)

    def _merge(self, event: CallEvent) -> bool:
        """Folds the event into the unread tail if it may be; readers are behind already and need no waking."""
        if isinstance(event, Log):
            self._suppressed += 1
            return True
        if self.last_seq <= max(reader.cursor for reader in self._readers):
            return False
        merged = coalesce.merge(self._events[-1], event)
        if merged is None:
            return False
        self._events[-1] = merged
        return True

    def reader(self, wake: Callable[[], None]) -> "Reader":
        """A new reader from the first event that is still held; `wake` is called (soon, often) when there is more."""
        reader = Reader(self, self._first - 1, wake)
        self._readers.append(reader)
        return reader

    async def drained(self) -> None:
        """Waits until every reader is within `coalesce.LAG` events of the end."""
        while self._unread() >= coalesce.LAG:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def _fetch(self, after: int) -> list[CallEvent]:
        return self._events[after + 1 - self._first :]

    def _trim(self) -> None:
        """Lets go of what every reader has seen; the ending stays."""
        seen = min((reader.cursor for reader in self._readers), default=0)
        count = min(seen - self._first + 1, len(self._events) - 1)
        if count > 0:
            del self._events[:count]
            self._first += count
        if self._room is not None and self._unread() < coalesce.LAG:
            self._room.set()
            self._room = None


class Reader:
    """A place in a log. Holds no events: being slow costs the log, which merges, not a queue."""

    __slots__ = ("_log", "cursor", "wake")

    def __init__(self, log: CallLog, cursor: int, wake: Callable[[], None]) -> None:
        self._log = log
        self.cursor = cursor
        self.wake = wake

    def take(self) -> list[CallEvent]:
        """All events that are new; bounded by what the log may hold for a slow reader."""
        events = self._log._fetch(self.cursor)
        if events:
            self.cursor += len(events)
            if self.cursor - self._log._first >= _KEPT or self._log._room is not None:
                self._log._trim()
        return events

    @property
    def has_more(self) -> bool:
        return self.cursor < self._log.last_seq

    @property
    def at_end(self) -> bool:
        """Whether the ending has been taken."""
        return self._log.ended and not self.has_more

    def close(self) -> None:
        """Stops following; the log no longer waits for this reader."""
        if self in self._log._readers:
            self._log._readers.remove(self)
            self._log._trim()
