"""Handshake-era requests over HTTP: sessions by `Mcp-Session-Id`, the GET stream, DELETE.

Source: specification 2025-11-25, basic/transports "Streamable HTTP". A client that drops a POST does not cancel its
call (streams.md §3); it may come back for the rest of its stream (`resumption`), but not for that of a GET: what is
told there is told again.
"""

from collections.abc import Mapping

import anyio

from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError
from mcp_hub.fronts.announcer import Announcer
from mcp_hub.fronts.exchange import Housekeeper, Receive, Send, respond
from mcp_hub.fronts.http_request import HttpRequest, begin, json_error, json_result
from mcp_hub.fronts.http_stream import stream
from mcp_hub.fronts.mcp_server import Binding
from mcp_hub.fronts.resumption import Client, Resumption
from mcp_hub.hub import Facade
from mcp_hub.protocol.envelope import Unset, id_key, raw_object
from mcp_hub.protocol.rpc_errors import HEADER_MISMATCH, INVALID_REQUEST
from mcp_hub.sessions.session import Caller, Session, Sessions
from mcp_hub.types import Era

__all__ = ["HandshakeHttp"]

_SESSION = b"mcp-session-id"


class HandshakeHttp:
    """Serves requests whose version header is absent or names a handshake version."""

    def __init__(
        self,
        hub: Facade,
        binding: Binding,
        keeper: Housekeeper,
        clock: Clock,
        *,
        max_sessions: int,
        close_streams_after: float | None,
    ) -> None:
        self._hub = hub
        self._binding = binding
        self._resumption = Resumption(hub, keeper, clock, close_streams_after)
        self._sessions = Sessions(max_sessions)
        self._clients: dict[str, Client] = {}
        self._announcers: dict[str, Announcer] = {}
        self._streams: dict[str, anyio.CancelScope] = {}

    async def post(self, request: HttpRequest) -> None:
        if request.is_request and request.message.method == "initialize":
            await self._initialize(request)
            return
        if _SESSION not in request.headers and request.is_request and request.params()[1].is_modern:
            await request.refused(request.id(), _version_header_missing(), Era.MODERN)
            return
        session = await self._session(request.headers, request.caller, request.send)
        if session is None:
            return
        client = self._clients[session.id]
        if request.is_request:
            await self._answer(client, request)
            return
        if request.message.method == "notifications/cancelled":
            self._cancelled(client, request)
        elif request.message.method is Unset:
            client.asking.take(request.message)
        await request.accepted()

    async def _answer(self, client: Client, request: HttpRequest) -> None:
        id_ = request.id()
        key = id_key(id_)
        if client.is_taken(key):
            refusal = json_error(id_, INVALID_REQUEST, "a request with this id is still being answered")
            await respond(request.send, 400, refusal)
            return
        client.requests[key] = None  # taken from here on, also while the call waits for its server to start
        try:
            begun = await begin(self._binding, request, client.session, id_)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
            return
        finally:
            del client.requests[key]
        if begun is not None:
            running, meta = begun
            await self._resumption.answer(client, request, id_, key, meta.token, running)

    async def _initialize(self, request: HttpRequest) -> None:
        id_ = request.id()
        try:
            params, _ = request.params()
            session, result = self._binding.initialize(request.caller, params)
            for gone in self._sessions.add(session):
                self._end(gone)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
            return
        self._clients[session.id] = Client(session)
        self._announcers[session.id] = Announcer(self._hub, session)
        await json_result(request.send, id_, result, [(_SESSION, session.id.encode())])

    async def _session(self, headers: Mapping[bytes, bytes], caller: Caller, send: Send) -> Session | None:
        """The session that the request names; None after an error answer (400 unnamed, 404 unknown or foreign)."""
        named = headers.get(_SESSION)
        if named is None:
            refusal = json_error(None, INVALID_REQUEST, "Mcp-Session-Id header is required; send initialize first")
            await respond(send, 400, refusal)
            return None
        session = self._sessions.find(named.decode("latin-1"), caller)
        if session is None:
            await respond(send, 404, json_error(None, INVALID_REQUEST, "session not found"))
        return session

    def _cancelled(self, client: Client, request: HttpRequest) -> None:
        raw = (raw_object(request.message.params) or {}).get("requestId")
        stream = client.requests.get(id_key(bytes(raw))) if raw is not None else None
        if stream is not None:
            self._hub.cancel(stream.delivery.record, "cancelled by the client")

    async def get(self, headers: Mapping[bytes, bytes], receive: Receive, send: Send, caller: Caller) -> None:
        """The session's own stream: what belongs to no request, since the last one closed. A newer one replaces it.

        With `Last-Event-ID` the rest of a request's stream instead.
        """
        if b"text/event-stream" not in headers.get(b"accept", b"").lower():
            await respond(send, 406, json_error(None, INVALID_REQUEST, "Accept must name text/event-stream"))
            return
        session = await self._session(headers, caller, send)
        if session is None:
            return
        if (named := headers.get(b"last-event-id")) is not None:
            await self._resumption.resume(self._clients[session.id], named.decode("latin-1"), receive, send)
            return
        if (older := self._streams.get(session.id)) is not None:
            older.cancel()
        scope = self._streams[session.id] = anyio.CancelScope()
        try:
            await stream(self._announcers[session.id], receive, send, scope)
        finally:
            if self._streams.get(session.id) is scope:
                del self._streams[session.id]

    async def delete(self, headers: Mapping[bytes, bytes], send: Send, caller: Caller) -> None:
        """Ends the session: its stream and its running calls."""
        session = await self._session(headers, caller, send)
        if session is None:
            return
        self._sessions.remove(session)
        for started in filter(None, list(self._clients[session.id].requests.values())):
            self._hub.cancel(started.delivery.record, "the session was ended by the client")
        self._end(session)
        await respond(send, 204)

    def _end(self, session: Session) -> None:
        """The session is over; what it still runs ends by itself."""
        self._resumption.forget(self._clients.pop(session.id))
        del self._announcers[session.id]
        self._hub.end(session)
        if (scope := self._streams.get(session.id)) is not None:
            scope.cancel()

    def close(self) -> None:
        for scope in self._streams.values():
            scope.cancel()


def _version_header_missing() -> RpcError:
    """A modern envelope without the header that mirrors it (2026-07-28, "Server Validation")."""
    return RpcError("mcp-protocol-version header is missing or names an older version", code=HEADER_MISMATCH)
