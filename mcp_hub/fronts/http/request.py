"""One POSTed MCP message with its HTTP request."""

from collections.abc import Awaitable, Callable
from typing import Self

from mcp_hub.errors import RpcError, StoreUnavailable
from mcp_hub.fronts.http.call_response import CallWriter, Housekeeper, QuickWait
from mcp_hub.fronts.http.response import Fields, HttpError, HttpExchange, HttpResponse, respond, stream
from mcp_hub.fronts.mcp.binding import Binding, Deferred, Listen
from mcp_hub.fronts.mcp.quick_call import QuickCall
from mcp_hub.fronts.mcp.responder import ResponderState
from mcp_hub.fronts.mcp.subscriptions import ListenStreams
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import HTTP_STATUS, INVALID_REQUEST
from mcp_hub.protocol.meta import RequestMeta, take_params
from mcp_hub.protocol.notifications import ListenFilter
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, RawObject


class HttpRequest(HttpExchange, frozen=True):
    """A POST of one message. `takes_sse`: SSE is accepted."""

    message: Envelope
    takes_sse: bool

    @classmethod
    def of(cls, http: HttpExchange, message: Envelope, *, takes_sse: bool) -> Self:
        return cls(http.scope, http.headers, http.caller, http.receive, http.send, message, takes_sse)

    @property
    def is_request(self) -> bool:
        return self.message.kind == "request"

    def check(self) -> None:
        """Raises `RpcError` -32600 for what is not JSON-RPC 2.0."""
        message = self.message
        if message.is_answer and (message.id is ABSENT or message.kind == "none"):
            raise RpcError("invalid request: neither a method nor an answer", code=INVALID_REQUEST)
        if message.jsonrpc != "2.0":
            raise RpcError('invalid request: jsonrpc must be "2.0"', code=INVALID_REQUEST)

    def id(self) -> bytes:
        """Raises `RpcError` -32600 for an unusable id."""
        id_ = self.message.usable_id
        if id_ is None:
            raise RpcError("invalid request: the id must be a string or an integer", code=INVALID_REQUEST)
        return id_

    def params(self) -> tuple[RawObject, RequestMeta]:
        """Params without `_meta`, and `_meta`. Raises `InvalidParams`."""
        return take_params(self.message.params)

    async def accepted(self) -> None:
        await respond(self.send, 202)

    async def refused(self, id_: bytes | None, error: RpcError, era: Era) -> None:
        """Sends an error, in the modern era with its status."""
        status = HTTP_STATUS.get(error.code, 200) if era is Era.MODERN else 200
        headers: Fields | None = None
        if isinstance(error, HttpError):
            status = error.status
        elif isinstance(error, StoreUnavailable):  # a balancer, and a client, may try another replica
            status, headers = 503, [(b"retry-after", b"%d" % error.retry_after)]
        await respond(self.send, status, envelope.error_frame(id_, error.encoded()), headers)


async def begin(
    binding: Binding,
    request: HttpRequest,
    session: Session,
    id_: bytes,
    params: tuple[RawObject, RequestMeta],
    changed: Callable[[], Awaitable[None]] | None,
) -> CallHandle | None:
    """Starts a request's call; None if it was answered. Raises `RpcError`. `changed` stores changes first."""
    reply = binding.handle(session, request.message.method, *params)
    if isinstance(reply, Listen):
        await _listen(binding.streams, request, session, id_, reply.filter)
        return None
    if isinstance(reply, Deferred):
        reply = await reply.reply
    if isinstance(reply, bytes):
        if changed is not None:
            await changed()
        await respond(request.send, 200, envelope.result_frame(id_, reply))
        return None
    return reply


async def answer_call(
    hub: HubPort, binding: Binding, housekeeper: Housekeeper, request: HttpRequest, session: Session, id_: bytes,
    params: tuple[RawObject, RequestMeta],
) -> None:  # fmt: skip
    """Handles a modern request; leaving cancels its call. Raises `RpcError`."""
    call = await begin(binding, request, session, id_, params, None)
    if call is None:
        return
    quick = QuickWait(QuickCall(hub, id_, session, call, params[1].token))
    continues = False
    try:
        answer = await quick.answer(housekeeper)
        if answer is not None:
            await respond(request.send, 200, answer)
        else:
            continues = await _follow(quick, request)
    finally:
        if not (call.has_ended or continues):
            call.cancel("the client closed the response stream")


async def _follow(quick: QuickWait, request: HttpRequest) -> bool:
    """Whether the call continues without the client."""
    responder = quick.follow()
    response = HttpResponse(request.receive, request.send)
    is_complete = False
    try:
        is_complete = await CallWriter(responder, quick.bell, response, can_stream=request.takes_sse).run()
    finally:
        responder.close()
    return responder.state is ResponderState.PENDING or (responder.detached and is_complete)


async def _listen(
    streams: ListenStreams, request: HttpRequest, session: Session, id_: bytes, filter: ListenFilter
) -> None:
    if not request.takes_sse:
        reason = "the answer is a stream: Accept must name text/event-stream"
        raise HttpError(406, "not_acceptable", reason)
    listening = streams.open(session, id_, filter)
    try:
        await stream(listening, request.receive, request.send, listening.scope, listening.completed())
    finally:
        streams.close(listening)
