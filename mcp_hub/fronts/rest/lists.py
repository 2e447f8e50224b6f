"""Lists over REST: tools, resources, prompts; search and token costs. Unchanged lists are the same bytes."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from starlette.responses import Response

from mcp_hub.errors import ConfigError
from mcp_hub.formats.connectors import Connector
from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.formats.connectors import ConnectorEntries
from mcp_hub.fronts.rest.formats.search import ToolSearch
from mcp_hub.fronts.rest.formats.tools import ToolExports
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.lists import PromptList, ResourceList
from mcp_hub.types import PROGRAM, ClientKind, Era, Kind, Mode

ANY_CLIENT: Final = "unknown"
"""The kind of every client that no other kind matches."""
_LONGEST_CLIENT: Final = 256
"""Characters of a kind of client."""
_HITS, _MOST_HITS = 8, 50
_MOST_TOP: Final = 100_000
_EXPOSE: Final[tuple[Mode | Literal["auto"], ...]] = ("full", "search", "names", "auto")
_CLIENT_KINDS: Final = {expose: PROGRAM if expose == "full" else replace(PROGRAM, expose=expose) for expose in _EXPOSE}
_ALL: Final = 1 << 30


class _Page(msgspec.Struct, rename="camel"):
    """A list in an MCP result."""

    resources: list[Raw] = []
    resource_templates: list[Raw] = []
    prompts: list[Raw] = []


class RestLists:
    """Serves `/v1/tools`, `/v1/resources`, `/v1/prompts`, `/v1/search` and `/v1/tokens`."""

    def __init__(self, hub: HubPort, public_url: Callable[[], str | None] = lambda: None) -> None:
        self._hub = hub
        self._connectors = ConnectorEntries(hub, public_url)
        self._exports = ToolExports(hub)
        search = ToolSearch(hub)
        self.search, self.search_as = search.by_query, search.by_body

    async def list_tools(self, request: RestRequest) -> Response:
        """The tools in the wanted format."""
        format = request.query_params.get("format")
        if format in list(Connector):
            return await self._connectors.answer(request, Connector(format))
        return await self._exports.answer(request, _client_kind(request))

    async def list_losses(self, request: RestRequest) -> Response:
        """The losses in the wanted format."""
        return await self._exports.losses(request, _client_kind(request))

    async def list_resources(self, request: RestRequest) -> Response:
        """Resources and templates."""
        resources, templates = await self._page(request, Kind.RESOURCE), await self._page(request, Kind.TEMPLATE)
        return answer(ResourceList(resources.resources, templates.resource_templates))

    async def list_prompts(self, request: RestRequest) -> Response:
        return answer(PromptList((await self._page(request, Kind.PROMPT)).prompts))

    async def _page(self, request: RestRequest, kind: Kind) -> _Page:
        await self._hub.catalog.settled()
        page = self._hub.catalog.view(request.caller.profile).page(kind, Era.MODERN, None, _ALL)
        return msgspec.json.decode(page, type=_Page)

    async def count_tokens(self, request: RestRequest) -> Response:
        """Token costs of the profile's tools, for the named kind of client."""
        client = request.query_params.get("client", ANY_CLIENT)
        if len(client) > _LONGEST_CLIENT:
            raise Problem(400, "unknown_client", f"unknown client: a name of {len(client)} characters")
        server, top = request.query_params.get("server"), request.count("top", 0, _MOST_TOP) or None
        await self._hub.catalog.settled()
        try:
            return answer(await self._hub.token_account(request.caller, client, server, top))
        except ConfigError as problem:
            raise Problem(400, "unknown_client", str(problem)) from None


def _client_kind(request: RestRequest) -> ClientKind:
    expose = request.query_params.get("expose", "full")
    if expose not in _CLIENT_KINDS:
        raise Problem(
            400, "unknown_expose", f"unknown expose {hide_head(expose, 50)!r}; known: {', '.join(_CLIENT_KINDS)}"
        )
    return _CLIENT_KINDS[expose]
