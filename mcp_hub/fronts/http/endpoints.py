"""The HTTP endpoints as one plain ASGI application: the guard, then the front whose path it is.

Host and Origin are checked before anything else is, on every path, those that there are not included; then the token,
except on the `public` paths. A token has no place in a URL, where it would be logged: one in the query is refused.

A client gets a profile by URL: `/mcp/p/<name>` is `/mcp` with it, and so for each route; below a mount it is a query
parameter, `?profile=<name>`.

What is not MCP is Starlette: routes of single pages, and a mount. A Starlette route around `/mcp` would cost 36 to 75 %
more a call.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import anyio
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub import aio
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.http.admission import Admission, AdmissionLimits, TooFast
from mcp_hub.fronts.http.auth import HttpAuth, Refusal, Unverified, repeated
from mcp_hub.fronts.http.request import json_error
from mcp_hub.fronts.http.response import Receive, Scope, Send, respond
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.rpc_errors import HTTP_STATUS, INVALID_REQUEST
from mcp_hub.sessions.session import Caller

_PROFILE: Final = "/p/"
"""Between a route and the name of a profile."""

_IN_QUERY: Final = "access_token"
"""The parameter of RFC 6750 §2.3, which OAuth 2.1 §5.1 and MCP forbid."""

Headers = Mapping[bytes, bytes]
Serve = Callable[[Scope, Receive, Send, Headers, Caller], Awaitable[None]]
"""Serves one HTTP request that has passed the guard. Raises `RpcError` for the caller to read; `Busy` is a 503, or 429.
"""


class Mount(Protocol):
    """A front that serves every path below `prefix`, and has a form of its own for errors."""

    prefix: str

    async def serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        """Serves one HTTP request that has passed the guard; raises nothing for the caller to read."""
        ...

    def refused(self, refusal: Refusal) -> Response:
        """The answer to one that has not."""
        ...

    def failed(self, error: Busy) -> Response:
        """The answer to one that is too much."""
        ...


def page(route: Route) -> Serve:
    """Serves a route of its own, whose requests have their caller in the scope."""

    async def serve(scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        await route.handle({**scope, "caller": caller}, receive, _bodiless(send) if scope["method"] == "HEAD" else send)

    return serve


def refused(refusal: Refusal, reason: str) -> Response:
    """The answer to a request that did not pass the guard, as MCP clients read it."""
    response = Response(
        json_error(None, INVALID_REQUEST, reason, refusal.code), refusal.status, media_type="application/json"
    )
    response.raw_headers.extend(refusal.headers)
    return response


def _bodiless(send: Send) -> Send:
    """As HEAD wants it: the head of the whole response and nothing else."""

    async def without(message: MutableMapping[str, Any]) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return without


class _Listener:
    """The requests of a client that only listens, which might be for ever: it is gone once its token is, too."""

    def __init__(self, receive: Receive, headers: Headers, caller: Caller) -> None:
        self._receive = receive
        self._headers = headers
        self._caller = caller
        self._is_refused = anyio.Event()

    def look(self, guard: HttpAuth) -> None:
        """Whether it may still listen; one with a token that has to be checked anew may."""
        found = guard.identify(self._headers)
        if isinstance(found, Unverified):
            return
        mine = self._caller
        if isinstance(found, Refusal) or found.principal != mine.principal or found.profile not in (None, mine.profile):
            self._is_refused.set()

    async def __call__(self) -> MutableMapping[str, Any]:
        message: MutableMapping[str, Any] = {"type": "http.disconnect"}
        with aio.Beside(self._until_refused):
            message = await self._receive()
        return message

    async def _until_refused(self, give_up: Callable[[], None]) -> None:
        await self._is_refused.wait()
        give_up()


def _only_listens(scope: Scope, headers: Headers) -> bool:
    """Whether it has a token and is not a call: calls continue."""
    is_listen = scope["method"] == "GET" or headers.get(b"mcp-method") == b"subscriptions/listen"
    return is_listen and b"authorization" in headers


class Endpoints:
    """Hands each request to the front of its path, with or without a slash at the end.

    `pages` and `public` are whole paths for everybody; `use` replaces the latter with the guard. A page that needs
    to know the caller for a part of what it says awaits `who` of its scope. Requests that run while the guard is
    replaced continue, but for clients that only listen and are refused from then on.
    `refusals` counts refused requests by status.
    """

    def __init__(
        self,
        guard: HttpAuth,
        routes: Mapping[str, Serve],
        mount: Mount | None = None,
        pages: Mapping[str, Route] | None = None,
        public: Mapping[str, Route] | None = None,
        admission: Admission | None = None,
        refusals: Counter[int] | None = None,
    ) -> None:
        self._guard = guard
        self._listeners: set[_Listener] = set()
        self._refusals: Counter[int] = Counter() if refusals is None else refusals
        self._pages = dict(pages or {})
        self._admission = admission if admission is not None else Admission(AdmissionLimits(), SystemClock())
        self.public: Mapping[str, Route] = public or {}
        self._routes = {**routes, **{f"{path}/": serve for path, serve in routes.items()}}
        self._mount = mount

    def use(self, guard: HttpAuth, public: Mapping[str, Route]) -> None:
        """Replaces the guard and the public pages."""
        self._guard, self.public = guard, public
        for listener in self._listeners:
            listener.look(guard)

    @property
    def paths(self) -> list[str]:
        """Every path that is served, and the prefix of the mount."""
        return [*self._routes, *self.public, *self._pages, *([self._mount.prefix] if self._mount is not None else [])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, profile = scope["path"], None
        headers = dict(scope["headers"])
        refusal = self._at_the_door(scope, headers)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        if (open_page := self.public.get(path) or self._pages.get(path)) is not None:
            who = partial(self._caller, headers, None)
            is_head = scope["method"] == "HEAD"
            await open_page.handle({**scope, "who": who}, receive, _bodiless(send) if is_head else send)
            return
        serve = self._routes.get(path)
        if serve is None and _PROFILE in path:
            route, _, name = path.partition(_PROFILE)
            serve, profile = self._routes.get(route), name.removesuffix("/")
        if serve is None:
            if self._mount is not None and path.startswith(f"{self._mount.prefix}/"):
                out = _bodiless(send) if scope["method"] == "HEAD" else send
                await self._pass_on(self._mount, scope, receive, out, headers)
                return
            await respond(
                send, 404, json_error(None, INVALID_REQUEST, "nothing here; the MCP endpoint is /mcp", "not_found")
            )
            return
        caller = await self._caller(headers, profile)
        if isinstance(caller, Refusal):
            await self._refuse(caller, scope, receive, send)
            return
        try:
            await self._admitted(serve, scope, receive, send, headers, caller)
        except Busy as error:
            status = 429 if isinstance(error, TooFast) else 503
            retry = [(b"retry-after", b"%d" % error.retry_after)]
            await respond(send, status, envelope.error_frame(None, error.encoded()), retry)
        except RpcError as error:
            status = HTTP_STATUS.get(error.code, 400)
            await respond(send, status, envelope.error_frame(None, error.encoded()))

    def _at_the_door(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Why a request is not even looked at."""
        if len(headers) < len(scope["headers"]) and (refusal := repeated(scope["headers"])) is not None:
            return refusal
        if (refusal := self._guard.admit(headers)) is not None:
            return refusal
        if scope["query_string"] and _IN_QUERY in dict(parse_qsl(scope["query_string"].decode("latin-1"), True)):
            said = "a token in the URL would be logged: send it as a header, Authorization: Bearer"
            return Refusal(400, "token_in_query", said)
        return None

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        self._refusals[refusal.status] += 1
        is_mounted = self._mount is not None and scope["path"].startswith(f"{self._mount.prefix}/")
        refused_as = self._mount.refused(refusal) if self._mount and is_mounted else refused(refusal, refusal.reason)
        await refused_as(scope, receive, send)

    async def _admitted(
        self, serve: Serve, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller
    ) -> None:
        """Raises `Busy` for more than the principal may have under way."""
        admission = self._admission
        admission.enter(caller.principal)
        body = admission.body(caller.principal, headers, receive)
        listener = _Listener(body or receive, headers, caller) if _only_listens(scope, headers) else None
        if listener is not None:
            self._listeners.add(listener)
        try:
            await serve(scope, listener or body or receive, send, headers, caller)
        finally:
            if listener is not None:
                self._listeners.discard(listener)
            admission.leave(caller.principal)
            if body is not None:
                body.close()

    async def _caller(self, headers: Headers, profile: str | None) -> Caller | Refusal:
        guard = self._guard
        caller = guard.identify(headers)
        if isinstance(caller, Unverified):
            caller = await guard.verified(caller)
        if profile is None or isinstance(caller, Refusal):
            return caller
        return guard.narrowed(caller, profile)

    async def _pass_on(self, mount: Mount, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        caller = await self._caller(headers, dict(query).get("profile"))
        if isinstance(caller, Refusal):
            await self._refuse(caller, scope, receive, send)
            return
        try:
            await self._admitted(mount.serve, scope, receive, send, headers, caller)
        except Busy as error:
            await mount.failed(error)(scope, receive, send)
