"""Long results on the server; limits of one principal apply, total ones do not."""

from collections.abc import Callable
from typing import Final

from mcp_hub.stores.documents.base import DocumentLimits, Part, check_size, document_id, is_document_id, surplus
from mcp_hub.stores.redis.leases import StoreLinks
from mcp_hub.stores.redis.link import Command
from mcp_hub.stores.redis.records import pairs

_DIGITS: Final = 16
"""Digits that no size has."""
_LAST: Final = 1 << 40
"""Bytes beyond which no text reaches."""


class RedisDocuments:
    """`Documents` on a store's links; `now` returns Unix seconds."""

    def __init__(self, links: StoreLinks, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._keys = links.keys
        self._writer = links.writer
        self._reader = links.reader
        self._quarantine = links.quarantine
        self._limits = limits
        self._now = now

    async def open(self) -> None:
        """The store opens the links."""

    async def put(self, principal: str, body: bytes) -> str:
        limits = self._limits
        check_size(body, limits, limits.principal_bytes)
        id_, keys = document_id(body), self._keys.documents(principal)
        now, lasts = self._now(), int(limits.ttl * 1000)
        documents = await self._stored(principal)
        old = [document for document, (expires, _) in documents.items() if expires <= now]
        remaining = [document for document in documents if document not in old and document != id_]
        sizes = [documents[document][1] for document in remaining]
        old += remaining[: surplus(sizes, limits.principal_bytes - len(body), limits.principal_count - 1)]
        gone: list[Command] = []
        for document in old:
            gone += (("DEL", keys.body(document)), ("ZREM", keys.ends, document), ("HDEL", keys.sizes, document))
        await self._writer.ask(
            *gone,
            ("SET", keys.body(id_), body, "PX", lasts),
            ("ZADD", keys.ends, now + limits.ttl, id_),
            ("HSET", keys.sizes, id_, len(body)),
            ("PEXPIRE", keys.ends, lasts),
            ("PEXPIRE", keys.sizes, lasts),
        )
        return id_

    async def _stored(self, principal: str) -> dict[str, tuple[float, int]]:
        keys = self._keys.documents(principal)
        ends, sizes = await self._reader.ask(("ZRANGE", keys.ends, 0, -1, "WITHSCORES"), ("HGETALL", keys.sizes))
        size = pairs(sizes)
        bad_sizes = {id_: text for id_, text in size.items() if not _is_size(text)}
        bad_ids = [id_ for id_ in ends[::2] if not is_document_id(id_.decode("ascii", "replace"))]
        self._quarantine.fields(keys.sizes, bad_sizes, "not the size of a long result")
        self._quarantine.members(keys.ends, bad_ids, "not the id of a long result")
        sound = {id_: int(text) for id_, text in size.items() if id_ not in bad_sizes}
        in_order = zip(ends[::2], ends[1::2], strict=True)
        return {id_.decode(): (float(end), sound.get(id_, 0)) for id_, end in in_order if id_ not in bad_ids}

    async def read(self, principal: str, id_: str, offset: int, size: int) -> Part | None:
        if not is_document_id(id_):
            return None
        keys = self._keys.documents(principal)
        last = min(offset + size, _LAST) - 1
        body = keys.body(id_)
        expires, is_there, length, data = await self._reader.ask(
            ("ZSCORE", keys.ends, id_),
            ("EXISTS", body),
            ("STRLEN", body),
            ("GETRANGE", body, offset, last) if 0 < size else ("GETRANGE", body, 1, 0),
        )
        if expires is None or float(expires) <= self._now() or not is_there:
            return None
        return Part(data, length)


def _is_size(text: bytes) -> bool:
    return text.isdigit() and len(text) < _DIGITS
