"""`/v1/search`: tools ranked as by `find_tools`, in a provider's format if wanted."""

from typing import Final

import msgspec
from msgspec import UNSET, Raw
from starlette.responses import Response

from mcp_hub.formats.providers import FORMATS
from mcp_hub.formats.records import CallFault, ModelCall
from mcp_hub.formats.tools import read_search, search_arguments, tool_groups, write_found
from mcp_hub.fronts.rest.exchange import Handlers, RestRequest, answer
from mcp_hub.fronts.rest.formats.tools import (
    ToolSelection,
    flag,
    selection,
    wanted_format,
    wants_groups,
    wants_inline,
)
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.calls import FoundTool, FoundTools, SearchBody
from mcp_hub.sessions.session import Caller
from mcp_hub.types import Era, JsonObject, Kind

_HITS: Final = 8
_MOST_HITS: Final = 50
_ALL: Final = 1 << 30
_NO_QUERY: Final = "q (query in a body) has to say what the tool is needed for: /v1/search?q=…"


class _Search(msgspec.Struct, frozen=True):
    query: str
    limit: int
    server: str | None
    selection: ToolSelection
    is_full: bool
    call: ModelCall | None = None


class _ToolSearch:
    """Searches in the wanted format, by default `FoundTools`."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub

    async def by_query(self, request: RestRequest) -> Response:
        """A search in a URL. Raises `Problem`, `Rejected`."""
        params, chosen = request.query_params, selection(request)
        query = _needed(params.get("q"))
        limit = request.count("limit", _HITS, _MOST_HITS)
        return await self._answer(
            request,
            _Search(
                query=query,
                limit=limit,
                server=chosen.server,
                selection=chosen,
                is_full=_is_full(params.get("detail", "brief")),
            ),
        )

    async def by_body(self, request: RestRequest) -> Response:
        """A query, or a model's call. Raises `Problem`, `Rejected`."""
        body = await request.shaped(SearchBody)
        in_query = selection(request)
        chosen = ToolSelection(
            in_query.tools if body.tools is None else frozenset(body.tools), body.server or in_query.server
        )
        query, limit, server, call = body.query, body.limit, chosen.server, None
        if body.call is not None:
            into = wanted_format(request.query_params.get("format", ""))
            call = read_search(body.call, into)
            if call.fault is not None:
                return answer(write_found([], into, call, is_inline=wants_inline(request, into)))
            arguments = search_arguments(call)
            query, limit, server = arguments.query, arguments.limit or limit, arguments.server or server
        search = _Search(
            query=_needed(query),
            limit=min(max(1, limit), _MOST_HITS),
            server=server,
            selection=chosen,
            is_full=_is_full(body.detail),
            call=call,
        )
        return await self._answer(request, search)

    async def _answer(self, request: RestRequest, search: _Search) -> Response:
        name, is_strict = request.query_params.get("format"), flag(request, "strict")
        into = None if name is None else wanted_format(name)
        is_grouped = wants_groups(request, into is not None and FORMATS[into].has_groups)
        is_inline = flag(request, "inline") if into is None else wants_inline(request, into)
        profile, catalog = request.caller.profile, self._hub.catalog
        await self._hub.views.settled_for(request.caller)
        servers, call, view = catalog.rules(profile).servers, search.call, self._hub.views.whole(request.caller)
        search.selection.check([entry.exported for entry in view.entries(Kind.TOOL)], servers)
        if into is not None and call is not None and search.server not in (None, *servers):
            fault = CallFault("unknown_server", "There is no server of this name. Search without server.")
            refused = msgspec.structs.replace(call, fault=fault)
            return answer(write_found([], into, refused, is_inline=is_inline))
        hits = await self._hits(request.caller, search, with_definitions=search.is_full or into is not None)
        if into is None:
            return answer(hits)
        tools = [msgspec.json.decode(hit.definition, type=JsonObject) for hit in hits.hits if hit.definition]
        groups = None
        if is_grouped:
            owners = {tool.exported: tool.server for tool in view.entries(Kind.TOOL)}
            by_tool = tool_groups(owners, {name: settings.description for name, settings in servers.items()})
            groups = {hit.name: by_tool[hit.name] for hit in hits.hits if hit.name in by_tool}
        return answer(write_found(tools, into, call, is_strict=is_strict, groups=groups, is_inline=is_inline))

    async def _hits(self, caller: Caller, search: _Search, *, with_definitions: bool) -> FoundTools:
        """An unselected hit gives way to similar tools."""
        catalog, chosen, profile = self._hub.catalog, search.selection, caller.profile
        view, lists = self._hub.views.whole(caller), self._hub.views.lists(caller)
        limit = search.limit if chosen.tools is None else _ALL
        ranking = await catalog.search(profile, search.query, limit, search.server, lists)
        hits: list[FoundTool] = []
        weak: list[bool] = []
        for hit in ranking:
            alike = [entry for name in (hit.id, *hit.also) if (entry := view.find(Kind.TOOL, name)) is not None]
            entries = [entry for entry in alike if chosen.has(entry.exported, entry.server)]
            if entries and len(hits) < search.limit:
                first, *similar = entries
                also = [tool.exported for tool in similar]
                definition = Raw(first.definition(Era.MODERN)) if with_definitions else UNSET
                hits.append(
                    FoundTool(
                        name=first.exported,
                        server=first.server,
                        description=first.summary,
                        score=hit.score,
                        parts=hit.parts,
                        also=also,
                        definition=definition,
                    )
                )
                weak.append(hit.weak)
        return FoundTools(search.query, not hits or weak[0], hits, catalog.starting(profile))


def search_handlers(hub: HubPort) -> Handlers:
    """`/v1/search`."""
    served = _ToolSearch(hub)
    return {"searchTools": served.by_query, "searchToolsAs": served.by_body}


def _needed(query: str | None) -> str:
    if query is None or not (query := query.strip()):
        raise Problem(400, "invalid_parameter", _NO_QUERY)
    return query


def _is_full(detail: str) -> bool:
    if detail not in ("brief", "full"):
        raise Problem(400, "invalid_parameter", f"detail has to be brief or full, not {hide_head(detail, 50)!r}")
    return detail == "full"
