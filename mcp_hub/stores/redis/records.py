"""Rows and chunks as they are kept on the server. All that is read is checked: others may write there."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change
from mcp_hub.types import CallId

_BYTES: Final = ("continuation", "info")
"""Fields of a row that are bytes."""
_SET: Final = ("id", "epoch", "first", "last", "expires")
"""Fields that a script sets."""
_LONGEST: Final = 32 << 20
_LONGEST_TEXT: Final = 1 << 20
"""Bytes of one field of a record, and characters of one that is text."""
_MOST: Final = 1 << 53
"""Number of an event or an epoch: beyond it scripts cannot count."""


def pairs(reply: object) -> dict[bytes, bytes]:
    """A hash as the server sends it: a mapping, or fields and values in turn. Raises `StoreError`."""
    if isinstance(reply, dict):
        found: Mapping[Any, Any] = reply
    elif isinstance(reply, list):
        found = dict(zip(reply[::2], reply[1::2], strict=True))
    else:
        found = {0: 0}
    if not all(isinstance(part, bytes) and len(part) <= _LONGEST for pair in found.items() for part in pair):
        raise StoreError("the server sent something that is not a record of this hub")
    return dict(found)


def row_of(stream: CallId, reply: object) -> StreamInfo | None:
    """The row of a stream from its hash; None for an empty one. Raises `StoreError` for one that is not a row."""
    fields = pairs(reply)
    if not fields:
        return None
    try:
        known = {_read(name): value for name, value in fields.items()}
        text = {name: _read(value) for name, value in known.items() if name not in _BYTES}
        row = msgspec.convert({**text, "id": stream}, StreamInfo, strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise StoreError(f"stream {stream}: its record is damaged: {error}") from None
    is_sound = 0 < row.epoch < _MOST and 0 < row.first <= row.last + 1 <= _MOST
    if not is_sound or max(map(len, text.values())) > _LONGEST_TEXT:
        raise StoreError(f"stream {stream}: its record is damaged: a field is out of range")
    continuation, info = (fields.get(name.encode()) or None for name in _BYTES)
    return msgspec.structs.replace(row, continuation=continuation, info=info)


def fields_of(row: StreamInfo) -> list[str | bytes]:
    """Names and values of what a new row has beside what the script sets."""
    found: list[str | bytes] = []
    for name in StreamInfo.__struct_fields__:
        value = getattr(row, name)
        if name not in _SET and value is not None:
            found += (name, value if isinstance(value, bytes) else _text(value))
    return found


def changes_of(change: Change) -> list[str | bytes]:
    """Names and values of what an append changes; an empty value deletes."""
    found: list[str | bytes] = []
    for name, value in msgspec.structs.asdict(change).items():
        if name == "frees_key":
            found += ("key", "") if value else ()
        elif value is not None:
            found += (name, value if isinstance(value, bytes) else _text(value))
    return found


def _text(value: str | float) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else repr(value).encode()


def _read(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def lines_of(first: int, body: bytes, start: int) -> Sequence[bytes]:
    """The events of a chunk from number `start` on."""
    return body.split(b"\n")[max(start - first, 0) :]
