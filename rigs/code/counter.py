"""A server that counts: `add` writes a line to a file, `look` says how many lines a key has; both take a moment.

The lines outlive the server: `python -m rigs.code.counter FILE`. Each is one write at the end of the file.
"""

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MOST = 0.04
"""Seconds before the line, and after it."""
_KEY: dict[str, Any] = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
_COUNT = {"type": "object", "properties": {"key": {"type": "string"}, "count": {"type": "integer"}}}
_TOOLS = [
    {
        "name": "add",
        "description": "Add one to the count of a key",
        "inputSchema": _KEY,
        "outputSchema": {**_COUNT, "required": ["key", "count"]},
        "annotations": {"readOnlyHint": False},
    },
    {
        "name": "look",
        "description": "The count of a key",
        "inputSchema": _KEY,
        "outputSchema": {**_COUNT, "required": ["key", "count"]},
        "annotations": {"readOnlyHint": True},
    },
]


def counts(file: Path) -> dict[str, int]:
    """How many lines each key has."""
    found: dict[str, int] = {}
    for key in file.read_text().split() if file.exists() else ():
        found[key] = found.get(key, 0) + 1
    return found


async def _called(file: Path, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    key = str(arguments["key"])
    await asyncio.sleep(random.uniform(0, _MOST))
    if name == "add":
        end = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(end, f"{key}\n".encode())
        os.close(end)
    await asyncio.sleep(random.uniform(0, _MOST))
    outcome = {"key": key, "count": counts(file).get(key, 0)}
    return {"content": [{"type": "text", "text": json.dumps(outcome)}], "structuredContent": outcome}


async def _result(file: Path, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "counter", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": _TOOLS}
    if method == "tools/call":
        return await _called(file, params["name"], params.get("arguments") or {})
    return {} if method == "ping" else None


async def _answer(file: Path, message: dict[str, Any], write: Callable[[str], None]) -> None:
    result = await _result(file, message["method"], message.get("params") or {})
    body = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}))


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve(file: Path) -> None:
    """Answers on stdin and stdout until stdin ends."""
    reader = asyncio.StreamReader(limit=1 << 22)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as tasks:
        while line := await reader.readline():
            message = json.loads(line)
            if "id" in message and "method" in message:
                tasks.create_task(_answer(file, message, _write))


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
