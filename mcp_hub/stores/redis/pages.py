"""Pages of stored events, read with their row in one step; long chunks are put together from their parts."""

from collections.abc import Sequence

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import EventPage, Fetched
from mcp_hub.stores.limits import PAGE_BYTES
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.link import Command, Link, LinkJob, Reply, script
from mcp_hub.stores.redis.records import row_of
from mcp_hub.stores.redis.scripts import FETCH
from mcp_hub.types import CallId

Chunks = Sequence[tuple[int, bytes]]
"""Of each chunk its first number, and its body."""


class Pages:
    """Reads on one link."""

    def __init__(self, keys: RedisKeys, reader: Link) -> None:
        self._keys = keys
        self._reader = reader

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        """As `EventStore.fetch`."""
        most = max(most, 1)

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                done(replies)
                return
            try:
                row = row_of(stream, replies[0][0])
            except StoreError as error:
                done(error)
                return
            if row is None:
                done(None)
            elif any(part for _, part, _ in replies[0][1]):
                self._complete(row, replies[0][1], after, most, done)
            else:
                done(_page(row, [(int(first), body) for first, _, body in replies[0][1]], after, most))

        keys = self._keys.stream(stream)
        command = script(FETCH, [keys.row, keys.events], max(after, 0) + 1, most, PAGE_BYTES)
        self._reader.submit(LinkJob([command], answered))

    def _complete(
        self, row: StreamInfo, chunks: Sequence[Sequence[bytes]], after: int, most: int, done: Fetched
    ) -> None:
        """The page, with the parts of its long chunks."""
        parts = self._keys.stream(row.id).parts
        asked: list[Command] = []
        for _, part, _ in chunks:
            if part:
                name, _, count = part.decode("ascii", "replace").rpartition(":")
                asked.append(("HMGET", parts, *(f"{name}:{number}" for number in range(1, int(count) + 1))))

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                done(replies)
                return
            found = iter(replies)
            whole: list[tuple[int, bytes]] = []
            for first, part, body in chunks:
                pieces = next(found) if part else [body]
                if any(piece is None for piece in pieces):  # trimmed or deleted meanwhile
                    break
                whole.append((int(first), b"".join(pieces)))
            done(_page(row, whole, after, most))

        self._reader.submit(LinkJob(asked, answered))


def _page(row: StreamInfo, chunks: Chunks, after: int, most: int) -> EventPage:
    start = max(after + 1, row.first)
    lines: list[bytes] = []
    room = PAGE_BYTES
    for first, body in chunks:
        for line in body.split(b"\n")[max(start - first, 0) :]:
            room -= len(line)
            if lines and (len(lines) >= most or room < 0):
                return EventPage(row, tuple(lines), start)
            lines.append(line)
    return EventPage(row, tuple(lines), start if lines else row.last + 1)
