"""A server over stdio that knows no tasks: its calls last until the file that they name exists.

`slow_server.py FOLDER [SECONDS]`: a call says every so many seconds which step it is at. `FOLDER/calls` gets a line for
each call that begins or ends.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

FOLDER, STEP = Path(sys.argv[1]), float((*sys.argv[2:], "1")[0])
server = MCPServer("slow", log_level="WARNING")


class Consent(BaseModel):
    sure: bool


@server.tool()
async def build(target: str, ctx: Context) -> str:
    """Builds a target."""
    await _work(f"build {target}", ctx)
    return f"built {target}: 214 objects"


@server.tool()
async def deploy(target: str, ctx: Context) -> str:
    """Deploys a target once the user agrees."""
    await _work(f"deploy {target}", ctx)
    asked = await ctx.elicit(f"Deploy {target} to production?", Consent)
    return f"deployed {target}: {asked.action}"


@server.tool()
async def check(target: str, ctx: Context) -> str:
    """Checks a target, which fails."""
    await _work(f"check {target}", ctx)
    raise ValueError(f"{target} has 3 errors")


@server.tool()
async def crash(target: str, ctx: Context) -> str:
    """Ends the server in the middle of the call."""
    await _work(f"crash {target}", ctx)
    os._exit(3)


async def _work(call: str, ctx: Context) -> None:
    """Returns when the file is there."""
    _note(f"begin {call}")
    step = 0
    while not (FOLDER / call.split()[1]).exists():
        step += 1
        await ctx.report_progress(step, message=f"step {step}")
        await anyio.sleep(STEP)
    _note(f"end {call}")


def _note(line: str) -> None:
    with (FOLDER / "calls").open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    server.run("stdio")
