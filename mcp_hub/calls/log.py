"""The log of one call: append-only, read by cursor, held in memory.

One delivery path (architecture.md): every consumer pulls `fetch(after)`; live is "resume from 0". What the slowest
reader has seen is let go; what it has not is bounded: above `coalesce.LAG` unread events progress is held back, newest
wins, and log messages are counted, until the reader has caught up or something comes that may not wait. What nobody
follows keeps its last events only. Sequence numbers are 1, 2, 3… without holes, and what one of them stands for never
changes.

A log that keeps (`keep`) lets nothing go for having been seen, for a client that comes back and reads it again from
where it was: at most `MOST_EVENTS` and `MOST_BYTES`, the oldest first. While that client is away it is a reader that
has stopped: what it has not seen waits and is merged as for a slow one, and nobody waits for it. Of what is in the log
only a reader that is there holds on to anything.
"""

from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.calls import coalesce
from mcp_hub.calls.machine import CallStatus, IllegalEvent, advance, has_ended
from mcp_hub.events import CallEvent, Completed, Delta, Failed, InputRequired, Log, Progress, Started

__all__ = ["MOST_BYTES", "MOST_EVENTS", "CallLog", "Reader"]

MOST_EVENTS: Final = 10_000
"""Of a log that keeps (streams.md §3)."""
MOST_BYTES: Final = 8 << 20
"""Of payload in a log that keeps, its ending aside."""
_KEPT: Final = 64
"""Seen events that may stay before they are let go together: most calls end sooner and never pay for it."""


class CallLog:
    """Events of one call and the readers that follow it. `size`, in bytes of payload, is counted while it keeps."""

    __slots__ = (
        "_events", "_first", "_held", "_keeps", "_readers", "_room", "_suppressed", "_taken", "refused", "size",
        "status",
    )  # fmt: skip

    def __init__(self) -> None:
        self._events: list[CallEvent] = []
        self._first = 1  # sequence number of _events[0]
        self._readers: list[Reader] = []
        self._room: anyio.Event | None = None
        self._held: Progress | None = None
        self._suppressed = 0
        self._keeps = False
        self._taken = 0  # the furthest that any reader which has left had come
        self.size = 0
        self.status: CallStatus | None = None
        self.refused = 0

    @property
    def ended(self) -> bool:
        return has_ended(self.status)

    @property
    def first_seq(self) -> int:
        """Of the oldest event that is still held."""
        return self._first

    @property
    def last_seq(self) -> int:
        return self._first + len(self._events) - 1

    def keep(self) -> None:
        """From now on what was read stays to be read again."""
        self._keeps = True
        if self.last_seq > 1:  # the first event carries nothing
            self.size = sum(map(_payload, self._events))

    def append(self, event: CallEvent) -> bool:
        """Adds an event and wakes readers; one that the call's status does not allow is counted and dropped."""
        try:
            status = advance(self.status, event)
        except IllegalEvent:
            self.refused += 1
            return False
        if (len(self._events) >= coalesce.LAG or self.size >= MOST_BYTES) and self._waits(event):
            return True
        if self._held is not None or self._suppressed:
            self._release()
        self._events.append(event)
        if self._keeps:
            self.size += _payload(event)
        self.status = status
        for reader in self._readers:
            reader.wake()
        return True

    def _add(self, event: CallEvent) -> None:
        self._events.append(event)
        if self._keeps:
            self.size += _payload(event)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()

    def _waits(self, event: CallEvent) -> bool:
        """Makes room for an event; whether it is held back instead."""
        if not self._readers and not self._keeps:
            self._drop(len(self._events) // 2)
            return False
        if self._is_full:
            self._let_go(self._seen)
        if self._is_crowded and self._hold(event):
            return True
        if self._is_full and not self._readers:
            self._let_go(self.last_seq)
        return False

    @property
    def _seen(self) -> int:
        """The last event that every reader has seen, the one included that is away."""
        if self._readers:
            return min(reader.cursor for reader in self._readers)
        return self._taken if self._keeps else self.last_seq

    @property
    def _is_crowded(self) -> bool:
        """Whether so much is unread that what can wait has to."""
        return self.size >= MOST_BYTES or self.last_seq - self._seen >= coalesce.LAG

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
            self._add(self._held)
            self._held = None
        if self._suppressed:
            self._add(coalesce.suppressed(self._suppressed))
            self._suppressed = 0

    def reader(self, wake: Callable[[], None], after: int = 0) -> "Reader":
        """A new reader of what follows `after` and is still held; `wake` is called (soon, often) when there is more."""
        reader = Reader(self, max(after, self._first - 1), wake)
        self._readers.append(reader)
        return reader

    async def drained(self) -> None:
        """Waits until every reader is within `coalesce.LAG` events of the end."""
        while self._readers and self._is_crowded:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def _trim(self) -> None:
        """Lets go of what every reader has seen; the ending stays."""
        if self._is_full:
            self._let_go(self._seen)
        elif self._readers and not self._keeps:
            self._drop(min(self._seen - self._first + 1, len(self._events) - 1))
        if self._held is None and not self._suppressed and self._room is None:
            return
        is_crowded = self._is_crowded
        if not is_crowded and (self._held is not None or self._suppressed):
            self._release()
            self._wake()
        if self._room is not None and not (is_crowded and self._readers):
            self._room.set()
            self._room = None

    @property
    def _is_full(self) -> bool:
        """Whether a log that keeps has to let something go before it can take more."""
        is_full = len(self._events) >= MOST_EVENTS or self.size >= MOST_BYTES
        return is_full and self._keeps and not self.ended

    def _let_go(self, upto: int) -> None:
        """Of a full log the oldest events, but none after `upto`: an eighth at once, so that it is seldom."""
        count = 0
        while self._first + count <= upto and (
            len(self._events) - count > MOST_EVENTS * 7 // 8 or self.size > MOST_BYTES * 7 // 8
        ):
            self.size -= _payload(self._events[count])
            count += 1
        self._drop(count)

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

    def take(self, most: int | None = None) -> list[CallEvent]:
        """The events that are new, `most` of them; bounded by what the log may hold for a slow reader."""
        log = self._log
        start = self.cursor + 1 - log._first
        events = log._events[start : None if most is None else start + most]
        if events:
            self.cursor += len(events)
            if self.cursor - log._first >= _KEPT or log.size >= MOST_BYTES:
                log._trim()
        return events

    @property
    def has_more(self) -> bool:
        log = self._log
        return self.cursor - log._first < len(log._events) - 1

    @property
    def at_end(self) -> bool:
        """Whether the ending has been taken."""
        return self._log.ended and not self.has_more

    def close(self) -> None:
        """Stops following; the log no longer waits for this reader."""
        log = self._log
        if self in log._readers:
            log._readers.remove(self)
            log._taken = max(log._taken, self.cursor)
            log._trim()


def _payload(event: CallEvent) -> int:
    """Bytes of what peers sent, which is what makes an event large."""
    match event:
        case Started():
            return 0
        case Progress(rest=rest):
            return sum(map(len, rest.values())) if rest else 0
        case Completed(result=raw) | Log(params=raw) | InputRequired(params=raw) | Delta(content=raw):
            return len(raw)
        case Failed(error):
            return len(error.raw if error.raw is not None else error.message)
        case _:
            return 0
