"""Operation over REST: servers, restart, reload."""

from typing import Protocol

from starlette.responses import Response

from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.protocol.rest.servers import ReloadAnswer, RestartAnswer, ServerInfo, ServerList
from mcp_hub.sessions.session import Caller


class Operator(Protocol):
    """The hub's operations."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """A profile's servers; all for None."""

    async def listed(self, profile: str | None) -> ServerList:
        """The servers, and what concerns all of them."""

    async def restart(self, server: str) -> None:
        """Replaces a server. Raises `Problem` 404 or 409, 503 while old ones drain."""

    async def reload(self) -> ReloadAnswer:
        """Applies the configuration. Raises `Problem` 422 with its errors."""


def check_unbound(caller: Caller, why: str) -> None:
    """Raises `Problem` 403 for a caller with a profile."""
    if caller.profile is not None:
        raise Problem(403, "profile_bound", f"{why} Use a token without a profile.")


def check_operator(caller: Caller, why: str) -> None:
    """Raises `Problem` 403 unless the caller operates the hub."""
    check_unbound(caller, why)
    if not caller.operates:
        reason = f"{why} Use a token that is marked operator: true, or the dashboard of mcp-hub open."
        raise Problem(403, "operator_required", reason)


class RestServers:
    """Serves `/v1/servers/…` and `/v1/reload`. A profile limits the servers; only operators see output and act."""

    def __init__(self, operator: Operator, admission: Admission) -> None:
        self._operator = operator
        self._admission = admission

    async def servers(self, request: RestRequest) -> Response:
        caller = request.caller
        listed = await self._operator.listed(caller.profile)
        return answer(listed if caller.operates else listed.without_output())

    async def server(self, request: RestRequest) -> Response:
        """One server."""
        name = request.path["name"]
        servers = await self._operator.servers(request.caller.profile)
        for info in servers:
            if info.server == name:
                return answer(info if request.caller.operates else info.without_output())
        raise unknown_server(name, [status.server for status in servers])

    async def restart(self, request: RestRequest) -> Response:
        check_operator(request.caller, "A restart concerns the calls of everybody.")
        self._admission.restarts.take(request.caller.principal)
        server = request.path["name"]
        await self._operator.restart(server)
        return answer(RestartAnswer(server), 202)

    async def reload(self, request: RestRequest) -> Response:
        check_operator(request.caller, "The configuration is that of everybody.")
        self._admission.reloads.take(request.caller.principal)
        return answer(await self._operator.reload())
