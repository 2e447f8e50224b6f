"""The transport to a hub in this process."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import TaskGroup

from mcp_hub.client.rest import Answer, ConnectionLost

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
