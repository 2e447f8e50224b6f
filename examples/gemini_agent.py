"""An agent on the Gemini API that has the tools of a hub.

    python examples/gemini_agent.py "What is 17.5 + 24.5, and what time is it in Tokyo?"

Needs GEMINI_API_KEY and `pip install google-genai`. The hub is at HUB_URL, with the token HUB_TOKEN if it wants one.
"""

import os
import sys
from uuid import uuid4

import httpx2
from google import genai
from google.genai import types

MODEL = os.environ.get("MODEL", "gemini-3.8-flash")
TOKEN = os.environ.get("HUB_TOKEN")

hub = httpx2.Client(
    base_url=os.environ.get("HUB_URL", "http://127.0.0.1:8765"),
    headers={"Authorization": f"Bearer {TOKEN}"} if TOKEN else {},
    params={"format": "gemini"},
    timeout=90,
)


def call_tools(content: types.Content, key: str) -> list[types.Content]:
    """Makes all calls of the content at once. Asks again while some still run: the key finds the same calls."""
    body = content.model_dump_json(by_alias=True, exclude_none=True)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", content=body, headers=headers).raise_for_status()
        if response.status_code != 202:
            return [types.Content.model_validate(message) for message in response.json()["messages"]]


def run(question: str) -> None:
    """The loop: ask the model, call what it chose, give it the results."""
    model = genai.Client()
    tools = hub.get("/v1/tools", headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    config = types.GenerateContentConfig(tools=[types.Tool.model_validate(tool) for tool in tools])
    contents = [types.Content(role="user", parts=[types.Part(text=question)])]
    while True:
        answer = model.models.generate_content(model=MODEL, contents=list(contents), config=config)
        content = (answer.candidates and answer.candidates[0].content) or types.Content()
        for part in content.parts or []:
            if part.text and not part.thought:
                print(part.text)
        if not answer.function_calls:
            return
        contents.append(content)  # its thought signatures go back unchanged
        contents += call_tools(content, str(uuid4()))


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
