"""Hundreds of tools on the OpenAI Responses API: the model finds those that it needs with the hub's search.

    python examples/openai_search.py "What time is it in Tokyo?"

All tools are sent with `defer_loading`, behind a tool `tool_search` that the client executes: the hub answers with the
definitions that fit, which the model can call then. Needs OPENAI_API_KEY and `pip install openai`.
"""

import os
import sys
from typing import Any

import httpx2
import openai

MODEL = os.environ.get("MODEL", "gpt-5.5")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "openai-responses"},
    timeout=90,
)


def find_tools(item: dict[str, Any]) -> Any:
    """The item `tool_search_output` that answers a search."""
    return hub.post("/v1/search", json={"call": item}).raise_for_status().json()


def call_tools(items: list[dict[str, Any]], key: str) -> list[Any]:
    """Makes all calls at once. Asks again while some still run: the key finds the same calls."""
    headers = {"Idempotency-Key": key, "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", json=items, headers=headers).raise_for_status()
        if response.status_code != 202:
            results: list[Any] = response.json()["messages"]
            return results


def run(question: str) -> None:
    """The loop: ask the model, search or call what it chose, give it the results."""
    model = openai.OpenAI()
    tools = hub.get("/v1/tools", params={"defer": 1}, headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    items: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = model.responses.create(model=MODEL, input=items, tools=tools)
        print(answer.output_text)
        output = [item.to_dict() for item in answer.output]
        items += output  # reasoning goes back unchanged
        searches = [item for item in output if item["type"] == "tool_search_call"]
        calls = [item for item in output if item["type"] == "function_call"]
        for item in searches:
            print("> search", item["arguments"])
            items.append(find_tools(item))
        for item in calls:
            print(">", item["name"], item["arguments"])
        if calls:
            items += call_tools(calls, answer.id)
        if not searches and not calls:
            return


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
