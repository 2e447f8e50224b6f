"""One HTTP response to one MCP request: JSON when the call ends quietly, SSE as soon as something comes first.

A quick call costs no task beside its own: only an exchange that the housekeeper finds still open after a quarter of a
second gets a watcher for the client's disconnect and keep-alive comments (performance.md, "Techniques").
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import anyio

from mcp_hub.fronts import sse
from mcp_hub.fronts.delivery import Delivery
from mcp_hub.protocol.rpc_errors import HTTP_STATUS
from mcp_hub.types import Era

__all__ = ["KEEP_ALIVE", "SSE_HEADERS", "Exchange", "Housekeeper", "Receive", "Scope", "Send", "respond"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

KEEP_ALIVE: Final = 15.0
"""Seconds of silence before a comment: proxies cut idle responses at 30 s and more."""
_PATIENCE: Final = 0.25
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


class Exchange:
    """Follows one delivery to its end. `is_slow` is set by the housekeeper."""

    def __init__(self, era: Era, receive: Receive, send: Send, *, can_stream: bool) -> None:
        self._era = era
        self._can_stream = can_stream  # a client that takes only JSON gets the answer without what came before
        self._receive = receive
        self._send = send
        self._event = anyio.Event()
        self._streaming = False
        self.is_slow = False
        self.disconnected = False
        self.delivery: Delivery

    def wake(self) -> None:
        self._event.set()

    async def run(self) -> None:
        """Returns when the response is complete or the client gone (`disconnected`)."""
        while not self.is_slow:
            if await self._step():
                return
            await self._event.wait()
            self._event = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_disconnect)
            while not self.disconnected and not await self._step():
                with anyio.move_on_after(KEEP_ALIVE) as silence:
                    await self._event.wait()
                if silence.cancelled_caught:
                    if self._can_stream:
                        await self._stream(sse.COMMENT)
                else:
                    self._event = anyio.Event()
            tasks.cancel_scope.cancel()

    async def _step(self) -> bool:
        """Sends what there is; True when the response is complete."""
        delivery = self.delivery
        if delivery.has_more:
            frames = delivery.take()
            if frames and self._can_stream:
                await self._stream(b"".join(map(sse.message, frames)))
        if not delivery.ended:
            return False
        await self._finish()
        return True

    async def _stream(self, body: bytes) -> None:
        if not self._streaming:
            self._streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _finish(self) -> None:
        answer = self.delivery.answer
        if answer is None or self._streaming:
            # a cancelled call has no answer: its stream just ends
            await self._stream(sse.message(answer) if answer is not None else b"")
            await self._send({"type": "http.response.body", "body": b""})
        else:
            code = self.delivery.error_code
            status = HTTP_STATUS.get(code, 200) if code is not None and self._era is Era.MODERN else 200
            await respond(self._send, status, answer)

    async def _watch_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        self.wake()


class Housekeeper:
    """Finds exchanges that are not quick. Sleeps while there are none."""

    def __init__(self) -> None:
        self._fresh: set[Exchange] = set()
        self._work = anyio.Event()

    def add(self, exchange: Exchange) -> None:
        self._fresh.add(exchange)
        self._work.set()

    def discard(self, exchange: Exchange) -> None:
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
