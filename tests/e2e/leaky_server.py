"""An MCP server over stdio that gives its secrets away on stderr, as noise, in errors, as it ends.

`leaky_server.py MODE`: `start` ends at once, `refuse` and `list` answer `initialize` or lists with an error, `serve`
ends in the middle of a call, `tell` answers calls with all of it, and their arguments.
"""

import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit

LEAKS = [value for name, value in sorted(os.environ.items()) if name.startswith("LEAK_")]
SECRETS = " ".join([*LEAKS, *(urlsplit(value).password or "" for value in LEAKS if "://" in value)])
LEAKED = f"leaking: {SECRETS} {' '.join(sys.argv[2:])} {json.dumps(dict(os.environ))}"


def answer(id_: Any, **said: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": id_, **said}), flush=True)


def leak() -> None:
    for line in (LEAKED, f"Authorization: Bearer {SECRETS}", f"?api_key={SECRETS}"):
        print(line, file=sys.stderr, flush=True)


def handle(mode: str, message: dict[str, Any]) -> None:
    id_, method = message.get("id"), message.get("method", "")
    if id_ is None:
        return
    failed = {"code": -32603, "message": LEAKED, "data": {"env": LEAKED}}
    match method:
        case "initialize" if mode == "refuse":
            answer(id_, error=failed)
        case "initialize":
            info = {"name": "leaky", "version": "1"}
            capabilities: dict[str, object] = {"tools": {}, "resources": {}}
            answer(id_, result={"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
        case "tools/list" if mode == "list":
            answer(id_, error=failed)
        case "tools/list":
            answer(id_, result={"tools": [{"name": "end", "inputSchema": {"type": "object"}}]})
        case "tools/call" if mode == "tell":
            text = f"{LEAKED} {json.dumps(message['params'])}"
            answer(id_, result={"content": [{"type": "text", "text": text}], "structuredContent": {"said": LEAKED}})
        case "tools/call":
            leak()
            os._exit(4)
        case "resources/list":
            answer(id_, error=failed)
        case _:
            answer(id_, error={"code": -32601, "message": "Method not found"})


def main(mode: str) -> None:
    leak()
    if mode == "start":
        sys.exit(3)
    print(LEAKED, flush=True)
    print("x" * 170 + SECRETS, flush=True)  # cut short at 200, in the middle of one
    for line in sys.stdin:
        handle(mode, json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
