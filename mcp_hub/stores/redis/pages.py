"""Reads pages of events with their row in one step, up to a damaged chunk."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Final

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import EventPage, Fetched
from mcp_hub.stores.limits import PAGE_BYTES
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.link import Command, Link, LinkJob, Reply, script
from mcp_hub.stores.redis.quarantine import Quarantine
from mcp_hub.stores.redis.records import StoredChunk, row_of
from mcp_hub.stores.redis.scripts import FETCH
from mcp_hub.types import CallId

_DAMAGED: Final = "not a chunk of events"
_ATTEMPTS: Final = 64
"""To read a page whose chunks are damaged, one after the other."""


class Pages:
    """Calls `behind` for a stream with foreign entries after its last event."""

    def __init__(
        self, keys: RedisKeys, reader: Link, quarantine: Quarantine, behind: Callable[[StreamInfo], None]
    ) -> None:
        self._keys = keys
        self._reader = reader
        self._quarantine = quarantine
        self._behind = behind

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched, attempts: int = _ATTEMPTS) -> None:
        """Reads again without a damaged first chunk."""
        limit = max(limit, 1)
        keys = self._keys.stream(stream)

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            fields, stored, *damaged = replies[0]
            try:
                row = row_of(stream, fields)
            except StoreError as error:
                self._quarantine.row(keys.row, fields, str(error), lambda: callback(None))
                return
            if row is None:
                callback(None)
                return
            chunks, bad = _sound(stored)
            if damaged or bad:
                self._behind(row)
                again = partial(self.fetch, stream, after, limit, callback, attempts - 1)
                is_empty = not chunks and attempts > 0
                self._quarantine.members(keys.events, [*damaged, *bad], _DAMAGED, again if is_empty else None)
                if is_empty:
                    return
            if any(chunk.parts for chunk in chunks):
                self._complete(row, chunks, after, limit, callback)
            else:
                self._finish(row, [(chunk, chunk.body) for chunk in chunks], after, limit, callback)

        command = script(FETCH, [keys.row, keys.events], max(after, 0) + 1, limit, PAGE_BYTES)
        self._reader.submit(LinkJob([command], answered))

    def _complete(
        self, row: StreamInfo, chunks: Sequence[StoredChunk], after: int, limit: int, callback: Fetched
    ) -> None:
        parts = self._keys.stream(row.id).parts
        commands: list[Command] = [
            ("HMGET", parts, *(f"{chunk.name}:{number}" for number in range(1, chunk.parts + 1)))
            for chunk in chunks
            if chunk.parts
        ]

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            remaining = iter(replies)
            every = [(chunk, next(remaining) if chunk.parts else [chunk.body]) for chunk in chunks]
            # up to a chunk that was trimmed or deleted meanwhile
            there = takewhile(lambda pieces: None not in pieces[1], every)
            self._finish(row, [(chunk, b"".join(pieces)) for chunk, pieces in there], after, limit, callback)

        self._reader.submit(LinkJob(commands, answered))

    def _finish(
        self, row: StreamInfo, chunks: Sequence[tuple[StoredChunk, bytes]], after: int, limit: int, callback: Fetched
    ) -> None:
        lines: list[tuple[int, list[bytes]]] = []
        for chunk, body in chunks:
            try:
                lines.append((chunk.first, chunk.lines(body)))
            except ValueError:
                self._quarantine.members(self._keys.stream(row.id).events, [b"%d-0" % chunk.last], _DAMAGED)
                break
        callback(_page(row, lines, after, limit))


def _sound(stored: Sequence[Sequence[bytes]]) -> tuple[list[StoredChunk], list[bytes]]:
    chunks: list[StoredChunk] = []
    for reply in stored:
        try:
            chunks.append(StoredChunk.of(reply))
        except ValueError:
            return chunks, [reply[3]]
    return chunks, []


def _page(row: StreamInfo, chunks: Sequence[tuple[int, list[bytes]]], after: int, limit: int) -> EventPage:
    start = max(after + 1, row.first)
    lines: list[bytes] = []
    room = PAGE_BYTES
    for first, events in chunks:
        if first > start + len(lines):
            if lines:
                break
            start = first
        for line in events[start + len(lines) - first :]:
            room -= len(line)
            if lines and (len(lines) >= limit or room < 0):
                return EventPage(row, tuple(lines), start)
            lines.append(line)
    return EventPage(row, tuple(lines), start if lines else row.last + 1)
