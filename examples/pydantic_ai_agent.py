"""An agent of Pydantic AI that starts a hub as its one MCP server, over stdio, by Pydantic AI's own MCP client.

    python examples/pydantic_ai_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs OPENAI_API_KEY, `pip install 'pydantic-ai-slim[mcp,openai]'` and the command `mcp-hub`. HUB_CONFIG names the file
of servers.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

MODEL = os.environ.get("MODEL", "openai-chat:gpt-5.5")
CONFIG = os.environ.get("HUB_CONFIG", str(Path(__file__).with_name("servers.yaml")))


async def run(question: str) -> None:
    """The hub runs as long as the agent is in use."""
    command = StdioTransport("mcp-hub", ["serve", "--config", CONFIG], env=dict(os.environ))
    hub: MCPToolset[Any] = MCPToolset(command, init_timeout=30)
    agent: Agent[None, str] = Agent(MODEL, toolsets=[hub])
    async with agent:
        print((await agent.run(question)).output)


if __name__ == "__main__":
    anyio.run(run, " ".join(sys.argv[1:]))
