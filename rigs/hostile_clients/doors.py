"""The five ways in, for a client that writes its bytes itself: what it POSTs or prints, and what it is told."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from rigs.hostile_clients.sockets import Raw, Socket, exchanged, head, opened
from tests.upstreams.child import WAIT
from tests.upstreams.messages import CLIENT, MODERN_VERSION, Message, modern, rpc
from tests.upstreams.stdio_client import StdioClient

DOORS = ("stdio", "handshake", "modern", "sse", "rest")
BOTH = "application/json, text/event-stream"


@dataclass(frozen=True)
class Said:
    """An answer: the HTTP status if there is one, and the message or problem."""

    status: int | None
    message: Any

    @property
    def code(self) -> int | str | None:
        """Of an error: a JSON-RPC code, or a problem's word."""
        if isinstance(self.message, dict):
            code: int | str | None = self.message.get("code") or self.message.get("error", {}).get("code")
            return code
        return None

    @property
    def is_result(self) -> bool:
        return isinstance(self.message, dict) and "result" in self.message

    def __str__(self) -> str:
        what = "result" if self.is_result else str(self.code)
        return what if self.status is None else f"{self.status} {what}"


class Door:
    """One client at one front. `call` writes a call of a tool in its form, `ask` sends bytes and waits."""

    name = ""

    def call(self, tool: str, arguments: Message, id: Any = 1, **meta: Any) -> bytes:
        params: Message = {"name": f"a_{tool}", "arguments": arguments}
        return json.dumps(rpc("tools/call", {**params, "_meta": meta} if meta else params, id=id)).encode()

    async def ask(self, body: bytes, id: Any = 1) -> Said:
        raise NotImplementedError


class StdioDoor(Door):
    name = "stdio"

    def __init__(self, client: StdioClient) -> None:
        self.client = client

    async def ask(self, body: bytes, id: Any = 1) -> Said:
        position = len(self.client.transcript)
        await self.client.send_raw(body + b"\n")

        def is_it(message: Message) -> bool:
            return "method" not in message and message.get("id") in (id, None)

        return Said(None, await self.client.wait_for(is_it, after=position))


class HttpDoor(Door):
    """One of the doors that have a URL; `headers` go with every POST."""

    path = "/mcp"

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.headers = {"authorization": f"Bearer {token}", "accept": BOTH}

    async def post(self, body: bytes, **headers: str) -> Raw:
        return await exchanged(self.url, "POST", self.path, body, **{**self.headers, **headers})

    def request(self, body: bytes, **headers: str) -> bytes:
        """The bytes of a whole POST."""
        sent = {"content_type": "application/json", "content_length": str(len(body)), **self.headers, **headers}
        return head("POST", self.path, **sent) + body

    async def ask(self, body: bytes, id: Any = 1) -> Said:
        raw = await self.post(body)
        if "event-stream" in (raw.header("content-type") or ""):
            last = [line for line in raw.body.split(b"\n") if line.startswith(b"data: ")][-1]
            return Said(raw.status, json.loads(last[6:]))
        return Said(raw.status, raw.json if raw.body else None)


class HandshakeDoor(HttpDoor):
    name = "handshake"

    async def initialize(self, version: str = "2025-11-25") -> None:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        raw = await self.post(json.dumps(rpc("initialize", params, id=0)).encode())
        assert raw.status == 200, raw
        self.session = raw.header("mcp-session-id") or ""
        self.headers |= {"mcp_session_id": self.session, "mcp_protocol_version": version}
        await self.post(json.dumps(rpc("notifications/initialized", None)).encode())


class ModernDoor(HttpDoor):
    name = "modern"

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.headers |= {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "tools/call", "mcp_name": "a_echo"}

    def call(self, tool: str, arguments: Message, id: Any = 1, *, server: str = "a", **meta: Any) -> bytes:
        name = self.headers["mcp_name"] = f"{server}_{tool}"
        params = modern({"name": name, "arguments": arguments}, **meta)
        return json.dumps(rpc("tools/call", params, id=id)).encode()


class RestDoor(HttpDoor):
    name = "rest"
    path = "/v1/tools/a_echo/call"

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.headers["accept"] = "application/json"

    def call(self, tool: str, arguments: Message, id: Any = 1, **meta: Any) -> bytes:
        self.path = f"/v1/tools/a_{tool}/call"
        return json.dumps({"arguments": arguments, **({"_meta": meta} if meta else {})}).encode()


class SseDoor(HttpDoor):
    name = "sse"

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.heard: list[Message] = []
        self._news = anyio.Event()

    async def open(self, socket: Socket, tasks: anyio.abc.TaskGroup, version: str = "2024-11-05") -> None:
        self.socket = socket
        await socket.send(head("GET", "/sse", authorization=self.headers["authorization"], accept="text/event-stream"))
        assert await socket.top() == 200
        tasks.start_soon(self._read)
        with anyio.fail_after(WAIT):
            while self.path == "/mcp":
                await self._news.wait()
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        await self.ask(json.dumps(rpc("initialize", params, id=0)).encode(), 0)

    async def _read(self) -> None:
        text = b""
        async for chunk in self.socket.chunks():
            text += chunk
            *events, text = text.split(b"\n\n")
            for event in events:
                data = event.partition(b"data: ")[2]
                if event.startswith(b"event: endpoint"):
                    self.path = data.decode()
                elif data:
                    self.heard.append(json.loads(data))
            self._news.set()
            self._news = anyio.Event()

    async def ask(self, body: bytes, id: Any = 1) -> Said:
        position = len(self.heard)
        raw = await self.post(body)
        if raw.status != 202:
            return Said(raw.status, raw.json)
        return Said(202, await self.answer(id, position))

    async def answer(self, id: Any, position: int = 0) -> Message:
        with anyio.fail_after(WAIT):
            while True:
                for message in self.heard[position:]:
                    if "method" not in message and message.get("id") in (id, None):
                        return message
                await self._news.wait()


@asynccontextmanager
async def through(name: str, where: "str | StdioClient", token: str = "") -> AsyncIterator[Door]:
    """A client at that door, past its handshake if it has one; `where` is the URL of the hub, or its pipe."""
    async with AsyncExitStack() as stack:
        if isinstance(where, StdioClient):
            yield StdioDoor(where)
            return
        match name:
            case "handshake":
                handshake = HandshakeDoor(where, token)
                await handshake.initialize()
                yield handshake
            case "modern":
                yield ModernDoor(where, token)
            case "rest":
                yield RestDoor(where, token)
            case _:
                socket = await stack.enter_async_context(opened(where))
                async with anyio.create_task_group() as tasks:
                    sse = SseDoor(where, token)
                    await sse.open(socket, tasks)
                    yield sse
                    tasks.cancel_scope.cancel()
