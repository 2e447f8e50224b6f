"""Health for probes: one word without a token; `?verbose` shows callers that may list tools their profile's servers."""

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


class _Reason(msgspec.Struct, frozen=True):
    """A word for programs and a sentence, without names."""

    code: str
    detail: str


class _Watched(Protocol):
    """The hub, as its health is judged."""

    @property
    def is_settled(self) -> bool:
        """Whether lists wait for no server's first start."""

    @property
    def store(self) -> StoreState: ...

    def is_unguarded(self) -> bool:
        """Whether the watchdog keeps ending: servers may outlive the hub."""

    def states(self) -> Mapping[str, UpstreamState]:
        """States of the enabled servers."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """The servers of a profile, None for all."""

    def last_reload(self, profile: str | None) -> LastReload | None:
        """The last reload, without findings for a profile."""


class _HealthReport(msgspec.Struct, omit_defaults=True):
    """The details of `?verbose`."""

    status: str
    version: str
    store: StoreState
    servers: list[ServerInfo]
    reasons: list[_Reason] = []
    warnings: list[_Reason] = []
    reload: LastReload | None = None


class Health:
    """The routes. After `close` the hub is not ready."""

    def __init__(self, watched: _Watched, version: str) -> None:
        self._watched = watched
        self._version = version
        self._is_stopping = False

    def close(self) -> None:
        self._is_stopping = True

    @property
    def routes(self) -> Mapping[str, Route]:
        """Public routes by path."""
        pages = {"/livez": self._livez, "/healthz": self._healthz, "/readyz": self._readyz}
        return {path: Route(path, endpoint, methods=["GET"]) for path, endpoint in pages.items()}

    def reasons(self) -> list[_Reason]:
        """Why the hub is not ready. Failed servers count if all have failed."""
        hub, reasons = self._watched, []
        if self._is_stopping:
            reasons.append(_Reason("stopping", "the hub is stopping"))
        if not hub.is_settled:
            reasons.append(
                _Reason("starting", "servers are starting that have never been listed (hub.first_list_wait)")
            )
        if hub.store == "out_of_use":
            reasons.append(
                _Reason("store_out_of_use", "The file of streams cannot be used, so streams are in memory only.")
            )
        states = hub.states().values()
        if states and all(state in _GIVEN_UP for state in states):
            reasons.append(
                _Reason(
                    "no_server",
                    "the only enabled server has failed"
                    if len(states) == 1
                    else f"all {len(states)} enabled servers have failed",
                )
            )
        return reasons

    def warnings(self) -> list[_Reason]:
        """Problems of a ready hub."""
        text = "The watchdog process keeps ending: servers may outlive the hub if it is killed. See the log."
        return [_Reason("watchdog_gave_up", text)] if self._watched.is_unguarded() else []

    async def _livez(self, request: Request) -> Response:
        return await self._answer(request, "alive", [])

    async def _healthz(self, request: Request) -> Response:
        reasons = [reason for reason in self.reasons() if reason.code == "store_out_of_use"]
        return await self._answer(request, "unhealthy" if reasons else "healthy", reasons)

    async def _readyz(self, request: Request) -> Response:
        reasons = self.reasons()
        return await self._answer(request, "not ready" if reasons else "ready", reasons)

    async def _answer(self, request: Request, status: str, reasons: list[_Reason]) -> Response:
        code = 503 if reasons else 200
        if "verbose" in request.query_params:
            caller = await request.scope["who"]()
            if isinstance(caller, Refusal):
                return refused(caller, f"{caller.reason} for details")
            hub, profile = self._watched, caller.profile
            servers, reload = await hub.servers(profile), hub.last_reload(profile)
            if not caller.operates:
                servers = [server.without_output() for server in servers]
                reload = None if reload is None else reload.without_paths()
            report = _HealthReport(
                status=status,
                version=self._version,
                store=hub.store,
                servers=servers,
                reasons=reasons,
                warnings=self.warnings(),
                reload=reload,
            )
            return Response(msgspec.json.encode(report), code, _HEADERS, "application/json")
        if "application/json" in request.headers.get("accept", ""):
            return Response(msgspec.json.encode({"status": status}), code, _HEADERS, "application/json")
        return PlainTextResponse(f"{status}\n", code, _HEADERS)
