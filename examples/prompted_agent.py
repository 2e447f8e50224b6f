"""An agent on a model that only writes text: the hub describes the tools, reads the text and makes the calls in it.

    python examples/prompted_agent.py "What is 17.5 + 24.5?"

The model is behind any API like Chat Completions (llama.cpp, vLLM, Ollama): OPENAI_BASE_URL, OPENAI_API_KEY, MODEL.
FORMAT is how it writes calls (docs/prompted.md). The text goes to the hub while the model writes it, so a call begins
as soon as it is complete. Needs `pip install openai`.
"""

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import openai

MODEL = os.environ.get("MODEL", "local")
FORMAT = os.environ.get("FORMAT", "hermes")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {"X-MCP-Hub": "1"},
    params={"format": FORMAT},
    timeout=None,
)


def written(model: openai.OpenAI, messages: list[Any]) -> Iterator[str]:
    """The pieces of the model's answer as they come."""
    for chunk in model.chat.completions.create(model=MODEL, messages=messages, stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


def read(pieces: Iterator[str]) -> tuple[str, list[str]]:
    """Sends the pieces to the hub; the whole text, and the results of its calls as texts for the next turn."""
    whole: list[str] = []

    def body() -> Iterator[bytes]:
        for piece in pieces:
            whole.append(piece)
            yield piece.encode()

    headers = {"Content-Type": "text/plain", "Accept": "text/event-stream"}
    kind, results = "", list[str]()
    with hub.stream("POST", "/v1/prompted", params={"call": 1}, content=body(), headers=headers) as response:
        for line in response.raise_for_status().iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                kind = value
            elif field == "data" and kind == "output":
                event = json.loads(value)
                print(event["delta"] if event["type"] == "text" else "", end="", flush=True)
            elif field == "data" and kind == "closed":
                results = [message["text"] for message in json.loads(value)["messages"]]
    print()
    return "".join(whole), results


def run(question: str) -> None:
    """The loop: ask the model, let the hub read what it wrote, give it the results."""
    model = openai.OpenAI()
    section = hub.get("/v1/prompted").raise_for_status().json()["section"]
    messages: list[Any] = [{"role": "system", "content": section}, {"role": "user", "content": question}]
    while True:
        text, results = read(written(model, messages))
        if not results:
            return
        messages.append({"role": "assistant", "content": text})
        messages.append({"role": "user", "content": "\n".join(results)})


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
