"""Merges events for slow readers; order, last values, content and ending stay. Sans-I/O."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Reader
from mcp_hub.events import CallEvent, Completed, Delta, Failed, InputRequired, Log, Progressed, ToolCall, ToolResult
from mcp_hub.types import RawJson, plural

LAG: Final = 8192
"""Unread events above which a reader is slow: more than one read of a pipe (256 KiB of the shortest notifications)."""

LAG_BYTES: Final = 1 << 20
"""Unread bytes of payload above which a reader is slow."""

OFTEN: Final = 50
"""Progress events a second that are not merged."""
_PROGRESS_EVERY: Final = 0.25
"""Seconds between merged progress events."""
_DELTA_HELD: Final = 0.05
"""Seconds that partial content waits for more."""
_DELTA_BYTES: Final = 4096
"""Bytes of merged content; larger content stays whole."""
_LOGS: Final = 50
"""Log messages a second; further ones are counted."""
_SECOND: Final = 1.0
_SLICE: Final = 256
"""Events taken from the log at once."""
_MOST_WAITING: Final = 8192
_MOST_BYTES: Final = 1 << 20
"""Waiting events and bytes."""


def merge(earlier: Progressed, new: Progressed) -> Progressed:
    return replace(new, skipped=earlier.skipped + new.skipped + 1)


def suppressed(count: int) -> Log:
    """A message in place of `count` dropped log messages."""
    text = f"{plural(count, 'log message')} suppressed: the reader was too slow"
    params = {"level": "warning", "logger": "mcp-hub", "data": text}
    return Log("warning", msgspec.json.encode(params))


class _Rate:
    __slots__ = ("_limit", "_oldest", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._oldest = 0  # index of the earliest time
        self._times: array[float] | None = None  # most streams say little

    def is_high(self, now: float) -> bool:
        return self._times is not None and now < self._times[self._oldest] + _SECOND

    def add(self, now: float) -> None:
        if self._times is None:
            self._times = array("d", [-math.inf]) * self._limit
        self._times[self._oldest] = now
        self._oldest = (self._oldest + 1) % self._limit


class _LogLimit(_Rate):
    """Admits log messages, or counts them until `due`."""

    __slots__ = ("count", "due")

    def __init__(self) -> None:
        super().__init__(_LOGS)
        self.count = 0
        self.due = 0.0

    def admits(self, now: float) -> bool:
        if not self.is_high(now):
            self.add(now)
            return True
        if not self.count:
            self.due = now + _SECOND
        self.count += 1
        return False

    def notice(self) -> Log:
        count, self.count = self.count, 0
        return suppressed(count)


class Coalescer:
    """Merges a call log's events for its stored stream. Times are a clock's seconds.

    `is_eager`: nothing is merged. Otherwise progress beyond 50 a second goes out 4 times a second (newest wins), a
    block's content waits 50 ms or for 4 KiB, logs beyond 50 a second are counted. `collect` bounds `size` (bytes) and
    `count`.
    """

    __slots__ = (
        "_delta_at", "_due", "_logs", "_pending", "_progress", "_progress_at", "_progress_due", "_progress_index",
        "is_eager", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_eager = False
        self.size = 0
        self._pending: list[CallEvent] = []
        self._progress_index: int | None = None  # index of the progress that a newer one replaces
        self._due: float | None = None  # of all that is neither held progress nor a count
        self._progress = _Rate(OFTEN)
        self._logs = _LogLimit()
        self._progress_at = self._delta_at = -math.inf  # taken last
        self._progress_due = 0.0

    def collect(self, slices: Iterator[Sequence[CallEvent]], time: float, *, is_eager: bool) -> None:
        """Takes slices of the log, as long as there is room."""
        self.is_eager = is_eager
        while self.count < _MOST_WAITING and self.size < _MOST_BYTES and (events := next(slices, None)) is not None:
            for event in events if is_eager or len(events) <= OFTEN else _merged(events):
                self.add(event, time)

    def alone(self, reader: Reader, time: float) -> Sequence[CallEvent]:
        """Takes what the reader has, while nothing waits; returns a single rare progress, which goes out as it is."""
        events = reader.take(_SLICE)
        if len(events) == 1 and type(event := events[0]) is Progressed and event.skipped < OFTEN:
            if not self._progress.is_high(time):
                self._progress.add(time)
                self._progress_at = time
                return events
        self.collect(iter((events,)), time, is_eager=False)
        return ()

    @property
    def count(self) -> int:
        return len(self._pending) + (self._logs.count > 0)

    @property
    def due(self) -> float | None:
        """The latest time for `take`, perhaps past; None: nothing pending."""
        if self.is_eager:
            return -math.inf if self.count else None
        due = self._due
        if self._progress_index is not None and (due is None or self._progress_due < due):
            due = self._progress_due
        if self._logs.count and (due is None or self._logs.due < due):
            due = self._logs.due
        return due

    def add(self, event: CallEvent, now: float) -> None:
        if self.is_eager:
            self._add_urgent(event, now)
        elif isinstance(event, Progressed):
            self._add_progress(event, now)
        elif isinstance(event, Delta):
            self._add_delta(event, now)
        elif isinstance(event, Log):
            self._add_log(event, now)
        else:
            self._add_urgent(event, now)

    def take(self, now: float) -> list[CallEvent]:
        """Takes pending events in order, except progress that is not due."""
        if self._logs.count and (self.is_eager or now >= self._logs.due):
            self._append(self._logs.notice(), now)
        waiting: list[CallEvent] = []
        if self._progress_index is not None and not self.is_eager and self._is_early(now):
            waiting.append(self._pending.pop(self._progress_index))
        taken, self._pending = self._pending, waiting
        self._progress_index = 0 if waiting else None
        self._due = None
        self.size = sum(map(payload, waiting))
        for event in taken:
            if isinstance(event, Progressed):
                self._progress_at = now
            elif isinstance(event, Delta):
                self._delta_at = now
        return taken

    def _is_early(self, now: float) -> bool:
        if sum(isinstance(event, Progressed) for event in self._pending) > 1:
            self._progress_due = now + _PROGRESS_EVERY
        return now < self._progress_due

    def _append(self, event: CallEvent, due: float) -> None:
        self._pending.append(event)
        self.size += payload(event)
        self._due = due if self._due is None else min(self._due, due)

    def _add_urgent(self, event: CallEvent, now: float) -> None:
        if self._logs.count:
            self._append(self._logs.notice(), now)
        self._progress_index = None
        self._append(event, now)

    def _add_progress(self, event: Progressed, now: float) -> None:
        is_often = self._progress.is_high(now) or event.skipped >= OFTEN  # the last of many
        self._progress.add(now)
        if not is_often:
            self._progress_index = None
            self._append(event, now)
            return
        if self._progress_index is None:
            self._progress_due = max(now, self._progress_at + _PROGRESS_EVERY)
        else:
            earlier = self._pending.pop(self._progress_index)
            assert isinstance(earlier, Progressed)
            self.size -= payload(earlier)
            event = merge(earlier, event)
        self._progress_index = len(self._pending)
        self._pending.append(event)
        self.size += payload(event)

    def _add_delta(self, event: Delta, now: float) -> None:
        index = len(self._pending) - 1
        if index >= 0 and index == self._progress_index:
            index -= 1  # progress does not come between
        last = self._pending[index] if index >= 0 else None
        is_late = len(event.content) >= _DELTA_BYTES or (self._due is None and now >= self._delta_at + _DELTA_HELD)
        if isinstance(last, Delta) and (last.channel, last.index) == (event.channel, event.index):
            if (content := _joined(last.content, event.content)) is not None:
                self._pending[index] = replace(last, content=content)
                self.size += len(content) - len(last.content)
                return
            is_late = True
        self._append(event, now if is_late else now + _DELTA_HELD)

    def _add_log(self, event: Log, now: float) -> None:
        if self._logs.admits(now):
            if self._logs.count:
                self._append(self._logs.notice(), now)
            self._append(event, now)


def _merged(events: Iterable[CallEvent]) -> Iterator[CallEvent]:
    """Replaces long runs of progress by their last event."""
    for kind, group in groupby(events, type):
        run = list(group)
        if kind is Progressed and len(run) > OFTEN:
            progressed = cast("list[Progressed]", run)
            hidden = len(progressed) - 1 + sum(progress.skipped for progress in progressed)
            run = [replace(progressed[-1], skipped=hidden)]
        yield from run


def _joined(first: RawJson, second: RawJson) -> bytes | None:
    if len(first) + len(second) > _DELTA_BYTES:
        return None
    texts = [bytes(content).strip() for content in (first, second)]
    if any(text[:1] != b"[" for text in texts):
        return None
    return b"[%b]" % b",".join(inner for text in texts if (inner := text[1:-1].strip()))


Places = tuple[tuple[int, int], ...]
"""Numbers of partial content: in the stream of the server that sent it, and in the call's own."""
_MOST_PLACES: Final = 256


def added(places: Places, origin: int, seq: int) -> Places:
    """With one more, if it has a server's number; keeps the first and newest."""
    if not origin:
        return places
    if places and origin <= places[-1][0]:  # the server has begun another stream
        places = ()
    return (*places[:1], *places[2 if len(places) >= _MOST_PLACES else 1 :], (origin, seq))


def taken_back(places: Places, origin: int, first: int) -> tuple[int, Places]:
    """The number from which a server's reset discards, and the places left; without an `origin` all, `first`. Merged
    content stays together.
    """
    if not origin or not places:
        return first, ()
    index = min(bisect_right(places, (origin, 0)), len(places) - 1)
    return places[index][1], places[:index]


def payload(event: CallEvent) -> int:
    """Bytes of its content."""
    if type(event) is Progressed:
        return sum(map(len, event.members.values())) if event.members else 0
    match event:
        case Completed(result=raw) | Log(params=raw) | InputRequired(params=raw):
            return len(raw)
        case Delta(content=raw) | ToolResult(content=raw) | ToolCall(arguments=raw):
            return len(raw)
        case Failed(error):
            return len(error.raw if error.raw is not None else error.message)
        case _:
            return 0


def slices(reader: Reader) -> Iterator[Sequence[CallEvent]]:
    """All that the reader has, as long as it is asked for."""
    while reader.has_more:
        yield reader.take(_SLICE)


def next_events(reader: Reader, limit: int) -> list[CallEvent]:
    """The next events: `limit`, or 1 MiB and a slice."""
    events, size = reader.take(_SLICE), 0
    while reader.has_more and len(events) < limit:
        size += sum(map(payload, events[-_SLICE:]))
        if size >= LAG_BYTES:
            break
        events += reader.take(_SLICE)
    return events
