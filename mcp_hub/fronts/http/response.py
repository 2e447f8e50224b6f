"""One HTTP response to one MCP request: JSON when the call ends quietly, SSE as soon as something comes first.

A quick call costs no task beside its own: only an exchange that the housekeeper finds still open after a quarter of a
second gets a watcher for the client's disconnect and keep-alive comments. Events are
taken and written a slice at a time, so that what one client has to catch up with holds up nobody else.
"""

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import anyio
import anyio.lowlevel

from mcp_hub.aio import Bell, call_later
from mcp_hub.fronts.mcp.responder import CallResponder, ResponderState
from mcp_hub.protocol import cursors, sse
from mcp_hub.protocol.rpc_errors import HTTP_STATUS
from mcp_hub.types import Era

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

KEEP_ALIVE: Final = 15.0
"""Seconds of silence before a comment: proxies cut idle responses at 30 s and more."""
_UNOPENED: Final = 2.0
"""Seconds of silence before a response that can be resumed becomes a stream: its client needs a place to come back to,
but many calls end sooner, with JSON."""
_PATIENCE: Final = 0.25
_SLICE: Final = 4096
"""Events: more than one read of an upstream's pipe can hold, so that a client that reads never falls behind."""
_CHUNK: Final = 1 << 18
"""Bytes handed over at a time: a reader that is slow but reads is not taken for one that has stopped."""
_STALLED: Final = 60.0
"""Seconds in which a client has to take a chunk."""
_LAST: Final = 1.0
"""Seconds to end a response that its client may not be reading."""
SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def respond(send: Send, status: int, body: bytes = b"", headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """A whole response; a body is JSON."""
    head = list(headers or ())
    if body:
        head.append((b"content-type", b"application/json"))
    head.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


class HttpResponse:
    """Follows one delivery to its end, or until `stop`. `is_slow` is set by the housekeeper.

    `on_stream` makes an event stream one that can be resumed: it is awaited when the response becomes one, what it
    returns goes first, and every message carries its place in the call's stream. `is_resumed` is for the response to
    a GET, which is an event stream, or 204 if there is nothing to send.
    """

    def __init__(
        self,
        era: Era,
        receive: Receive,
        send: Send,
        *,
        can_stream: bool,
        on_stream: Callable[[], Awaitable[bytes]] | None = None,
        is_resumed: bool = False,
    ) -> None:
        self._era = era
        self._can_stream = can_stream  # a client that takes only JSON gets the answer without what came before
        self._receive = receive
        self._send = send
        self._on_stream = on_stream
        self._is_resumed = is_resumed
        self._bell = Bell()
        self._frames: list[tuple[int, bytes]] = []  # taken, and sent next
        self._streaming = False
        self._scope: anyio.CancelScope | None = None
        self._stopped: anyio.Event | None = None
        self.is_slow = is_resumed
        self.disconnected = False
        self.delivery: CallResponder

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped is not None

    def wake(self) -> None:
        self._bell.ring()

    async def run(self) -> None:
        """Returns when the response is complete or stopped, or the client gone (`disconnected`)."""
        try:
            await self._run()
        finally:
            self._on_stream = None  # what is not let go here waits for the garbage collector

    async def _run(self) -> None:
        while not (self.is_slow or (self._frames and self._can_stream)):
            if self.delivery.ended:
                await self._finish()
                return
            if not self.delivery.has_more:
                await self._bell.wait()
            self._take()
        try:
            await self._follow()
        finally:
            if self._stopped is not None:
                self._stopped.set()

    def stop(self) -> anyio.Event:
        """Ends an event stream where it is, its call continues; what is returned is set when nothing more is sent."""
        if self._stopped is None:
            self._stopped = anyio.Event()
        self._leave()
        return self._stopped

    async def _follow(self) -> None:
        """The rest of a response that is an event stream or takes long."""
        is_complete = False
        with anyio.CancelScope() as self._scope:
            is_complete = not self.is_slow and await self._pump()
            if not (is_complete or self.disconnected):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch_disconnect)
                    is_complete = await self._pump()
                    tasks.cancel_scope.cancel()
        if self._stopped is not None and not is_complete:
            with anyio.move_on_after(_LAST, shield=True):
                if not self._streaming:
                    await self._send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
                await self._send({"type": "http.response.body", "body": b""})

    async def _pump(self) -> bool:
        """Sends what there is and what comes; True when the response is complete.

        False when the client is gone, or the exchange has just been found to be slow.
        """
        was_slow = self.is_slow
        while not self.disconnected:
            if self._frames and self._can_stream:
                await self._stream(b"".join(self._message(seq, frame) for seq, frame in self._frames))
            if self.delivery.ended:
                await self._finish()
                return True
            if self.is_slow and not was_slow:
                self._frames = []
                return False
            if await self._is_silent() and self._can_stream:
                await self._stream(sse.COMMENT)
            self._take()
        return False

    def _take(self) -> None:
        self._frames = self.delivery.numbered(_SLICE) if self.delivery.has_more else []

    async def _is_silent(self) -> bool:
        """Waits for something to send, but not for long; a resumed stream is opened as soon as nothing is at hand."""
        if self.delivery.has_more:
            await anyio.lowlevel.checkpoint()
            return False
        if self._is_resumed and not (self._streaming or self.delivery.is_behind):
            return True
        opens = self._can_stream and self._on_stream is not None and not self._streaming
        silence = _UNOPENED if opens else KEEP_ALIVE
        with anyio.move_on_after(silence if self.is_slow else math.inf) as patience:
            await self._bell.wait()
        return patience.cancelled_caught

    def _message(self, seq: int, frame: bytes) -> bytes:
        has_place = self._on_stream is not None and (self._is_resumed or self.delivery.call.stored is not None)
        if not (has_place and seq):
            return sse.message(frame)
        return sse.message(frame, cursors.place(self.delivery.call.call.id, seq))

    async def _finish(self) -> None:
        answer = self.delivery.answer
        if answer is not None and not (self._streaming or self._is_resumed):
            code = self.delivery.error_code
            status = HTTP_STATUS.get(code, 200) if code is not None and self._era is Era.MODERN else 200
            await respond(self._send, status, answer)
        elif answer is not None:
            place = 0 if self.delivery.detached else self.delivery.cursor  # an early answer has no place
            await self._stream(self._message(place, answer), is_last=True)
        elif self._is_resumed and not (self._streaming or self.delivery.state is ResponderState.LOST):
            await respond(self._send, 204)
        else:  # a cancelled call has no answer: its stream just ends, and there is nothing to come back for
            self._on_stream = None
            await self._stream(b"", is_last=True)

    async def _stream(self, body: bytes, *, is_last: bool = False) -> None:
        """Sends events."""
        if not self._streaming:
            if self._on_stream is not None:
                body = await self._on_stream() + body
            self._streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        for start in range(0, len(body), _CHUNK):
            await self._write(body[start : start + _CHUNK], more=True)
        if is_last:
            await self._write(b"", more=False)

    async def _write(self, body: bytes, *, more: bool) -> None:
        """Sends a part of an event stream. A client that does not take it for long counts as gone."""
        if not self.disconnected:
            patience = call_later(_STALLED, self._give_up)
            try:
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
            finally:
                patience.cancel()

    def _give_up(self) -> None:
        self.disconnected = True
        self._leave()

    def _leave(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def _watch_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        self.wake()


class Housekeeper:
    """Finds exchanges that are not quick. Sleeps while there are none."""

    def __init__(self) -> None:
        self._fresh: set[HttpResponse] = set()
        self._work = anyio.Event()

    def add(self, exchange: HttpResponse) -> None:
        self._fresh.add(exchange)
        self._work.set()

    def discard(self, exchange: HttpResponse) -> None:
        self._fresh.discard(exchange)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            before = set(self._fresh)
            await anyio.sleep(_PATIENCE)
            for exchange in before & self._fresh:
                self._fresh.discard(exchange)
                exchange.is_slow = True
                exchange.wake()
            if not self._fresh:
                self._work = anyio.Event()
