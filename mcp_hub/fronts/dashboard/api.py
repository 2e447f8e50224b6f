"""Everything under `/api`, with the REST API below `/api/v1`.

The mode `read` serves GET only. Callers that are not operators see their own data.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Final

import anyio
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from mcp_hub.errors import HubError, RpcError
from mcp_hub.fronts.dashboard import asked, shell
from mcp_hub.fronts.dashboard.feed import OpenFeeds, feed_of, send_login
from mcp_hub.fronts.dashboard.ports import HubOperator, HubView
from mcp_hub.fronts.http.auth import HttpAuth, Refusal
from mcp_hub.fronts.http.response import LAST, ClientGone, HttpExchange, Message, Scope, Send
from mcp_hub.fronts.rest.api import RestApi, refusal_of
from mcp_hub.fronts.rest.exchange import RestRequest, answer, check_operator, refusal
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.fronts.rest.streams import Closing
from mcp_hub.logs import get_logger
from mcp_hub.protocol.rest.overview import (
    ApprovalBody,
    ClientInstall,
    DashboardMode,
    EditBody,
    ProfileInfo,
    RawBody,
    SwitchBody,
    ToolOverride,
    ToolPlace,
    WaitingTool,
)
from mcp_hub.sessions.session import Caller
from mcp_hub.types import JsonObject

MOST_LOGINS: Final = 8
"""Logins that wait at once."""


log = get_logger(__name__)

_REST: Final = "/v1/"
OPEN: Final = frozenset(
    {"tools", "search", "tokens", "streams", "servers", "reload", "resources", "prompts", "history", "events"}
)
"""The parts of the REST API that the page needs; nothing that belongs to programs which execute tools."""
_STREAMS: Final = "/v1/streams/"
_ALL: Final = "This belongs to the whole hub."
_MOST_OVERRIDES: Final = 256 << 10
"""Bytes of a body with overrides."""
_LONGEST_SEARCH: Final = 200
_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_NAMES: Final = frozenset(name for name, _ in _HEADERS)
Handler = Callable[[RestRequest], Awaitable[Response | None]]
_LAST_LOGIN: Final = 5.0
"""Seconds that a login waits for the end of one of the same server whose page has gone."""


class _InstallList(Struct):
    clients: list[ClientInstall]


class _ToolPlaces(Struct):
    """The caller's tools, and keys of the overrides file by server and tool."""

    tools: list[ToolPlace]
    overrides: dict[str, dict[str, JsonObject]] = {}


class _ProfileList(Struct):
    """The hub without a profile, then all profiles in configured order."""

    profiles: list[ProfileInfo]


class _ApprovalList(Struct):
    waiting: list[WaitingTool]


class _RegistryServers(Struct):
    servers: list[JsonObject]


class _OverridesBody(Struct, forbid_unknown_fields=True):
    servers: dict[str, dict[str, ToolOverride]]


class _LoginBody(Struct, forbid_unknown_fields=True):
    server: str


class DashboardApi:
    """The mount of `/api`; `max_body` in bytes. `desk` has the calls that wait for a yes."""

    prefix = "/api"

    def __init__(
        self,
        watched: HubView,
        curated: HubOperator,
        rest_api: RestApi,
        access: shell.PageAccess,
        mode: Callable[[], DashboardMode],
        *,
        max_body: int,
        desk: asked.Desk = lambda: None,
    ) -> None:
        self._desk = desk
        self._watched = watched
        self._curated = curated
        self._rest_api = rest_api
        self._access = access
        self.mode = mode
        self._request = partial(RestRequest, max_body=max_body)
        self._closing = Closing()
        self._feeds = OpenFeeds()
        self.pages = shell.routes(mode)

    def owns(self, path: str) -> bool:
        return path.startswith(f"{self.prefix}/") or path in self.pages

    def close(self) -> None:
        """Ends the feeds."""
        self._closing.close()

    def missing(self, scope: Scope) -> Refusal | None:
        path = scope["path"].removeprefix(self.prefix)
        if self.mode() == "off" or path in self.routes:
            return None
        if not path.startswith(_REST):
            return refusal_of(_nothing())
        if not _is_open(path):
            return refusal_of(_not_open())
        return self._rest_api.missing(self._of_rest(scope, path))

    def refused(self, denied: Refusal) -> Response:
        return _private(self._rest_api.refused(denied))

    def failed(self, error: RpcError) -> Response:
        return _private(self._rest_api.failed(error))

    async def caller(
        self, headers: Mapping[bytes, bytes], auth: HttpAuth, identify: Callable[[], Awaitable[Caller | Refusal]]
    ) -> Caller | Refusal:
        if self.mode() == "off":
            return Refusal(404, "not_found", "The dashboard is off (hub.http.dashboard).")
        return await self._access.caller(headers, auth, identify)

    async def serve(self, http: HttpExchange) -> None:
        send = _PrivateSend(http.send)
        try:
            response = await self._answered(replace(http, send=send))
        except ClientGone:
            return
        except HubError as error:
            response = refusal(problem_for(error))
        except Exception:
            log.exception("dashboard_request_crashed", method=http.scope["method"], path=http.scope["path"])
            response = refusal(Problem(500, "internal_error", "Internal error of the hub. Its log has the details."))
        if send.is_started and response is not None:  # what was begun just ends
            with anyio.move_on_after(LAST, shield=True):
                await http.send({"type": "http.response.body", "body": b""})
        elif response is not None:
            await response(http.scope, http.receive, send)

    async def _answered(self, http: HttpExchange) -> Response | None:
        method, path = http.scope["method"], http.scope["path"].removeprefix(self.prefix)
        mode = self._access.mode(http.headers, self.mode())
        if method not in ("GET", "HEAD") and mode != "full":
            if (nothing := self.missing(http.scope)) is not None:
                return self.refused(nothing)
            reason = "(hub.http.dashboard: read)" if self.mode() == "read" else "for you (full_if)"
            raise Problem(403, "read_only", f"The dashboard is read-only {reason}.")
        if path.startswith(_REST):
            await self._passed_on(http, path)
            return None
        scope = {**http.scope, "caller": http.caller, "mode": mode}
        request = self._request(scope, http.receive, http.send)
        handler = self._handler(method, path)
        if method == "POST":
            request.check_header()
        return await handler(request)

    @property
    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Handlers by path and method, without the REST API."""
        return {
            "/state": {"GET": self._state},
            "/feed": {"GET": self._feed},
            "/clients": {"GET": self._clients},
            "/installs": {"GET": self._installs},
            "/tools": {"GET": self._tools},
            "/settings": {"GET": self._settings},
            "/profiles": {"GET": self._profiles},
            "/raw": {"GET": self._raw, "POST": self._record_raw},
            "/approvals": {"GET": self._waiting, "POST": self._judge},
            "/overrides": {"POST": self._override},
            "/server": {"GET": self._server},
            "/entry": {"GET": self._entry, "POST": self._edit},
            "/entry/check": {"POST": self._check},
            "/edits": {"GET": self._edit_state, "POST": self._switch},
            "/schema": {"GET": self._schema},
            "/registry": {"GET": self._registry},
            "/login": {"POST": self._login},
            "/asks": {"GET": self._asks, "POST": self._settle},
        }

    def _handler(self, method: str, path: str) -> Handler:
        """Raises `Problem` 404 and 405."""
        methods = self.routes.get(path)
        if methods is None:
            raise _nothing()
        if method not in methods:
            raise Problem(405, "method_not_allowed", f"Allowed: {', '.join(methods)}.")
        return methods[method]

    async def _passed_on(self, http: HttpExchange, path: str) -> None:
        """An operator acts as the owner of a stream."""
        if not _is_open(path):
            raise _not_open()
        caller = http.caller
        if path.startswith(_STREAMS) and caller.operates:
            owner = await self._watched.owner(path.removeprefix(_STREAMS).partition("/")[0])
            caller = caller if owner is None else Caller(owner)
        await self._rest_api.serve(replace(http, scope=self._of_rest(http.scope, path), caller=caller))

    def _of_rest(self, scope: Scope, path: str) -> Scope:
        raw = scope.get("raw_path") or scope["path"].encode()
        return {**scope, "path": path, "raw_path": raw.removeprefix(self.prefix.encode())}

    async def _state(self, request: RestRequest) -> Response:
        return answer(await self._watched.state(request.caller, request.scope["mode"]))

    async def _feed(self, request: RestRequest) -> None:
        lasts = partial(self._access.lasts, dict(request.scope["headers"]))
        send = feed_of(self._watched, request.caller, request.query_params.get("after", ""), lasts)
        # the page shows questions with a form, other programs only watch
        is_page = request.query_params.get("answers") == "1"
        with self._feeds.opened(request.caller):
            with self._watched.watched(request.caller, request.scope["mode"]) if is_page else nullcontext():
                await self._closing.connected(request, send(request.streamed()))

    async def _clients(self, request: RestRequest) -> Response:
        return answer(self._watched.clients(request.caller))

    async def _installs(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(_InstallList(await self._curated.installs()))

    async def _tools(self, request: RestRequest) -> Response:
        places = self._watched.tool_places(request.caller)
        return answer(_ToolPlaces(places, await self._curated.overrides() if request.caller.operates else {}))

    async def _settings(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.settings())

    async def _profiles(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(_ProfileList(await self._curated.profiles()))

    async def _raw(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        after, server = request.count("after", 0, 1 << 53), request.query_params.get("server", "")
        return answer(await self._curated.raw_messages(server, after))

    async def _record_raw(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        self._curated.record_raw(await request.shaped(RawBody))
        return Response(status_code=204)

    async def _server(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.server(request.query_params.get("server", "")))

    async def _entry(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.entry(request.query_params.get("server", "")))

    async def _edit_state(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.state(_host(request)))

    async def _schema(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.schema())

    async def _registry(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        words = request.query_params.get("q", "").strip()
        if not 0 < len(words) <= _LONGEST_SEARCH:
            raise Problem(400, "invalid_params", f"q has to have 1 to {_LONGEST_SEARCH} characters.")
        return answer(_RegistryServers(await self._curated.edits.search(words, _host(request))))

    async def _check(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.judge(await request.shaped(EditBody, _MOST_OVERRIDES), _host(request)))

    async def _edit(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.edit(await request.shaped(EditBody, _MOST_OVERRIDES), _host(request)))

    async def _switch(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(await self._curated.edits.switch(await request.shaped(SwitchBody), _host(request)))

    async def _login(self, request: RestRequest) -> None:
        check_operator(request.caller, "A login is that of everybody.")
        server = (await request.shaped(_LoginBody)).server
        if (running := self._feeds.logins.get(server)) is not None:
            with anyio.move_on_after(_LAST_LOGIN):  # the hub notices late that a page has gone
                await running.wait()
        if server in self._feeds.logins:
            raise Problem(409, "login_running", f'Somebody is logging in to "{server}" already.')
        if len(self._feeds.logins) >= MOST_LOGINS:
            raise Problem(503, "busy", f"{MOST_LOGINS} logins are waiting already.", headers=((b"retry-after", b"5"),))
        login = self._curated.login(server)
        ended = self._feeds.logins[server] = anyio.Event()
        try:
            await self._closing.connected(request, send_login(login, request.streamed()))
        finally:
            del self._feeds.logins[server]
            ended.set()

    async def _waiting(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        return answer(_ApprovalList(await self._curated.waiting()))

    async def _judge(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        await self._curated.judge(await request.shaped(ApprovalBody))
        return Response(status_code=204)

    async def _asks(self, request: RestRequest) -> Response:
        return answer(asked.waiting_for(request.caller, self._desk()))

    async def _settle(self, request: RestRequest) -> Response:
        return await asked.settle(self._desk(), request)

    async def _override(self, request: RestRequest) -> Response:
        check_operator(request.caller, _ALL)
        await self._curated.override((await request.shaped(_OverridesBody, _MOST_OVERRIDES)).servers)
        return Response(status_code=204)


def _host(request: RestRequest) -> str:
    return request.headers.get("host", "")


def _nothing() -> Problem:
    return Problem(404, "not_found", "There is nothing at this path of the dashboard.")


def _not_open() -> Problem:
    return Problem(404, "not_found", "This part of the REST API is not for the dashboard.")


def _is_open(path: str) -> bool:
    return path.removeprefix(_REST).partition("/")[0] in OPEN


def _private(response: Response) -> Response:
    response.raw_headers.extend(_HEADERS)
    return response


class _PrivateSend:
    """Sends a response that no cache keeps."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            headers = [header for header in message.get("headers", ()) if header[0].lower() not in _NAMES]
            message = {**message, "headers": [*headers, *_HEADERS]}
        await self._send(message)
