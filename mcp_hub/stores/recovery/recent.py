"""Events that were confirmed in the last seconds: a server that fails, or another in its place, may not have them."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.types import CallId

_SECONDS: Final = 5.0
"""Longer than a server waits for its disk before it stops answering (2 s), and than a replica of it lags behind."""
_MOST: Final = 64 << 20
"""Bytes of events; the oldest go first."""


class RecentEvents:
    """Of the streams of this process, also of those that have ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._added: deque[tuple[float, CallId, deque[bytes], int, int]] = deque()  # when, of what, events, bytes
        self._rows: dict[CallId, StreamInfo] = {}
        self._lines: dict[CallId, deque[bytes]] = {}
        self._size = 0

    def add(self, row: StreamInfo, lines: Sequence[bytes]) -> None:
        """The store has confirmed the stream as the row says, the last events of which are `lines`."""
        now, size = self._clock.now(), sum(map(len, lines))
        self._rows[row.id] = row
        kept = self._lines.setdefault(row.id, deque())
        kept.extend(lines)
        self._added.append((now, row.id, kept, len(lines), size))
        self._size += size
        while self._added and (self._added[0][0] < now - _SECONDS or self._size > _MOST):
            self._drop()

    def _drop(self) -> None:
        _, id_, lines, count, size = self._added.popleft()
        self._size -= size
        for _ in range(min(count, len(lines))):
            lines.popleft()
        if not lines and self._lines.get(id_) is lines:
            del self._lines[id_], self._rows[id_]

    def take(self, stream: CallId) -> tuple[bytes, ...]:
        """The last events of a stream, which are not kept here any longer."""
        self._rows.pop(stream, None)
        lines = self._lines.pop(stream, deque())
        taken = tuple(lines)
        lines.clear()
        return taken

    def rows(self) -> list[StreamInfo]:
        """The streams with recent events or changes, as they were confirmed."""
        return list(self._rows.values())
