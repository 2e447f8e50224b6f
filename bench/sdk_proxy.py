"""The plain proxy that one writes with the `mcp` SDK alone: `on_call_tool` → `ClientSession.call_tool`.

Stock transports on both sides, upstreams connected one after the other, lists asked for on every request,
the SDK's default settings: what the SDK costs when nothing is done about it.
"""

import argparse
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Context = ServerRequestContext[Any, Any]


class Upstreams:
    """The sessions by server name, and the way from an exported name to its tool."""

    def __init__(self) -> None:
        self._sessions: dict[str, ClientSession] = {}
        self._routes: dict[str, tuple[ClientSession, str]] = {}

    async def connect(self, stack: AsyncExitStack, servers: dict[str, dict[str, Any]]) -> None:
        for name, server in servers.items():
            parameters = StdioServerParameters(command=server["command"], args=server["args"])
            read, write = await stack.enter_async_context(stdio_client(parameters))
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            self._sessions[name] = session
        await self._list()

    async def _list(self) -> list[types.Tool]:
        exported = []
        for name, session in self._sessions.items():
            for tool in (await session.list_tools()).tools:
                exported_name = f"{name}_{tool.name}"
                self._routes[exported_name] = (session, tool.name)
                exported.append(tool.model_copy(update={"name": exported_name}))
        return exported

    async def on_list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await self._list())

    async def on_call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        session, name = self._routes[params.name]
        return await session.call_tool(name, params.arguments, progress_callback=context.session.report_progress)


async def serve(servers: dict[str, dict[str, Any]], port: int | None) -> None:
    upstreams = Upstreams()
    server: Server[Any] = Server(
        "bench-sdk",
        version="1",
        on_list_tools=upstreams.on_list_tools,
        on_call_tool=upstreams.on_call_tool,
    )
    async with AsyncExitStack() as stack:
        await upstreams.connect(stack, servers)
        if port is None:
            async with stdio_server() as (read, write):
                await server.run(read, write, server.create_initialization_options())
        else:
            app = server.streamable_http_app()
            await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", access_log=False)).serve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="JSON with `mcpServers`")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve HTTP on this port of 127.0.0.1")
    options = parser.parse_args()
    servers = json.loads(options.config.read_text())["mcpServers"]
    anyio.run(serve, servers, options.http)


if __name__ == "__main__":
    main()
