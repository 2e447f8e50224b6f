"""A module of tools: plain functions with `@tool`.

    servers:
      mine: {local: "mcp_hub.examples.tools"}

Run it alone: `python -m mcp_hub.examples.tools`.
"""

from collections.abc import AsyncIterator

import anyio

from mcp_hub import Hub, Progress, Result, tool


@tool(annotations={"readOnlyHint": True})
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(annotations={"readOnlyHint": True})
async def count_down(start: int = 3, pause: float = 0.2) -> AsyncIterator[Progress | str | Result]:
    """Count down to zero and report each step.

    Args:
        start: the first number
        pause: seconds between two numbers
    """
    for number in range(start, 0, -1):
        yield Progress(start - number + 1, total=start, message=f"{number} to go")
        yield f"{number} "
        await anyio.sleep(pause)
    yield Result({"started_at": start, "status": "lift-off"})


async def main() -> None:
    """Runs the example."""
    async with Hub.from_config({"servers": {"mine": {"local": "mcp_hub.examples.tools"}}}) as hub:
        for listed in await hub.list_tools():
            print(f"{listed.name}: {listed.description}")
        result = await hub.call_tool("mine_add", {"a": 1, "b": 2})
        print("1 + 2 =", result.content[0].model_dump()["text"])


if __name__ == "__main__":
    anyio.run(main)
