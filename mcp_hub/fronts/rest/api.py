"""Everything under `/v1`, dispatched by the table in `routes`. All errors are problems."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol
from urllib.parse import quote, unquote_to_bytes

import anyio
import msgspec
from msgspec import Raw
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from mcp_hub.clock import SystemClock
from mcp_hub.errors import ConfigError, HubError, HubStopping, RpcError
from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.auth import Refusal
from mcp_hub.fronts.http.response import ClientGone, HttpExchange, Message, Receive, Scope, Send
from mcp_hub.fronts.rest.accounts import account_handlers
from mcp_hub.fronts.rest.calls import SOON, RestCalls, preferred_wait, started_servers, starting_servers
from mcp_hub.fronts.rest.events import events_of
from mcp_hub.fronts.rest.exchange import JSON, Handlers, RestRequest, answer, check_operator, check_query, refusal
from mcp_hub.fronts.rest.executors import Executors, executor_handlers
from mcp_hub.fronts.rest.formats.calls import FormatCalls
from mcp_hub.fronts.rest.formats.prompted import prompted_handlers
from mcp_hub.fronts.rest.formats.search import search_handlers
from mcp_hub.fronts.rest.formats.tools import tool_handlers
from mcp_hub.fronts.rest.history import HubHistory, history_handlers
from mcp_hub.fronts.rest.pages import openapi_document
from mcp_hub.fronts.rest.problem import Problem, problem_for, unknown_server
from mcp_hub.fronts.rest.routes import PREFIX, ROUTES, RestRoute
from mcp_hub.fronts.rest.streams import Closing, RunningView, stream_handlers
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.calls import PromptList, ResourceList
from mcp_hub.protocol.rest.servers import ReloadAnswer, RestartAnswer, ServerInfo, ServerList
from mcp_hub.types import Era, Kind

ANY_CLIENT: Final = "unknown"
"""The kind of every client that no other kind matches."""
_LONGEST_CLIENT: Final = 256
"""Characters of a kind of client."""
_HITS, _MOST_HITS = 8, 50
_MOST_TOP: Final = 100_000
_ALL: Final = 1 << 30


class _Page(msgspec.Struct, rename="camel"):
    resources: list[Raw] = []
    resource_templates: list[Raw] = []
    prompts: list[Raw] = []


class _RestLists:
    """Serves `/v1/resources`, `/v1/prompts` and `/v1/tokens`."""

    def __init__(self, hub: HubPort, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing

    async def list_resources(self, request: RestRequest) -> Response:
        resources, templates = await self._page(request, Kind.RESOURCE), await self._page(request, Kind.TEMPLATE)
        starting = starting_servers(self._hub, request.caller.profile)
        return _growing(ResourceList(resources.resources, templates.resource_templates, starting))

    async def list_prompts(self, request: RestRequest) -> Response:
        prompts = (await self._page(request, Kind.PROMPT)).prompts
        return _growing(PromptList(prompts, starting_servers(self._hub, request.caller.profile)))

    async def _page(self, request: RestRequest, kind: Kind) -> _Page:
        if wait := preferred_wait(request.header("prefer"), 0.0):
            await self._closing.connected(request, started_servers(self._hub, request.caller.profile, wait))
        else:
            await self._hub.views.settled_for(request.caller)
        page = self._hub.views.whole(request.caller).page(kind, Era.MODERN, None, _ALL)
        return msgspec.json.decode(page, type=_Page)

    async def count_tokens(self, request: RestRequest) -> Response:
        """Token costs of the profile's tools, for the named kind of client."""
        client = request.query_params.get("client", ANY_CLIENT)
        if len(client) > _LONGEST_CLIENT:
            raise Problem(400, "unknown_client", f"unknown client: a name of {len(client)} characters")
        server, top = request.query_params.get("server"), request.count("top", 0, _MOST_TOP) or None
        await self._hub.catalog.settled()
        try:
            return answer(await self._hub.views.token_account(request.caller, client, server, top))
        except ConfigError as problem:
            raise Problem(400, "unknown_client", str(problem)) from None


def _growing(listed: ResourceList | PromptList) -> Response:
    response = answer(listed)
    response.raw_headers.extend([SOON] if listed.starting else [])
    return response


log = get_logger(__name__)

_LAST: Final = 1.0
"""Seconds to end a response that its client may not be reading."""


class _Operator(Protocol):
    """The hub's operations."""

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        """A profile's servers; all for None."""

    async def listed(self, profile: str | None) -> ServerList:
        """The servers, and what concerns all of them."""

    async def restart(self, server: str) -> None:
        """Replaces a server. Raises `Problem` 404 or 409, 503 while old ones drain."""

    async def reload(self) -> ReloadAnswer:
        """Applies the configuration. Raises `Problem` 422 with its errors."""


class _RestServers:
    """Serves `/v1/servers/…` and `/v1/reload`. A profile limits the servers; only operators see output and act."""

    def __init__(self, operator: _Operator, admission: Admission) -> None:
        self._operator = operator
        self._admission = admission

    async def servers(self, request: RestRequest) -> Response:
        caller = request.caller
        listed = await self._operator.listed(caller.profile)
        return answer(listed if caller.operates else listed.without_output())

    async def server(self, request: RestRequest) -> Response:
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


def by_path() -> Mapping[str, Mapping[str, RestRoute]]:
    """Routes by path and method."""
    paths: dict[str, dict[str, RestRoute]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route
    return paths


class RestApi:
    """The mount of `/v1`. `max_body` in bytes; `is_open`: callers may execute tools; `is_private`: only the hub's user
    comes in.

    `running` returns a caller's calls.
    """

    prefix = PREFIX

    def __init__(
        self,
        hub: HubPort,
        *,
        version: str,
        max_body: int,
        operator: _Operator,
        admission: Admission | None = None,
        executors: Executors | None = None,
        is_open: Callable[[], bool] = lambda: False,
        is_private: bool = False,
        public_url: Callable[[], str | None] = lambda: None,
        running: RunningView = lambda caller, of_rest: (),
        history: HubHistory | None = None,
        accounts: Handlers | None = None,
    ) -> None:
        self._closing = Closing()
        admission = Admission(SystemClock()) if admission is None else admission
        self._document = openapi_document(version)
        lists = _RestLists(hub, self._closing)
        calls = RestCalls(hub, self._closing)
        format_calls = FormatCalls(hub, calls, self._closing)
        handlers = {
            **_handlers(lists, calls, _RestServers(operator, admission)),
            **tool_handlers(hub, self._closing, public_url),
            **search_handlers(hub),
            **stream_handlers(hub, self._closing, running, shows_all=is_private),
            **executor_handlers(executors, self._closing, is_open=is_open),
            **history_handlers(history, calls),
            **(accounts or account_handlers(None, lambda server: None)),
            **prompted_handlers(hub, format_calls, self._closing),
            "callTools": format_calls.call_tools,
            "followEvents": events_of(hub, self._closing),
            "describe": self._describe,
        }
        routes = [Route(path, _Resource(by_method, handlers, max_body)) for path, by_method in by_path().items()]
        self._router = Router(routes, redirect_slashes=False, default=_nothing)

    def close(self) -> None:
        """Ends open responses."""
        self._closing.close()

    def missing(self, scope: Scope) -> Refusal | None:
        try:
            target = {**scope, "path": _path(scope["raw_path"])}
        except Problem as problem:
            return refusal_of(problem)
        has_route = any(route.matches(target)[0] is not Match.NONE for route in self._router.routes)
        return None if has_route else refusal_of(_not_found())

    def refused(self, denied: Refusal) -> Response:
        return refusal(Problem(denied.status, denied.code, denied.reason, headers=denied.headers))

    def failed(self, error: RpcError) -> Response:
        return refusal(problem_for(error))

    async def serve(self, http: HttpExchange) -> None:
        scope, receive, sent = http.scope, http.receive, _Sent(http.send)
        try:
            scope["path"], scope["caller"] = _path(scope["raw_path"]), http.caller
            await self._router.app(scope, receive, sent)
        except ClientGone:
            pass
        except HubError as error:
            await sent.respond(scope, receive, problem_for(error))
        except anyio.get_cancelled_exc_class():
            if not self._closing.is_over:
                raise
            await sent.respond(scope, receive, problem_for(HubStopping("the hub is stopping")))
        except Exception:
            log.exception("rest_request_crashed", method=scope["method"], path=scope["path"])
            problem = Problem(500, "internal_error", "Internal error of the hub. Its log has the details.")
            await sent.respond(scope, receive, problem)

    async def _describe(self, request: RestRequest) -> Response:
        return Response(self._document, media_type=JSON)


def _handlers(lists: _RestLists, calls: RestCalls, servers: _RestServers) -> Handlers:
    return {
        "listResources": lists.list_resources,
        "listPrompts": lists.list_prompts,
        "countTokens": lists.count_tokens,
        "callTool": calls.call_tool,
        "runCode": calls.run_code,
        "getPrompt": calls.get_prompt,
        "readResource": calls.read_resource,
        "listServers": servers.servers,
        "getServer": servers.server,
        "restartServer": servers.restart,
        "reload": servers.reload,
    }


def refusal_of(problem: Problem) -> Refusal:
    """The problem as a refusal."""
    return Refusal(problem.status, problem.code, str(problem), problem.headers)


def _path(raw: bytes) -> str:
    """Segments are encoded alike: parameters may hold `%2F`."""
    try:
        return "/".join(quote(unquote_to_bytes(segment).decode(), "") for segment in raw.removesuffix(b"/").split(b"/"))
    except UnicodeDecodeError:
        raise _not_found() from None


def _not_found() -> Problem:
    return Problem(404, "not_found", "There is nothing at this path. See /v1/openapi.json.")


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise _not_found()


class _Resource:
    """One path's handlers by method. Raises `Problem` 400, 405 and 415."""

    def __init__(self, routes: Mapping[str, RestRoute], handlers: Handlers, max_body: int) -> None:
        methods = {method: handlers[route.operation] for method, route in routes.items()}
        self._guarded = {method for method, route in routes.items() if route.needs_header}
        if any(route.has_head for route in routes.values()):
            methods["HEAD"] = methods["GET"]
        self._allowed = ", ".join([*methods, "OPTIONS"])
        self._methods = methods
        self._parameters = {
            method: frozenset(option.name for option in route.parameters if not option.is_header)
            for method, route in routes.items()
        }
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        response: Response | None
        if method == "OPTIONS":
            response = Response(status_code=204, headers={"allow": self._allowed})
        elif (handler := self._methods.get(method)) is not None:
            request = RestRequest(scope=scope, receive=receive, send=send, max_body=self._max_body)
            check_query(request, self._parameters.get(method, ()))
            if method in self._guarded:
                request.check_header()
            response = await handler(request)
        else:
            allow = ((b"allow", self._allowed.encode()),)
            reason = f"{hide_head(method, 20)} is not allowed here. Allowed: {self._allowed}."
            raise Problem(405, "method_not_allowed", reason, headers=allow)
        if response is not None:
            await response(scope, receive, send)


class _Sent:
    """Sends a response and knows its progress."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_started = self._is_complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_started = True
        else:
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def respond(self, scope: Scope, receive: Receive, problem: Problem) -> None:
        """Sends the problem, unless a response has begun."""
        if not self._is_started:
            await refusal(problem)(scope, receive, self)
        elif not self._is_complete:
            with anyio.move_on_after(_LAST, shield=True):
                await self._send({"type": "http.response.body", "body": b""})
