"""A remote server that follows a script, down to the bytes: raw HTTP/1.1 over asyncio, no framework between."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.unit.wire.raw_lines import WAIT


@dataclass(frozen=True)
class Request:
    """One HTTP request, header names in lower case. `number` is that of its connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.body)
        return message

    @property
    def rpc(self) -> str:
        """The JSON-RPC method, or the HTTP method of what has no body."""
        return str(self.message.get("method", "answer")) if self.body else self.method


class Stream:
    """An event stream, chunked, while it lasts."""

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer = writer
        self._reader = reader

    async def raw(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        with suppress(ConnectionError):
            await self._writer.drain()

    async def event(self, message: Any = None, **fields: object) -> None:
        """An event with these fields; `message` as JSON, or as it is if it is text."""
        data = message if isinstance(message, str) else "" if message is None else json.dumps(message)
        lines = [f"{name}: {value}" for name, value in fields.items()]
        await self.raw("\n".join([*lines, f"data: {data}", "", ""]).encode())

    async def progress(self, token: object, progress: float) -> None:
        params = {"progressToken": token, "progress": progress}
        await self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def cut(self) -> None:
        """Resets the connection."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()

    async def leave(self, cut: bool) -> None:
        """Resets the connection, or ends the stream in order."""
        if cut:
            self.cut()
        else:
            await self.end()

    async def answer(self, id_: object, result: object) -> None:
        await self.event({"jsonrpc": "2.0", "id": id_, "result": result})

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        with suppress(ConnectionError):
            assert await self._reader.read(1) == b""


class Reply:
    """How a request is answered."""

    def __init__(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._writer = writer
        self._reader = reader

    async def status(self, status: int, body: bytes = b"", kind: str | None = None, **headers: Any) -> None:
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if kind is not None:
            lines.append(f"content-type: {kind}")
        head = "\r\n".join([f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *lines, "", ""])
        self._writer.write(head.encode() + body)
        await self._writer.drain()

    async def json(self, message: Any, status: int = 200, **headers: Any) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self.status(status, body, "application/json; charset=utf-8", **headers)

    async def result(self, request: Request, result: Any, **headers: Any) -> None:
        await self.json({"jsonrpc": "2.0", "id": request.message["id"], "result": result}, **headers)

    async def error(self, request: Request, code: int, status: int = 400, data: Any = None) -> None:
        error = {"code": code, "message": "no", "data": data}
        await self.json({"jsonrpc": "2.0", "id": request.message["id"], "error": error}, status)

    async def stream(self, **headers: Any) -> Stream:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n{lines}\r\n"
        self._writer.write(head.encode())
        await self._writer.drain()
        return Stream(self._writer, self._reader)

    def cut(self) -> None:
        """Resets the connection."""
        Stream(self._writer, self._reader).cut()

    async def gone(self) -> None:
        await Stream(self._writer, self._reader).gone()


Script = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class HttpServer:
    """What has reached the server, and where it is. A script that raises cuts the connection; see `failures`."""

    script: Script
    port: int = 0
    seen: list[Request] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    connections: int = 0
    now: int = 0
    most: int = 0
    listening: asyncio.Server | None = None
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def of(self, rpc: str) -> list[Request]:
        return [request for request in self.seen if request.rpc == rpc]

    async def until(self, rpc: str, count: int = 1) -> list[Request]:
        """The requests of this method, as soon as there are so many."""
        with anyio.fail_after(WAIT):
            while len(found := self.of(rpc)) < count:
                self._news = anyio.Event()
                await self._news.wait()
        return found

    async def close(self) -> None:
        """It is gone, and so is every connection to it."""
        assert self.listening is not None
        self.listening.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while (request := await _read(reader, number)) is not None:
                self.seen.append(request)
                self._news.set()
                self.now += 1
                self.most = max(self.most, self.now)
                try:
                    await self.script(request, Reply(writer, reader))
                finally:
                    self.now -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as exc:
            self.failures.append(exc)
            writer.transport.abort()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, number: int) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines if line):
        headers[name.lower()] = ", ".join(filter(None, (headers.get(name.lower()), value.strip())))
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body, number)


@asynccontextmanager
async def serving(script: Script, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    """A server on a free port of 127.0.0.1. Its script must not have failed in the end."""
    server = HttpServer(script)

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server.serve(reader, writer))
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)

    server.listening = await asyncio.start_server(accepted, "127.0.0.1", port, ssl=tls)
    server.port = server.listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        with anyio.CancelScope(shield=True):
            await server.close()
    assert not server.failures, server.failures
