"""A wire to a scripted server, and a handler that keeps what it is told and on whose behalf."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2

from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.types import Era
from mcp_hub.wire.base import Pending
from mcp_hub.wire.http import HttpWire
from tests.unit.wire.http_server import HttpServer, Reply, Request, Script, Stream, serving
from tests.unit.wire.raw_lines import Told, group, within

LIMIT = 1 << 16


class Sourced(Told):
    """Keeps the request on whose stream a message came, too."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[Pending | None] = []
        self.bad_sources: list[object] = []

    def on_notification(self, message: Envelope, source: object = None) -> None:
        assert source is None or isinstance(source, Pending)
        self.sources.append(source)
        super().on_notification(message)

    def on_bad_line(self, bad: BadMessage, line: bytes, source: object = None) -> None:
        self.bad_sources.append(source)
        super().on_bad_line(bad, line[:100])


@dataclass
class Talk:
    """A wire and its both ends."""

    wire: HttpWire
    told: Sourced
    server: HttpServer
    http: httpx2.AsyncClient

    async def ask(self, method: str = "tools/call", params: bytes = b'{"name":"x"}', **headers: str) -> Envelope:
        return await self.answer(self.wire.request(method, params, None, headers))

    async def answer(self, pending: Pending) -> Envelope:
        """What it comes to, within the bound of every wait."""
        return await within(self.wire.answer(pending, None))

    async def give_up(self, cancellation: Callable[[int], bytes] | None = None) -> None:
        """A call that the server has, and no more."""
        async with group() as tasks:
            tasks.start_soon(self.wire.answer, self.wire.request("tools/call", b"{}"), cancellation)
            await self.server.until("tools/call")

    async def begin(self) -> None:
        """`initialize`, for the session id that the answer brings."""
        await self.ask("initialize", b"{}")


@asynccontextmanager
async def wired(
    script: Script, era: Era = Era.HANDSHAKE, limit: int = LIMIT, still_modern: Callable[[HttpWire], Any] | None = None
) -> AsyncIterator[Talk]:
    spoken = (era, "2026-07-28" if era is Era.MODERN else "2025-06-18")
    async with serving(script) as server, group() as tasks:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx2.AsyncClient(timeout=None, limits=limits, trust_env=False, verify=False) as http:
            told = Sourced()
            wire: HttpWire
            wire = HttpWire(
                told, http, tasks, lambda: spoken, server="far", url=server.url, limit=limit,
                still_modern=None if still_modern is None else lambda: still_modern(wire),
            )  # fmt: skip
            try:
                yield Talk(wire, told, server, http)
            finally:
                wire.close()
                with anyio.CancelScope(shield=True):
                    await anyio.wait_all_tasks_blocked()


@dataclass
class OldServer:
    """Names `endpoint` on its stream and accepts what is sent there; `stream` is where it speaks."""

    endpoint: str = "/messages?session_id=1"
    stream: Stream | None = None
    ready: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.method == "GET":
            self.stream = await reply.stream()
            await self.stream.event(self.endpoint, event="endpoint")
            self.ready.set()
            await self.stream.gone()
        else:
            await reply.status(202, b"Accepted")

    async def say(self, **message: object) -> None:
        assert self.stream is not None
        await self.stream.event({"jsonrpc": "2.0", **message}, event="message")


async def echo(request: Request, reply: Reply) -> None:
    """A script: answers with the params, accepts what is no request."""
    if "id" in request.message and "method" in request.message:
        await reply.result(request, request.message["params"])
    else:
        await reply.status(202)


def with_session(script: Script) -> Script:
    """The script, and before it `initialize`, which begins a session."""

    async def serve(request: Request, reply: Reply) -> None:
        if request.rpc == "initialize":
            await reply.result(request, {}, Mcp_Session_Id="s-1")
        else:
            await script(request, reply)

    return serve


def says(status: int, body: bytes = b"", kind: str | None = None, **headers: Any) -> Script:
    """A script that answers everything with this."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.status(status, body, kind, **headers)

    return script


def refuses(code: int, message: str, id_: object = None, status: int = 400) -> Script:
    """A script that answers everything with this JSON-RPC error."""

    async def script(request: Request, reply: Reply) -> None:
        await reply.json({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}, status)

    return script


bare_not_found = says(404)
