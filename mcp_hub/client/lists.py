"""The lists of a hub: its servers, its tools found and counted, its past calls, as its REST front answers."""

import math

import msgspec
from msgspec import Raw

from mcp_hub.client.rest import RestClient
from mcp_hub.errors import HubError
from mcp_hub.protocol.rest.history import HistoryCall, HistoryCleared, HistoryPage, HistoryQuery
from mcp_hub.protocol.rest.lists import FoundTools, PromptList
from mcp_hub.protocol.rest.overview import ClientList, ClientSummary
from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.protocol.rest.tokens import TokenAccount


class HubLists:
    """Methods raise what those of `HubClient` do."""

    def __init__(self, api: RestClient) -> None:
        self._api = api

    async def servers(self) -> ServerList:
        """The servers in the order of the hub's file, and patterns of its configuration that match nothing."""
        return await self._api.get(ServerList, "servers")

    async def clients(self) -> list[ClientSummary]:
        """The clients that came to a hub with a dashboard, those that came last first; [] where we may not see them."""
        try:
            url = f"{self._api.endpoint.partition('?')[0].removesuffix('mcp')}api/clients"
            return (await self._api.send(ClientList, "GET", url)).clients
        except HubError:
            return []

    async def account(self, client: str, server: str | None = None, heaviest: int | None = None) -> TokenAccount:
        """The tokens that the tools cost a client of this kind. Raises `InvalidParams` for an unknown kind."""
        given = {"server": server, "top": None if heaviest is None else str(heaviest)}
        params = {name: value for name, value in given.items() if value is not None}
        return await self._api.get(TokenAccount, "tokens", client=client, **params)

    async def search(self, query: str, limit: int, server: str | None = None) -> FoundTools:
        """The tools that fit the query, the best first."""
        only = {} if server is None else {"server": server}
        return await self._api.get(FoundTools, "search", q=query, limit=str(limit), **only)

    async def exported(self, **params: str) -> Raw:
        """The tools in a format, as sent. Raises `InvalidParams` for parameters that cannot be."""
        return await self._api.get(Raw, "tools", **params)

    async def found(self, **params: str) -> Raw:
        """The tools that fit a query, in a format, as sent. Raises as `exported` does."""
        return await self._api.get(Raw, "search", **params)

    async def prompts(self) -> PromptList:
        """The prompts."""
        return await self._api.get(PromptList, "prompts")

    async def owners(self) -> dict[str, str]:
        """The name of each tool with the name of its server."""
        return {tool.name: tool.server for tool in (await self._api.get(TokenAccount, "tokens")).tools}

    # -- past calls

    async def history(self, query: HistoryQuery) -> HistoryPage:
        """The past calls that fit, the newest first. Raises `InvalidParams` for a cursor that is none."""
        given = msgspec.structs.asdict(query)
        params = {name: _parameter(value) for name, value in given.items() if value and value != math.inf}
        return await self._api.get(HistoryPage, "history", **params)

    async def past_call(self, id_: str) -> HistoryCall:
        """A past call with its texts. Raises `InvalidParams` (`not_in_history`)."""
        return await self._api.get(HistoryCall, "history", id_)

    async def clear_history(self) -> int:
        """Removes all past calls; how many."""
        return (await self._api.send(HistoryCleared, "DELETE", self._api.url("history"))).removed


def _parameter(value: object) -> str:
    return "1" if value is True else f"{value:.6f}" if isinstance(value, float) else str(value)
