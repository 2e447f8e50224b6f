"""An agent on OpenAI Chat Completions, or any API that is like it, that has the tools of a hub.

    python examples/openai_chat_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs OPENAI_API_KEY and `pip install openai`; OPENAI_BASE_URL is for other providers. The hub is at HUB_URL, with the
token HUB_TOKEN if it wants one.
"""

import os
import sys
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletion

MODEL = os.environ.get("MODEL", "gpt-5.5")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "openai"},
    timeout=90,
)


def call_tools(answer: ChatCompletion) -> list[Any]:
    """Makes all calls of the answer at once. Asks again while some still run: the key finds the same calls."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": answer.id, "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", content=answer.to_json(), headers=headers).raise_for_status()
        if response.status_code != 202:
            results: list[Any] = response.json()["messages"]
            return results


def run(question: str) -> None:
    """The loop: ask the model, call what it chose, give it the results."""
    model = openai.OpenAI()
    tools = hub.get("/v1/tools", headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        answer = model.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        message = answer.choices[0].message
        if message.content:
            print(message.content)
        if not message.tool_calls:
            return
        messages.append(message.to_dict())
        messages += call_tools(answer)


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
