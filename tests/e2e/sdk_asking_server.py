"""A server built with the Python SDK over stdio, which speaks both eras and asks in the handshake era only.

`sdk_asking_server.py JOURNAL`: each start, with the pid, is noted in the journal.
"""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("asking", log_level="WARNING")


class Name(BaseModel):
    name: str


@server.tool()
async def greet(ctx: Context) -> str:
    """Asks for a name."""
    asked = await ctx.elicit("Who are you?", Name)
    return f"hello {asked.data.name}" if asked.action == "accept" else asked.action


@server.tool()
def version(ctx: Context) -> str:
    """The version of the protocol that the call came in."""
    return str(ctx.protocol_version)


def main() -> None:
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    server.run("stdio")


if __name__ == "__main__":
    main()
