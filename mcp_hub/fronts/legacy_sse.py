"""The deprecated HTTP+SSE transport: `GET /sse` opens a stream, messages are POSTed to `/messages`.

Streams are sessions that cannot be resumed. Source: specification 2024-11-05, basic/transports "HTTP with SSE".
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import parse_qs, quote

import anyio

from mcp_hub.aio import Block
from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.http.admission import Admission, accepts, read_text, understood
from mcp_hub.fronts.http.endpoints import Serve
from mcp_hub.fronts.http.request import HttpRequest
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpError, HttpExchange, HttpResponse, respond
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.fronts.mcp.message_queue import MessageQueue
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.protocol import eras, sse
from mcp_hub.protocol.jsonrpc.repair import is_array
from mcp_hub.protocol.jsonrpc.rpc_errors import UNSUPPORTED_VERSION
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.wire.base import WireClosed

_LAST: Final = 0.5
"""Seconds for a client to read while the hub stops; the server allows one."""
_STREAM: Final = "/sse"
_PATH: Final = "/messages"
_ID: Final = "sessionId"
"""The query parameter; SDKs look for it by this name."""


class LegacySse:
    """The two endpoints. `max_body` in bytes."""

    def __init__(
        self,
        hub: HubPort,
        binding: Binding,
        *,
        max_body: int,
        max_sessions: int,
        sessions_per_principal: int | None = None,
        admission: Admission | None = None,
        stalled: float | None = None,
    ) -> None:
        self._each = max_sessions if sessions_per_principal is None else sessions_per_principal
        self._rate = admission.sessions if admission is not None else None
        self._by_principal: Counter[str] = Counter()
        self._hub = hub
        self._binding = binding
        self._max_body = max_body
        self._max_sessions = max_sessions
        self._stalled = stalled
        self._streams: dict[str, tuple[Caller, _EventStream]] = {}

    @property
    def routes(self) -> Mapping[str, Serve]:
        return {_STREAM: self._open, _PATH: self._post}

    @property
    def sessions(self) -> int:
        return len(self._streams)

    def close(self) -> None:
        """Ends each stream after its last response."""
        self._max_sessions = 0
        for _, stream in self._streams.values():
            stream.end()

    async def _open(self, http: HttpExchange) -> None:
        scope, caller = http.scope, http.caller
        if scope["method"] != "GET":
            await respond(http.send, 405, headers=[(b"allow", b"GET")])
            return
        if not accepts(http.headers)[1]:
            raise HttpError(406, "not_acceptable", "Accept must name text/event-stream")
        self._admit(caller.principal)
        id_ = new_session_id()
        response = HttpResponse(http.receive, http.send, stalled=self._stalled)
        stream = _EventStream(Duplex(self._hub, self._binding, caller, _refuse_modern), response)
        self._streams[id_] = caller, stream
        self._by_principal[caller.principal] += 1
        try:
            profile = quote(scope["path"].removeprefix(_STREAM).removesuffix("/"))  # as it is asked for, or nothing
            await stream.run(f"{quote(scope.get('root_path', ''))}{_PATH}{profile}?{_ID}={id_}")
        finally:
            del self._streams[id_]
            self._by_principal[caller.principal] -= 1
            self._by_principal += Counter()  # drops principals without streams

    def _admit(self, principal: str) -> None:
        if len(self._streams) >= self._max_sessions:
            raise Busy.at(f"{self._max_sessions} event streams are open", "hub.http.max_sessions", self._max_sessions)
        if self._by_principal[principal] >= self._each:
            reason = f"{self._each} event streams of this client are open"
            raise Busy.at(reason, "hub.http.sessions_per_principal", self._each)
        if self._rate is not None:
            self._rate.take(principal)

    async def _post(self, http: HttpExchange) -> None:
        """Waits for a slow reader."""
        if http.scope["method"] != "POST":
            await respond(http.send, 405, headers=[(b"allow", b"POST")])
            return
        named = parse_qs(http.scope["query_string"].decode("latin-1")).get(_ID)
        if named is None:
            reason = f"{_ID} is required: POST to the URI that GET /sse sends first"
            raise HttpError(400, "session_required", reason)
        owner, stream = self._streams.get(named[-1], (None, None))
        if stream is None or owner != http.caller:
            raise _unknown()
        text = await read_text(http, self._max_body)
        if stream.duplex.takes_batches and is_array(text):
            take = partial(stream.duplex.on_batch, text)
        else:
            request = HttpRequest.of(http, understood(text), takes_sse=True)
            request.check()
            if request.is_request:
                request.id()
            take = partial(stream.duplex.take, request.message)
        try:
            await stream.queue.writable()
        except WireClosed:
            raise _unknown() from None
        take()
        await respond(http.send, 202)


def _unknown() -> HttpError:
    return HttpError(404, "unknown_session", "session not found")


class _EventStream:
    """A client's event stream. Calls wait for a slow reader."""

    def __init__(self, duplex: Duplex, response: HttpResponse) -> None:
        self.duplex = duplex
        self.queue = MessageQueue(duplex)
        self._response = response

    async def run(self, endpoint: str) -> None:
        """Returns when either side ends the stream."""
        reason = "the client closed its stream"
        async with self.duplex.serving(self.queue):
            try:
                with Block(self._response.watch):
                    await self._response.write(b"event: endpoint\ndata: %s\n\n" % endpoint.encode())
                    await self._write_all()
                    reason = "the hub is stopping"
            except ClientGone:
                reason = f"the client read nothing for {self._response.stalled:g} s"
            finally:
                self.queue.close(reason, "connection_lost")

    def end(self) -> None:
        """Ends the stream after its last response, or for a slow reader."""
        self._response.hurry(_LAST)
        self.queue.end()

    async def _write_all(self) -> None:
        while True:
            messages: list[bytes] | None = None
            with anyio.move_on_after(KEEP_ALIVE):
                messages = await self.queue.next()
            if messages is None:
                await self._response.write(sse.COMMENT)
            elif messages:
                await self._response.write(b"".join(map(sse.message, messages)))
                self.queue.taken(messages)
            else:
                await self._response.end()
                return


def _refuse_modern(meta: RequestMeta) -> Session:
    raise RpcError(
        "this endpoint serves protocol versions up to 2025-11-25 only; newer ones are served at /mcp",
        code=UNSUPPORTED_VERSION,
        data={"supported": list(eras.HANDSHAKE_VERSIONS), "requested": meta.version},
    )
