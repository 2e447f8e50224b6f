"""Encoded rows and chunks; all that is read is checked."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, damage
from mcp_hub.stores.redis.keys import instance_id
from mcp_hub.types import CallId

_BYTES: Final = ("continuation", "info")
"""Fields of a row that are bytes."""
_SET: Final = ("id", "epoch", "first", "last", "expires")
"""Fields that a script sets."""
_LONGEST: Final = 32 << 20
"""Bytes of one field of a record."""
_MOST_PARTS: Final = 9999
"""Limit of one chunk."""


def pairs(reply: object) -> dict[bytes, bytes]:
    """A hash from a mapping or a flat list. Raises `StoreError`."""
    if isinstance(reply, dict):
        fields: Mapping[Any, Any] = reply
    elif isinstance(reply, list):
        fields = dict(zip(reply[::2], reply[1::2], strict=True))
    else:
        fields = {0: 0}
    if not all(isinstance(part, bytes) and len(part) <= _LONGEST for pair in fields.items() for part in pair):
        raise StoreError("the server sent something that is not a record of this hub")
    return dict(fields)


def row_of(stream: CallId, reply: object) -> StreamInfo | None:
    """The row in a hash; None if empty. Raises `StoreError`."""
    fields = pairs(reply)
    if not fields:
        return None
    try:
        values = {_read(name): value for name, value in fields.items()}
        text = {name: _read(value) for name, value in values.items() if name not in _BYTES}
        row = msgspec.convert({**text, "id": stream}, StreamInfo, strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise StoreError(f"stream {stream}: its record is damaged: {error}") from None
    reason = damage(row) or ("" if _is_owner(row.owner) else "its owner is not a replica")
    if reason:
        raise StoreError(f"stream {stream}: its record is damaged: {reason}")
    continuation, info = (fields.get(name.encode()) or None for name in _BYTES)
    return msgspec.structs.replace(row, continuation=continuation, info=info)


def fields_of(row: StreamInfo) -> list[str | bytes]:
    """Fields of a new row that the script does not set."""
    fields: list[str | bytes] = []
    for name in StreamInfo.__struct_fields__:
        value = getattr(row, name)
        if name not in _SET and value is not None:
            fields += (name, value if isinstance(value, bytes) else _text(value))
    return fields


def changes_of(change: Change) -> list[str | bytes]:
    """Fields that an append changes; an empty value deletes."""
    fields: list[str | bytes] = []
    for name, value in msgspec.structs.asdict(change).items():
        if name == "frees_key":
            fields += ("key", "") if value else ()
        elif value is not None:
            fields += (name, value if isinstance(value, bytes) else _text(value))
    return fields


def _text(value: str | float) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value).encode()


def _read(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def _is_owner(owner: str) -> bool:
    return not owner or instance_id(owner.encode("utf-8", "replace")) is not None


class StoredChunk(NamedTuple):
    """A chunk from a script; its body may be in `parts` parts named `name`."""

    first: int
    last: int
    size: int
    name: str
    parts: int
    body: bytes

    @classmethod
    def of(cls, reply: Sequence[bytes]) -> "StoredChunk":
        """Raises `ValueError`."""
        first, part, body, id_, size = reply
        name, _, parts = part.decode("ascii").rpartition(":")
        chunk = cls(
            first=int(first),
            last=int(id_.partition(b"-")[0]),
            size=int(size),
            name=name,
            parts=int(parts or 0),
            body=body,
        )
        if chunk.parts > _MOST_PARTS:
            raise ValueError("too many parts")
        return chunk

    def lines(self, body: bytes) -> list[bytes]:
        """The events in `body`. Raises `ValueError` for a wrong number or size."""
        lines = body.split(b"\n")
        if len(body) != self.size or len(lines) != self.last - self.first + 1:
            raise ValueError("not as many events as it has numbers")
        return lines
