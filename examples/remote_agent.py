"""An agent with the tools of a remote MCP server: the hub runs inside the program, and nothing listens.

    python examples/remote_agent.py https://mcp.example.com/mcp "What can you do?"

MCP_TOKEN is the server's bearer token, if it wants one. `mcp_hub.formats` turns tools, calls and results into those of
the Anthropic API. Needs ANTHROPIC_API_KEY and `pip install anthropic`.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import anthropic
import anyio

from mcp_hub import Hub, HubError
from mcp_hub.formats.calls import error_result, read_calls, write_results
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.formats.tools import export

MODEL = os.environ.get("MODEL", "claude-sonnet-5-5")


async def call_tools(hub: Hub, calls: Sequence[ModelCall]) -> list[Any]:
    """Makes the calls at once; the messages that answer them. A failure is an error that the model sees."""
    results: dict[str, Any] = {}

    async def call_one(call: ModelCall) -> None:
        try:
            results[call.id] = json.loads(await hub.call_tool(call.name, call.arguments, raw=True))
        except HubError as problem:
            results[call.id] = error_result(str(problem))

    async with anyio.create_task_group() as tasks:
        for call in calls:
            if call.fault is None:
                tasks.start_soon(call_one, call)
    return write_results(calls, results, Format.ANTHROPIC)


async def run(url: str, question: str) -> None:
    """The loop: ask the model, call what it chose, give it the results."""
    server = {"url": url, **({"bearer": "${MCP_TOKEN}"} if "MCP_TOKEN" in os.environ else {})}
    model = anthropic.AsyncAnthropic()
    async with Hub.from_config({"servers": {"remote": server}}) as hub:
        listed = await hub.list_tools()
        definitions = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]
        tools: Any = export(definitions, Format.ANTHROPIC).body["tools"]
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            answer = await model.messages.create(model=MODEL, max_tokens=8000, tools=tools, messages=messages)
            print("".join(block.text for block in answer.content if block.type == "text"))
            calls = read_calls(answer, Format.ANTHROPIC, definitions)
            if not calls:
                return
            messages.append({"role": "assistant", "content": answer.content})
            messages += await call_tools(hub, calls)


if __name__ == "__main__":
    anyio.run(run, sys.argv[1], " ".join(sys.argv[2:]))
