"""Streams that are in memory because their file failed, and what of them the file holds."""

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Appended, Chunk, EventPage, Message
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId


class MemoryFallback:
    """`memory` holds their events behind the last one in the file, or all if the file does not know them."""

    def __init__(self, limits: StoreLimits, instance: str) -> None:
        self.memory = MemoryStore(limits, instance)
        self._home: dict[CallId, int | None] = {}
        """The last event in the file; None if the file does not know the stream."""
        self.begins: dict[CallId, int] = {}
        """The first event in the file of those that it knows."""
        self._strays: set[CallId] = set()
        """Streams that the file does not take back."""

    def row(self, stream: CallId) -> StreamInfo | None:
        """As it is in memory, where `first` is the first event that is there; None if it is not away."""
        return self.memory.peek(stream)

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """Begins a stream that the file does not know."""

        def on_done(error: StoreError | None) -> None:
            if error is None:
                self._home[row.id] = None
            done(error)

        self.memory.create(row, chunk, on_done)

    def leave(self, row: StreamInfo, lines: tuple[bytes, ...] = ()) -> None:
        """Continues in memory a stream that the file holds as the row says; but for `lines`, its last, in any case."""
        outcomes: list[StoreError | None] = []
        last = Chunk(row.last + 1 - len(lines), lines)
        self.memory.create(row, last, outcomes.append)
        if outcomes[0] is not None:  # the key has been used again meanwhile
            self.memory.create(msgspec.structs.replace(row, key=None), last, outcomes.append)
        self._home[row.id], self.begins[row.id] = last.first - 1, row.first

    # -- what the file holds

    def is_known(self, stream: CallId) -> bool:
        """Whether the file knows it."""
        return self._home.get(stream) is not None

    def is_before(self, stream: CallId, after: int) -> bool:
        """Whether what follows `after` is in the file."""
        here, last = self.memory.peek(stream), self._home.get(stream)
        return here is not None and last is not None and after < last and here.first == last + 1

    def whole(self, here: StreamInfo, kept: StreamInfo | None) -> StreamInfo:
        """The row in memory with the events in the file counted in, if they are still next to those in memory."""
        last = self._home.get(here.id)
        if kept is None or last is None or here.first != last + 1 or kept.last < last:
            return here
        return msgspec.structs.replace(here, first=min(kept.first, here.first))

    def joined(self, page: EventPage) -> EventPage:
        """A page of the file without what is in memory, and with the row as it is."""
        here, last = self.memory.peek(page.row.id), self._home.get(page.row.id)
        if here is None or last is None:
            return page
        return EventPage(self.whole(here, page.row), page.lines[: max(last + 1 - page.first, 0)], page.first)

    # -- coming home

    def can_return(self, stream: CallId) -> bool:
        """Whether the events in memory follow those in the file."""
        here, last = self.memory.peek(stream), self._home.get(stream)
        return here is not None and stream not in self._strays and (last is None or here.first == last + 1)

    def returnable(self) -> list[StreamInfo]:
        """Streams that can return; those that are no longer kept are forgotten."""
        self._home = {id_: last for id_, last in self._home.items() if self.memory.peek(id_) is not None}
        self.begins = {id_: first for id_, first in self.begins.items() if id_ in self._home}
        self._strays &= self._home.keys()
        rows = [row for id_ in self._home if (row := self.memory.peek(id_)) is not None]
        return [row for row in rows if self.can_return(row.id)]

    def rest(self, stream: CallId, lines: tuple[bytes, ...]) -> Chunk:
        """The events that the file lacks, with `lines` behind them."""
        here = self.memory.peek(stream)
        assert here is not None
        return Chunk(here.first, self.memory.lines(stream) + lines)

    def returned(self, stream: CallId) -> list[Message]:
        """Forgets a stream that the file holds all of; the messages that wait for it."""
        self._home.pop(stream, None)
        self.begins.pop(stream, None)
        return [] if self.memory.peek(stream) is None else self.memory.drop(stream)

    def refused(self, stream: CallId) -> None:
        """The file does not take it back. If it was to know it, it may have been made anew; else that is final."""
        if self._home.get(stream) is None:
            self._strays.add(stream)
        else:
            self._home[stream] = None
