"""A server of the handshake era whose process ends within a call, after partial content: `dying_streams.py FILE`.

`report` can be made again, and the second call of a pair has its result; `FILE` says which one it is. `lost` cannot.
`asks` asks directly after its partial content, and returns.
It imports nothing that takes long to load: its calls wait for its start again and again.
"""

import json
import os
import sys
import time
from typing import Any

EXTENSION = "dev.mcp-hub/streams"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("report", "lost", "asks")]
TEXT = {"type": "text", "text": "the first line\n"}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def is_first(path: str) -> bool:
    """Of a pair of calls; the file outlives the process."""
    if os.path.exists(path):
        os.unlink(path)
        return False
    open(path, "x").close()
    return True


def call(params: dict[str, Any]) -> dict[str, Any]:
    event = {"seq": 2, "type": "delta", "data": {"channel": "content", "index": 0, "content": [TEXT]}}
    part = {"stream": f"st_{os.urandom(16).hex()}", "cursor": "2", "events": [event]}
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        progress = {"progressToken": token, "progress": 1, "_meta": {EXTENSION: part}}
        say({"method": "notifications/progress", "params": progress})
    if params["name"] == "asks":
        question = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        say({"id": "q", "method": "elicitation/create", "params": question})
        while json.loads(sys.stdin.readline()).get("id") != "q":
            pass
        return {"content": [TEXT]}
    if params["name"] == "lost" or is_first(sys.argv[1]):
        time.sleep(0.5)  # the hub has the event by then
        os._exit(1)
    return {"content": [TEXT]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "experimental": {EXTENSION: {}}}
            info = {"name": "dying", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return call(params)
        case "ping":
            return {}
    raise LookupError(method)


while line := sys.stdin.readline():
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    try:
        said: dict[str, Any] = {"result": answer(request["method"], request.get("params") or {})}
    except LookupError:
        said = {"error": {"code": -32601, "message": "Method not found"}}
    say({"id": request["id"], **said})
