"""An agent whose tools answer with images: the model sees them, and the program writes them to files.

    python examples/image_agent.py "Draw a chart of 3, 1 and 2, and tell me what it looks like."

Images of a tool become what the provider takes; here the Gemini API, which has them in the parts of a function's
response. Needs GEMINI_API_KEY and `pip install google-genai`.
"""

import os
import sys
from pathlib import Path
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


def call_tools(content: types.Content) -> types.Content:
    """Makes all calls of the content at once. Asks again while some still run: the key finds the same calls."""
    body = content.model_dump_json(by_alias=True, exclude_none=True)
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid4()), "Prefer": "wait=60"}
    while True:
        response = hub.post("/v1/tools/call", content=body, headers=headers).raise_for_status()
        if response.status_code != 202:
            return types.Content.model_validate(response.json()["messages"][0])


def save_images(results: types.Content) -> None:
    """Writes image-1.png and so on to the current directory."""
    responses = [part.function_response for part in results.parts or [] if part.function_response]
    blobs = [part.inline_data for response in responses for part in response.parts or [] if part.inline_data]
    for number, blob in enumerate(blobs, 1):
        path = Path(f"image-{number}.{(blob.mime_type or '').rpartition('/')[2]}")
        path.write_bytes(blob.data or b"")
        print(f"> wrote {path}")


def run(question: str) -> None:
    """The loop: ask the model, call what it chose, save the images, give the model the results."""
    model = genai.Client()
    tools = hub.get("/v1/tools", headers={"Prefer": "wait=30"}).raise_for_status().json()["tools"]
    config = types.GenerateContentConfig(tools=[types.Tool.model_validate(tool) for tool in tools])
    contents = [types.Content(role="user", parts=[types.Part(text=question)])]
    while True:
        answer = model.models.generate_content(model=MODEL, contents=list(contents), config=config)
        if not answer.function_calls or not answer.candidates or not answer.candidates[0].content:
            print(answer.text)
            return
        contents += [answer.candidates[0].content, call_tools(answer.candidates[0].content)]
        save_images(contents[-1])


if __name__ == "__main__":
    run(" ".join(sys.argv[1:]))
