"""Judge: a Python library as the client of a server, `judge.py LIBRARY MODE`, with the task on stdin.

The task names the command line, and how many definitions each list has, by the key of its result. With a count the
judge asks for each by itself (the cursor is its number), without one for the whole list. It prints, by key, why each
answer was refused, null where it was not.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

Asks = dict[str, Callable[[str | None], Awaitable[Any]]]


async def mcp_1(stack: AsyncExitStack, command: list[str], mode: str) -> Asks:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    read, write = await stack.enter_async_context(
        stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    )
    session: Any = await stack.enter_async_context(ClientSession(read, write))  # of another version than mypy sees
    await session.initialize()
    return {
        "tools": session.list_tools,
        "resources": session.list_resources,
        "resourceTemplates": session.list_resource_templates,
        "prompts": session.list_prompts,
    }


async def mcp_2(stack: AsyncExitStack, command: list[str], mode: str) -> Asks:
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(command=command[0], args=command[1:])
    client = await stack.enter_async_context(Client(server, mode=mode))

    def asking(method: Any) -> Callable[[str | None], Awaitable[Any]]:
        return lambda cursor: method(cursor=cursor)

    return {
        "tools": asking(client.list_tools),
        "resources": asking(client.list_resources),
        "resourceTemplates": asking(client.list_resource_templates),
        "prompts": asking(client.list_prompts),
    }


async def fastmcp(stack: AsyncExitStack, command: list[str], mode: str) -> Asks:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    options = {} if mode == "legacy" else {"mode": mode}
    client = Client(StdioTransport(command[0], command[1:], keep_alive=False), **options)
    await stack.enter_async_context(client)

    def asking(method: Any) -> Callable[[str | None], Awaitable[Any]]:
        return lambda cursor: method(cursor=cursor)

    return {
        "tools": asking(client.list_tools_mcp),
        "resources": asking(client.list_resources_mcp),
        "resourceTemplates": asking(client.list_resource_templates_mcp),
        "prompts": asking(client.list_prompts_mcp),
    }


async def verdict(ask: Callable[[str | None], Awaitable[Any]], cursor: str | None) -> str | None:
    try:
        async with asyncio.timeout(60):
            await ask(cursor)
    except Exception as refused:
        return f"{type(refused).__name__}: {refused}"[:400]
    return None


async def main(library: str, mode: str) -> None:
    task = json.load(sys.stdin)
    async with AsyncExitStack() as stack:
        asks = await {"mcp_1": mcp_1, "mcp_2": mcp_2, "fastmcp": fastmcp}[library](stack, task["command"], mode)
        verdicts: dict[str, list[str | None]] = {}
        for key, count in task["counts"].items():
            cursors = [None] if count is None else [str(number) for number in range(count)]
            verdicts[key] = [await verdict(asks[key], cursor) for cursor in cursors]
        print(json.dumps(verdicts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
