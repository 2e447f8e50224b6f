"""A server over stdio with methods of its own beside one tool: `acme_server.py NAME handshake|modern`.

* `acme/echo`: its params; `acme/seen`: every method and notification that came, with its params
* `acme/announce`: sends the notification `acme/changed` with its params, `tools/call` and a log message under their
  own names, and answers
* `acme/ask`: asks its client `acme/question`, and answers with the outcome
* `acme/hold`: is answered after the next `acme/free`, which announces first
"""

import json
import sys
from typing import Any

NAME, ERA = sys.argv[1:3]
EXTENSIONS = {"com.acme/things": {"of": NAME}, "io.modelcontextprotocol/secret": {}, "dev.mcp-hub/streams": {"x": 1}}
CAPABILITIES = {
    "tools": {},
    "acme": {"version": 1},
    "experimental": {"acme-trial": {}},
    "extensions": EXTENSIONS,
}
INFO = {"name": NAME, "version": "1"}
TOOL = {"name": "look", "inputSchema": {"type": "object"}}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def announce(params: dict[str, Any]) -> None:
    send(method="acme/changed", params=params)
    send(method="notifications/acme/changed", params=params)
    send(method="other/changed", params=params)


class Process:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.held: list[Any] = []
        self.asking: dict[Any, Any] = {}

    def take(self, message: dict[str, Any]) -> None:  # noqa: C901 - a method per case
        method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            outcome = {key: message[key] for key in ("result", "error") if key in message}
            self.answer(self.asking.pop(id_), {"outcome": outcome})
            return
        params.pop("_meta", None)
        self.seen.append([method, params])
        if id_ is None:
            return
        match method:
            case "initialize" | "server/discover" if (method == "initialize") != (ERA == "handshake"):
                send(id=id_, error={"code": -32601, "message": f"Method not found: {method}"})
            case "initialize":
                send(id=id_, result={"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO})
            case "server/discover":
                discovered = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
                self.answer(id_, {**discovered, "_meta": {"io.modelcontextprotocol/serverInfo": INFO}})
            case "tools/list":
                self.answer(id_, {"tools": [TOOL]})
            case "tools/call" | "acme/echo" | "TOOLS/call":
                self.answer(id_, {"content": [], "method": method, "params": params, "by": NAME, "huge": 1 << 70})
            case "acme/fail":
                send(id=id_, error={"code": 77, "message": "no", "data": {"x": [1]}})
            case "acme/seen":
                self.answer(id_, {"seen": self.seen})
            case "acme/announce":
                announce(params)
                self.answer(id_, {})
            case "acme/ask":
                self.asking["q1"] = id_
                send(id="q1", method=params.get("method", "acme/question"), params={"task": 1, "text": "?"})
            case "acme/hold":
                self.held.append(id_)
            case "acme/held":
                self.answer(id_, {"held": len(self.held)})
            case "acme/free":
                announce(params)
                self.answer(id_, {})
                for held in self.held:
                    self.answer(held, {"held": True})
                self.held = []
            case _:
                send(id=id_, error={"code": -32601, "message": f"Method not found: {method}"})

    def answer(self, id_: Any, result: dict[str, Any]) -> None:
        modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {}
        send(id=id_, result={**modern, **result})


def main() -> None:
    process = Process()
    for line in sys.stdin:
        process.take(json.loads(line))


if __name__ == "__main__":
    main()
