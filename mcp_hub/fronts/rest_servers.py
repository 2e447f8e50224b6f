"""What operates a running hub over REST: its servers, starting one again, and reading the configuration again."""

from typing import Protocol

import msgspec

from mcp_hub.fronts.rest_bodies import ReloadAnswer, RestartAnswer, ServerInfo, ServerList
from mcp_hub.fronts.rest_http import RestRequest, respond
from mcp_hub.fronts.rest_problem import Problem

__all__ = ["Operator", "RestServers", "unknown_server"]


def unknown_server(name: str) -> Problem:
    """Of one that is not configured, or not the caller's."""
    return Problem(404, "unknown_server", f'no server "{name[:100]}" is configured')


class Operator(Protocol):
    """Who can do it."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """How the servers of a profile are, None for all."""
        ...

    async def server(self, name: str, profile: str | None) -> ServerInfo | None:
        """How one is; None if the profile does not have it."""
        ...

    def restart(self, server: str, profile: str | None) -> None:
        """Has a server replaced by a fresh one; what runs at it may end. Raises `Problem` 404 or 409."""
        ...

    async def reload(self) -> ReloadAnswer:
        """Reads the configuration and applies it. Raises `Problem` 422 with what is wrong with it."""
        ...


class RestServers:
    """Serves `/v1/servers/…` and `/v1/reload`. Whoever is bound to a profile operates its servers and nothing else."""

    def __init__(self, operator: Operator | None) -> None:
        self._found = operator

    @property
    def _operator(self) -> Operator:
        if self._found is None:
            raise Problem(404, "not_operated", "the servers of this hub are not operated over REST")
        return self._found

    async def servers(self, request: RestRequest) -> None:
        found = await self._operator.servers(request.caller.profile)
        await respond(request.send, 200, msgspec.json.encode(ServerList(found)))

    async def server(self, request: RestRequest) -> None:
        name = request.path["name"]
        found = await self._operator.server(name, request.caller.profile)
        if found is None:
            raise unknown_server(name)
        await respond(request.send, 200, msgspec.json.encode(found))

    async def restart(self, request: RestRequest) -> None:
        server = request.path["name"]
        self._operator.restart(server, request.caller.profile)
        await respond(request.send, 202, msgspec.json.encode(RestartAnswer(server)))

    async def reload(self, request: RestRequest) -> None:
        if request.caller.profile is not None:
            raise Problem(403, "profile_bound", "the configuration is not that of one profile: use another token")
        await respond(request.send, 200, msgspec.json.encode(await self._operator.reload()))
