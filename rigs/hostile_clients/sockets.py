"""HTTP/1.1 without a client library: the bytes that are sent are the bytes that a test wrote."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.abc

from tests.upstreams.child import WAIT


@dataclass(frozen=True)
class Raw:
    """A response as it came."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    @property
    def json(self) -> Any:
        """The body; of an event stream its last message."""
        if self.header("content-type") == "text/event-stream":
            return json.loads(self.body.rpartition(b"\ndata: ")[2])
        return json.loads(self.body)

    @property
    def complete(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """What two responses have to share for nobody to tell them apart."""
        return self.status, [(name, value) for name, value in self.headers if name != "date"], self.body


class Socket:
    """One connection. Every wait for bytes ends after `WAIT` seconds."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        with anyio.fail_after(WAIT):
            await self.stream.send(data)

    async def response(self) -> Raw | None:
        """The next response; None if the hub has closed the connection instead."""
        top = await self._until(b"\r\n\r\n")
        if top is None:
            return None
        line, *lines = top.decode("latin-1").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (each.partition(":") for each in lines if each)]
        known = dict(headers)
        status = int(line.split()[1])
        if status == 100:
            return await self.response()
        if "chunked" in known.get("transfer-encoding", ""):
            body = b"".join([chunk async for chunk in self.chunks()])
        else:
            body = await self._exactly(int(known.get("content-length", 0)))
        return Raw(status, headers, body)

    async def top(self) -> int:
        """The status of a response whose body is read with `chunks`."""
        top = await self._until(b"\r\n\r\n")
        assert top is not None, "closed"
        return int(top.split()[1])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of a chunked body."""
        while True:
            size = await self._until(b"\r\n")
            assert size is not None, "the body breaks off"
            part = await self._exactly(int(size, 16) + 2)
            if part == b"\r\n":
                return
            yield part[:-2]

    async def closed(self, seconds: float = WAIT) -> bool:
        """Whether the hub closes the connection in that time, whatever it still sends."""
        with anyio.move_on_after(seconds):
            while await self._more():
                self._buffer = b""
            return True
        return False

    async def _until(self, end: bytes) -> bytes | None:
        while end not in self._buffer:
            if not await self._more():
                return None
        found, _, self._buffer = self._buffer.partition(end)
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size and await self._more():
            pass
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    async def _more(self) -> bool:
        try:
            with anyio.fail_after(WAIT):
                self._buffer += await self.stream.receive(1 << 18)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        return True


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Socket]:
    """A connection to the hub at this URL."""
    parts = urlsplit(url)
    async with await anyio.connect_tcp(parts.hostname or "", parts.port or 80) as stream:
        yield Socket(stream)


def head(method: str, path: str, *, host: str = "localhost", **headers: str) -> bytes:
    """A request line and headers; `_` in a name is a dash."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def exchanged(url: str, method: str, path: str, body: bytes | None = None, **headers: Any) -> Raw:
    """One request on a connection of its own."""
    if body is not None:
        headers = {"content_type": "application/json", "content_length": str(len(body)), **headers}
    async with opened(url) as socket:
        await socket.send(head(method, path, **headers) + (body or b""))
        response = await socket.response()
    assert response is not None, "the hub closed the connection"
    return response
