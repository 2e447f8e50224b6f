"""Decisions that all stores share: which appends are allowed, and how they change the row. Pure."""

from typing import Final, Protocol

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import Change, Chunk
from mcp_hub.types import CallId

ENDINGS: Final = frozenset({"completed", "failed", "cancelled"})


class Head(Protocol):
    """The facts that decide whether a stream takes an append."""

    @property
    def epoch(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def has_ended(self) -> bool: ...


def joined(chunk: Chunk) -> bytes:
    """The lines as they are kept, parted by line breaks. Raises `StoreError` for a line that holds one."""
    body = b"\n".join(chunk.lines)
    if body.count(b"\n") >= max(len(chunk.lines), 1):
        raise StoreError(f"events from {chunk.first} on: an event holds a line break")
    return body


def begin(row: StreamInfo, chunk: Chunk) -> StreamInfo:
    """The row of a new stream with its first events. Raises `StoreError` if they are not the next."""
    if chunk.first != row.last + 1:
        raise StoreError(f"stream {row.id}: begins with event {chunk.first} instead of {row.last + 1}")
    expires = row.updated + row.ttl if row.has_ended else None
    return msgspec.structs.replace(row, first=chunk.first, last=chunk.last, expires=expires)


def unknown(stream: CallId) -> Fenced:
    """The outcome of an append to a stream that is missing or gone."""
    return Fenced(f"stream {stream}: no longer kept")


def refuse(stream: CallId, row: Head, epoch: int, chunk: Chunk) -> None:
    """Raises `Fenced` unless the stream takes the chunk from the owner of this epoch."""
    if row.has_ended:
        raise Fenced(f"stream {stream}: has ended with event {row.last}")
    if epoch != row.epoch:
        raise Fenced(f"stream {stream}: epoch {epoch} is over, it is {row.epoch} now")
    if chunk.lines and chunk.first != row.last + 1:
        raise Fenced(f"stream {stream}: event {chunk.first} does not follow {row.last}")


def expiry(change: Change, ttl: float) -> float | None:
    """When the stream expires after this change; None while it runs. `ttl` applies unless the change has its own."""
    if change.status not in ENDINGS:
        return None
    return change.updated + (ttl if change.ttl is None else change.ttl)


def changed(row: StreamInfo, chunk: Chunk, change: Change) -> StreamInfo:
    """The row after an append that is not refused."""
    given = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
    if given.pop("frees_key"):
        given["key"] = None
    last = chunk.last if chunk.lines else row.last
    return msgspec.structs.replace(row, **given, last=last, expires=expiry(change, row.ttl))
