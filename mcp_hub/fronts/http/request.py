"""One POSTed MCP message with its HTTP request, and the response: JSON if its call ends soon, else SSE.

A quick call costs no task and is not followed; the housekeeper finds calls that take long.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Self

import anyio
import anyio.lowlevel

from mcp_hub.aio import Bell, Block
from mcp_hub.call import MakeInfo
from mcp_hub.errors import HubStopping, RpcError, StoreUnavailable
from mcp_hub.events import BY_CLIENT
from mcp_hub.fronts.http.response import (
    KEEP_ALIVE,
    LAST,
    ClientGone,
    Fields,
    HttpError,
    HttpExchange,
    HttpResponse,
    respond,
    respond_with,
    stream,
)
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.fronts.mcp.quick_call import QuickCall
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.fronts.mcp.subscriptions import Listening, ListenStreams
from mcp_hub.hub import CallHandle, HubPort, is_elsewhere
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import HTTP_STATUS, INVALID_REQUEST
from mcp_hub.protocol.meta import RequestMeta, take_params
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, RawObject

_PATIENCE: Final = 0.25
_SLICE: Final = 4096
"""Events: more than one read of a server's pipe can hold."""
Frames = list[tuple[int, bytes]]
"""Messages, each with the number of its event."""


class QuickWait:
    """Waits for a quick call's result; follows any other call."""

    __slots__ = ("_quick", "_responder", "bell")

    def __init__(self, quick: QuickCall) -> None:
        self._quick = quick
        self._responder: CallResponder | None = None
        self.bell = Bell()

    def follow(self) -> CallResponder:
        """The call's responder, made at first use."""
        if self._responder is None:
            self._quick.close()
            self._responder = self._quick.responder(self.bell.ring)
        return self._responder

    def wake(self) -> None:
        """Ends the wait."""
        if not self._quick.call.has_ended:
            self.follow()
        self.bell.ring()

    async def answer(self, housekeeper: "Housekeeper") -> envelope.Frame | None:
        """The response; None if the call has to be followed."""
        quick = self._quick
        if not quick.is_quick:
            return None
        housekeeper.add(self)
        try:
            quick.call.watch(self.wake)
            await self.bell.wait()
        finally:
            housekeeper.discard(self)
        return quick.answer() if self._responder is None else None


class CallWriter:
    """Writes one call's messages until `responder` ends or `stop` is called.

    Without streaming, only the response. `on_stream` makes a durable call's stream resumable: its result goes first,
    and messages have cursors. `is_resumed`: responds to a GET.
    """

    __slots__ = (
        "_bell", "_can_stream", "_is_primed", "_is_resumed", "_on_stream", "_response", "_scope", "_stopped",
        "responder",
    )  # fmt: skip

    def __init__(
        self,
        responder: CallResponder,
        bell: Bell,
        response: HttpResponse,
        *,
        can_stream: bool,
        on_stream: Callable[[], Awaitable[bytes]] | None = None,
        is_resumed: bool = False,
    ) -> None:
        self.responder = responder
        self._bell = bell
        self._response = response
        self._can_stream = can_stream
        self._on_stream = on_stream
        self._is_primed = on_stream is None
        self._is_resumed = is_resumed
        self._scope: anyio.CancelScope | None = None
        self._stopped: anyio.Event | None = None

    @property
    def is_stopped(self) -> bool:
        return self._stopped is not None

    async def run(self) -> bool:
        """Whether the response is complete."""
        try:
            return await self._run()
        except ClientGone:
            return False
        finally:
            self._on_stream = None  # what is not let go here waits for the garbage collector

    async def _run(self) -> bool:
        try:
            return await self._follow(self._taken())
        finally:
            if self._stopped is not None:
                self._stopped.set()

    def stop(self) -> anyio.Event:
        """Ends the stream, not the call. The event is set when nothing more is sent."""
        if self._stopped is None:
            self._stopped = anyio.Event()
        if self._scope is not None:
            self._scope.cancel()
        return self._stopped

    async def _follow(self, frames: Frames) -> bool:
        if self.responder.ended and not frames:
            await self._finish()
            return True
        is_complete = False
        with anyio.CancelScope() as self._scope, Block(lambda _: self._response.watch(self._bell.ring)):
            is_complete = await self._pump(frames)
        if self._stopped is not None and not is_complete:
            with anyio.move_on_after(LAST, shield=True):
                await self._response.end()
        return is_complete

    async def _pump(self, frames: Frames) -> bool:
        """False if the client is gone."""
        while not self._response.is_gone:
            if frames and self._can_stream:
                await self._write(b"".join(self._messages(frames)))
            if self.responder.ended:
                await self._finish()
                return True
            if await self._is_silent() and self._can_stream:
                await self._write(sse.COMMENT)
            frames = self._taken()
        return False

    def _taken(self) -> Frames:
        return self.responder.numbered(_SLICE) if self.responder.has_more else []

    async def _is_silent(self) -> bool:
        """A resumable stream opens at once: its client needs a cursor."""
        if self.responder.has_more:
            await anyio.lowlevel.checkpoint()
            return False
        if self._can_stream and not self._is_primed and self._has_place and not self.responder.is_behind:
            return True
        with anyio.move_on_after(KEEP_ALIVE) as patience:
            await self._bell.wait()
        return patience.cancelled_caught

    @property
    def _has_place(self) -> bool:
        return self._is_resumed or bool(self.responder.call.stored)

    def _messages(self, frames: Frames) -> list[bytes]:
        if self._on_stream is None or not self._has_place:
            return [sse.message(frame) for _, frame in frames]
        call = self.responder.call.call.id
        return [sse.message(frame, sse.event_id(call, seq) if seq else None) for seq, frame in frames]

    async def _finish(self) -> None:
        """An early response needs a client that is still there."""
        responder, response = self.responder, self._response
        answer, is_open = responder.answer, response.is_started
        if responder.detached and await response.has_left():
            raise ClientGone
        if answer is not None and not (is_open or self._is_resumed):
            code = responder.error_code if responder.session.era is Era.MODERN else None
            await response.whole(200 if code is None else HTTP_STATUS.get(code, 200), envelope.whole(answer))
        elif answer is not None:
            cursor = 0 if responder.detached else responder.cursor  # an early answer has no cursor
            await self._write(*self._messages([(cursor, envelope.whole(answer))]))
            await response.end()
        elif self._is_resumed and not (is_open or responder.state == "lost"):
            await response.whole(204)
        else:  # a cancelled call has no answer: its stream just ends, and there is nothing to come back for
            await response.end()

    async def _write(self, body: bytes) -> None:
        if self._on_stream is not None and not self._is_primed and self._has_place:
            self._is_primed = True
            body = await self._on_stream() + body
        await self._response.write(body)


class Housekeeper:
    """Finds calls that are not quick."""

    def __init__(self) -> None:
        self._fresh: set[QuickWait] = set()
        self._is_idle = True
        self._work = anyio.Event()

    def add(self, waiting: QuickWait) -> None:
        self._fresh.add(waiting)
        if self._is_idle:
            self._is_idle = False
            self._work.set()

    def discard(self, waiting: QuickWait) -> None:
        self._fresh.discard(waiting)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            before = set(self._fresh)
            await anyio.sleep(_PATIENCE)
            for waiting in before & self._fresh:
                self._fresh.discard(waiting)
                waiting.wake()
            if not self._fresh:
                self._is_idle, self._work = True, anyio.Event()


class HttpRequest(HttpExchange, frozen=True):
    """A POST of one message. `takes_sse`: SSE is accepted."""

    message: Envelope
    takes_sse: bool

    @classmethod
    def of(cls, http: HttpExchange, message: Envelope, *, takes_sse: bool) -> Self:
        return cls(
            scope=http.scope, headers=http.headers, caller=http.caller, receive=http.receive, send=http.send,
            message=message, takes_sse=takes_sse,
        )  # fmt: skip

    @property
    def is_request(self) -> bool:
        return self.message.kind == "request"

    def check(self) -> None:
        """Raises `RpcError` -32600 unless JSON-RPC 2.0."""
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
        elif isinstance(error, HubStopping):
            status = 503
        await respond(self.send, status, envelope.error_frame(id_, error.encoded()), headers)


async def begin(
    binding: Binding,
    request: HttpRequest,
    session: Session,
    id_: bytes,
    params: tuple[RawObject, RequestMeta],
    changed: Callable[[], Awaitable[None]] | None,
    info: MakeInfo | None = None,
) -> CallHandle | None:
    """Starts a request's call; None if it was answered. Raises `RpcError`. `changed` stores changes first."""
    reply = binding.handle(session, request.message.method, *params, info)
    if isinstance(reply, Coroutine):
        reply = await reply
    if not isinstance(reply, bytes | CallHandle):
        await _listen(binding.streams, request, binding.streams.open(session, id_, reply))
        return None
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
    quick = QuickWait(QuickCall(hub=hub, id=id_, session=session, call=call, token=params[1].token))
    continues = False
    try:
        answer = await quick.answer(housekeeper)
        if answer is not None:
            await respond_with(request, answer)
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
        is_pending = responder.state == "pending"
        if is_elsewhere(responder.call) and not (is_complete or is_pending):
            responder.call.cancel(BY_CLIENT)
    return is_pending or (responder.detached and is_complete)


async def _listen(streams: ListenStreams, request: HttpRequest, listening: Listening) -> None:
    try:
        if not request.takes_sse:
            reason = "the answer is a stream: Accept must name text/event-stream"
            raise HttpError(406, "not_acceptable", reason)
        await stream(listening, request.receive, request.send, listening.scope, listening.completed())
    finally:
        streams.close(listening)
