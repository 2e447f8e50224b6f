"""Long results in memory."""

from collections import OrderedDict
from collections.abc import Callable

from mcp_hub.stores.documents.base import DocumentLimits, Part, check_size, document_id, surplus


class MemoryDocuments:
    """`Documents` of one process; `now` is any clock in seconds."""

    def __init__(self, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._documents: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()  # with the time of its end

    async def open(self) -> None:
        pass

    async def put(self, principal: str, body: bytes) -> str:
        limits = self._limits
        check_size(body, limits, limits.memory_bytes)
        id_ = document_id(body)
        self._documents.pop((principal, id_), None)
        self._expire()
        owned = [key for key in self._documents if key[0] == principal]
        self._make_room(owned, limits.principal_bytes - len(body), limits.principal_count - 1)
        self._make_room(list(self._documents), limits.memory_bytes - len(body), limits.total_count - 1)
        self._documents[principal, id_] = self._now() + limits.ttl, body
        return id_

    async def read(self, principal: str, id_: str, offset: int, size: int) -> Part | None:
        self._expire()
        document = self._documents.get((principal, id_))
        return None if document is None else Part(document[1][offset : offset + size], len(document[1]))

    def _expire(self) -> None:
        now = self._now()
        while self._documents and next(iter(self._documents.values()))[0] <= now:
            self._documents.popitem(last=False)

    def _make_room(self, keys: list[tuple[str, str]], max_bytes: int, max_count: int) -> None:
        for key in keys[: surplus([len(self._documents[key][1]) for key in keys], max_bytes, max_count)]:
            del self._documents[key]
