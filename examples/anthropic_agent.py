"""An agent on the Anthropic API that has the tools of a hub.

    python examples/anthropic_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs ANTHROPIC_API_KEY and `pip install anthropic`. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
"""

import os
import sys

import anthropic
import httpx2
from anthropic.types import Message, MessageParam

MODEL = os.environ.get("MODEL", "claude-sonnet-5-5")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "anthropic"},
    timeout=90,
)


def call_tools(answer: Message) -> list[MessageParam]:
    """Makes all calls of the answer at once. Asks again while some still run: the key finds the same calls."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": answer.id, "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", content=answer.to_json(), headers=headers).raise_for_status()
        if response.status_code != 202:
            results: list[MessageParam] = response.json()["messages"]
            return results


def run(question: str) -> None:
    """The loop: ask the model, call what it chose, give it the results."""
    model = anthropic.Anthropic()
    tools = hub.get("/v1/tools", headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    messages: list[MessageParam] = [{"role": "user", "content": question}]
    while True:
        with model.messages.stream(model=MODEL, max_tokens=8000, tools=tools, messages=messages) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            answer = stream.get_final_message()
        print()
        if answer.stop_reason != "tool_use":
            return
        messages.append({"role": "assistant", "content": answer.content})
        messages += call_tools(answer)


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
