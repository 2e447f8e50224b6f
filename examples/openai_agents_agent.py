"""An agent of the OpenAI Agents SDK that has the tools of a hub, by the SDK's own MCP client.

    python examples/openai_agents_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs OPENAI_API_KEY and `pip install openai-agents`. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
"""

import os
import sys

import anyio
from agents import Agent, Runner
from agents.mcp import MCPServerStreamableHttp

MODEL = os.environ.get("MODEL", "gpt-5.5")
URL = os.environ.get("HUB_URL", "http://127.0.0.1:8765")
TOKEN = os.environ.get("HUB_TOKEN")
SECONDS = 120
"""For one call; the SDK's default is 5."""


async def run(question: str) -> None:
    """One session for all calls of the agent."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    params = {"url": f"{URL}/mcp", "headers": headers}
    async with MCPServerStreamableHttp(params=params, client_session_timeout_seconds=SECONDS) as hub:
        agent = Agent(name="helper", model=MODEL, mcp_servers=[hub])
        print((await Runner.run(agent, question)).final_output)


if __name__ == "__main__":
    anyio.run(run, " ".join(sys.argv[1:]))
