"""The log of one call: append-only, read by cursor, held in memory.

One delivery path (architecture.md): every consumer pulls `fetch(after)`; live is "resume from 0". What the slowest
reader has seen is let go; what it has not is bounded: above `coalesce.LAG` unread events progress is held back, newest
wins, and log messages are counted, until the reader has caught up or something comes that may not wait. What nobody
follows keeps its last events only. Sequence numbers are 1, 2, 3… without
holes.
"""

from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.calls import coalesce
from mcp_hub.calls.machine import CallStatus, IllegalEvent, advance, has_ended
from mcp_hub.events import CallEvent, Log, Progress

__all__ = ["CallLog", "Reader"]

_KEPT: Final = 64
"""Seen events that may stay before they are let go together: most calls end sooner and never pay for it."""


class CallLog:
    """Events of one call and the readers that follow it."""

    __slots__ = ("_events", "_first", "_held", "_readers", "_room", "_suppressed", "refused", "status")

    def __init__(self) -> None:
        self._events: list[CallEvent] = []
        self._first = 1  # sequence number of _events[0]
        self._readers: list[Reader] = []
        self._room: anyio.Event | None = None
        self._held: Progress | None = None
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
        if len(self._events) >= coalesce.LAG:
            if not self._readers:
                self._drop(len(self._events) // 2)
            elif self._unread() >= coalesce.LAG and self._hold(event):
                return True
        self._release()
        self._events.append(event)
        self.status = status
        self._wake()
        return True

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()

    def _unread(self) -> int:
        return self.last_seq - min((reader.cursor for reader in self._readers), default=self.last_seq)

    def _hold(self, event: CallEvent) -> bool:
        """Keeps the event back if that loses nothing that matters."""
        if isinstance(event, Log):
            self._suppressed += 1
        elif isinstance(event, Progress):
            self._held = event if self._held is None else coalesce.merge(self._held, event)
        else:
            return False
        return True

    def _release(self) -> None:
        """Appends what was held back, in front of whatever comes now."""
        if self._held is not None:
            self._events.append(self._held)
            self._held = None
        if self._suppressed:
            self._events.append(coalesce.suppressed(self._suppressed))
            self._suppressed = 0

    def reader(self, wake: Callable[[], None], after: int = 0) -> "Reader":
        """A new reader of what follows `after` and is still held; `wake` is called (soon, often) when there is more."""
        reader = Reader(self, max(after, self._first - 1), wake)
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
        if self._readers:
            seen = min(reader.cursor for reader in self._readers)
            self._drop(min(seen - self._first + 1, len(self._events) - 1))
        if self._unread() < coalesce.LAG:
            if self._held is not None or self._suppressed:
                self._release()
                self._wake()
            if self._room is not None:
                self._room.set()
                self._room = None

    def _drop(self, count: int) -> None:
        if count > 0:
            del self._events[:count]
            self._first += count


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
            if self.cursor - self._log._first >= _KEPT:
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
