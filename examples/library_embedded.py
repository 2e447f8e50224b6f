"""A hub inside a Starlette application: `python examples/library_embedded.py [port]`.

MCP is at http://127.0.0.1:8000/hub/mcp, REST at http://127.0.0.1:8000/hub/v1.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from mcp_hub import Hub

CONFIG: Final[Mapping[str, object]] = {"servers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}


def application(config: str | Mapping[str, object]) -> Starlette:
    """The hub runs as long as the application."""
    hub = Hub.from_config(config)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with hub:
            yield

    async def time(request: Request) -> JSONResponse:
        zone = request.path_params["zone"]
        result = await hub.call_tool("time_get_current_time", {"timezone": zone})
        return JSONResponse({"error": result.is_error, "text": result.content[0].model_dump()["text"]})

    return Starlette(routes=[Route("/time/{zone:path}", time), Mount("/hub", hub.asgi())], lifespan=lifespan)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    # event streams of clients stay open: without a bound the server would wait for them when it shuts down
    uvicorn.run(application(CONFIG), host="127.0.0.1", port=port, timeout_graceful_shutdown=2)
