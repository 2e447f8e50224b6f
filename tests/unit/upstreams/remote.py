"""A remote MCP server of either era that does as it is told, and connections to it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from mcp_hub.clock import SystemClock
from mcp_hub.notices import Notices
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import ANY_ERA, EraWish, ServerEras
from mcp_hub.upstreams.remote.connection import HttpConnection, HttpSpec
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.upstreams.scripted import DISCOVERED, INITIALIZED
from tests.unit.wire.http_server import HttpServer, Reply, Request, Script
from tests.unit.wire.raw_lines import WAIT, group, within
from tests.upstreams.child import HttpUpstream

Answering = Callable[[Request, Reply], Awaitable[None]]


def tool(name: str, **properties: object) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


@dataclass
class Remote:
    """Answers what it knows; `does` says what else to do for one method, and what it lacks is 404."""

    modern: bool = False
    handshake: bool = True
    session: str | None = "s-1"
    tools: list[dict[str, Any]] = field(default_factory=lambda: [tool("x")])
    does: dict[str, Answering] = field(default_factory=dict)

    async def __call__(self, request: Request, reply: Reply) -> None:
        method = request.rpc
        if method in self.does:
            return await self.does[method](request, reply)
        if method == "server/discover" and self.modern:
            return await reply.result(request, DISCOVERED)
        if method == "initialize" and self.handshake:
            session = {} if self.session is None else {"Mcp_Session_Id": self.session}
            return await reply.result(request, INITIALIZED, **session)
        if method in ("tools/list", "tools/call"):
            if request.headers.get("mcp-session-id") != self.session and not self.modern:
                return await reply.status(404)
            return await reply.result(request, {"tools": self.tools} if method == "tools/list" else {"content": []})
        if method.startswith("notifications/"):
            return await reply.status(202)
        if method == "GET":
            return await reply.status(405)
        await reply.status(200 if method == "DELETE" else 400)


def answering(status: int, body: Mapping[str, Any] | None = None, **headers: Any) -> Script:
    """Always this."""

    async def script(request: Request, reply: Reply) -> None:
        if body is None:
            await reply.status(status, **headers)
        else:
            await reply.json({"jsonrpc": "2.0", "id": request.message["id"], **body}, status, **headers)

    return script


def unknown() -> ServerEras:
    """Of a server of which nothing is known."""
    return ServerEras(EraCache(None), "k")


@asynccontextmanager
async def connection(
    server: HttpServer, memory: ServerEras | None = None, wanted: EraWish = ANY_ERA, **spec: Any
) -> AsyncIterator[tuple[HttpConnection, Peer]]:
    """An open connection. What goes wrong is in an `ExceptionGroup`."""
    made = HttpConnection("far", HttpSpec(**{"url": server.url, **spec}), memory or unknown(), None, wanted)
    async with group() as tasks:
        try:
            peer = await within(made.open(tasks))
            yield made, peer
        finally:
            await made.close()


@asynccontextmanager
async def supervised(server: HttpServer | HttpUpstream, **spec: Any) -> AsyncIterator[ManagedUpstream]:
    """A running supervisor; it need not be ready."""
    made = HttpSpec(**{"url": server.url, **spec})
    memory, changes = unknown(), Notices()
    supervisor = ManagedUpstream(
        "far", lambda: HttpConnection("far", made, memory), SupervisorRules(), clock=SystemClock(), changes=changes
    )
    async with group() as tasks:
        tasks.start_soon(supervisor.lifecycle.run)
        yield supervisor


async def ready(supervisor: ManagedUpstream, restarts: int = 0) -> None:
    """Returns when it is, after so many restarts."""
    with anyio.fail_after(WAIT):
        while supervisor.status().state is not UpstreamState.READY or supervisor.status().restarts < restarts:
            await supervisor.state.changes.wait(supervisor.state.changes.version)
