"""The append-only log of one running call, in memory, read by cursor.

Events that all readers have seen are dropped. Beyond `coalesce.LAG` unread events or `coalesce.LAG_BYTES`, progress is
merged and logs are counted, until readers catch up or an urgent event comes. Numbers have no gaps.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Reader, StoredEvent
from mcp_hub.calls import coalesce
from mcp_hub.calls.machine import WORKING_NEXT, advance
from mcp_hub.events import CallEvent, Completed, Delta, Ending, InputRequired, Log, Progressed, Started
from mcp_hub.types import Status

_KEPT: Final = 4
"""Seen events that are dropped together: most calls end before."""
_KEPT_BYTES: Final = 64 << 10
"""Bytes of payload that are dropped together."""
_MANY: Final = frozenset({Progressed, Delta, Log})
"""Kinds of events without a limit per call: their bytes are counted."""

_BEGUN: Final = Started()
_WORKING: Final = "working"
_RUNS: Final = (None, _WORKING, "input_required")


def nobody() -> None:
    """Replaces a closed reader's callback: no reference cycle."""


class _HeldBack(msgspec.Struct):
    """Events withheld from slow readers: newest `progress`, number of `logs`. `room`: they have caught up."""

    progress: Progressed | None = None
    logs: int = 0
    room: anyio.Event | None = None

    def take(self, event: CallEvent) -> bool:
        if isinstance(event, Log):
            self.logs += 1
        elif isinstance(event, Progressed):
            self.progress = event if self.progress is None else coalesce.merge(self.progress, event)
        else:
            return False
        return True

    def events(self) -> list[CallEvent]:
        events: list[CallEvent] = [] if self.progress is None else [self.progress]
        events += [coalesce.suppressed(self.logs)] if self.logs else []
        self.progress, self.logs = None, 0
        return events


class CallLog(msgspec.Struct, eq=False):
    """One call's events and readers. `merged` counts events merged or dropped for slow readers."""

    status: Status | None = None
    merged: int = 0
    refused: int = 0
    ending: Ending = None  # type: ignore[assignment]  # until there is one
    _events: list[CallEvent] = msgspec.field(default_factory=list)
    _first: int = 1  # sequence number of _events[0]
    _size: int = 0  # bytes of payload in _events
    _readers: "list[_LogReader]" = msgspec.field(default_factory=list)
    _back: _HeldBack | None = None
    _news: Callable[[], object] | None = None

    def begin(self) -> None:
        self._events.append(_BEGUN)
        self.status = _WORKING

    def watch(self, news: Callable[[], object] | None) -> None:
        """Calls `news` once, maybe at once: at a second event, or when durable."""
        self._news = news
        if news is not None and self._first + len(self._events) > 2:
            self._notify()

    def becomes_durable(self, follow: Callable[[Callable[[], None], int], Reader]) -> None:
        """Notifies watchers; moves willing readers to the stream."""
        for reader in tuple(self._readers):
            if (moves := reader.moves) is not None:
                wake, after = reader.wake, reader.cursor
                reader.close()
                moves(follow(wake, after))
        self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news()

    def refuse(self) -> None:
        self.refused += 1

    @property
    def event_count(self) -> int:
        return self._first + len(self._events) - 3

    @property
    def plain_result(self) -> Completed | None:
        last = self._events[-1]
        return last if type(last) is Completed and self._first + len(self._events) == 3 else None

    @property
    def ended(self) -> bool:
        return self.ending is not None

    @property
    def _last_seq(self) -> int:
        return self._first + len(self._events) - 1

    def append(self, event: CallEvent) -> bool:
        """Adds an event and wakes readers; drops and counts illegal ones."""
        kind, before = type(event), self.status
        status = WORKING_NEXT.get(kind) if before == _WORKING else None
        if status is None:
            try:
                status = advance(before, event)
            except ValueError:
                self.refused += 1
                return False
        if (len(self._events) >= coalesce.LAG or self._size >= coalesce.LAG_BYTES) and self._waits(event):
            return True
        if self._back is not None:
            self._release()
        self._events.append(event)
        if kind in _MANY:
            self._size += coalesce.payload(event)
        if status != before:
            self.status = status
            if status not in _RUNS:
                self.ending = event  # type: ignore[assignment]
        for reader in self._readers:
            reader.wake()
        if (news := self._news) is not None:
            self._news = None
            news()
        return True

    def _waits(self, event: CallEvent) -> bool:
        if not self._readers:
            self._drop(len(self._events) // 2)
            return False
        if not self._is_crowded:
            return False
        back = self._back or _HeldBack()
        if not back.take(event):
            return False
        self._back = back
        self.merged += 1
        return True

    @property
    def _is_crowded(self) -> bool:
        unread = self._last_seq - min(reader.cursor for reader in self._readers)
        return unread >= coalesce.LAG or (unread > 0 and self._size >= coalesce.LAG_BYTES)

    def _release(self) -> bool:
        released = [] if self._back is None else self._back.events()
        if self._back is not None and self._back.room is None:
            self._back = None
        self._events += released
        self._size += sum(map(coalesce.payload, released))
        return bool(released)

    def reader(
        self, wake: Callable[[], None], after: int = 0, moves: Callable[[Reader], None] | None = None
    ) -> "_LogReader":
        """Reads events after `after`; `wake` is called (soon, often) for more.

        When the call becomes durable, `moves` gets its stream's reader instead.
        """
        reader = _LogReader(self, max(after, self._first - 1), wake, moves)
        self._readers.append(reader)
        return reader

    async def drained(self) -> None:
        """Waits until every reader is within `coalesce.LAG` events and `coalesce.LAG_BYTES` of the end."""
        while self._readers and self._is_crowded:
            back = self._back = self._back or _HeldBack()
            back.room = back.room or anyio.Event()
            await back.room.wait()

    async def over(self) -> None:
        """Waits for the ending."""
        news = anyio.Event()
        reader = self.reader(lambda: news.set() if self.ended else None, self._last_seq)
        try:
            while not self.ended:
                await news.wait()
        finally:
            reader.close()

    def _trim(self) -> None:
        """Drops seen events, except the ending, and open questions while there is room."""
        if self._readers:
            seen = min(reader.cursor for reader in self._readers)
            count = min(seen - self._first + 1, len(self._events) - 1)
            has_room = len(self._events) < coalesce.LAG // 2 and self._size < coalesce.LAG_BYTES // 2
            if self.status == "input_required" and has_room:  # who joins the call is asked, too
                questions = (at for at, event in enumerate(islice(self._events, count)) if type(event) is InputRequired)
                count = next(questions, count)
            self._drop(count)
        back = self._back
        if back is None or (self._readers and self._is_crowded):
            return
        if self._release():
            for reader in self._readers:
                reader.wake()
        if back.room is not None:
            back.room.set()
            self._back = None

    def _drop(self, count: int) -> None:
        if count > 0:
            if self._size:
                events, before = self._events, self._size
                self._size = _bytes(events[count:]) if len(events) < 2 * count else before - _bytes(events[:count])
            del self._events[:count]
            self._first += count


def _bytes(events: Sequence[CallEvent]) -> int:
    return sum(coalesce.payload(event) for event in events if type(event) in _MANY)


class _LogReader:
    """Reads a log: a `call.Reader` that never fails."""

    __slots__ = ("_log", "cursor", "moves", "wake")
    failed: None = None
    is_stored = is_behind = False

    def __init__(
        self, log: CallLog, cursor: int, wake: Callable[[], None], moves: Callable[[Reader], None] | None
    ) -> None:
        self._log = log
        self.cursor = cursor
        self.wake = wake
        self.moves = moves

    def take(self, limit: int | None = None) -> list[CallEvent]:
        log = self._log
        start = self.cursor + 1 - log._first
        events = log._events[start : None if limit is None else start + limit]
        if events:
            self.cursor += len(events)
            if self.cursor - log._first >= _KEPT or log._size >= _KEPT_BYTES:
                log._trim()
        return events

    @property
    def has_more(self) -> bool:
        log = self._log
        return self.cursor - log._first < len(log._events) - 1

    @property
    def unread(self) -> int:
        return max(len(self._log._events) - (self.cursor + 1 - self._log._first), 0)

    @property
    def at_end(self) -> bool:
        return self._log.ended and not self.has_more

    def take_entries(self, limit: int | None = None) -> Sequence[StoredEvent]:
        return ()

    def skip(self) -> int:
        return 0

    def close(self) -> None:
        log = self._log
        if self in log._readers:
            log._readers.remove(self)
            self.wake, self.moves = nobody, None
            log._trim()
