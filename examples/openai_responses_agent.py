"""An agent on the OpenAI Responses API that has the tools of a hub.

    python examples/openai_responses_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs OPENAI_API_KEY and `pip install openai`. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
"""

import os
import sys
from typing import Any

import httpx2
import openai
from openai.types.responses import Response

MODEL = os.environ.get("MODEL", "gpt-5.5")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "openai-responses"},
    timeout=90,
)


def call_tools(answer: Response) -> list[Any]:
    """Makes all calls of the answer at once. Asks again while some still run: the key finds the same calls."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": answer.id, "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", content=answer.to_json(), headers=headers).raise_for_status()
        if response.status_code != 202:
            results: list[Any] = response.json()["messages"]
            return results


def ask(model: openai.OpenAI, items: list[Any], tools: list[Any]) -> Response:
    """One answer of the model; its text is printed as it comes."""
    for event in model.responses.create(model=MODEL, input=items, tools=tools, stream=True):
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            print()
            return event.response
    raise ConnectionError("the stream ended in the middle")


def run(question: str) -> None:
    """The loop: ask the model, call what it chose, give it the results."""
    model = openai.OpenAI()
    tools = hub.get("/v1/tools", headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    items: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = ask(model, items, tools)
        if not any(item.type == "function_call" for item in answer.output):
            return
        items += [item.to_dict() for item in answer.output]  # reasoning goes back unchanged
        items += call_tools(answer)


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
