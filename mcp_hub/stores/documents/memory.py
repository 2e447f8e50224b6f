"""Long results in memory."""

from collections import OrderedDict
from collections.abc import Callable

from mcp_hub.stores.documents.base import DocumentLimits, Part, check_size, document_id, surplus


class MemoryDocuments:
    """`Documents` of one process; `now` is any clock in seconds."""

    def __init__(self, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._kept: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()  # with the time of its end

    async def open(self) -> None:
        pass

    async def put(self, principal: str, body: bytes) -> str:
        limits = self._limits
        check_size(body, limits, limits.memory_bytes)
        id_ = document_id(body)
        self._kept.pop((principal, id_), None)
        self._expire()
        own = [key for key in self._kept if key[0] == principal]
        self._make_room(own, limits.principal_bytes - len(body), limits.principal_count - 1)
        self._make_room(list(self._kept), limits.memory_bytes - len(body), limits.total_count - 1)
        self._kept[principal, id_] = self._now() + limits.ttl, body
        return id_

    async def read(self, principal: str, id_: str, offset: int, size: int) -> Part | None:
        self._expire()
        kept = self._kept.get((principal, id_))
        return None if kept is None else Part(kept[1][offset : offset + size], len(kept[1]))

    def _expire(self) -> None:
        now = self._now()
        while self._kept and next(iter(self._kept.values()))[0] <= now:
            self._kept.popitem(last=False)

    def _make_room(self, keys: list[tuple[str, str]], most_bytes: int, most: int) -> None:
        for key in keys[: surplus([len(self._kept[key][1]) for key in keys], most_bytes, most)]:
            del self._kept[key]
