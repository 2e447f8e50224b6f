"""A server built with the Python SDK, over HTTP: `sdk_server.py streamable|json|stateless|sse PORT JOURNAL`.

Prints its URL once it listens. What is cancelled is noted in the journal, and so is every `Authorization` that comes.
"""

import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

KIND, PORT, JOURNAL = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
server = MCPServer("remote", log_level="WARNING")


def note(what: str) -> None:
    with JOURNAL.open("a") as file:
        file.write(what + "\n")


@server.tool()
def echo(text: str) -> str:
    return text


@server.tool()
async def steps(n: int, ctx: Context) -> str:
    """Reports n steps."""
    for number in range(1, n + 1):
        await ctx.report_progress(number, n, f"step {number}")
    return "done"


@server.tool()
async def wait(name: str) -> str:
    """Waits until it is cancelled."""
    note(f"started {name}")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        note(f"cancelled {name}")
        raise
    return ""


@server.resource("note://one")
def one() -> str:
    return "a note"


@server.prompt()
def greet(name: str) -> str:
    return f"hello {name}"


class Noted:
    """Writes down who asks."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        found = dict(scope.get("headers", ())).get(b"authorization")
        if found is not None:
            note(f"authorization {found.decode()}")
        await self.app(scope, receive, send)


def app() -> tuple[Any, str]:
    if KIND == "sse":
        return server.sse_app(), "/sse"
    return server.streamable_http_app(json_response=KIND == "json", stateless_http=KIND == "stateless"), "/mcp"


async def main() -> None:
    made, path = app()
    config = uvicorn.Config(Noted(made), "127.0.0.1", PORT, log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(running.serve)
        while not running.started:  # noqa: ASYNC110 - uvicorn sets no event
            await anyio.sleep(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}{path}", file=sys.stderr, flush=True)


anyio.run(main)
