"""Operation of a running hub over REST: its servers, a restart of one of them, and a reload of the configuration."""

from typing import Protocol

from starlette.responses import Response

from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.protocol.rest.servers import ReloadAnswer, RestartAnswer, ServerInfo, ServerList


class Operator(Protocol):
    """The operations of the hub."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """The status of a profile's servers; of all servers for None."""

    def restart(self, server: str, profile: str | None) -> None:
        """Has a server replaced by a fresh one; what runs at it may end. Raises `Problem` 404 or 409."""

    async def reload(self) -> ReloadAnswer:
        """Reads the configuration and applies it. Raises `Problem` 422 with what is wrong with it."""


class RestServers:
    """Serves `/v1/servers/…` and `/v1/reload`. A caller bound to a profile operates its servers and nothing else."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def servers(self, request: RestRequest) -> Response:
        return answer(ServerList(await self._operator.servers(request.caller.profile)))

    async def server(self, request: RestRequest) -> Response:
        """One server."""
        name = request.path["name"]
        for found in await self._operator.servers(request.caller.profile):
            if found.server == name:
                return answer(found)
        raise unknown_server(name)

    async def restart(self, request: RestRequest) -> Response:
        server = request.path["name"]
        self._operator.restart(server, request.caller.profile)
        return answer(RestartAnswer(server), 202)

    async def reload(self, request: RestRequest) -> Response:
        if request.caller.profile is not None:
            raise Problem(
                403, "profile_bound", "The configuration belongs to all profiles. Use a token without a profile."
            )
        return answer(await self._operator.reload())
