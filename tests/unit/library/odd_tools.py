"""Tools for the tests of the library, found by their module alone."""

import anyio

from mcp_hub import Result, tool

begun = anyio.Event()
ended = anyio.Event()


@tool
def block() -> Result:
    """Give a content block that the protocol does not have."""
    return Result(content=[{"type": "hologram", "data": "x"}])


@tool
async def endless() -> None:
    """Wait until somebody cancels the call."""
    begun.set()
    try:
        await anyio.sleep_forever()
    finally:
        ended.set()
