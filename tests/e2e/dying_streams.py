"""A server whose process ends within a call, after partial content: `dying_streams.py FILE`.

`report` can be made again, and the second call of a pair has its result; `FILE` says which one it is. `lost` cannot.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server

from examples.streaming.server import EXTENSION, Context, EventLog, StreamingServer, _delta, _Sender, over_stdio

DIED = Path(sys.argv[1])


def is_first() -> bool:
    """Of a pair of calls; the file outlives the process."""
    if DIED.exists():
        DIED.unlink()
        return False
    DIED.touch()
    return True


class Dying(StreamingServer):
    def make(self) -> Server[Any]:
        server: Server[Any] = Server("dying", version="1", on_list_tools=self._list, on_call_tool=self._call)
        server.extensions[EXTENSION] = {}
        return server

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        safe = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
        schema = {"type": "object"}
        return types.ListToolsResult(
            tools=[
                types.Tool(name="report", input_schema=schema, annotations=safe),
                types.Tool(name="lost", input_schema=schema),
            ]
        )

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        sender = _Sender(context, EventLog(params.name, "{}"))
        await sender.emit("delta", _delta("the first line\n"), "the first line")
        if params.name == "lost" or is_first():
            await anyio.sleep(0.3)  # what was written has left the process
            os._exit(1)
        return types.CallToolResult(content=[types.TextContent(type="text", text="the first line\n")])


if __name__ == "__main__":
    anyio.run(over_stdio, Dying().make())
