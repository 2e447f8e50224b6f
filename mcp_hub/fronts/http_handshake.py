"""Handshake-era requests over HTTP: sessions by `Mcp-Session-Id`, the GET stream, DELETE.

Source: specification 2025-11-25, basic/transports "Streamable HTTP". A client that drops a POST does not cancel its
call (streams.md §3). Streams carry no event ids: an id that a client names is unknown.
"""

from collections.abc import Mapping

import anyio

from mcp_hub.errors import RpcError
from mcp_hub.fronts import sse
from mcp_hub.fronts.announcer import Announcer
from mcp_hub.fronts.asking import Asking
from mcp_hub.fronts.delivery import Delivery
from mcp_hub.fronts.exchange import KEEP_ALIVE, SSE_HEADERS, Housekeeper, Receive, Send, respond
from mcp_hub.fronts.http_request import HttpRequest, answer_call, json_error, json_result
from mcp_hub.fronts.mcp_server import Binding
from mcp_hub.hub import Facade
from mcp_hub.protocol.envelope import Unset, id_key, raw_object
from mcp_hub.protocol.rpc_errors import HEADER_MISMATCH, INVALID_REQUEST
from mcp_hub.sessions.session import Caller, Session, Sessions
from mcp_hub.types import Era

__all__ = ["HandshakeHttp"]

_SESSION = b"mcp-session-id"


class HandshakeHttp:
    """Serves requests whose version header is absent or names a handshake version."""

    def __init__(self, hub: Facade, binding: Binding, keeper: Housekeeper, max_sessions: int) -> None:
        self._hub = hub
        self._binding = binding
        self._keeper = keeper
        self._sessions = Sessions(max_sessions)
        self._open: dict[str, dict[int | str, Delivery | None]] = {}
        self._streams: dict[str, anyio.CancelScope] = {}
        self._asking: dict[str, Asking] = {}

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
        if not request.is_request:
            if request.message.method == "notifications/cancelled":
                self._cancelled(session, request)
            elif request.message.method is Unset and session.id in self._asking:
                self._asking[session.id].take(request.message)
            await request.accepted()
            return
        id_ = request.id()
        open_calls = self._open.setdefault(session.id, {})
        key = id_key(id_)
        if key in open_calls:
            refusal = json_error(id_, INVALID_REQUEST, "a request with this id is still being answered")
            await respond(request.send, 400, refusal)
            return
        open_calls[key] = None  # taken from here on, also while the call waits for its server to start
        try:
            asking = self._asking.setdefault(session.id, Asking())
            await answer_call(self._hub, self._binding, self._keeper, request, session, id_, open_calls, asking)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
        finally:
            del open_calls[key]
            if not open_calls:
                self._open.pop(session.id, None)

    async def _initialize(self, request: HttpRequest) -> None:
        id_ = request.id()
        try:
            params, _ = request.params()
            session, result = self._binding.initialize(request.caller, params)
            self._sessions.add(session)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
            return
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

    def _cancelled(self, session: Session, request: HttpRequest) -> None:
        raw = (raw_object(request.message.params) or {}).get("requestId")
        delivery = self._open.get(session.id, {}).get(id_key(bytes(raw))) if raw is not None else None
        if delivery is not None:
            self._hub.cancel(delivery.record, "cancelled by the client")

    async def get(self, headers: Mapping[bytes, bytes], receive: Receive, send: Send, caller: Caller) -> None:
        """The session's own stream: what belongs to no request. A newer one replaces it."""
        if b"text/event-stream" not in headers.get(b"accept", b"").lower():
            await respond(send, 406, json_error(None, INVALID_REQUEST, "Accept must name text/event-stream"))
            return
        session = await self._session(headers, caller, send)
        if session is None:
            return
        if b"last-event-id" in headers:
            await respond(send, 400, json_error(None, INVALID_REQUEST, "unknown event id"))
            return
        if (older := self._streams.get(session.id)) is not None:
            older.cancel()
        async with anyio.create_task_group() as tasks:
            scope = self._streams[session.id] = tasks.cancel_scope
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            tasks.start_soon(_until_disconnect, receive, scope)
            await self._announce(session, send)
        if self._streams.get(session.id) is scope:
            del self._streams[session.id]
        with anyio.move_on_after(1, shield=True):
            await send({"type": "http.response.body", "body": b""})

    async def _announce(self, session: Session, send: Send) -> None:
        announcer = Announcer(self._hub, session.caller.profile)
        body = sse.COMMENT
        while True:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            body = sse.COMMENT
            with anyio.move_on_after(KEEP_ALIVE):
                body = b"".join(map(sse.message, await announcer.next()))

    async def delete(self, headers: Mapping[bytes, bytes], send: Send, caller: Caller) -> None:
        """Ends the session: its stream and its running calls."""
        session = await self._session(headers, caller, send)
        if session is None:
            return
        self._sessions.remove(session)
        for delivery in filter(None, list(self._open.get(session.id, {}).values())):
            self._hub.cancel(delivery.record, "the session was ended by the client")
        if (stream := self._streams.get(session.id)) is not None:
            stream.cancel()
        await respond(send, 204)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.cancel()


def _version_header_missing() -> RpcError:
    """A modern envelope without the header that mirrors it (2026-07-28, "Server Validation")."""
    return RpcError("mcp-protocol-version header is missing or names an older version", code=HEADER_MISMATCH)


async def _until_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
