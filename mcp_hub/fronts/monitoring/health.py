"""Whether the hub lives and can answer: `/livez`, `/healthz`, `/readyz`, and all details with `?verbose`.

Probes have no token, so a bare answer is one word. Details are for callers who may list the tools; a caller that is
bound to a profile sees its servers only, and only an operator sees the output of servers.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mcp_hub.fronts.http.auth import Refusal
from mcp_hub.fronts.http.endpoints import refused
from mcp_hub.protocol.rest.servers import LastReload, ServerInfo
from mcp_hub.types import StoreState, UpstreamState

_GIVEN_UP: Final = (UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)
_HEADERS: Final = {"cache-control": "no-store"}


class Reason(msgspec.Struct, frozen=True):
    """Why the hub is not ready, or what is wrong though it is: a word for programs and a sentence, without names."""

    code: str
    detail: str


class Watched(Protocol):
    """The hub that is asked about."""

    @property
    def is_settled(self) -> bool:
        """Whether a list can be answered without waiting for servers that start for the first time."""

    @property
    def store(self) -> StoreState: ...

    def is_unguarded(self) -> bool:
        """Whether servers may outlive the hub, because its watchdog process keeps ending."""

    def states(self) -> Mapping[str, UpstreamState]:
        """Of the servers that are enabled."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """Everything about the servers of a profile, None for all."""

    def last_reload(self, profile: str | None) -> LastReload | None:
        """The outcome of the last reload; callers that are bound to a profile do not see its findings."""


class HealthReport(msgspec.Struct, omit_defaults=True):
    """The details of `?verbose`."""

    status: str
    version: str
    store: StoreState
    servers: list[ServerInfo]
    reasons: list[Reason] = []
    warnings: list[Reason] = []
    reload: LastReload | None = None


class Health:
    """The routes. `close` when the hub begins to stop: from then on it is not ready."""

    def __init__(self, watched: Watched, version: str) -> None:
        self._watched = watched
        self._version = version
        self._is_stopping = False

    def close(self) -> None:
        self._is_stopping = True

    @property
    def routes(self) -> Mapping[str, Route]:
        """By path; each is for everybody, and looks at the caller for details only."""
        pages = {"/livez": self._livez, "/healthz": self._healthz, "/readyz": self._readyz}
        return {path: Route(path, endpoint, methods=["GET"]) for path, endpoint in pages.items()}

    def reasons(self) -> list[Reason]:
        """Why clients should not be sent here; nothing if they should.

        One failed server does not count. The hub is not ready only if all enabled servers have failed; a hub without
        servers can still serve tools that clients execute.
        """
        own, reasons = self._watched, []
        if self._is_stopping:
            reasons.append(Reason("stopping", "the hub is stopping"))
        if not own.is_settled:
            reasons.append(Reason("starting", "servers are starting that have never been listed (hub.first_list_wait)"))
        if own.store == "out_of_use":
            reasons.append(
                Reason("store_out_of_use", "The file of streams cannot be used, so streams are in memory only.")
            )
        states = own.states().values()
        if states and all(state in _GIVEN_UP for state in states):
            reasons.append(
                Reason(
                    "no_server",
                    "the only enabled server has failed"
                    if len(states) == 1
                    else f"all {len(states)} enabled servers have failed",
                )
            )
        return reasons

    def warnings(self) -> list[Reason]:
        """The problems of a hub that serves anyway."""
        said = "The watchdog process keeps ending: servers may outlive the hub if it is killed. See the log."
        return [Reason("watchdog_gave_up", said)] if self._watched.is_unguarded() else []

    async def _livez(self, request: Request) -> Response:
        """That this is answered is the answer: the event loop turns."""
        return await self._answer(request, "alive", [])

    async def _healthz(self, request: Request) -> Response:
        reasons = [reason for reason in self.reasons() if reason.code == "store_out_of_use"]
        return await self._answer(request, "unhealthy" if reasons else "healthy", reasons)

    async def _readyz(self, request: Request) -> Response:
        reasons = self.reasons()
        return await self._answer(request, "not ready" if reasons else "ready", reasons)

    async def _answer(self, request: Request, status: str, reasons: list[Reason]) -> Response:
        code = 503 if reasons else 200
        if "verbose" in request.query_params:
            caller = await request.scope["who"]()
            if isinstance(caller, Refusal):
                return refused(caller, f"{caller.reason} for details")
            own, profile = self._watched, caller.profile
            servers, reload = await own.servers(profile), own.last_reload(profile)
            if not caller.operates:
                servers = [server.without_output() for server in servers]
                reload = None if reload is None else reload.without_paths()
            report = HealthReport(
                status=status,
                version=self._version,
                store=own.store,
                servers=servers,
                reasons=reasons,
                warnings=self.warnings(),
                reload=reload,
            )
            return Response(msgspec.json.encode(report), code, _HEADERS, "application/json")
        if "application/json" in request.headers.get("accept", ""):
            return Response(msgspec.json.encode({"status": status}), code, _HEADERS, "application/json")
        return PlainTextResponse(f"{status}\n", code, _HEADERS)
