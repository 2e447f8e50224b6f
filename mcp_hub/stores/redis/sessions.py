"""Handshake sessions on the server.

Changes of sessions and of servers' lists are in one bounded stream that every replica waits on.
"""

import hashlib
import math
from typing import Any, Final

import msgspec
from redis.asyncio import Redis

from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import SharedLists
from mcp_hub.stores.base import LiveSessions, SessionRow
from mcp_hub.stores.redis.keys import RedisKeys
from mcp_hub.stores.redis.link import Link, script
from mcp_hub.stores.redis.records import Quarantine
from mcp_hub.stores.redis.scripts import END_SESSION, PUT_SESSION, SWEEP_SESSIONS

log = get_logger(__name__)

_CHANGES: Final = 4096
"""Stored changes; a replica that was cut off reads as many afterwards."""
_PAGE: Final = 512
"""Entries that are read at once."""
_AHEAD: Final = 86400.0
"""Seconds that the clock of the server may be ahead."""
_ENDED: Final = 3600.0
"""Seconds for which an ended session is remembered, so that no replica stores it again."""


class _Session(msgspec.Struct, array_like=True):
    principal: str
    expires: float
    body: bytes


class RedisSessions:
    """The `SessionRows` of replica `instance`, at most `limit`."""

    def __init__(
        self, keys: RedisKeys, instance: str, writer: Link, reader: Link, quarantine: Quarantine, limit: int
    ) -> None:
        self._keys = keys.sessions, keys.session_ends, keys.session_changes
        self._instance = instance
        self._writer = writer
        self._reader = reader
        self._quarantine = quarantine
        self._limit = limit
        self.live = LiveSessions()
        self.lists = SharedLists(self._announce)

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        digest = "" if before is None else hashlib.sha1(_encoded(before), usedforsecurity=False).hexdigest()
        arguments = session.id, _encoded(session), session.expires, self._limit, digest, self._instance, _CHANGES
        [[outcome, *stored]] = await self._writer.ask(script(PUT_SESSION, self._keys, *arguments))
        if outcome == b"done":
            return session
        if not stored or (current := self._sound(session.id, stored[0])):
            return current if stored else None
        return await self.put(session, None)  # in place of the one that is damaged

    async def find(self, id_: str) -> SessionRow | None:
        [record] = await self._reader.ask(("HGET", self._keys[0], id_))
        return self._sound(id_, record) if record else None

    def _sound(self, id_: str, record: bytes) -> SessionRow | None:
        try:
            return _decoded(id_, record)
        except StoreError as error:
            self._quarantine.fields(self._keys[0], {id_.encode("utf-8", "surrogatepass"): record}, str(error))
            return None

    async def drop(self, id_: str) -> None:
        arguments = id_, wall_time() + _ENDED, self._instance, _CHANGES
        await self._writer.ask(script(END_SESSION, self._keys, *arguments))

    async def sweep(self, now: float) -> None:
        await self._writer.ask(script(SWEEP_SESSIONS, self._keys[:2], now))

    async def apply_changes(self, client: Redis, after: str) -> str:
        """Applies changes after entry `after`; the last entry. Raises `RedisError`, `OSError`."""
        while entries := await self._entries(client, after):
            if bad := [id_ for id_, _ in entries if not is_plausible(id_)]:
                self._quarantine.whole(
                    self._keys[2], f"an entry has the time of another age: {hide_head(bad[0], 40)!r}"
                )
                return after
            after = entries[-1][0].decode()
            changes = [fields for _, fields in entries if _text(fields, b"by") != self._instance]
            for fields in changes:
                if fields.get(b"is") == b"lists":
                    self.lists.heard(_text(fields, b"id"), _text(fields, b"digest"))
            live_ids = [id_ for id_ in dict.fromkeys(_text(fields, b"id") for fields in changes) if id_ in self.live]
            if live_ids:
                for id_, record in zip(live_ids, await client.hmget(self._keys[0], live_ids), strict=True):
                    self._tell(id_, record)
        return after

    async def _entries(self, client: Redis, after: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        reply: Any = await client.xrange(self._keys[2], f"({after}", "+", _PAGE)
        return list(reply)

    def _announce(self, server: str, digest: str) -> None:
        fields = "id", server, "by", self._instance, "is", "lists", "digest", digest
        command = ("XADD", self._keys[2], "MAXLEN", "~", _CHANGES, "*", *fields)
        self._writer.submit([command], lambda _: None)

    def _tell(self, id_: str, record: object) -> None:
        """A missing record says nothing: it was evicted or lost."""
        if record == b"":
            self.live.changed(id_, None)
        elif isinstance(record, bytes) and (session := self._sound(id_, record)) is not None:
            self.live.changed(id_, session)


def is_plausible(id_: bytes) -> bool:
    """Whether an entry's time is valid; a future one would hide later entries."""
    return int(id_.partition(b"-")[0]) / 1000 < wall_time() + _AHEAD


def _text(fields: dict[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode("ascii", "replace")


def _encoded(session: SessionRow) -> bytes:
    return msgspec.msgpack.encode(_Session(session.principal, session.expires, session.body))


def _decoded(id_: str, record: object) -> SessionRow:
    try:
        session = msgspec.msgpack.decode(record if isinstance(record, bytes) else b"", type=_Session)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StoreError(f"session {hide_head(id_, 40)}: its record is damaged: {error}") from None
    if not 0 <= session.expires < math.inf:
        raise StoreError(f"session {hide_head(id_, 40)}: its record is damaged: its end is out of range")
    return SessionRow(id_, session.principal, session.body, session.expires)
