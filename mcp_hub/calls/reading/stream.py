"""A durable stream in this process: row, latest committed events, followers.

Followers have no queue: recent events come from a bounded tail in memory, older ones from the store, each page once.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from weakref import WeakSet

import anyio
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.calls.coalesce import Places, added, taken_back
from mcp_hub.calls.log import nobody
from mcp_hub.calls.progress import last_line
from mcp_hub.calls.reading.stored import PAGE, ending_of, event_of
from mcp_hub.errors import Busy, EventsGone, HubError, InvalidParams, StoreError, UnknownStream
from mcp_hub.events import Attempt, CallEvent, Delta, Progressed, Reset
from mcp_hub.stores.base import NO_ANSWER, EventPage, Fetched, StreamLog
from mcp_hub.types import RawJson

_TAIL_EVENTS: Final = 8192
_TAIL_BYTES: Final = 2 << 20
"""Bytes of committed events in memory, for followers that keep up."""
_KEPT_EVENTS: Final = 256
_KEPT_BYTES: Final = 64 << 10
"""Without followers: one that comes back is served while the store hangs."""
_SHARED_BYTES: Final = 4 << 20
_LEAST: Final = 16
"""All streams without followers share these, but each has a sixteenth of `_KEPT_BYTES` and `_KEPT_EVENTS`."""
_LOOKED_AT: Final = 1024
"""Characters, and pieces, of partial text that a last line is looked for in: many lines are short, many pieces long."""
_PIECES: Final = 32


class _PartialContent:
    """The present attempt's partial content: whether there `is_any`, its first event, and its unfinished line.

    `_latest` and `_places` are those at a server that streams. `attempt` is 0 for a call that another hub began.
    """

    __slots__ = ("_block", "_first", "_latest", "_line", "_message", "_places", "attempt", "is_any")

    def __init__(self, attempt: int) -> None:
        self.is_any = False
        self.attempt = attempt
        self._first = self._latest = 0
        self._places: Places = ()
        self._line = ""
        self._block: tuple[str, int] | None = None  # of `_line`
        self._message: RawJson | None = None  # the last one of progress, which heartbeats repeat

    def saw(self, event: Delta | Reset) -> bool:
        """Whether it is for the log: a server may take back what it has not sent."""
        if isinstance(event, Delta) or not event.origin:
            self.is_any = isinstance(event, Delta)
            self._latest = (event.origin or self._latest) if self.is_any else 0
            return True
        takes_any, self._latest = event.origin <= self._latest, min(event.origin - 1, self._latest)
        return takes_any and self.attempt > 0

    def placed(self, event: Attempt | Delta | Reset, seq: int) -> Attempt | Delta | Reset:
        """The event to write under this number; completes a `Reset`."""
        if isinstance(event, Attempt):
            self.attempt = event.number
            return event
        if isinstance(event, Delta):
            self._first = self._first or seq
            self._places = added(self._places, event.origin, seq)
            return event
        discard_from, self._places = taken_back(self._places, event.origin, self._first or seq - 1)
        self._first = self._first if self._first < discard_from else 0
        return msgspec.structs.replace(event, number=self.attempt or event.number, discard_from=discard_from)

    def newest(self, events: Sequence[CallEvent]) -> str | None:
        """The last line that these say, in partial text or a progress message; None: nothing."""
        deltas: list[Delta] = []
        message: str | None = None
        is_last = False
        for event in events:
            if type(event) is Delta:
                deltas.append(event)
                is_last = False
            elif type(event) is Reset:
                self._line, self._block = "", None
                deltas.clear()
            elif type(event) is Progressed and self._is_news(event):
                message, is_last = event.message, True
        line = self._continued(deltas) if deltas else ""
        spoken = last_line(message) if message and (is_last or not line) else ""
        return spoken or line or None

    def _is_news(self, event: Progressed) -> bool:
        message = event.members.get("message") if event.members else None
        if message is None or event.is_hubs and message == self._message:
            return False
        self._message = message
        return True

    def _continued(self, deltas: list[Delta]) -> str:
        """The last line, of which the last pieces are read."""
        text, block = "", (deltas[-1].channel, deltas[-1].index)
        for delta in reversed(deltas[-_PIECES:]):
            if (delta.channel, delta.index) != block:
                break
            text = delta.text + text
            if "\n" in text.rstrip() or len(text) >= _LOOKED_AT:
                break
        else:
            if block == self._block and len(deltas) <= _PIECES:
                text = self._line + text
        self._line, self._block = text[-_LOOKED_AT:], block
        return last_line(text)


class Committed(msgspec.Struct, frozen=True, gc=False):
    """A stored event: its line, and the event if decoded."""

    line: bytes
    event: CallEvent | None = None

    @property
    def read(self) -> CallEvent:
        """The event; `Started` if unreadable."""
        return self.event if self.event is not None else event_of(self.line)


def _kept() -> tuple[int, int]:
    share = max(min(_SHARED_BYTES // len(_streams), _KEPT_BYTES), _KEPT_BYTES // _LEAST)
    return _KEPT_EVENTS * share // _KEPT_BYTES, share


class Stream:
    """One stream. `row` is as of the last known commit; `failed` ends it here; `is_lost`: another hub has it."""

    __slots__ = (
        "__weakref__", "_waiting", "_bytes", "_tail", "_tail_first", "content", "failed", "is_lost", "readers", "row",
        "store",
    )  # fmt: skip

    def __init__(self, row: StreamInfo, store: StreamLog) -> None:
        self.row = row
        self.readers: tuple[StreamReader, ...] = ()
        self.failed: HubError | None = None
        self.is_lost = False
        self.content = _PartialContent(0 if row.last else 1)
        self.store = store
        self._waiting: dict[int, list[Fetched]] = {}  # who waits for the page behind an event
        self._tail: list[Committed] | None = None  # from event `_tail_first` on
        self._tail_first = row.last + 1
        self._bytes = 0
        _streams.add(self)

    def committed(self, row: StreamInfo, events: Sequence[Committed] = ()) -> None:
        """Takes a newer row, perhaps with its last `events`."""
        if (row.epoch, row.last) < (self.row.epoch, self.row.last):
            return
        is_first, is_gap = not self.row.last, row.last > self.row.last
        self.is_lost = self.is_lost or row.epoch > self.row.epoch  # until `own`
        self.row = row if row.first >= self.row.first else msgspec.structs.replace(row, first=self.row.first)
        if events:
            self._extend(row.last + 1 - len(events), events)
        elif is_gap and not self.readers:
            self._tail = None
        for reader in self.readers:
            if not reader.is_closed:
                reader.look()
                if is_first:  # there is a place to come back to
                    reader.wake()

    def _extend(self, first: int, events: Sequence[Committed]) -> None:
        tail = self._tail
        if tail is None or first != self._tail_first + len(tail):
            tail = self._tail = []  # most streams have one event, for which a deque would hold 0.7 kB
            self._tail_first, self._bytes = first, 0
        tail += events
        self._bytes += sum(len(event.line) for event in events)
        if len(tail) * _LEAST <= _KEPT_EVENTS and self._bytes * _LEAST <= _KEPT_BYTES:
            return  # as most do: its share is more
        (events_kept, bytes_kept), gone = (_TAIL_EVENTS, _TAIL_BYTES) if self.readers else _kept(), 0
        while gone < len(tail) - 1 and (len(tail) - gone > events_kept or self._bytes > bytes_kept):
            self._bytes -= len(tail[gone].line)
            gone += 1
        del tail[:gone]
        self._tail_first += gone

    def fetch(self, after: int, receive: Fetched) -> None:
        """Fetches the page after `after`; concurrent requests share a read."""
        if (waiting := self._waiting.get(after)) is not None:
            waiting.append(receive)
            return
        self._waiting[after] = [receive]
        self.store.fetch(self.row.id, after, PAGE, partial(self._fetched, after))

    def _fetched(self, after: int, page: EventPage | StoreError | None) -> None:
        waiting = self._waiting.pop(after)
        if isinstance(page, EventPage):
            if page.lines and (self._tail is None or page.first >= self._tail_first + len(self._tail)):
                self._extend(page.first, list(map(Committed, page.lines)))
            if page.row.last > self.row.last:
                self.committed(page.row)
        for receive in waiting:
            receive(page)

    async def refresh(self, after: int | None) -> None:
        """Takes a newer stored row, unless all events after `after` are in memory. Raises `StoreError`."""
        if after is not None and (after == self.row.last or self.has_recent(after)):
            return
        row = await self.store.find(self.row.id)
        if row is not None and row.last > self.row.last:
            self.committed(row)
        elif row is not None and row.first > self.row.first:
            self.row = msgspec.structs.replace(self.row, first=row.first)

    def fail(self, error: HubError) -> None:
        self.failed = error
        for reader in self.readers:
            reader.failed = error
            reader.wake()

    def own(self) -> None:
        self.is_lost = False

    def fenced(self, error: StoreError) -> None:
        """Readers follow the new owner, come back if the store cannot name it, or fail with `error`."""
        epoch, self.is_lost = self.row.epoch - self.is_lost, True  # the new owner's row may be here already

        def looked(page: EventPage | StoreError | None) -> None:
            if isinstance(page, EventPage) and (page.row.has_ended or page.row.epoch > epoch):
                self.committed(page.row)
            elif self.row.last and (isinstance(page, StoreError) or not self.store.is_settled):
                interrupt(self)
            else:
                self.fail(page if isinstance(page, StoreError) else error)

        self.store.fetch(self.row.id, self.row.last, 1, looked)

    async def begun(self) -> None:
        if self.row.last:
            return
        news = anyio.Event()
        reader = self.reader(news.set, 0)
        try:
            while not self.row.last and self.failed is None:
                await news.wait()
                news = anyio.Event()
                reader.wake = news.set
        finally:
            reader.close()

    def reader(self, wake: Callable[[], None], after: int, *, is_follower: bool = False) -> "StreamReader":
        reader = StreamReader(self, after, wake, is_follower=is_follower)
        self.readers += (reader,)
        reader.look()
        return reader

    def follow(self, wake: Callable[[], None], after: int, limit: int) -> "StreamReader":
        """A reader for a client, one of `limit`. Raises `EventsGone`, `Busy`, `InvalidParams` beyond the end,
        `StoreError` if another hub may be ahead.
        """
        row = self.row
        if after > row.last and not (row.has_ended or self.store.is_settled):
            raise StoreError(f"stream {row.id}: event {after} is not in the store yet. Try again in a moment.")
        if after > row.last:
            reason = f"cursor {after} is beyond the stream's last event, {row.last}"
            raise InvalidParams(reason, symbol="invalid_cursor")
        if after + 1 < row.first:
            raise EventsGone(row.first)
        if sum(reader.is_follower for reader in self.readers) >= limit:
            raise Busy.at(f"{limit} followers of this stream already", "followers", limit)
        return self.reader(wake, after, is_follower=True)

    @property
    def behind(self) -> float:
        """Events that no reader has taken; infinity without readers."""
        return self.row.last - max(reader.cursor for reader in self.readers) if self.readers else math.inf

    def has_recent(self, after: int) -> bool:
        return self._tail is not None and 0 <= after + 1 - self._tail_first < len(self._tail)

    def recent(self, after: int, limit: int) -> list[Committed]:
        """Events after `after` in memory."""
        tail = self._tail
        if tail is None or not self.has_recent(after):
            return []
        start = after + 1 - self._tail_first
        return tail[start : start + limit]


def interrupt(stream: Stream) -> None:
    """Ends reads that have waited too long for the store."""
    for reader in stream.readers:
        reader.failed = reader.failed or StoreError(NO_ANSWER)
        reader.wake()


_streams: Final[WeakSet[Stream]] = WeakSet()


class StreamReader:
    """Reads a stream: a `call.Reader`."""

    __slots__ = ("_waiting", "_page", "cursor", "failed", "is_closed", "is_follower", "stream", "wake")
    is_stored = True

    def __init__(self, stream: Stream, after: int, wake: Callable[[], None], *, is_follower: bool) -> None:
        self.stream = stream
        self.is_follower = is_follower
        self.cursor = after
        self.wake = wake
        self.failed = stream.failed
        self.is_closed = False
        self._page: deque[Committed] | None = None  # fetched, from the one behind the cursor on
        self._waiting: int | None = None  # the cursor that a page is being fetched for

    @property
    def has_more(self) -> bool:
        """Whether `take` has events now."""
        return self._page is not None or self.stream.has_recent(self.cursor)

    @property
    def is_behind(self) -> bool:
        return self.cursor < self.stream.row.last

    @property
    def at_end(self) -> bool:
        return self.stream.row.has_ended and self.cursor >= self.stream.row.last

    def take(self, limit: int | None = None) -> list[CallEvent]:
        return [entry.read for entry in self.take_entries(limit)]

    def take_entries(self, limit: int | None = None) -> list[Committed]:
        """The next events with lines; only endings are surely decoded."""
        page = self._page
        if page is not None:
            entries = [page.popleft() for _ in range(min(limit or PAGE, len(page)))]
            if not page:
                self._page = None
        else:
            entries = self.stream.recent(self.cursor, limit or PAGE)
        self.cursor += len(entries)
        if entries and self.at_end and (last := entries[-1]).event is None:
            entries[-1] = Committed(last.line, ending_of(self.stream.row, last.line))
        self._fill()
        return entries

    def skip(self) -> int:
        if not isinstance(self.failed, EventsGone):
            return 0
        skipped = self.failed.earliest - 1 - self.cursor
        self.cursor += skipped
        self.failed = self.stream.failed
        self.look()
        return skipped

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.wake = nobody
            self.stream.readers = tuple(reader for reader in self.stream.readers if reader is not self)

    def look(self) -> None:
        if self.has_more or self.at_end or self.failed is not None:
            self.wake()
        self._fill()

    def _fill(self) -> None:
        is_idle = self._waiting is None and not (self.is_closed or self.failed or self.has_more)
        if is_idle and self.cursor < self.stream.row.last:
            self._waiting = self.cursor
            self.stream.fetch(self.cursor, self._fetched)

    def _fetched(self, page: EventPage | StoreError | None) -> None:
        cursor, self._waiting = self._waiting, None
        if self.is_closed:
            return
        if cursor == self.cursor and not self.has_more:  # else it was committed meanwhile and came from memory
            self._receive(page)
        self.wake()
        self._fill()

    def _receive(self, page: EventPage | StoreError | None) -> None:
        if isinstance(page, StoreError):
            self.failed = page
        elif page is None:
            self.failed = UnknownStream()
        elif not page.lines:
            self.failed = StoreError(f"stream {self.stream.row.id}: event {self.cursor + 1} cannot be read")
        elif page.first > self.cursor + 1:
            self.failed = EventsGone(page.first)
        else:
            self._page = deque(map(Committed, page.lines))
