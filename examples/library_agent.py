"""A hub under an agent: `hub.connect()` is a client of the official SDK, which agent frameworks take.

    python examples/library_agent.py

A script stands for the model.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from mcp import Client
from mcp_types import TextContent, Tool

from mcp_hub import Hub, HubError

CONFIG = {"servers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}, "hub": {"expose": "full"}}


@dataclass(frozen=True)
class _ToolUse:
    """A call that the model wants."""

    name: str
    arguments: dict[str, object]


class _ScriptedModel:
    """Looks up the time once, then answers."""

    def step(self, messages: Sequence[str], tools: Sequence[Tool]) -> _ToolUse | str:
        """The next tool call, or the final answer."""
        if len(messages) == 1:
            (clock,) = [tool.name for tool in tools if tool.name.endswith("get_current_time")]
            return _ToolUse(clock, {"timezone": "Europe/Berlin"})
        return f"The tool says: {messages[-1]}"


async def answer(client: Client, model: _ScriptedModel, question: str) -> str:
    """The agent loop."""
    messages = [question]
    tools = (await client.list_tools()).tools
    while True:
        step = model.step(messages, tools)
        if isinstance(step, str):
            return step
        result = await client.call_tool(step.name, step.arguments)
        messages.append(" ".join(block.text for block in result.content if isinstance(block, TextContent)))


async def main() -> None:
    """Runs the agent loop once."""
    async with Hub.from_config(CONFIG) as hub, hub.connect() as client:
        await hub.list_tools()  # waits for the servers: the client only sees those that are ready
        print(await answer(client, _ScriptedModel(), "What time is it in Berlin?"))


if __name__ == "__main__":
    try:
        anyio.run(main)
    except HubError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")
