"""The HTTP front from settings: endpoints, authentication, limits, health and metrics."""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub import __version__
from mcp_hub.aio import keep_running
from mcp_hub.app.build import App
from mcp_hub.app.dashboard.curation import HubCuration, ToolApprovals, cached_installs
from mcp_hub.app.dashboard.edits import HubEdits, ServerEditor
from mcp_hub.app.dashboard.overrides import OverridesFile
from mcp_hub.app.dashboard.seen import RawMessages
from mcp_hub.app.dashboard.watch import HubWatch
from mcp_hub.app.logins import ClientAccess, resource_of, verifier_of
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.hub import HttpSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import problem_of_config
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.fronts.dashboard import asked
from mcp_hub.fronts.dashboard.api import DashboardApi
from mcp_hub.fronts.dashboard.shell import PageAccess
from mcp_hub.fronts.health import Health
from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.auth import HttpAuth, is_loopback
from mcp_hub.fronts.http.cards import card_routes, receiver_routes
from mcp_hub.fronts.http.connections import affordable, bounded
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.http.streamable import StreamableHttp
from mcp_hub.fronts.legacy_sse import LegacySse
from mcp_hub.fronts.metrics import Metrics
from mcp_hub.fronts.rest import pages
from mcp_hub.fronts.rest.api import RestApi
from mcp_hub.fronts.rest.exchange import Handlers
from mcp_hub.logs import get_logger
from mcp_hub.protocol.rest.overview import ClientInstall, DashboardMode
from mcp_hub.sessions.session import Caller

if TYPE_CHECKING:
    from mcp_hub.fronts.http.authorization.principals import Principals
    from mcp_hub.fronts.http.oauth.keys import KeyRing
    from mcp_hub.fronts.http.oauth.tokens import TokenVerifier

log = get_logger(__name__)

Note = Callable[[str, str, float], None]
"""Takes a principal, an accepted token and its end in Unix seconds."""
LoginPages = Callable[[Iterable[str]], Mapping[str, Route]]
"""Gives the pages of servers by path."""
_MCP = ("/mcp", "/sse", "/messages")


class HttpFront:
    """All HTTP endpoints of a hub, behind one `HttpAuth`. `endpoints` is the ASGI application.

    `profile`: for tokens without one. `is_local`: only this machine reaches it; callers without token operate the hub.
    `dashboard`: the default mode. `operator`: the user's token for this start. `installs` and `open_editor` block.
    `is_private`: only the hub's user reaches it. `url`: where this machine reaches it.
    """

    def __init__(
        self, app: App, profile: str | None, *, is_local: Callable[[Settings], bool],
        dashboard: DashboardMode = "off", installs: Callable[[], list[ClientInstall]] = list, is_private: bool = False,
        open_editor: Callable[[], ServerEditor] | None = None, url: str = "",
    ) -> None:  # fmt: skip
        http = app.settings.hub.http
        admission = admission_of(http)
        sessions, each, body = http.max_sessions, http.sessions_per_principal, http.max_body
        self.mcp = StreamableHttp(
            app.hub, app.binding, max_body=body, max_sessions=sessions, sessions_per_principal=each,
            admission=admission, close_streams_after=http.close_streams_after,
        )  # fmt: skip
        self.legacy = LegacySse(
            app.hub, app.binding, max_body=body, max_sessions=sessions, sessions_per_principal=each, admission=admission
        )  # fmt: skip
        watch = watch_of(app)
        rest_accounts, login_pages, note = _people(app, url, is_private=is_private)
        workers = None if app.executors is None else app.executors.workers
        self.rest = RestApi(
            app.hub, version=__version__, max_body=body, executors=workers,
            is_open=lambda: is_private or is_authenticated(app.settings) or is_local(app.settings),
            is_private=is_private, operator=app.operations, admission=admission,
            public_url=lambda: app.settings.hub.http.public_url, running=watch.running, history=app.past_calls,
            accounts=rest_accounts,
        )  # fmt: skip
        self.operator = secrets.token_urlsafe(32)
        access = ClientAccess(app.logins.store.folder.parent, app.streams.store)
        self.auth = _HttpAuthFactory(
            profile, access, is_private=is_private, is_local=is_local, operator=self.operator, note=note
        )  # fmt: skip
        self.dashboard = dashboard_of(
            app, watch, self.rest, mode_of(app, dashboard), installs, open_editor, is_local, access
        )  # fmt: skip
        self.health, self.metrics = monitoring_of(app, self.mcp, self.legacy, admission)
        public = partial(_public, login_pages, self.auth)
        self.endpoints = self._endpoints(app, admission, public)
        self._prepared = partial(_prepared, self.endpoints, self.auth, public)
        app.reloader.prepares.append(self._prepared)

    def _endpoints(
        self, app: App, admission: Admission, public: Callable[[Settings], Mapping[str, Route]]
    ) -> Endpoints:
        settings = app.settings
        return Endpoints(
            auth=self.auth.for_settings(settings),
            routes={**self.mcp.routes, **self.legacy.routes, **self.metrics.routes},
            mount=self.rest,
            pages={
                **self.health.routes, **pages.routes(), **link_routes(app),
                **pages.event_posts(app.events.takes, app.events.receive),
            },
            public=public(settings),
            follows_all=settings.hub.http.authorization is not None,
            admission=admission,
            refusals=self.metrics.refusals,
            guarded=self.dashboard,
        )  # fmt: skip

    async def run(self) -> None:
        """Ends idle sessions and refreshes issuers' keys, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_running, "sessions", self.mcp.run)
            tasks.start_soon(keep_running, "issuers", self.auth.run)
            if self.auth.clients is not None:
                tasks.start_soon(keep_running, "admitted clients", self.auth.clients.run, self._look_again)

    def close(self) -> None:
        """Ends open event streams, and reports the hub as not ready."""
        self.health.close()
        for front in (self.mcp, self.legacy, self.rest, self.dashboard):
            front.close()

    def _look_again(self) -> None:
        self._prepared(self.auth.settings)()


def _prepared(
    endpoints: Endpoints,
    auth: "_HttpAuthFactory",
    public: Callable[[Settings], Mapping[str, Route]],
    settings: Settings,
) -> Callable[[], None]:
    checked = auth.for_settings(settings)
    return partial(endpoints.use, checked, public(settings), follows_all=settings.hub.http.authorization is not None)


def _public(login_pages: LoginPages | None, auth: "_HttpAuthFactory", settings: Settings) -> Mapping[str, Route]:
    """Cards, metadata, the authorization server, and the pages of logins to own accounts."""
    http = settings.hub.http
    cards = card_routes(
        http.public_url, settings.hub.name, [name for name, profile in settings.profiles.items() if profile.public],
        asks_token=bool(settings.hub.tokens) and http.oauth is None and http.authorization is None,
    )  # fmt: skip
    routes = {**cards, **receiver_routes(http.public_url), **metadata_routes(settings), **auth.routes}
    if login_pages is None:
        return routes
    names = (name for name, server in settings.servers.items() if server.account == "own" and server.enabled)
    return {**routes, **login_pages(names)}


def _people(app: App, url: str, *, is_private: bool) -> "tuple[Handlers, LoginPages, Note] | tuple[None, None, None]":
    """REST, pages and tokens of callers with accounts of their own; None without such accounts."""
    if (accounts := app.operations.applier.sources.accounts) is None:
        return None, None, None
    from mcp_hub.app.accounts import fronts_of

    return fronts_of(accounts, lambda: app.settings, app.streams.store, None if is_private else url, app.changes.tell)


def is_authenticated(settings: Settings) -> bool:
    return bool(settings.hub.tokens) or settings.hub.http.oauth is not None


def why_not_listen(settings: Settings, host: str) -> str | None:
    """Why the front refuses to listen there, else None."""
    if is_loopback(host) or is_authenticated(settings) or settings.hub.http.allow_public:
        return None
    return (
        f"The hub does not listen on {host} without tokens: anyone who reaches it could run your tools. "
        "Set hub.tokens or hub.http.oauth, or hub.http.allow_public if a proxy checks the clients."
    )


def check_stays_authenticated(host: str) -> Callable[[Settings], None]:
    """Refuses settings without tokens on a public `host`."""

    def check(settings: Settings) -> None:
        if why_not_listen(settings, host) is not None:
            message = f"The hub listens on {host}, where anyone could run your tools without tokens"
            raise ConfigError(ConfigFinding("public_without_tokens", message, path="hub.tokens"))

    return check


class _HttpAuthFactory:
    """Makes `HttpAuth` for changing settings; keeps issuers' keys."""

    def __init__(
        self, profile: str | None, clients: ClientAccess | None = None, *, is_private: bool = False,
        is_local: Callable[[Settings], bool] = lambda settings: False, operator: str | None = None,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        """`profile`: for tokens without one. `is_private`: no tokens. `is_local`: callers without token operate the
        hub. `clients`: let in by people; their `routes` are the latest settings'.
        """
        self._profile = profile
        self._note = note
        self._is_private = is_private
        self._is_local = is_local
        self._operator = None if operator is None else (operator, Caller(profile=profile, is_operator=True))
        self.clients = clients
        self.settings = Settings()
        self.routes: Mapping[str, Route] = {}
        self._ring: KeyRing | None = None
        self._has_ring = anyio.Event()

    async def run(self) -> None:
        await self._has_ring.wait()
        if self._ring is not None:
            await self._ring.run()

    def for_settings(self, settings: Settings) -> HttpAuth:
        """The authentication for these settings; then `routes` are theirs, too."""
        self.settings, self.routes = settings, {}
        default = Caller(profile=self._profile, is_operator=self._is_private or self._is_local(settings))
        if self._is_private:
            return HttpAuth({}, default=default, profiles=settings.profiles, operator=self._operator)
        http = settings.hub.http
        tokens = self._callers(settings)
        hosts = [*http.allowed_hosts, http.host]
        if http.public_url is not None:
            hosts.append(urlsplit(http.public_url).hostname or "")
        of_issuers: TokenVerifier | None = None
        if http.oauth is not None:
            of_issuers = verifier_of(settings, http.oauth, self._profile, self._keys(), note=self._note)
            hosts.append(urlsplit(http.oauth.resource).hostname or "")
        verifier: TokenVerifier | Principals | None = of_issuers
        if self.clients is not None:
            self.routes = self.clients.people_routes(settings)
        if http.authorization is not None and self.clients is not None:
            verifier, routes = self.clients.for_settings(settings, tokens, resource_of(settings), of_issuers)
            self.routes = {**self.routes, **routes}
        return HttpAuth(
            tokens=tokens,
            hosts=hosts,
            origins=http.allowed_origins,
            default=default,
            profiles=settings.profiles,
            verifier=verifier,
            cors=http.cors,
            operator=self._operator,
        )

    def _callers(self, settings: Settings) -> dict[str, Caller]:
        return {
            token.token.get_secret_value(): Caller(
                token.principal, token.profile or self._profile, is_operator=token.operator
            )
            for token in settings.hub.tokens
        }

    def key_states(self) -> list[str]:
        return [] if self._ring is None else self._ring.states()

    def _keys(self) -> "KeyRing":
        from mcp_hub.fronts.http.oauth.keys import KeyRing  # imports cryptography, which most hubs do without

        if self._ring is None:
            self._ring = KeyRing(SystemClock(), lambda status: problem_of_config(status, os.environ) is None)
            self._has_ring.set()
        return self._ring


def metadata_routes(settings: Settings) -> Mapping[str, Route]:
    """Protected resource metadata, without token (RFC 9728 §3)."""
    if settings.hub.http.oauth is None and settings.hub.http.authorization is None:
        return {}
    from mcp_hub.fronts.http.oauth.tokens import WELL_KNOWN

    resource = resource_of(settings)
    body = resource.metadata()

    async def answer(request: Request) -> Response:
        return Response(body, headers={"cache-control": "max-age=300"}, media_type="application/json")

    paths = {WELL_KNOWN, resource.metadata_path, *(f"{WELL_KNOWN}{path}" for path in _MCP)}
    return {path: Route(path, answer, methods=["GET"]) for path in sorted(paths)}


def admission_of(http: HttpSettings) -> Admission:
    """Limits per principal, for all HTTP fronts."""
    return Admission(
        SystemClock(), requests=http.requests_per_principal, bodies=http.bodies_per_principal,
        request_rate=http.request_rate, session_rate=http.session_rate,
    )  # fmt: skip


def connections_of(http: HttpSettings) -> type[object]:
    """Connections for uvicorn's `http` within the limits, reduced to the open files allowed."""
    limit = affordable(http.max_connections)
    if limit < http.max_connections:
        log.info("connections_bounded", by="open files (ulimit -n)", wanted=http.max_connections, most=limit)
    return bounded(
        max_connections=limit, max_headers=http.max_headers, header_timeout=http.header_timeout,
        body_timeout=http.body_timeout,
    )  # fmt: skip


def monitoring_of(app: App, mcp: StreamableHttp, legacy: LegacySse, admission: Admission) -> tuple[Health, Metrics]:
    """Health and metrics of the hub and its fronts."""
    watch = app.operations.watch
    health, metrics = Health(watch, __version__), Metrics(watch, __version__)
    metrics.measure("ready", "Whether /readyz says that the hub is.", lambda: not health.reasons())
    metrics.measure("http_sessions", "Handshake sessions.", lambda: mcp.sessions)
    metrics.measure("sse_sessions", "Event streams of the old HTTP+SSE transport.", lambda: legacy.sessions)
    metrics.measure("http_requests", "HTTP requests that are being answered.", lambda: admission.under_way)
    figures = {
        "webhooks": "Webhooks of clients that this hub delivers.",
        "webhooks_delivered_total": "Messages that webhooks have taken.",
        "webhooks_failed_total": "Attempts at webhooks that have failed.",
        "webhooks_given_up_total": "Messages to webhooks that were given up.",
        "webhooks_incoming": "Webhooks of this hub at servers.",
        "webhooks_refused_total": "Messages of servers' webhooks that were refused.",
    }
    for name, description in figures.items():
        metrics.measure(name, description, partial(app.events.figure, name))
    metrics.measure("listens", "Open subscriptions/listen streams.", lambda: len(app.binding.streams))
    return health, metrics


def watch_of(app: App) -> HubWatch:
    """The hub as callers may see it."""
    history = app.journal.store
    return HubWatch(
        current=app.current,
        hub=app.hub,
        registry=app.registry,
        streams=app.streams,
        admin=app.operations,
        seen=app.seen,
        history=history,
        clock=SystemClock(),
    )


def dashboard_of(
    app: App,
    watch: HubWatch,
    api: RestApi,
    mode: Callable[[], DashboardMode],
    installs: Callable[[], list[ClientInstall]],
    open_editor: Callable[[], ServerEditor] | None,
    is_local: Callable[[Settings], bool],
    clients: ClientAccess,
) -> DashboardApi:
    """The dashboard. `mode` returns the current one; `installs` and `open_editor` block."""

    def is_near() -> bool:
        return is_local(app.settings) and app.settings.hub.http.public_url is None

    seen = app.seen
    file = OverridesFile(seen.config.absolute(), app.operations.reload)
    approvals = ToolApprovals(app.approvals, seen.records, str(file.config))
    raw = RawMessages(app.current, app.upstream_set, SystemClock())
    edits = HubEdits(app.current, open_editor, is_near, app.operations.reload)
    curation = HubCuration(
        current=app.current,
        hub=app.hub, approvals=approvals, file=file, logins=app.logins, edits=edits, seen=seen.clients, raw=raw,
        clients=cached_installs(installs, SystemClock()),
        logs=None if app.server_logs is None else app.server_logs.folder,
    )  # fmt: skip
    return DashboardApi(
        watched=watch,
        curated=curation,
        rest_api=api,
        access=PageAccess(lambda: app.settings.hub.http.public_url, lambda: clients.people),
        mode=mode,
        max_body=app.settings.hub.http.max_body,
        desk=lambda: app.gates.asking,
    )


def link_routes(app: App) -> Mapping[str, Route]:
    """The page of links to calls that wait for a yes."""
    return asked.routes(lambda: app.gates.asking, lambda: app.settings.hub.http.public_url)


def mode_of(app: App, default: DashboardMode) -> Callable[[], DashboardMode]:
    return lambda: app.settings.hub.http.dashboard.mode or default
