"""The conformance server's command line: over stdio as one shared child, or over Streamable HTTP.

`python -m rigs.conformance.server.main [--era handshake|modern|both] [--bare] [--pids FILE]` or `… --http PORT`, which
prints its URL on stderr (0 takes a free port). Without an era it serves both; a pipe is of the era of its first
request. A bare server has one tool, and no capability besides.
"""

import argparse
import os
import sys
from collections import deque
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import CallNext, HandlerResult
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rigs.conformance.server.app import ConformanceServer
from rigs.conformance.server.instance import Context

RETRY = 100
"""Milliseconds after which a client whose stream was closed should come back."""
KEPT = 1000


class Events(EventStore):
    """The last `KEPT` events of all streams, for a client that comes back with `Last-Event-ID`; ids count up."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, str, types.JSONRPCMessage | None]] = deque(maxlen=KEPT)
        self._last_id = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._last_id += 1
        self._events.append((self._last_id, stream_id, message))
        return str(self._last_id)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what the stream of this event had after it; the stream, or None for an event that is not there."""
        after = int(last_event_id)
        stream = next((stream for event, stream, _ in self._events if event == after), None)
        for event, owner, message in list(self._events):
            if owner == stream and event > after and message is not None:
                await send_callback(EventMessage(message, str(event)))
        return stream


async def refuse_handshake(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Middleware of a server that speaks the modern era only."""
    if ctx.method == "initialize":
        data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": (ctx.params or {}).get("protocolVersion")}
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    return await call_next(ctx)


async def serve_stdio(server: ConformanceServer, era: str) -> None:
    async with stdio_server() as (reading, writing):
        if era == "handshake":
            # knows nothing of the modern era, unlike `run`
            await serve_loop(server, reading, writing, lifespan_state={})
        else:
            await server.run(reading, writing, server.create_initialization_options())


async def serve_http(server: ConformanceServer, port: int) -> None:
    application = server.streamable_http_app(event_store=Events(), retry_interval=RETRY)
    # h11 strips the blanks around a header's value, httptools leaves them (RFC 9110 §5.5);
    # open streams do not outlive the process that was told to end
    config = uvicorn.Config(application, port=port, http="h11", log_level="warning", timeout_graceful_shutdown=1)
    socket = config.bind_socket()
    print(f"http://127.0.0.1:{socket.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    await uvicorn.Server(config).serve([socket])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", choices=("handshake", "modern", "both"), default="both", help="stdio only")
    parser.add_argument("--bare", action="store_true", help="one tool, nothing else")
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--pids", metavar="FILE", help="append the process's id to this file")
    options = parser.parse_args()
    if options.http is not None and options.era != "both":
        parser.error("--http serves both eras")
    return options


def main() -> None:
    options = arguments()
    if options.pids is not None:
        with open(options.pids, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
    server = ConformanceServer(bare=options.bare)
    if options.era == "modern":
        server.middleware.append(refuse_handshake)
    serving: tuple[Any, ...] = (serve_stdio, server, options.era)
    if options.http is not None:
        serving = (serve_http, server, options.http)
    anyio.run(*serving)


if __name__ == "__main__":
    main()
