"""One search index per profile, built on the first search."""

from collections.abc import Mapping, Sequence

import anyio
import anyio.to_thread
import msgspec

from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.likeness import load
from mcp_hub.catalog.search.ranker import SearchAnswer, SearchIndex
from mcp_hub.catalog.views.entries import Entry, by_server
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.types import Kind


class _Described(msgspec.Struct):
    description: str | None = None
    inputSchema: dict[str, object] = {}


_described = msgspec.json.Decoder(_Described).decode


class Indexes:
    """One index for each searched profile, without its hidden tools."""

    def __init__(self, aliases: Mapping[str, Sequence[str]]) -> None:
        self._aliases = aliases
        self._indexes: dict[str | None, _Indexed] = {}
        self._turn = anyio.Lock()

    async def search(
        self, profile: str | None, view: CatalogView, query: str, limit: int, server: str | None
    ) -> SearchAnswer:
        """Indexes changes in a worker thread."""
        async with self._turn:
            indexed = self._indexes.setdefault(profile, _Indexed(SearchIndex(self._aliases)))
            if indexed.view is not view:
                await anyio.to_thread.run_sync(indexed.catch_up, view)
            return indexed.index.search(query, limit, server)


class _Indexed:
    def __init__(self, index: SearchIndex) -> None:
        self.index = index
        self.view: CatalogView | None = None
        self._tools: dict[str, list[Entry]] = {}

    def catch_up(self, view: CatalogView) -> None:
        load()  # here, in a thread, so that no search waits for it
        tools = by_server((entry.server, entry) for entry in view.entries(Kind.TOOL))
        if list(tools)[: len(self._tools)] != list(self._tools):  # equally good tools are in the order of their servers
            for server in self._tools:
                self.index.drop(server)
            self._tools = {}
        for server, entries in tools.items():
            if entries != self._tools.get(server):
                self.index.put(server, [_searchable(entry) for entry in entries])
        self._tools, self.view = tools, view


def _searchable(entry: Entry) -> Searchable:
    try:
        described = _described(entry.raw)
    except (msgspec.DecodeError, RecursionError):
        described = _Described()
    return Searchable(
        id=entry.exported,
        server=entry.server,
        name=entry.key,
        description=described.description or "",
        schema=described.inputSchema,
    )
