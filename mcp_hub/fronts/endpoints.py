"""The HTTP endpoints as one plain ASGI application: the guard, then the front whose path it is.

A client gets a profile by URL: `/mcp/p/<name>` is `/mcp` with it, and so for each route; below a mount it is a query
parameter, `?profile=<name>`.

A Starlette route around a front would cost 36 to 75 % more a call (performance.md).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from urllib.parse import parse_qsl

from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.exchange import Receive, Scope, Send, respond
from mcp_hub.fronts.guard import Guard, Refusal
from mcp_hub.fronts.http_request import json_error
from mcp_hub.protocol import envelope
from mcp_hub.protocol.rpc_errors import HTTP_STATUS, INVALID_REQUEST
from mcp_hub.sessions.session import Caller

__all__ = ["Endpoints", "Headers", "Mount", "Serve"]

_PROFILE: Final = "/p/"
"""Between a route and the name of a profile."""

Headers = Mapping[bytes, bytes]
Serve = Callable[[Scope, Receive, Send, Headers, Caller], Awaitable[None]]
"""Serves one HTTP request that has passed the guard. Raises `RpcError` for the caller to read; `Busy` is a 503."""


class Mount(Protocol):
    """A front that serves every path below `prefix`, and has a form of its own for errors."""

    prefix: str

    async def serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers, caller: Caller) -> None:
        """Serves one HTTP request that has passed the guard; raises nothing for the caller to read."""
        ...

    async def refuse(self, send: Send, refusal: Refusal) -> None:
        """Answers one that has not."""
        ...


class Endpoints:
    """Hands each request to the front of its path, with or without a slash at the end."""

    def __init__(self, guard: Guard, routes: Mapping[str, Serve], mount: Mount | None = None) -> None:
        self._guard = guard
        self._routes = {**routes, **{f"{path}/": serve for path, serve in routes.items()}}
        self._mount = mount

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, profile = scope["path"], None
        serve = self._routes.get(path)
        if serve is None and _PROFILE in path:
            route, _, name = path.partition(_PROFILE)
            serve, profile = self._routes.get(route), name.removesuffix("/")
        if serve is None:
            if self._mount is not None and path.startswith(f"{self._mount.prefix}/"):
                await self._pass_on(self._mount, scope, receive, send)
                return
            await respond(send, 404, json_error(None, INVALID_REQUEST, "nothing here; the MCP endpoint is /mcp"))
            return
        headers = dict(scope["headers"])
        caller = self._caller(headers, profile)
        if isinstance(caller, Refusal):
            await respond(send, caller.status, json_error(None, INVALID_REQUEST, caller.reason), [*caller.headers])
            return
        try:
            await serve(scope, receive, send, headers, caller)
        except Busy as error:
            await respond(send, 503, envelope.error_frame(None, error.encoded()), [(b"retry-after", b"5")])
        except RpcError as error:
            status = HTTP_STATUS.get(error.code, 400)
            await respond(send, status, envelope.error_frame(None, error.encoded()))

    def _caller(self, headers: Headers, profile: str | None) -> Caller | Refusal:
        caller = self._guard.check(headers)
        if profile is None or isinstance(caller, Refusal):
            return caller
        return self._guard.narrowed(caller, profile)

    async def _pass_on(self, mount: Mount, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        caller = self._caller(headers, dict(query).get("profile"))
        if isinstance(caller, Refusal):
            await mount.refuse(send, caller)
        else:
            await mount.serve(scope, receive, send, headers, caller)
