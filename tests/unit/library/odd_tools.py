"""Tools for the tests of the library, found by their module alone."""

from collections.abc import AsyncIterator

import anyio

from mcp_hub import Result, ToolCall, ToolResult, tool

begun = anyio.Event()
ended = anyio.Event()


@tool
def block() -> Result:
    """Give a content block that the protocol does not have."""
    return Result(content=[{"type": "hologram", "data": "x"}])


@tool
async def ask_agent() -> AsyncIterator[str | ToolCall | ToolResult]:
    """Answer with the help of another tool."""
    yield ToolCall.of("c1", "search", {"query": "tides"})
    yield ToolResult.of("c1", "3 pages")
    yield "High at noon."


@tool
async def endless() -> None:
    """Wait until somebody cancels the call."""
    begun.set()
    try:
        await anyio.sleep_forever()
    finally:
        ended.set()
