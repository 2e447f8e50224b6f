"""Hundreds of tools on the Anthropic API: the model finds those that it needs with the hub's search.

    python examples/anthropic_search.py "What time is it in Tokyo?"

All tools are sent with `defer_loading`, so that the model sees only the search tool at first. A search is answered with
references to tools, which the model can call then. Needs ANTHROPIC_API_KEY and `pip install anthropic`.
"""

import os
import sys
from typing import Any

import anthropic
import httpx2
from anthropic.types import Message, MessageParam, ToolUseBlock

MODEL = os.environ.get("MODEL", "claude-sonnet-5-5")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "anthropic"},
    timeout=90,
)


def find_tools(block: ToolUseBlock) -> Any:
    """The result block that answers a search."""
    return hub.post("/v1/search", json={"call": block.to_dict()}).raise_for_status().json()


def call_tools(blocks: list[ToolUseBlock], key: str) -> list[Any]:
    """Makes all calls at once; the result blocks. Asks again while some still run: the key finds the same calls."""
    headers = {"Idempotency-Key": key, "Prefer": "wait=60"}
    while True:
        body = [block.to_dict() for block in blocks]
        response = hub.post("/v1/tools/call", json=body, headers=headers).raise_for_status()
        if response.status_code != 202:
            results: list[Any] = response.json()["messages"][0]["content"]
            return results


def results_for(answer: Message, search: str) -> MessageParam:
    """One message with the result of each call in the answer."""
    blocks = [block for block in answer.content if block.type == "tool_use"]
    results = [find_tools(block) for block in blocks if block.name == search]
    others = [block for block in blocks if block.name != search]
    return {"role": "user", "content": results + (call_tools(others, answer.id) if others else [])}


def run(question: str) -> None:
    """The loop: ask the model, search or call what it chose, give it the results."""
    model = anthropic.Anthropic()
    tools = hub.get("/v1/tools", params={"defer": 1}, headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    search = tools[0]["name"]  # the only one that is not deferred
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    while True:
        answer = model.messages.create(model=MODEL, max_tokens=8000, tools=tools, messages=messages)
        for block in answer.content:
            if block.type == "text":
                print(block.text)
            elif block.type == "tool_use":
                print(f"> {block.name} {block.input}")
        if answer.stop_reason != "tool_use":
            return
        messages.append({"role": "assistant", "content": answer.content})
        messages.append(results_for(answer, search))


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
