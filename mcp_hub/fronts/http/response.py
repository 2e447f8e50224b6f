"""HTTP responses, whole or in parts; errors with a status."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import anyio
import msgspec
from msgspec import UNSET, UnsetType

from mcp_hub.aio import Block, Timer, call_later
from mcp_hub.errors import Busy, RpcError, StoreError
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc.envelope import Frame, error_frame, object_bytes, whole
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST
from mcp_hub.sessions.session import Caller

Message = MutableMapping[str, Any]
"""An ASGI message."""
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Mapping[bytes, bytes]
"""Headers of a request; the last of a name."""
Fields = list[tuple[bytes, bytes]]
"""Header fields of a response."""

KEEP_ALIVE: Final = 15.0
"""Seconds of silence before a comment: proxies cut idle responses at 30 s and more."""
LAST: Final = 1.0
"""Seconds to end a response that its client may not be reading."""
_CHUNK: Final = 1 << 18
"""Bytes handed over at a time, so that a slow reader does not count as stopped."""
_STALLED: Final = 60.0
"""Seconds in which a client has to take a chunk."""
TAKES_PARTS: Final = "mcp_hub.takes_parts"
"""An extension of ASGI: the server takes a body in parts."""
_JSON: Final = (b"content-type", b"application/json")
SSE_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class HttpExchange(msgspec.Struct, frozen=True):
    """An authenticated request, and its ASGI channels."""

    scope: Scope
    headers: Headers
    caller: Caller
    receive: Receive
    send: Send


class HttpError(RpcError):
    """An error with an HTTP status. `id_`: `UNSET` for a body without one."""

    def __init__(
        self, status: int, symbol: str | None, reason: str, code: int = INVALID_REQUEST, *,
        id_: bytes | UnsetType | None = None, headers: Fields | None = None,
    ) -> None:  # fmt: skip
        super().__init__(reason, code=code, symbol=symbol)
        self.status = status
        self.headers = headers
        self._id = id_

    @property
    def body(self) -> bytes:
        """The encoded error."""
        error = self.encoded()
        if isinstance(self._id, UnsetType):
            return object_bytes({"jsonrpc": "2.0", "error": msgspec.Raw(bytes(error))})
        return error_frame(self._id, error)


def unavailable(error: Busy | StoreError) -> HttpError:
    """A 503 with `Retry-After`."""
    reason = error.public if isinstance(error, StoreError) else str(error)
    return HttpError(503, Busy.symbol, reason, Busy.code, id_=UNSET, headers=[(b"retry-after", b"1")])


class _LongBody:
    """A body in parts, which are not copied."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[bytes | memoryview]:
        return iter(self._parts)


async def respond_with(http: HttpExchange, frame: Frame) -> None:
    """Sends a JSON-RPC response; a long one is written in parts where the HTTP server supports that."""
    if isinstance(frame, tuple) and TAKES_PARTS in (http.scope.get("extensions") or ()):
        await respond(http.send, 200, _LongBody(frame))
    else:
        await respond(http.send, 200, whole(frame))


async def respond(send: Send, status: int, body: bytes | _LongBody = b"", headers: Fields | None = None) -> None:
    """Sends a whole response; bodies are JSON."""
    head = list(headers or ())
    if body:
        head.append(_JSON)
    head.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def as_events(send: Send) -> Send:
    """Sends a JSON response of status 200 as one event."""
    head: list[Message] = []

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200 and _JSON in message["headers"]:
            head.append(message)
        elif head and message["type"] == "http.response.body":
            start, body = head.pop(), sse.message(message["body"])
            fields = [field for field in start["headers"] if field[0] not in (b"content-type", b"content-length")]
            await send({**start, "headers": [*fields, *SSE_HEADERS, (b"content-length", b"%d" % len(body))]})
            await send({**message, "body": body})
        else:
            await send(message)

    return sending


async def until_disconnect(receive: Receive, on_disconnect: Callable[[], None] | None = None) -> None:
    """Waits until the client leaves, then calls `on_disconnect`."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if on_disconnect is not None:
        on_disconnect()


class ClientGone(Exception):
    """The client has left, or does not read."""


class HttpResponse:
    """A response in parts, by default an event stream.

    A client that reads nothing for `stalled` seconds counts as gone.
    """

    __slots__ = ("_block", "_headers", "_patience", "_receive", "_send", "is_gone", "is_started", "stalled")

    def __init__(
        self, receive: Receive, send: Send, headers: Fields = SSE_HEADERS, *, stalled: float | None = None
    ) -> None:
        self.is_started = False
        self.is_gone = False
        self.stalled = _STALLED if stalled is None else stalled
        self._receive = receive
        self._send = send
        self._headers = headers
        self._block: Block | None = None
        self._patience: Timer | None = None

    async def whole(self, status: int, body: bytes = b"") -> None:
        await respond(self._send, status, body)

    async def start(self) -> None:
        """Sends the head once."""
        if not self.is_started:
            self.is_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})

    async def write(self, body: bytes) -> None:
        """Sends a part as the client reads. Raises `ClientGone`."""
        await self.start()
        for start in range(0, len(body), _CHUNK):
            await self._part(body[start : start + _CHUNK], more=True)

    async def end(self, body: bytes = b"") -> None:
        """Sends the last part. Raises `ClientGone`."""
        await self.write(body)
        await self._part(b"", more=False)

    async def watch(self, on_disconnect: Callable[[], None]) -> None:
        """Waits until the client leaves, then calls `on_disconnect`."""
        while (await self._receive())["type"] != "http.disconnect":  # `until_disconnect` would be a frame more for each
            pass
        self.is_gone = True
        on_disconnect()

    async def has_left(self) -> bool:
        """Checks the connection, if nobody watches it."""
        with anyio.move_on_after(0):
            await until_disconnect(self._receive)
            self.is_gone = True
        return self.is_gone

    def hurry(self, seconds: float) -> None:
        """Shortens the client's time."""
        self.stalled = seconds
        if self._patience is not None:
            self._patience.cancel()
            self._patience = call_later(seconds, self._give_up)

    async def _part(self, body: bytes, *, more: bool) -> None:
        if self.is_gone:
            raise ClientGone
        self._block = block = Block()
        self._patience = call_later(self.stalled, self._give_up)
        try:
            with block:
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        finally:
            self._patience.cancel()
            self._patience = None
        if block.is_given_up:
            raise ClientGone

    def _give_up(self) -> None:
        self.is_gone = True
        if self._block is not None:
            self._block.give_up()


class _NewsSource(Protocol):
    """Notifications: `next` repeats them until they are `sent`."""

    async def next(self) -> list[bytes]: ...

    def sent(self) -> None: ...


async def stream(
    source: _NewsSource, receive: Receive, send: Send, scope: anyio.CancelScope, last: bytes = b""
) -> None:
    """Sends notifications until the client leaves or `scope` is cancelled, then `last`."""
    response = HttpResponse(receive, send)
    await response.start()  # also if `scope` is cancelled already
    with scope, suppress(ClientGone):
        with Block(response.watch):
            await _pump(source, response)
    with anyio.move_on_after(LAST, shield=True), suppress(ClientGone):
        await response.end(sse.message(last) if last else b"")


async def _pump(source: _NewsSource, response: HttpResponse) -> None:
    while True:
        body = b""
        with anyio.move_on_after(KEEP_ALIVE):
            body = b"".join(map(sse.message, await source.next()))
        await response.write(body or sse.COMMENT)
        if body:
            source.sent()
