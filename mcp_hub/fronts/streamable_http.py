"""The Streamable HTTP front at `/mcp`, both eras on one endpoint, as a plain ASGI application.

Reads and checks a request as HTTP, then hands it to the era that its `MCP-Protocol-Version` header names (protocol.md
§2). Source: specification 2025-11-25 and 2026-07-28, basic/transports/streamable-http. A Starlette route around it
would cost 36 to 75 % more a call (performance.md).
"""

from collections.abc import Mapping
from typing import Final

import anyio

from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.exchange import Housekeeper, Receive, Scope, Send, respond
from mcp_hub.fronts.guard import Guard, Refusal
from mcp_hub.fronts.http_handshake import HandshakeHttp
from mcp_hub.fronts.http_modern import ModernHttp
from mcp_hub.fronts.http_request import HttpRequest, json_error
from mcp_hub.fronts.mcp_server import Binding
from mcp_hub.hub import Facade
from mcp_hub.protocol import envelope, eras
from mcp_hub.protocol.envelope import BadMessage
from mcp_hub.protocol.rpc_errors import HTTP_STATUS, INVALID_REQUEST, PARSE_ERROR
from mcp_hub.sessions.session import Caller

__all__ = ["StreamableHttp"]


_DISCARD: Final = 1.0
"""Seconds that the rest of a body over the limit is read and thrown away."""
_PATHS: Final = ("/mcp", "/mcp/")


class StreamableHttp:
    """The endpoint. `max_body` in bytes; `run` must be alive while it serves."""

    def __init__(self, hub: Facade, binding: Binding, guard: Guard, *, max_body: int, max_sessions: int) -> None:
        self._guard = guard
        self._max_body = max_body
        self._keeper = Housekeeper()
        self._handshake = HandshakeHttp(hub, binding, self._keeper, max_sessions)
        self._modern = ModernHttp(hub, binding, self._keeper)

    async def run(self) -> None:
        """Looks after exchanges that take long; runs until cancelled."""
        await self._keeper.run()

    def close(self) -> None:
        """Ends the streams that would not end by themselves, so that the server can stop."""
        self._handshake.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in _PATHS:
            await respond(send, 404, json_error(None, INVALID_REQUEST, "nothing here; the MCP endpoint is /mcp"))
            return
        headers = dict(scope["headers"])
        caller = self._guard.check(headers)
        if isinstance(caller, Refusal):
            await respond(send, caller.status, json_error(None, INVALID_REQUEST, caller.reason), [*caller.headers])
            return
        try:
            await self._serve(scope, receive, send, headers, caller)
        except Busy as error:
            await respond(send, 503, envelope.error_frame(None, error.encoded()), [(b"retry-after", b"5")])
        except RpcError as error:
            status = HTTP_STATUS.get(error.code, 400)
            await respond(send, status, envelope.error_frame(None, error.encoded()))

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes], caller: Caller
    ) -> None:
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        is_modern = bool(version) and version not in eras.HANDSHAKE_VERSIONS
        match scope["method"]:
            case "POST":
                await self._post(scope, receive, send, headers, caller, is_modern)
            case "GET" if not is_modern:
                await self._handshake.get(headers, receive, send, caller)
            case "DELETE" if not is_modern:
                await self._handshake.delete(headers, send, caller)
            case _:
                allowed = b"POST" if is_modern else b"POST, GET, DELETE"
                await respond(send, 405, headers=[(b"allow", allowed)])

    async def _post(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        caller: Caller,
        is_modern: bool,
    ) -> None:
        takes_json, takes_sse = _accepts(headers)
        if not takes_json:
            refusal = json_error(None, INVALID_REQUEST, "Accept must name application/json and text/event-stream")
            await respond(send, 406, refusal)
            return
        if not headers.get(b"content-type", b"").lower().startswith(b"application/json"):
            await respond(send, 415, json_error(None, INVALID_REQUEST, "Content-Type must be application/json"))
            return
        body = await self._body(receive)
        if body is None:
            await _discard(receive)
            refusal = json_error(None, INVALID_REQUEST, f"body over the limit of {self._max_body} bytes")
            await respond(send, 413, refusal, [(b"connection", b"close")])
            return
        message = envelope.decode(body) if body else BadMessage(PARSE_ERROR, "empty body")
        if isinstance(message, BadMessage):
            await respond(send, 400, json_error(message.id, message.code, message.reason))
            return
        request = HttpRequest(message, headers, scope["headers"], caller, receive, send, takes_sse)
        request.check()
        await (self._modern if is_modern else self._handshake).post(request)

    async def _body(self, receive: Receive) -> bytes | None:
        """The body on one line (line breaks may only stand between tokens of JSON); None if it is too long."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await receive()
            if event["type"] == "http.disconnect":
                raise RpcError("the client went away", code=INVALID_REQUEST)
            part = event.get("body", b"")
            size += len(part)
            if size > self._max_body:
                return None
            parts.append(part)
            if not event.get("more_body"):
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        if b"\n" in body or b"\r" in body:
            body = body.replace(b"\n", b" ").replace(b"\r", b" ")
        return body


def _accepts(headers: Mapping[bytes, bytes]) -> tuple[bool, bool]:
    """Whether the client takes JSON, and SSE. No Accept header takes anything (RFC 9110 §12.5.1)."""
    accept = headers.get(b"accept")
    if accept is None:
        return True, True
    accept = accept.lower()
    anything = b"*/*" in accept
    return (
        anything or b"application/json" in accept or b"application/*" in accept,
        anything or b"text/event-stream" in accept or b"text/*" in accept,
    )


async def _discard(receive: Receive) -> None:
    """Reads what a client still sends, for a moment: one that cannot finish sending would miss the answer."""
    with anyio.move_on_after(_DISCARD):
        while (event := await receive())["type"] == "http.request" and event.get("more_body"):
            pass
