"""Lists of a hub."""

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
    """Servers, tools and past calls. Methods raise `RpcError` and `ConfigError`."""

    def __init__(self, api: RestClient) -> None:
        self._api = api

    async def servers(self) -> ServerList:
        """Servers in configured order, and configured patterns that match nothing."""
        return await self._api.get(ServerList, "servers")

    async def clients(self) -> list[ClientSummary]:
        """Clients of a hub with a dashboard, latest first; empty without access."""
        try:
            url = f"{self._api.endpoint.partition('?')[0].removesuffix('mcp')}api/clients"
            return (await self._api.send(ClientList, "GET", url)).clients
        except HubError:
            return []

    async def account(self, client: str, server: str | None = None, heaviest: int | None = None) -> TokenAccount:
        """Tokens that tools cost. Raises `InvalidParams` for an unknown kind of client."""
        options = {"server": server, "top": None if heaviest is None else str(heaviest)}
        params = {name: value for name, value in options.items() if value is not None}
        return await self._api.get(TokenAccount, "tokens", client=client, **params)

    async def search(self, query: str, limit: int, server: str | None = None) -> FoundTools:
        only = {} if server is None else {"server": server}
        return await self._api.get(FoundTools, "search", q=query, limit=str(limit), **only)

    async def exported(self, **params: str) -> Raw:
        """The tools in a format, as sent. Raises `InvalidParams`."""
        return await self._api.get(Raw, "tools", **params)

    async def exported_search(self, **params: str) -> Raw:
        """The tools that fit, in a format, as sent. Raises `InvalidParams`."""
        return await self._api.get(Raw, "search", **params)

    async def prompts(self) -> PromptList:
        return await self._api.get(PromptList, "prompts")

    async def owners(self) -> dict[str, str]:
        return {tool.name: tool.server for tool in (await self._api.get(TokenAccount, "tokens")).tools}

    # -- past calls

    async def history(self, query: HistoryQuery) -> HistoryPage:
        """Past calls, newest first. Raises `InvalidParams` for a bad cursor."""
        fields = msgspec.structs.asdict(query)
        params = {name: _parameter(value) for name, value in fields.items() if value and value != math.inf}
        return await self._api.get(HistoryPage, "history", **params)

    async def past_call(self, id_: str) -> HistoryCall:
        """Raises `InvalidParams` (`not_in_history`)."""
        return await self._api.get(HistoryCall, "history", id_)

    async def clear_history(self) -> int:
        """Returns the number of removed calls."""
        return (await self._api.send(HistoryCleared, "DELETE", self._api.url("history"))).removed


def _parameter(value: object) -> str:
    return "1" if value is True else f"{value:.6f}" if isinstance(value, float) else str(value)
