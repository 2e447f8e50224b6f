"""Merges events for a reader that does not keep up: progress (newest wins), partial content and log messages.

Order, the last value, all content and the ending are kept. Sans-I/O.
"""

import math
from collections import deque
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.events import CallEvent, Completed, Delta, Failed, InputRequired, Log, Progressed, ToolCall, ToolResult
from mcp_hub.types import RawJson, plural

LAG: Final = 8192
"""Unread events above which a reader counts as slow and merging begins: more than one read of an upstream's pipe can
hold (256 KiB of the shortest notifications), so that a reader which takes all there is each time never loses any."""

LAG_BYTES: Final = 1 << 20
"""The same in bytes of payload, of which a few events can have as many."""

OFTEN: Final = 50
"""Progress events in any second that are kept each by itself."""
_PROGRESS_EVERY: Final = 0.25
"""Seconds between two progress events of a stream when more come."""
_DELTA_HELD: Final = 0.05
"""Seconds that partial content waits for more of it."""
_DELTA_BYTES: Final = 4096
"""Of merged content; a larger one stays whole."""
_LOGS: Final = 50
"""Log messages in any second; the count of the others waits as long for something that it can go before."""
_SECOND: Final = 1.0


def merge(earlier: Progressed, new: Progressed) -> Progressed:
    """One notification that stands for both: the newer, which says how many it hides."""
    return replace(new, skipped=earlier.skipped + new.skipped + 1)


def suppressed(count: int) -> Log:
    """A message in place of `count` log messages that were dropped for a slow reader."""
    text = f"{plural(count, 'log message')} suppressed: the reader was too slow"
    params = {"level": "warning", "logger": "mcp-hub", "data": text}
    return Log("warning", msgspec.json.encode(params))


class _Rate:
    """The rate of events of a kind; it is high after `most` in one second."""

    __slots__ = ("_limit", "_times")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: deque[float] | None = None  # most streams say little

    def is_high(self, now: float) -> bool:
        times = self._times
        return times is not None and len(times) == self._limit and now < times[0] + _SECOND

    def add(self, now: float) -> None:
        if self._times is None:
            self._times = deque(maxlen=self._limit)
        self._times.append(now)


class _LogLimit(_Rate):
    """Admits log messages, or counts them; the count is `due` a second after the first one counted."""

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
        """Stands for those that were counted; the count begins again."""
        count, self.count = self.count, 0
        return suppressed(count)


class Coalescer:
    """Merges the events of a call's log for its stored stream. Times are a clock's seconds.

    `is_eager`: followers keep up, so nothing is merged and everything is due at once. Otherwise progress beyond 50 a
    second goes out at most 4 times a second, newest wins. Adjacent partial content of one block is merged for 50 ms
    or up to 4 KiB. 50 log messages a second pass, further ones are counted. Any other event goes at once, with all
    before it. Such events have no bound here: the writer stops at a `size` (bytes of payload) or `count`.
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

    def pace(self, *, is_eager: bool) -> None:
        """Whether followers keep up from now on."""
        self.is_eager = is_eager

    @property
    def count(self) -> int:
        """Number of pending events."""
        return len(self._pending) + (self._logs.count > 0)

    @property
    def due(self) -> float | None:
        """When `take` should be called at the latest, which may have passed; None if nothing is pending."""
        if self.is_eager:
            return -math.inf if self.count else None
        due = self._due
        if self._progress_index is not None and (due is None or self._progress_due < due):
            due = self._progress_due
        if self._logs.count and (due is None or self._logs.due < due):
            due = self._logs.due
        return due

    def add(self, event: CallEvent, now: float) -> None:
        """Takes in one event; time never goes back."""
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
        """Pending events in order, without progress that may be replaced and a count that ends the list."""
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
        is_often = self._progress.is_high(now)
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


def _joined(first: RawJson, second: RawJson) -> bytes | None:
    """Two encoded arrays as one; None if that would be too long or one of them is not an array."""
    if len(first) + len(second) > _DELTA_BYTES:
        return None
    texts = [bytes(content).strip() for content in (first, second)]
    if any(text[:1] != b"[" for text in texts):
        return None
    return b"[%b]" % b",".join(inner for text in texts if (inner := text[1:-1].strip()))


def payload(event: CallEvent) -> int:
    """Bytes of what peers sent, which is what makes an event large."""
    match event:
        case Progressed(members=members):
            return sum(map(len, members.values())) if members else 0
        case Completed(result=raw) | Log(params=raw) | InputRequired(params=raw):
            return len(raw)
        case Delta(content=raw) | ToolResult(content=raw) | ToolCall(arguments=raw):
            return len(raw)
        case Failed(error):
            return len(error.raw if error.raw is not None else error.message)
        case _:
            return 0
