"""Encoded rows and chunks, checked when read; bad records move beside their key for a week.

A key of a wrong type or a damaged row becomes `KEY:bad`; bad parts of other keys go to such a hash, at most 64.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores.base import Change, damage
from mcp_hub.stores.redis.keys import instance_id, quarantined
from mcp_hub.stores.redis.link import Command, Link, Reply, script
from mcp_hub.stores.redis.scripts import SET_ASIDE, SET_PARTS_ASIDE
from mcp_hub.types import OWN, CallId

log = get_logger(__name__)

_BYTES: Final = ("continuation", "info")
"""Fields of a row that are bytes."""
_SET: Final = ("id", "epoch", "first", "last", "expires")
"""Fields that a script sets."""
_LONGEST: Final = 32 << 20
"""Bytes of one field of a record."""


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
        row = msgspec.convert(
            {"server": OWN, **text, "id": stream}, StreamInfo, strict=False
        )  # empty ones are not kept
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
        if name == "is_firm":
            continue
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


_AT_ONCE: Final = 1000
"""Parts of one key that are moved at once; what remains is met again."""
_SHOWN: Final = 3
"""Parts that the log names."""


class Quarantine:
    """Sets records aside unless they have changed since."""

    def __init__(self, writer: Link) -> None:
        self._writer = writer

    async def check(self, keys: Iterable[str]) -> None:
        """Raises `StoreError`."""
        await self._writer.set_wrong_types_aside(keys)

    def row(self, key: str, reply: object, reason: str, callback: Callable[[], None] | None = None) -> None:
        """Sets a hash aside that was read as `reply`; calls `callback` in any case."""
        parts: list[bytes] = []
        if isinstance(reply, dict):
            for name, value in reply.items():
                parts += name, value
        elif isinstance(reply, list):
            parts = reply
        command = script(SET_ASIDE, [key, quarantined(key)], "", _digest(b" ".join(parts)))
        self._submit(command, key, [], reason, callback)

    def whole(self, key: str, reason: str, callback: Callable[[], None] | None = None) -> None:
        self._submit(script(SET_ASIDE, [key, quarantined(key)], "", ""), key, [], reason, callback)

    def fields(self, key: str, fields: Mapping[bytes, bytes], reason: str) -> None:
        self._parts(key, [(name, _digest(value)) for name, value in fields.items()], reason)

    def members(self, key: str, members: list[bytes], reason: str, callback: Callable[[], None] | None = None) -> None:
        """Members of a set, or entries of a stream."""
        self._parts(key, [(member, "") for member in members], reason, callback)

    def _parts(
        self, key: str, parts: list[tuple[bytes, str]], reason: str, callback: Callable[[], None] | None = None
    ) -> None:
        if parts:
            arguments = [text for part in parts[:_AT_ONCE] for text in part]
            names = [name for name, _ in parts]
            self._submit(script(SET_PARTS_ASIDE, [key, quarantined(key)], *arguments), key, names, reason, callback)

    def _submit(
        self, command: Command, key: str, parts: list[bytes], reason: str, callback: Callable[[], None] | None = None
    ) -> None:
        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                log.warning("record_not_set_aside", key=key, reason=str(replies))
            elif replies[0]:
                log_set_aside(key, reason, parts)
            if callback is not None:
                callback()

        self._writer.submit([command], answered)


def log_set_aside(key: str, reason: str, parts: list[bytes]) -> None:
    """Logs one line for a key."""
    samples = [hide_head(ascii(part.decode("utf-8", "replace")), 80) for part in parts[:_SHOWN]]
    details = {"parts": samples, "count": len(parts)} if parts else {}
    log.warning("record_set_aside", key=key, kept_in=quarantined(key), reason=reason, **details)


def _digest(text: bytes) -> str:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()
