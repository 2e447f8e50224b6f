"""An agent of LangChain that has the tools of a hub, by LangChain's own MCP client.

    python examples/langchain_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs OPENAI_API_KEY and `pip install langchain-mcp-adapters 'langchain[openai]'`, in an environment of its own: the
adapters need version 1 of `mcp`, the hub version 2. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
"""

import os
import sys
from typing import Any

import anyio
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient

MODEL = os.environ.get("MODEL", "openai:gpt-5.5")
URL = os.environ.get("HUB_URL", "http://127.0.0.1:8765")
TOKEN = os.environ.get("HUB_TOKEN")


async def run(question: str) -> None:
    """Each call opens a session of its own; the tools are listed once."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    hub: Any = {"transport": "streamable_http", "url": f"{URL}/mcp", "headers": headers}
    tools = await MultiServerMCPClient({"hub": hub}).get_tools()
    agent = create_agent(MODEL, tools)
    answer = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})
    print(answer["messages"][-1].text)


if __name__ == "__main__":
    anyio.run(run, " ".join(sys.argv[1:]))
