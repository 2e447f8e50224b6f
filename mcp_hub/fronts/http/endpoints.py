"""The ASGI application: checks Host, Origin and token, then serves by path.

A token in the query is refused: URLs are logged. The URL may name a profile: `/mcp/p/<name>`, below a mount
`?profile=<name>`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol
from urllib.parse import parse_qsl

import anyio
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub import aio
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.auth import HttpAuth, Refusal, repeated
from mcp_hub.fronts.http.cards import is_card
from mcp_hub.fronts.http.response import (
    ClientGone,
    Fields,
    Headers,
    HttpError,
    HttpExchange,
    Message,
    Receive,
    Scope,
    Send,
    respond,
)
from mcp_hub.protocol.jsonrpc.envelope import error_frame
from mcp_hub.protocol.jsonrpc.rpc_errors import HTTP_STATUS, INVALID_REQUEST
from mcp_hub.sessions.session import Caller

_REQUESTED_METHOD: Final = b"access-control-request-method"
_REQUESTED_HEADERS: Final = b"access-control-request-headers"
_METHODS: Final = b"GET, POST, PUT, DELETE"
_EXPOSED: Final = b"Allow, Location, Mcp-Session-Id, Retry-After, WWW-Authenticate"
"""Headers of responses that a page may read besides the usual ones."""
_MAX_AGE: Final = b"600"
"""Seconds for which a browser remembers the answer to a preflight."""


def is_preflight(headers: Headers) -> bool:
    return _REQUESTED_METHOD in headers


def preflight(headers: Headers) -> Fields:
    """Response headers: all methods, and the page's headers."""
    fields = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.get(_REQUESTED_HEADERS, b"")),
        (b"access-control-max-age", _MAX_AGE),
    ]
    if b"access-control-request-private-network" in headers:  # from a public page to an address of a private network
        fields.append((b"access-control-allow-private-network", b"true"))
    return fields


def readable(send: Send, origin: bytes) -> Send:
    """Sends responses that pages of this origin may read."""
    fields = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *fields, (b"vary", b"Origin")]}
        await send(message)

    return with_headers


_PROFILE: Final = "/p/"
"""Between a route and the name of a profile."""

_IN_QUERY: Final = frozenset(
    """
    accesstoken token authtoken bearertoken idtoken refreshtoken hubtoken mcphubtoken
    apikey xapikey auth authorization bearer jwt
    """.split()
)
"""Parameters that are taken for a token, in lower case without `-`, `_` and `.`: that of RFC 6750 §2.3, which OAuth 2.1
§5.1 and MCP forbid, and others that people use."""

_MARKS: Final = dict.fromkeys(map(ord, "-_."))
"""Characters of a parameter's name that do not count."""

Serve = Callable[[HttpExchange], Awaitable[None]]
"""Serves one request. Raises `RpcError` for the caller to read; `Busy` is a 503, or 429."""


class _Mount(Protocol):
    """A front for all paths below `prefix`, with its own errors."""

    prefix: str

    async def serve(self, http: HttpExchange) -> None:
        """Serves one request; raises nothing."""

    def missing(self, scope: Scope) -> Refusal | None:
        """The refusal of a path without a route."""

    def refused(self, refusal: Refusal) -> Response:
        """The response to a refused request."""

    def failed(self, error: RpcError) -> Response:
        """The response to a request over a limit."""


class _GuardedMount(_Mount, Protocol):
    """A mount with its own access control; `pages` are public."""

    @property
    def pages(self) -> Mapping[str, Route]: ...

    def owns(self, path: str) -> bool:
        """Whether it serves a path."""

    async def caller(
        self, headers: Headers, auth: HttpAuth, identify: Callable[[], Awaitable[Caller | Refusal]]
    ) -> Caller | Refusal:
        """The caller; `identify` checks the hub's tokens."""


def page(route: Route) -> Serve:
    """Serves a Starlette route, with the caller in its scope."""

    async def serve(http: HttpExchange) -> None:
        await route.handle({**http.scope, "caller": http.caller}, http.receive, http.send)

    return serve


def refused(refusal: Refusal, reason: str) -> Response:
    """The response to a refused request, for MCP clients."""
    error = RpcError(reason, code=INVALID_REQUEST, symbol=refusal.code)
    response = Response(error_frame(None, error.encoded()), refusal.status, media_type="application/json")
    response.raw_headers.extend(refusal.headers)
    return response


def _bodiless(send: Send) -> Send:
    async def without(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return without


class _Listener:
    """A client's `Receive`, which disconnects without access."""

    def __init__(self, http: HttpExchange) -> None:
        self._http = http
        self._is_refused = anyio.Event()

    def look(self, auth: HttpAuth) -> None:
        """An OAuth token to be checked again counts."""
        caller = auth.identify(self._http.headers)
        if caller is None:
            return
        mine = self._http.caller
        if (
            isinstance(caller, Refusal)
            or caller.principal != mine.principal
            or caller.profile not in (None, mine.profile)
        ):
            self._is_refused.set()
        elif mine.operates and not caller.operates:
            self._is_refused.set()

    async def __call__(self) -> Message:
        message: Message = {"type": "http.disconnect"}
        with aio.Block(self._until_refused):
            message = await self._http.receive()
        return message

    async def _until_refused(self, give_up: Callable[[], None]) -> None:
        await self._is_refused.wait()
        give_up()


def _has_token(query: bytes) -> bool:
    parameters = parse_qsl(query.decode("latin-1").replace(";", "&"), keep_blank_values=True)
    return any(name.strip().lower().translate(_MARKS) in _IN_QUERY for name, _ in parameters)


def _only_listens(http: HttpExchange) -> bool:
    streams = (b"subscriptions/listen", b"events/stream")
    is_listen = http.scope["method"] == "GET" or http.headers.get(b"mcp-method") in streams
    return is_listen and b"authorization" in http.headers


class Endpoints:
    """Serves by path; a slash at the end does not matter.

    `pages` and `public` are public; `pages` may await `who`. `refusals` counts by status.
    """

    def __init__(
        self,
        auth: HttpAuth,
        routes: Mapping[str, Serve],
        mount: _Mount | None = None,
        pages: Mapping[str, Route] | None = None,
        public: Mapping[str, Route] | None = None,
        admission: Admission | None = None,
        refusals: Counter[int] | None = None,
        guarded: _GuardedMount | None = None,
        follows_all: bool = False,
    ) -> None:
        self._auth = auth
        self._listeners: set[_Listener] = set()
        self._refusals: Counter[int] = Counter() if refusals is None else refusals
        self._guarded = guarded
        self._pages = {**(pages or {}), **({} if guarded is None else guarded.pages)}
        self._admission = admission if admission is not None else Admission(SystemClock())
        self.public: Mapping[str, Route] = public or {}
        self._follows_all = follows_all
        self._routes = {**routes, **{f"{path}/": serve for path, serve in routes.items()}}
        self._mount = mount

    @property
    def paths(self) -> frozenset[str]:
        """Every path; mounts end with a slash."""
        mounts = [f"{mount.prefix}/" for mount in (self._mount, self._guarded) if mount is not None]
        return frozenset([*self._routes, *self._pages, *self.public, *mounts])

    def use(self, auth: HttpAuth, public: Mapping[str, Route], *, follows_all: bool = False) -> None:
        """Replaces authentication; listeners without access end, with `follows_all` every request."""
        self._auth, self.public, self._follows_all = auth, public, follows_all
        for listener in [*self._listeners]:
            listener.look(auth)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = self._headers(scope), scope["path"]
        mount = self._mount_of(path)
        guarded = self._guarded if self._guarded is not None and self._guarded.owns(path) else None
        if scope["method"] == "HEAD" or b"origin" in headers:
            send = self._sender(scope["method"], headers, send, is_open=guarded is None)
        if (refusal := self._at_the_door(scope, headers)) is not None:
            await self._refuse(refusal, mount, scope, receive, send)
            return
        if (
            scope["method"] == "OPTIONS"
            and guarded is None
            and is_preflight(headers)
            and self._auth.is_reader(headers.get(b"origin", b""))
        ):
            await respond(send, 204, headers=preflight(headers))
            return
        if (open_page := self._open_page(path)) is not None:
            await open_page.handle({**scope, "who": partial(self._caller, headers, None)}, receive, send)
            return
        serve, profile = self._route_of(mount, scope)
        if serve is None:
            missing = HttpError(404, "not_found", "There is nothing at this path. The MCP endpoint is /mcp.")
            await respond_error(send, missing)
            return
        caller = await self._identified(guarded, headers, profile)
        if isinstance(caller, Refusal):
            caller = (mount.missing(scope) if mount is not None else None) or caller
            await self._refuse(caller, mount, scope, receive, send)
            return
        exchange = HttpExchange(scope=scope, headers=headers, caller=caller, receive=receive, send=send)
        try:
            await self._admitted(serve, exchange)
        except ClientGone:
            pass
        except RpcError as error:
            if mount is not None:
                await mount.failed(error)(scope, receive, send)
            else:
                await respond_error(send, error)

    def _headers(self, scope: Scope) -> Headers:
        headers = dict(scope["headers"])
        if scope["path"] in self.public and is_card(scope["path"]):
            headers.pop(b"origin", None)  # for pages of every origin (SEP-2127), which get no more than others
        return headers

    def _open_page(self, path: str) -> Route | None:
        return self.public.get(path) or self._pages.get(path) or self._pages.get(f"{path.rpartition('/')[0]}/{{id}}")

    def _mount_of(self, path: str) -> _Mount | None:
        mounts = (self._mount, self._guarded)
        return next((mount for mount in mounts if mount is not None and path.startswith(f"{mount.prefix}/")), None)

    def _sender(self, method: str, headers: Headers, send: Send, *, is_open: bool) -> Send:
        origin = headers.get(b"origin", b"")
        if is_open and self._auth.is_reader(origin):
            send = readable(send, origin)
        return _bodiless(send) if method == "HEAD" else send

    def _route_of(self, mount: _Mount | None, scope: Scope) -> tuple[Serve | None, str | None]:
        """The path's front, and the URL's profile."""
        path = scope["path"]
        if (serve := self._routes.get(path)) is not None:
            return serve, None
        if mount is not None:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            return mount.serve, dict(query).get("profile")
        route, _, name = path.partition(_PROFILE)
        return self._routes.get(route), name.removesuffix("/")

    def _at_the_door(self, scope: Scope, headers: Headers) -> Refusal | None:
        if len(headers) < len(scope["headers"]) and (refusal := repeated(scope["headers"])) is not None:
            return refusal
        if (refusal := self._auth.admit(headers)) is not None:
            return refusal
        if scope["query_string"] and _has_token(scope["query_string"]):
            reason = "a token in the URL would be logged: send it as a header, Authorization: Bearer"
            return Refusal(400, "token_in_query", reason)
        return None

    async def _refuse(self, refusal: Refusal, mount: _Mount | None, scope: Scope, receive: Receive, send: Send) -> None:
        self._refusals[refusal.status] += 1
        answer = mount.refused(refusal) if mount is not None else refused(refusal, refusal.reason)
        await answer(scope, receive, send)

    async def _admitted(self, serve: Serve, http: HttpExchange) -> None:
        admission, principal = self._admission, http.caller.principal
        admission.enter(principal)
        body = admission.body(principal, http.headers, http.receive)
        if body is not None:
            http = replace(http, receive=body)
        listener = _Listener(http) if self._follows_all or _only_listens(http) else None
        if listener is not None:
            self._listeners.add(listener)
            http = replace(http, receive=listener)
        try:
            await serve(http)
        finally:
            if listener is not None:
                self._listeners.discard(listener)
            admission.leave(principal)
            if body is not None:
                body.close()

    async def _identified(
        self, guarded: _GuardedMount | None, headers: Headers, profile: str | None
    ) -> Caller | Refusal:
        if guarded is None:
            return await self._caller(headers, profile)
        caller = await guarded.caller(headers, self._auth, partial(self._caller, headers, None))
        return self._narrowed(caller, profile)

    async def _caller(self, headers: Headers, profile: str | None) -> Caller | Refusal:
        caller = self._auth.identify(headers)
        if caller is None:
            caller = await self._auth.verified(headers)
        return self._narrowed(caller, profile)

    def _narrowed(self, caller: Caller | Refusal, profile: str | None) -> Caller | Refusal:
        if profile is None or isinstance(caller, Refusal):
            return caller
        return self._auth.narrowed(caller, profile)


async def respond_error(send: Send, error: RpcError) -> None:
    """The response for an error, for MCP clients."""
    status, headers = HTTP_STATUS.get(error.code, 400), None
    body = error_frame(None, error.encoded())
    if isinstance(error, HttpError):
        status, body, headers = error.status, error.body, error.headers
    elif isinstance(error, Busy):
        status, headers = 429 if error.is_rate else 503, [(b"retry-after", b"%d" % error.retry_after)]
    await respond(send, status, body, headers)
