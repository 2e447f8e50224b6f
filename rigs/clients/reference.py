"""A server over HTTP in both eras, built on the official Python SDK: what a client does without the hub.

Its tools answer as those of the fixture server, and so does its journal. It prints its URL to stderr.
"""

import argparse
import json
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext

from rigs.conformance.server.main import Events

TOOLS = ("echo", "progress", "wait_cancel", "big", "error", "tool_error")
RETRY_MS = 1000


class Tools:
    def __init__(self, journal: Path) -> None:
        self._journal = journal

    async def list(self, context: ServerRequestContext, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS])

    async def call(self, context: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments: dict[str, Any] = params.arguments or {}
        self._note(received={"method": "tools/call", "params": {"name": params.name, "arguments": arguments}})
        match params.name:
            case "echo":
                return _text(json.dumps(arguments), structured_content=arguments)
            case "progress":
                for i in range(1, arguments["n"] + 1):
                    await anyio.sleep(arguments.get("delay", 0))
                    await context.session.report_progress(i, arguments["n"])
                return _text(json.dumps({"n": arguments["n"]}))
            case "wait_cancel":
                try:
                    await anyio.sleep_forever()
                finally:
                    self._note(event="cancelled", nonce=arguments["nonce"])
            case "big":
                return _text("x" * arguments["bytes"])
            case "tool_error":
                return _text(arguments["text"], is_error=True)
        raise MCPError(arguments["code"], arguments["message"], arguments["data"])

    def _note(self, **record: Any) -> None:
        with self._journal.open("a") as file:
            file.write(json.dumps(record) + "\n")


def _text(text: str, **fields: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **fields)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    options = parser.parse_args()
    options.journal.touch()
    tools = Tools(options.journal)
    server: Server[Any] = Server(options.name, version="1", on_list_tools=tools.list, on_call_tool=tools.call)
    app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
