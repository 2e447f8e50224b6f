"""Handshake over HTTP: sessions, the GET stream, DELETE. Closing a POST does not cancel its call.

Source: specification 2025-11-25, basic/transports "Streamable HTTP".
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import Bell
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Busy, RpcError, StoreError
from mcp_hub.events import BY_CLIENT
from mcp_hub.fronts import limits
from mcp_hub.fronts.http.admission import Rate, accepts
from mcp_hub.fronts.http.replay import Origin
from mcp_hub.fronts.http.request import Housekeeper, HttpRequest, begin
from mcp_hub.fronts.http.response import (
    HttpError,
    HttpExchange,
    HttpResponse,
    Message,
    Receive,
    Send,
    respond,
    stream,
    unavailable,
)  # fmt: skip
from mcp_hub.fronts.http.resume import ClientCalls, Resumption
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.fronts.mcp.client_requests import answered_elsewhere
from mcp_hub.fronts.mcp.subscriptions import Announcer
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset, error_frame, id_key, raw_object, result_frame
from mcp_hub.protocol.jsonrpc.repair import BATCHING, messages
from mcp_hub.protocol.jsonrpc.rpc_errors import HEADER_MISMATCH
from mcp_hub.protocol.notifications import given_reason
from mcp_hub.sessions.session import Caller, Session, Sessions
from mcp_hub.sessions.stored import StoredSession
from mcp_hub.types import Era

Handle = Callable[[HttpRequest], Awaitable[None]]
"""Responds to one message. Raises `RpcError`."""


class _Part:
    def __init__(self) -> None:
        self.body = b""

    async def send(self, event: Message) -> None:
        self.body += event.get("body", b"")


async def answer_batch(request: HttpRequest, messages: Sequence[Envelope | BadMessage], handle: Handle) -> None:
    """Responds in the requests' order; 202 without any."""
    parts, owners = [_Part() for _ in messages], _owners(messages)
    async with anyio.create_task_group() as tasks:
        for at, (message, part) in enumerate(zip(messages, parts, strict=True)):
            is_owner = (key := _key(message)) is None or owners[key] == at
            if isinstance(message, BadMessage):
                error = RpcError(message.reason, code=message.code)
                part.body = error_frame(message.id if is_owner else None, error.encoded())
            elif is_owner:
                scope = {**request.scope, "extensions": None}
                single = replace(request, message=message, scope=scope, send=part.send, takes_sse=False)
                tasks.start_soon(_answer, single, part, handle)
    answers = [body for part in parts if (body := part.body.strip())]
    if answers:
        await respond(request.send, 200, b"[%b]" % b",".join(answers))
    else:
        await request.accepted()


_Key = tuple[int | str, bool]


def _key(message: Envelope | BadMessage) -> _Key | None:
    if isinstance(message, BadMessage):
        id_ = message.id
    else:
        id_ = None if message.is_answer else message.usable_id
    return None if id_ is None else (id_key(id_), id_.startswith(b'"'))


def _owners(messages: Sequence[Envelope | BadMessage]) -> dict[_Key, int]:
    """A shared id belongs to the first request, else to the first malformed one."""
    owners: dict[_Key, int] = {}
    for is_broken in (False, True):
        for at, message in enumerate(messages):
            if isinstance(message, BadMessage) is is_broken and (key := _key(message)) is not None:
                owners.setdefault(key, at)
    return owners


async def _answer(request: HttpRequest, part: _Part, handle: Handle) -> None:
    try:
        request.check()
        await handle(request)
    except RpcError as error:
        part.body = error_frame(request.message.usable_id, error.encoded())


log = get_logger(__name__)

_SESSION = b"mcp-session-id"
_ID = re.compile(r"se_[0-9A-Z]{26}")
_CHANGING = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""Requests that change what is known of a session."""


class HandshakeHttp:
    """Serves requests without a version header, or with a handshake version."""

    def __init__(
        self,
        hub: HubPort,
        binding: Binding,
        housekeeper: Housekeeper,
        *,
        sessions: Sessions,
        session_rate: Rate | None,
        close_streams_after: float | None,
    ) -> None:
        self._hub = hub
        self._binding = binding
        self._resumption = Resumption(hub, housekeeper, SystemClock(), close_streams_after)
        self._sessions = sessions
        self._session_rate = session_rate
        self._clients: dict[str, ClientCalls] = {}
        self._announcers: dict[str, Announcer] = {}
        self._streams: dict[str, anyio.CancelScope] = {}
        self._lapsed: dict[str, Bell] = {}
        """By listening session: rings when there is something to subscribe to again."""

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    async def post(self, request: HttpRequest) -> None:
        if request.is_request and request.message.method == "initialize":
            await self._initialize(request)
            return
        if _SESSION not in request.headers and request.is_request and request.params()[1].is_modern:
            # a modern envelope without the header that mirrors it (2026-07-28, "Server Validation")
            reason = "mcp-protocol-version header is missing or names an older version"
            await request.refused(request.id(), RpcError(reason, code=HEADER_MISMATCH), Era.MODERN)
            return
        await self._take(await self._client(request), request)

    async def post_batch(self, request: HttpRequest, text: bytes) -> bool:
        """Responds to an array; False if the session's version lacks them. Raises `RpcError`."""
        if _SESSION not in request.headers:
            return False
        client = await self._client(request)
        if client.session.version not in BATCHING:
            return False

        async def take(single: HttpRequest) -> None:
            if single.message.params is not Unset:
                limits.check_depth(single.message.params)
            await self._take(client, single)

        await answer_batch(request, messages(text, limits.BATCH), take)
        return True

    async def _take(self, client: ClientCalls, request: HttpRequest) -> None:
        if request.is_request:
            await self._answer(client, request)
            return
        if request.message.method == "notifications/cancelled":
            await self._cancelled(client, request)
        elif request.message.is_answer:
            if not client.questions.take(request.message) and self._hub.durable.has_replicas:
                await self._forward_answer(client, request.message)
            await self._resumption.forward_answers(client)
        else:
            self._binding.notice(client.session, request.message)
        await request.accepted()

    async def _answer(self, client: ClientCalls, request: HttpRequest) -> None:
        id_, key = request.id(), request.message.id_key
        assert key is not None  # as it can be answered
        if client.has_open(key):
            raise HttpError(400, None, "a request with this id is still being answered", id_=id_)
        changed = partial(self._changed, client.stored, request) if request.message.method in _CHANGING else None
        offer = client.session.offer
        apps = len(offer.apps or ())
        client.requests[key] = None  # taken from here on, also while the call waits for its server to start
        try:
            params = request.params()
            info = Origin.maker(id_, params[1].token) if request.takes_sse else None
            running = await begin(self._binding, request, client.session, id_, params, changed, info)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
            return
        finally:
            del client.requests[key]
        if len(offer.apps or ()) > apps:  # it asked for the first app of a server
            await self._resumption.sessions.update(client.stored)
        if running is not None:
            await self._resumption.answer(client, request, id_, key, params[1].token, running)

    async def _forward_answer(self, client: ClientCalls, answer: Envelope) -> None:
        try:
            await answered_elsewhere(self._hub, client.session, answer)
        except StoreError as error:
            raise unavailable(error) from None

    async def _initialize(self, request: HttpRequest) -> None:
        id_ = request.id()
        if self._session_rate is not None:
            self._session_rate.take(request.caller.principal)
        try:
            params, _ = request.params()
            session, result = self._binding.initialize(request.caller, params)
            stored = StoredSession(session)
            self._welcome(stored)
        except RpcError as error:
            await request.refused(id_, error, Era.HANDSHAKE)
            return
        await self._resumption.sessions.begun(stored)
        await respond(request.send, 200, result_frame(id_, result), [(_SESSION, session.id.encode())])

    def _welcome(self, stored: StoredSession) -> ClientCalls:
        """May evict the session unused for longest. Raises `Busy`."""
        session = stored.session
        session.be("by request")
        for gone in self._sessions.add(session):
            self._end(gone)
        client = self._clients[session.id] = ClientCalls(stored)
        self._announcers[session.id] = Announcer(self._hub, session)
        self._resumption.sessions.join(stored, self._changed_elsewhere)
        return client

    async def _client(self, http: HttpExchange) -> ClientCalls:
        """The session's calls. Raises `HttpError`: 400 unnamed, 404 unknown or foreign, 503."""
        named = http.headers.get(_SESSION)
        if named is None:
            reason = "Mcp-Session-Id header is required. Send initialize first."
            raise HttpError(400, "session_required", reason)
        id_ = named.decode("latin-1").strip(" \t")
        session = self._sessions.find(id_, http.caller)
        if session is not None:
            if session.presence == "away":
                session.be("by request")
            return self._clients[session.id]
        try:
            client = await self._accepted_again(id_, http.caller)
        except (Busy, StoreError) as error:
            raise unavailable(error) from None
        if client is None:
            raise HttpError(404, "unknown_session", "session not found")
        return client

    async def _accepted_again(self, id_: str, caller: Caller) -> ClientCalls | None:
        """A stored session. Raises `Busy`, `StoreError`."""
        stored = await self._resumption.sessions.find(id_, caller) if _ID.fullmatch(id_) else None
        if stored is None:
            return None
        session = self._sessions.find(id_, caller)
        if session is not None:  # by a request that came at the same time
            return self._clients[session.id]
        client = self._welcome(stored)
        if stored.session.log_level is not None:
            self._hub.set_log_level(stored.session, stored.session.log_level)
        log.info("session_accepted_again", session=id_)
        return client

    async def _changed(self, stored: StoredSession, request: HttpRequest) -> None:
        uri = (raw_object(request.message.params) or {}).get("uri")
        for lapsed in [stored_uri for stored_uri in stored.lapsed if uri == msgspec.json.encode(stored_uri)]:
            del stored.lapsed[lapsed]
        await self._resumption.sessions.update(stored)

    def _changed_elsewhere(self, stored: StoredSession, log_level: str | None, unsubscribed: Sequence[str]) -> None:
        """Another replica changed or ended the session."""
        session = stored.session
        if stored.is_over:
            self._resumption.cancel_local(self._clients[session.id], BY_CLIENT)
            self._sessions.remove(session)
            self._end(session)
            return
        if log_level is not None:
            self._hub.set_log_level(session, log_level)
        for uri in unsubscribed:
            self._hub.unsubscribe(session, uri)
        if (lapsed := self._lapsed.get(session.id)) is not None:
            lapsed.ring()

    async def _cancelled(self, client: ClientCalls, request: HttpRequest) -> None:
        params = raw_object(request.message.params) or {}
        raw = params.get("requestId")
        if raw is not None:
            self._binding.streams.cancel(client.session, id_key(bytes(raw)))
            await self._resumption.cancel(client, id_key(bytes(raw)), given_reason(params))

    async def get(self, http: HttpExchange) -> None:
        """The session's stream; with `Last-Event-ID`, the rest of a request's stream. A newer one replaces it."""
        if not accepts(http.headers)[1]:
            raise HttpError(406, "not_acceptable", "Accept must name text/event-stream")
        client = await self._client(http)
        if (named := http.headers.get(b"last-event-id")) is not None:
            response = HttpResponse(http.receive, http.send)
            await self._resumption.resume(client, named.decode("latin-1"), response)
        else:
            await self._listen(client, http.receive, http.send)

    async def _listen(self, client: ClientCalls, receive: Receive, send: Send) -> None:
        id_ = client.session.id
        if (older := self._streams.get(id_)) is not None:
            older.cancel()
        scope = self._streams[id_] = anyio.CancelScope()
        lapsed = self._lapsed[id_] = Bell()
        client.session.be("connected")
        try:
            async with anyio.create_task_group() as tasks:
                if client.stored.lapsed or self._hub.durable.has_replicas:
                    tasks.start_soon(self._keep_subscribed, client.stored, lapsed)
                await stream(self._announcers[id_], receive, send, scope)
                tasks.cancel_scope.cancel()
        finally:
            if self._streams.get(id_) is scope:
                del self._streams[id_], self._lapsed[id_]
                client.session.be("away")

    async def _keep_subscribed(self, stored: StoredSession, lapsed: Bell) -> None:
        while True:
            await self._resubscribe(stored)
            await lapsed.wait()

    async def _resubscribe(self, stored: StoredSession) -> None:
        """Restores subscriptions that were made elsewhere."""
        for uri in list(stored.lapsed):
            try:
                await self._hub.subscribe(stored.session, uri)
            except RpcError as error:  # tried again when the client listens anew
                log.info("subscription_refused", uri=hide_head(uri, 200), reason=str(error))
                continue
            if uri not in stored.lapsed:
                self._hub.unsubscribe(stored.session, uri)
            stored.lapsed.pop(uri, None)

    async def delete(self, http: HttpExchange) -> None:
        """Ends the session, its stream and its calls."""
        client = await self._client(http)
        await self._resumption.sessions.drop(client.stored)
        await self._resumption.cancel_all(client)
        if self._clients.get(client.session.id) is client:
            self._sessions.remove(client.session)
            self._end(client.session)
        await respond(http.send, 204)

    def _end(self, session: Session) -> None:
        """Calls end by themselves."""
        self._resumption.close(self._clients.pop(session.id))
        self._resumption.sessions.leave(session.id)
        del self._announcers[session.id]
        self._hub.end(session)
        if (scope := self._streams.get(session.id)) is not None:
            scope.cancel()

    def close(self) -> None:
        for scope in self._streams.values():
            scope.cancel()
