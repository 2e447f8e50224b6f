"""Lists of streams, and idempotency keys.

A list may name a removed stream until a reader drops it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mcp_hub.call import StreamInfo
from mcp_hub.errors import KeyTaken, StoreError
from mcp_hub.stores.redis.keys import RedisKeys, hashed, stream_id
from mcp_hub.stores.redis.link import Command, Link, Reply, script
from mcp_hub.stores.redis.records import Quarantine, pairs, row_of
from mcp_hub.stores.redis.scripts import DELETE, RESERVE
from mcp_hub.types import CallId

_LISTED: Final = 10_000
"""Streams of one principal that are listed; older ones are found by their ids only."""
_EVERY: Final = 1_000_000
_SLICE: Final = 64
"""Streams that are deleted at once."""
_KEY_MS: Final = 7 * 86_400_000
"""Milliseconds that an idempotency key is held at most beyond its stream's retention."""
_PENDING_MS: Final = 10_000
"""Milliseconds in which a stream comes after its key; then the key is free."""

_MEMBER: Final = re.compile(rb"[0-9a-f]{16,32} ([0-9a-f]{32}) (st_\S+)")
_NO_MEMBER: Final = "not the place of a stream"


class _Entry(NamedTuple):
    """A list member."""

    text: bytes
    principal: str
    stream: CallId

    @classmethod
    def of(cls, text: bytes) -> "_Entry | None":
        parts = _MEMBER.fullmatch(text)
        stream = None if parts is None else stream_id(parts[2])
        return None if parts is None or stream is None else cls(text, parts[1].decode(), stream)


class Index:
    """Stream lists and idempotency keys; `most_ended` streams are kept."""

    def __init__(self, keys: RedisKeys, writer: Link, reader: Link, quarantine: Quarantine, *, most_ended: int) -> None:
        self._keys = keys
        self._writer = writer
        self._reader = reader
        self.quarantine = quarantine
        self._most_ended = most_ended

    def member(self, row: StreamInfo, now: float) -> str:
        """The list member for a stream created now; sorts by creation."""
        return f"{int(now * 1e6):016x} {hashed(row.principal)} {row.id}"

    def added(self, row: StreamInfo, member: str) -> Sequence[Command]:
        """Commands that list a new stream."""
        key = self._keys.principal(row.principal)
        return (
            ("ZADD", key, row.created, member),
            ("ZREMRANGEBYRANK", key, 0, -_LISTED - 1),
            ("ZADD", self._keys.every, row.created, member),
        )

    def expiring(self, member: bytes, expires: bytes) -> Command:
        return "ZADD", self._keys.ended, expires, member

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        if limit <= 0:
            return []
        listed = self._keys.every if principal is None else self._keys.principal(principal)
        [members] = await self._reader.ask(("ZREVRANGE", listed, 0, limit - 1))
        entries = self._entries(listed, members)
        if not entries:
            return []
        rows = await self._rows([entry.stream for entry in entries])
        gone = [entry.text for entry, row in zip(entries, rows, strict=True) if row is None]
        if gone:
            self._writer.submit([("ZREM", listed, *gone)], lambda _: None)
        return [row for row in rows if row is not None and principal in (None, row.principal)]

    async def _rows(self, ids: Sequence[CallId]) -> list[StreamInfo | None]:
        replies = await self._reader.ask(*(("HGETALL", self._keys.stream(id_).row) for id_ in ids))
        return [self._row(id_, reply) for id_, reply in zip(ids, replies, strict=True)]

    def _row(self, id_: CallId, reply: Reply) -> StreamInfo | None:
        try:
            return row_of(id_, reply)
        except StoreError as error:
            self.quarantine.row(self._keys.stream(id_).row, reply, str(error))
            return None

    def _entries(self, listed: str, members: Sequence[bytes]) -> list[_Entry]:
        entries = [_Entry.of(member) for member in members]
        bad = [member for member, entry in zip(members, entries, strict=True) if entry is None]
        self.quarantine.members(listed, bad, _NO_MEMBER)
        return [entry for entry in entries if entry is not None]

    # -- idempotency keys

    def reserve(self, row: StreamInfo, callback: Callable[[StoreError | None], None], stale: str = "") -> None:
        """Reserves a new stream's key; `stale` is a former holder. Fails with `KeyTaken`."""
        assert row.key is not None
        key = row.key

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError) or not replies[0]:
                callback(replies if isinstance(replies, StoreError) else None)
                return
            holder, age = CallId(replies[0][0].decode("ascii")), int(replies[0][1])  # as the script has checked
            self._reader.submit([("HGETALL", self._keys.stream(holder).row)], lambda rows: checked(holder, age, rows))

        def checked(holder: CallId, age: int, replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                callback(replies)
                return
            holder_row = self._row(holder, replies[0])
            if holder == stale or (age < _PENDING_MS if holder_row is None else holder_row.key == key):
                callback(KeyTaken(f"idempotency key {key!r} is in use"))
            else:
                self.reserve(row, callback, holder)

        lifetime = int(min(row.ttl, 1e9) * 1000) + _KEY_MS
        request = self._keys.request(row.principal, key)
        command = script(RESERVE, [request], key.encode("utf-8", "surrogatepass"), row.id, stale, lifetime)
        self._writer.submit([command], answered)

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        request = self._keys.request(principal, key)
        [reply] = await self._reader.ask(("HGETALL", request))
        fields = pairs(reply)
        holders = {name: stream for text, by in fields.items() if (name := _text(text)) and (stream := _holder(by))}
        bad = {text: by for text, by in fields.items() if not (_text(text) and _holder(by))}
        self.quarantine.fields(request, bad, "not an idempotency key and its stream")
        names = [name for name in sorted(holders) if name == key or "\n" not in key]
        if not names:
            return None
        rows = await self._rows([holders[name] for name in names])
        matching = [
            row for row, name in zip(rows, names, strict=True) if row and (row.key, row.principal) == (name, principal)
        ]
        return matching[0] if matching else None

    # -- sweeping

    async def sweep(self, now: float) -> int:
        ended = self._keys.ended
        count, old = await self._reader.ask(("ZCARD", ended), ("ZRANGEBYSCORE", ended, "-inf", now, "LIMIT", 0, _SLICE))
        if not old and count > self._most_ended:
            [old] = await self._reader.ask(("ZRANGE", ended, 0, min(count - self._most_ended, _SLICE) - 1))
        entries = self._entries(ended, old)
        if not entries:
            await self._writer.ask(("ZREMRANGEBYRANK", self._keys.every, 0, -_EVERY - 1))
            return 0
        replies = await self._writer.ask(*(script(DELETE, self._keys.stream(entry.stream)) for entry in entries))
        removed: list[Command] = [("ZREM", ended, entry.text) for entry in entries]
        for entry, (outcome, *row) in zip(entries, replies, strict=True):
            if outcome == b"done":
                principal, key = map(_text, row)
                listed = self._keys.every, self._keys.hashed(entry.principal)
                removed += (("ZREM", list_, entry.text) for list_ in listed)
                if key and principal is not None:
                    removed.append(("HDEL", self._keys.request(principal, key), row[1]))
        counts = await self._writer.ask(*removed)
        return sum(map(int, counts[: len(entries)]))


def _text(text: bytes) -> str | None:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _holder(value: bytes) -> CallId | None:
    return stream_id(value.partition(b" ")[0])
