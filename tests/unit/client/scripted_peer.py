"""A hub's REST front that says what a test tells it to, over real connections: one request and one answer each."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from mcp_hub.client import HubClient, http, in_process
from mcp_hub.events import CallEvent
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.types import CallId

SECONDS = 240
STREAM = "st_" + "0" * 26
CLOSED = b'event: closed\ndata: {"cursor":0,"status":"completed"}\n\n'


@dataclass(frozen=True)
class Asked:
    """One request. `query` has the last value of each parameter; header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def what(self) -> str:
        """`GET …/events?after=3`: method, the end of the path, and the place if there is one."""
        after = f"?after={self.query['after']}" if "after" in self.query else ""
        return f"{self.method} {self.path.rpartition('/')[2]}{after}"


@dataclass
class Peer:
    """`url` is the MCP endpoint; `asked` what came so far."""

    url: str
    asked: list[Asked]

    @property
    def whats(self) -> list[str]:
        return [asked.what for asked in self.asked]


Answer = Callable[[Asked], bytes]


def lines(events: Sequence[CallEvent], start: int = 1) -> list[bytes]:
    """The stored lines of events, numbered from `start` on."""
    return [encoded(CallId(STREAM), seq, "2026-11-20T11:02:03.412Z", event) for seq, event in enumerate(events, start)]


def sse(stored: Sequence[bytes]) -> bytes:
    """Events as a hub sends them."""
    heads = [msgspec.json.decode(line) for line in stored]
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n" % (head["seq"], head["type"].encode(), line)
        for head, line in zip(heads, stored, strict=True)
    )


def events_answer(body: bytes) -> bytes:
    """An answer without an announced length: it ends where the connection does."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body


def json_answer(status: int, value: object, kind: str = "application/json", more: str = "") -> bytes:
    body = msgspec.json.encode(value)
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{more}"
    return head.encode() + b"\r\n" + body


def problem(status: int, code: str, more: str = "", **members: object) -> bytes:
    value = {"title": "x", "status": status, "code": code, "detail": f"said {code}", **members}
    return json_answer(status, value, "application/problem+json", more)


@asynccontextmanager
async def peer(answer: Answer | Sequence[bytes]) -> AsyncIterator[Peer]:
    """Answers each request with what `answer` makes of it, or with the next of these, and closes the connection.

    An answer that is empty closes it without a word.
    """
    script = iter(()) if callable(answer) else iter(answer)
    asked: list[Asked] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            request = await _request(stream)
            asked.append(request)
            await stream.send(answer(request) if callable(answer) else next(script))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield Peer(f"http://127.0.0.1:{port}/mcp", asked)
        tasks.cancel_scope.cancel()


Connect = Callable[..., HubClient | None]
WAYS: dict[str, Connect] = {"http": http.connect, "here": in_process.connect_here}
_chosen: list[Connect] = [http.connect]


@pytest.fixture(params=WAYS, autouse=True, scope="module")
def each_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clients come by the HTTP library, and by the transport to a hub on this machine."""
    before, _chosen[0] = _chosen[0], WAYS[request.param]
    yield
    _chosen[0] = before


def connect(url: str, token: str | None = None, *, patience: float = 30.0) -> HubClient:
    client = _chosen[0](url, token, patience=patience)
    assert client is not None
    return client


@asynccontextmanager
async def connected(
    answer: Answer | Sequence[bytes], token: str | None = None, *, patience: float = 30.0
) -> AsyncIterator[tuple[Peer, HubClient]]:
    """Such a peer and a client of it, for `SECONDS` at most."""
    with anyio.fail_after(SECONDS):
        async with peer(answer) as hub, connect(hub.url, token, patience=patience) as client:
            yield hub, client


async def _request(stream: SocketStream) -> Asked:
    text = b""
    while b"\r\n\r\n" not in text:
        text += await stream.receive()
    head, _, body = text.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive()
    method, target, _ = first.split(" ")
    parts = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    assert re.match(r"/v1/", parts.path)
    return Asked(method, parts.path, query, headers, body)
