"""A server on stdio whose results are far too long for a model, and what they are; standard library only, 2025-11-25.

A call with the argument `gate` says that it has begun, and is answered once the file of that name is there.
"""

import base64
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

SERVER = __file__
LOG = "log://all"
IMAGE = 20_000_000
ROWS = 100_000

Json = dict[str, Any]


@cache
def log(size: int) -> str:
    """Lines that are all different, of so many bytes in UTF-8 and at most 64 more."""
    lines: list[str] = []
    while size > 0:
        lines.append(f"{len(lines):08d} {'ERROR' if len(lines) % 1000 == 999 else 'info'} the fox über the 狐\n")
        size -= len(lines[-1].encode())
    return "".join(lines)


@cache
def records() -> str:
    """An array of `ROWS` objects, as JSON."""
    return json.dumps([{"id": n, "name": f"row {n}", "even": n % 2 == 0} for n in range(ROWS)], separators=(",", ":"))


@cache
def structured() -> str:
    """A JSON object of half a megabyte."""
    return json.dumps({"kind": "table", "rows": json.loads(records())[:10_000]}, separators=(",", ":"))


@cache
def image() -> str:
    return base64.b64encode(bytes(range(250)) * (IMAGE // 250)).decode()


def text_of(text: str, **members: Any) -> Json:
    return {"content": [{"type": "text", "text": text}], **members}


def _structured() -> Json:
    return text_of(structured(), structuredContent=json.loads(structured()))


def _image() -> Json:
    block = {"type": "image", "mimeType": "image/png", "data": image(), "_meta": {"own": 1}}
    return {"content": [{"type": "text", "text": "see:"}, block]}


TOOLS: dict[str, Callable[[], Json]] = {
    "log": lambda: text_of(log(5_000_000), _meta={"its": "own"}),
    "records": lambda: text_of(records()),
    "image": _image,
    "fails": lambda: text_of("it broke:\n" + log(400_000), isError=True),
    "structured": _structured,
    "unlisted": _structured,
    "short": lambda: text_of("short"),
}


def result_of(tool: str) -> Json:
    """What the tool answers."""
    return TOOLS[tool]()


def contents() -> Json:
    """Of the resource."""
    return {"contents": [{"uri": LOG, "mimeType": "text/plain", "text": log(3_000_000)}]}


def definitions() -> list[Json]:
    schema = {"type": "object", "properties": {"gate": {"type": "string"}}}
    tools: list[Json] = [{"name": name, "description": f"Says {name}.", "inputSchema": schema} for name in TOOLS]
    for tool in tools:
        if tool["name"] == "structured":
            tool["outputSchema"] = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
    return tools


def answer(method: str, params: Json) -> Json | None:
    match method:
        case "initialize":
            offered: dict[str, object] = {"tools": {}, "resources": {}}
            info = {"name": "large", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": offered, "serverInfo": info}
        case "tools/list":
            return {"tools": definitions()}
        case "resources/list":
            return {"resources": [{"uri": LOG, "name": "log"}]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return contents()
        case "tools/call":
            return result_of(params["name"])
        case "ping":
            return {}
    return None


class Pipe:
    """Stdout, one message at a time, from any thread."""

    def __init__(self) -> None:
        self._turn = threading.Lock()

    def send(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        with self._turn:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    def serve(self, message: Json) -> None:
        params = message.get("params") or {}
        gate = params.get("arguments", {}).get("gate")
        if gate and "progressToken" in params.get("_meta", {}):
            begun = {"progressToken": params["_meta"]["progressToken"], "progress": 1}
            self.send({"method": "notifications/progress", "params": begun})
        while gate and not Path(gate).exists():
            time.sleep(0.01)
        result = answer(message["method"], params)
        wrong = {"code": -32601, "message": "Method not found"}
        self.send({"id": message["id"], **({"error": wrong} if result is None else {"result": result})})


def main() -> None:
    pipe = Pipe()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=pipe.serve, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
