"""Places: where a stream stands in the lists of all streams, of its principal's, and of those that have ended.

A list lies in another slot than the streams in it, so the two change one after the other: a place may be left of a
stream that is gone. Whoever meets one removes it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mcp_hub.call import StreamInfo
from mcp_hub.errors import KeyTaken, StoreError
from mcp_hub.stores.redis.keys import RedisKeys, hashed
from mcp_hub.stores.redis.link import Command, Link, LinkJob, Reply, script
from mcp_hub.stores.redis.records import pairs, row_of
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


class Index:
    """Lists and idempotency keys, on one link for writes and one for reads."""

    def __init__(self, keys: RedisKeys, writer: Link, reader: Link) -> None:
        self._keys = keys
        self._writer = writer
        self._reader = reader

    def place(self, row: StreamInfo, now: float) -> str:
        """Of a stream that is made now: in the order of creation, and with what is needed to remove it."""
        return f"{int(now * 1e6):016x} {hashed(row.principal)} {row.id}"

    def added(self, row: StreamInfo, place: str) -> Sequence[Command]:
        """The commands that list a new stream."""
        own = self._keys.principal(row.principal)
        return (
            ("ZADD", own, row.created, place),
            ("ZREMRANGEBYRANK", own, 0, -_LISTED - 1),
            ("ZADD", self._keys.every, row.created, place),
        )

    def expiring(self, place: str, expires: float) -> Command:
        """The command that lists a stream that has ended."""
        return "ZADD", self._keys.ended, expires, place

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        """The newest first. Raises `StoreError`."""
        if most <= 0:
            return []
        listed = self._keys.every if principal is None else self._keys.principal(principal)
        [places] = await self._reader.ask(("ZREVRANGE", listed, 0, most - 1))
        if not places:
            return []
        found = await self._rows([_id(place) for place in places])
        gone = [place for place, row in zip(places, found, strict=True) if row is None]
        if gone:
            self._writer.submit(LinkJob([("ZREM", listed, *gone)], lambda _: None))
        return [row for row in found if row is not None and principal in (None, row.principal)]

    async def _rows(self, ids: Sequence[CallId]) -> list[StreamInfo | None]:
        replies = await self._reader.ask(*(("HGETALL", self._keys.stream(id_).row) for id_ in ids))
        return [row_of(id_, reply) for id_, reply in zip(ids, replies, strict=True)]

    # -- idempotency keys

    def reserve(self, row: StreamInfo, done: Callable[[StoreError | None], None], stale: str = "") -> None:
        """Gives the row's key to its stream, which has to be made soon. `KeyTaken` if another one has it.

        `stale` is a stream that had it and does not any more.
        """
        assert row.key is not None
        key = row.key

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError) or not replies[0]:
                done(replies if isinstance(replies, StoreError) else None)
                return
            holder, age = CallId(replies[0][0].decode("ascii", "replace")), int(replies[0][1])
            self._reader.submit(
                LinkJob([("HGETALL", self._keys.stream(holder).row)], lambda found: held(holder, age, found))
            )

        def held(holder: CallId, age: int, replies: list[Reply] | StoreError) -> None:
            try:
                held_by = None if isinstance(replies, StoreError) else row_of(holder, replies[0])
            except StoreError as error:
                replies = error
                held_by = None
            if isinstance(replies, StoreError):
                done(replies)
            elif holder == stale or (age < _PENDING_MS if held_by is None else held_by.key == key):
                done(KeyTaken(f"idempotency key {key!r} is in use"))
            else:
                self.reserve(row, done, holder)

        lifetime = int(min(row.ttl, 1e9) * 1000) + _KEY_MS
        request = self._keys.request(row.principal, key)
        command = script(RESERVE, [request], key.encode("utf-8", "surrogatepass"), row.id, stale, lifetime)
        self._writer.submit(LinkJob([command], answered))

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        """As `EventStore.find_key`. Raises `StoreError`."""
        [reply] = await self._reader.ask(("HGETALL", self._keys.request(principal, key)))
        held = {
            name.decode("utf-8", "surrogatepass"): CallId(by.decode().partition(" ")[0])
            for name, by in pairs(reply).items()
        }
        wanted = [name for name in sorted(held) if name == key or "\n" not in key]
        if not wanted:
            return None
        rows = await self._rows([held[name] for name in wanted])
        kept = [
            row for row, name in zip(rows, wanted, strict=True) if row and (row.key, row.principal) == (name, principal)
        ]
        return kept[0] if kept else None

    # -- sweeping

    async def sweep(self, now: float, most_ended: int) -> int:
        """Deletes some of what has expired or is too much; how many. Raises `StoreError`."""
        ended = self._keys.ended
        count, old = await self._reader.ask(("ZCARD", ended), ("ZRANGEBYSCORE", ended, "-inf", now, "LIMIT", 0, _SLICE))
        if not old and count > most_ended:
            [old] = await self._reader.ask(("ZRANGE", ended, 0, min(count - most_ended, _SLICE) - 1))
        if not old:
            await self._writer.ask(("ZREMRANGEBYRANK", self._keys.every, 0, -_EVERY - 1))
            return 0
        replies = await self._writer.ask(*(script(DELETE, self._keys.stream(_id(place))) for place in old))
        removed: list[Command] = [("ZREM", ended, place) for place in old]
        for place, (said, *row) in zip(old, replies, strict=True):
            if said == b"done":
                removed += (("ZREM", self._keys.every, place), ("ZREM", self._keys.hashed(_hash(place)), place))
                if row[1]:
                    key = self._keys.request(*(text.decode("utf-8", "surrogatepass") for text in row))
                    removed.append(("HDEL", key, row[1]))
        done = await self._writer.ask(*removed)
        return sum(map(int, done[: len(old)]))


def _id(place: bytes) -> CallId:
    return CallId(place.decode("ascii", "replace").rpartition(" ")[2])


def _hash(place: bytes) -> str:
    return place.decode("ascii", "replace").split(" ")[1]
