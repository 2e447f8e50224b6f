"""The limit relay: it rewrites request id and tool name and does nothing else.

What it costs is the least that a Python process can spend on relaying a call (uvloop, msgspec, payloads as
raw bytes), so it is the yardstick of every other side. It has no deadlines, no cancellation, no progress
tokens of its own, no error handling: it knows just enough of `initialize`, `server/discover` and `tools/list` to
be driven. `--http PORT` serves the same as a plain ASGI app on uvicorn; that front answers JSON, and a call that
asks for progress with an event stream.
"""

import argparse
import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
INFO = {"name": "bench-limit", "version": "1"}
# below this many bytes a parse is as cheap as the pattern, above it the payload must not be scanned
BIG_LINE = 16_384
# the token of a call over HTTP and of the progress that is for it
TOKEN = re.compile(rb'"progressToken":(\d+)')
BIG_ANSWER = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),"result":')

Deliver = Callable[[bytes], None]


class Params(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="_meta")
    version: str = msgspec.field(default="", name="protocolVersion")


class Request(msgspec.Struct):
    method: str = ""
    id: msgspec.Raw = msgspec.Raw()
    params: Params | None = None


class Answer(msgspec.Struct):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


decode_request = msgspec.json.Decoder(Request).decode
decode_answer = msgspec.json.Decoder(Answer).decode


class Lines:
    """Cuts chunks into lines, each byte looked at once."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        if tail:
            self._rest.append(tail)
        return lines


class Upstream(asyncio.SubprocessProtocol):
    """One child process: writes of one loop turn are joined, answers go to whoever asked."""

    def __init__(self, name: str, relay: "Relay") -> None:
        self.name = name
        self.relay = relay
        self.tools: list[dict[str, Any]] = []
        self.pending: dict[int, tuple[bytes, Deliver]] = {}
        self.out: list[bytes] = []
        self._lines = Lines()
        self._pipe: asyncio.WriteTransport | None = None

    def connection_made(self, transport: Any) -> None:
        # Any: the transports of uvloop are not those of asyncio by type
        pipe = self._pipe = transport.get_pipe_transport(0)
        start = {"protocolVersion": VERSIONS[-1], "capabilities": {}, "clientInfo": INFO}
        pipe.write(message(id=0, method="initialize", params=start))
        pipe.write(message(method="notifications/initialized"))
        pipe.write(message(id=1, method="tools/list", params={}))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd != 1:
            return
        for line in self._lines.feed(data):
            self._line(line)
        self.relay.flush_front()

    def _line(self, line: bytes) -> None:
        if len(line) > BIG_LINE and (match := BIG_ANSWER.match(line)) and int(match[1]) in self.pending:
            request_id, deliver = self.pending.pop(int(match[1]))
            deliver(b"".join([answer_head(request_id), memoryview(line)[match.end() :], b"\n"]))
            return
        answer = decode_answer(line)
        if answer.id is None:
            self.relay.notify(line + b"\n")
        elif found := self.pending.pop(answer.id, None):
            request_id, deliver = found
            if answer.result:
                deliver(b"".join([answer_head(request_id), answer.result, b"}\n"]))
            elif answer.error:
                deliver(b'{"jsonrpc":"2.0","id":%b,"error":%b}\n' % (request_id, bytes(answer.error)))
        elif answer.id == 1 and answer.result:
            self.tools = msgspec.json.decode(answer.result)["tools"]
            self.relay.listed(self)

    def flush(self) -> None:
        if self.out and self._pipe is not None:
            self._pipe.write(b"".join(self.out))
            self.out.clear()


class Relay:
    """The table of tools, and the way of a request to its upstream."""

    def __init__(self, servers: dict[str, dict[str, Any]]) -> None:
        self.servers = servers
        self.routes: dict[str, tuple[Upstream, bytes]] = {}
        self.list_bytes = b""
        self.list_waiters: list[Callable[[], None]] = []
        self.notify: Deliver = lambda _line: None
        self.flush_front: Callable[[], None] = lambda: None
        self._unlisted: set[str] = set(servers)
        self._upstreams: list[Upstream] = []
        self._next_id = 1

    async def start(self) -> None:
        loop = asyncio.get_running_loop()

        async def spawn(name: str, server: dict[str, Any]) -> None:
            upstream = Upstream(name, self)
            self._upstreams.append(upstream)
            await loop.subprocess_exec(lambda: upstream, server["command"], *server["args"], stderr=None)

        await asyncio.gather(*(spawn(name, server) for name, server in self.servers.items()))

    def listed(self, upstream: Upstream) -> None:
        self._unlisted.discard(upstream.name)
        if self._unlisted:
            return
        exported = []
        for one in sorted(self._upstreams, key=lambda upstream: list(self.servers).index(upstream.name)):
            for tool in one.tools:
                name = f"{one.name}_{tool['name']}"
                self.routes[name] = (one, json.dumps(tool["name"]).encode())
                exported.append(tool | {"name": name})
        self.list_bytes = msgspec.json.encode({"tools": exported})[1:-1]
        for waiter in self.list_waiters:
            waiter()
        self.list_waiters.clear()

    def handle(self, line: bytes, deliver: Deliver) -> bool:
        """Takes one client message; false when it needs no answer."""
        request = decode_request(line)
        if not request.id or not request.method:
            return False
        request_id = bytes(request.id)
        params = request.params or Params()
        if request.method == "tools/call":
            self._call(request_id, params, deliver)
        elif request.method == "tools/list" and self._unlisted:
            self.list_waiters.append(lambda: deliver(self.local_answer(request_id, "tools/list", params)))
        else:
            deliver(self.local_answer(request_id, request.method, params))
        return True

    def _call(self, request_id: bytes, params: Params, deliver: Deliver) -> None:
        route = self.routes.get(params.name)
        if route is None:
            error = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32602,"message":"unknown tool"}}\n'
            deliver(error % request_id)
            return
        upstream, name = route
        self._next_id += 1
        upstream.pending[self._next_id] = (request_id, deliver)
        form = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b,"_meta":%b}}\n'
        upstream.out.append(form % (self._next_id, name, bytes(params.arguments), bytes(params.meta)))

    def local_answer(self, request_id: bytes, method: str, params: Params) -> bytes:
        if method == "tools/list":
            modern = MODERN.encode() in bytes(params.meta)
            extra = b',"resultType":"complete","ttlMs":0,"cacheScope":"private"' if modern else b""
            return b"".join([answer_head(request_id), b"{", self.list_bytes, extra, b"}}\n"])
        body: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": INFO}
        if method == "initialize":
            body["protocolVersion"] = params.version if params.version in VERSIONS else VERSIONS[-1]
        elif method == "server/discover":
            body |= {"supportedVersions": [MODERN], "resultType": "complete"}
            body |= {"ttlMs": 0, "cacheScope": "private"}
        else:
            body = {}
        return b"".join([answer_head(request_id), msgspec.json.encode(body), b"}\n"])

    def flush(self) -> None:
        for upstream in self._upstreams:
            upstream.flush()


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def answer_head(request_id: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":' % request_id


class StdioFront(asyncio.Protocol):
    """Standard input and output; answers of one loop turn leave in one write."""

    def __init__(self, relay: Relay, ended: asyncio.Event) -> None:
        self._relay = relay
        self._ended = ended
        self._lines = Lines()
        self._out: list[bytes] = []
        self._pipe: asyncio.WriteTransport | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(1, "wb", 0))
        self._pipe = pipe
        self._relay.notify = self._out.append
        self._relay.flush_front = self._flush
        await loop.connect_read_pipe(lambda: self, os.fdopen(0, "rb", 0))

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._relay.handle(line, self._out.append)
        self._relay.flush()
        self._flush()

    def _flush(self) -> None:
        if self._out and self._pipe is not None:
            self._pipe.write(b"".join(self._out))
            self._out.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def serve_stdio(relay: Relay) -> None:
    ended = asyncio.Event()
    await StdioFront(relay, ended).start()
    await asyncio.gather(relay.start(), ended.wait())


class EventStream:
    """The answer to a call that asked for progress; the messages of one loop turn leave in one write."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False
        self._ready = asyncio.Event()

    def add(self, line: bytes) -> None:
        self.lines.append(b"data: %b\n" % line)
        self._ready.set()

    def end(self, line: bytes) -> None:
        self.ended = True
        self.add(line)

    async def write(self, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"mcp-session-id", b"limit")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while self.lines or not self.ended:
            await self._ready.wait()
            self._ready.clear()
            data = b"".join(self.lines)
            self.lines.clear()
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body"})


class Streams:
    """The open event streams by their tokens, which clients here choose apart."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._open: dict[bytes, EventStream] = {}
        relay.notify = self._notify

    def _notify(self, line: bytes) -> None:
        if (token := TOKEN.search(line)) and (stream := self._open.get(token[1])):
            stream.add(line)

    async def answer(self, body: bytes, token: bytes, send: Any) -> None:
        stream = self._open[token] = EventStream()
        self._relay.handle(body, stream.end)
        self._relay.flush()
        try:
            await stream.write(send)
        finally:
            del self._open[token]


def asgi_app(relay: Relay) -> Callable[..., Any]:
    """POST → upstream → one JSON answer; every session has the same id."""
    ok: dict[str, Any] = {
        "type": "http.response.start",
        "status": 200,
        "headers": [(b"content-type", b"application/json"), (b"mcp-session-id", b"limit")],
    }
    streams = Streams(relay)

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(relay, receive, send)
            return
        event = await receive()
        body = event["body"]
        while event.get("more_body"):
            event = await receive()
            body += event["body"]
        if token := TOKEN.search(body):
            await streams.answer(body, token[1], send)
            return
        answered = asyncio.get_running_loop().create_future()
        if scope["method"] != "POST" or not relay.handle(body, answered.set_result):
            status = 202 if scope["method"] == "POST" else 405
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        relay.flush()
        data = await answered
        length = (b"content-length", b"%d" % len(data))
        await send(ok | {"headers": [*ok["headers"], length]})
        await send({"type": "http.response.body", "body": data})

    return app


async def lifespan(relay: Relay, receive: Any, send: Any) -> None:
    await receive()
    await relay.start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="JSON with `mcpServers`")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on this port of 127.0.0.1")
    options = parser.parse_args()
    relay = Relay(json.loads(options.config.read_text())["mcpServers"])
    if options.http is None:
        uvloop.run(serve_stdio(relay))
        return
    app = asgi_app(relay)
    uvicorn.run(app, port=options.http, http="httptools", loop="uvloop", log_level="error", access_log=False)


if __name__ == "__main__":
    main()
