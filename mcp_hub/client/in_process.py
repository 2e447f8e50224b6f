"""The transports to a hub in this process, and to one on this machine, without an HTTP library."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import anyio
import httptools
from anyio.abc import ByteStream, TaskGroup

from mcp_hub.client.hub_client import HubClient
from mcp_hub.client.rest import CONNECT, Answer, ConnectionLost, client_headers, endpoint, is_this_machine

_Message = MutableMapping[str, Any]
Application = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Any]
"""An ASGI application; `Any` as in ASGI itself."""

_WAITING: Final = 16
"""Chunks of a response that may wait; with more the application waits."""


class AsgiTransport:
    """Calls the application in a task for each request."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        exchange = _Exchange(body or b"")
        self._tasks.start_soon(exchange.run, self._application, _scope(method, url, headers))
        try:
            await exchange.begun()
        except BaseException:
            await exchange.aclose()
            raise
        return exchange


def _scope(method: str, url: str, headers: Mapping[str, str]) -> _Message:
    parts = urlsplit(url)
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": parts.scheme,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
    }


class _Exchange:
    def __init__(self, body: bytes) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._request: list[_Message] = [{"type": "http.request", "body": body}]
        self._head = anyio.Event()
        self._closed = anyio.Event()
        self._in, self._out = anyio.create_memory_object_stream[bytes](_WAITING)

    async def run(self, application: Application, scope: _Message) -> None:
        try:
            await application(scope, self._receive, self._send)
        finally:
            self._in.close()
            self._head.set()

    async def begun(self) -> None:
        await self._head.wait()
        if not self.status:
            raise ConnectionLost("The hub ended without an answer.")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._out:
            yield chunk

    async def aclose(self) -> None:
        self._closed.set()
        self._out.close()

    async def _receive(self) -> _Message:
        if self._request:
            return self._request.pop()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
            self._head.set()
            return
        try:
            if message.get("body"):
                await self._in.send(message["body"])
        except anyio.BrokenResourceError:  # its client has left
            return
        if not message.get("more_body"):
            self._in.close()


_SILENCE: Final = 60.0
"""Seconds of silence after which a connection is lost, as in `http`."""
_WRITING: Final = 30.0
_CLOSING: Final = 2.0
_PORTION: Final = 1 << 16
_LONGEST_HEAD: Final = 1 << 17
_NO_HEAD: Final = "Server disconnected without sending a response."
_CUT: Final = "peer closed connection without sending complete message body"


def connect_here(
    url: str, token: str | None = None, *, patience: float = 30.0, socket: str | None = None, program: str = "1"
) -> HubClient | None:
    """A client, as `http.connect`; None for another machine or with TLS."""
    target = endpoint(url)
    parts = urlsplit(target)
    if parts.scheme != "http" or not target.isascii() or not (socket or is_this_machine(parts.hostname or "")):
        return None
    return HubClient(target, _LocalTransport(client_headers(token), socket), patience=patience, program=program)


class _LocalTransport:
    """HTTP over a new connection for each request."""

    def __init__(self, headers: Mapping[str, str], socket: str | None) -> None:
        self._headers = headers
        self._socket = socket

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Each response closes its connection."""

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        parts = urlsplit(url)
        sent = {"host": parts.netloc, "connection": "close", **self._headers, **headers}
        if body is not None or method == "POST":
            sent["content-length"] = str(len(body or b""))
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        if unfit := next((line for line in lines if not line.isascii() or not line.isprintable()), None):
            raise ConnectionLost(f"Illegal header value {unfit!a}", was_made=False)
        response = _Response(await self._connected(parts.hostname or "", parts.port or 80))
        try:
            await response.begin("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _connected(self, host: str, port: int) -> ByteStream:
        try:
            with anyio.fail_after(CONNECT):
                return await (anyio.connect_unix(self._socket) if self._socket else anyio.connect_tcp(host, port))
        except TimeoutError:
            raise ConnectionLost(f"no connection within {CONNECT:g} s", was_made=False) from None
        except OSError as problem:
            raise ConnectionLost(str(problem) or type(problem).__name__, was_made=False) from None


class _Response:
    """One response, parsed as it arrives; the callbacks are those of httptools."""

    def __init__(self, stream: ByteStream) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._has_head = self._has_ended = False
        self._length = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200

    def on_body(self, part: bytes) -> None:
        self._length += len(part)
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self._has_ended = self._has_head

    async def begin(self, request: bytes) -> None:
        """Sends the request, and reads up to the head. Raises `ConnectionLost`."""
        try:
            with (
                anyio.fail_after(_WRITING),
                suppress(anyio.BrokenResourceError),
            ):  # it may answer before it has read all
                await self._stream.send(request)
        except TimeoutError:
            raise ConnectionLost("WriteTimeout") from None
        length = 0
        while not self._has_head:
            portion = await self._read()
            length += len(portion)
            if not portion or length > _LONGEST_HEAD:
                raise ConnectionLost(_NO_HEAD if not portion else "the head of the response is too long")

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        while True:
            parts, self._parts = self._parts, []
            for part in parts:
                yield part
            if self._has_ended:
                return
            if not await self._read():
                self._check_end()
                return

    async def aclose(self) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._stream.aclose()

    async def _read(self) -> bytes:
        try:
            with anyio.fail_after(_SILENCE):
                portion = await self._stream.receive(_PORTION)
            self._parser.feed_data(portion)
        except anyio.EndOfStream:
            return b""
        except TimeoutError:
            raise ConnectionLost("ReadTimeout") from None
        except (anyio.BrokenResourceError, httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            raise ConnectionLost(str(problem) or "ReadError") from None
        return portion

    def _check_end(self) -> None:
        if (length := self.headers.get("content-length")) is not None:
            raise ConnectionLost(f"{_CUT} (received {self._length} bytes, expected {length})")
        if "transfer-encoding" in self.headers:
            raise ConnectionLost(f"{_CUT} (incomplete chunked read)")
