"""An MCP server over stdio that streams, but sends the events of a call as its arguments say.

`sent`: their numbers in order, with repeats and gaps; `reads`: what `streams.read` gives, "log", "hole", "nothing" or
"dies".
"""

import json
import os
import sys
from typing import Any

STREAMS = "dev.mcp-hub/streams"
WORDS = "one two three four five six".split()


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def delta(seq: int) -> dict[str, Any]:
    block = {"type": "text", "text": f"{WORDS[seq - 2]} "}
    return {"seq": seq, "type": "delta", "data": {"channel": "content", "index": 0, "content": [block]}}


END = {"seq": len(WORDS) + 2, "type": "end", "data": {"outcome": "ok", "result": {"content": []}}}
LOG = [*map(delta, range(2, len(WORDS) + 2)), END]
RESULT = {"content": [{"type": "text", "text": " ".join(WORDS)}]}


class Server:
    """The arguments of the newest call say how its stream is read."""

    reads = "log"

    def handle(self, method: str, id_: Any, params: dict[str, Any]) -> None:
        match method:
            case "initialize":
                extension: dict[str, Any] = {"extensions": {STREAMS: {}}, "experimental": {STREAMS: {}}}
                info = {"name": "skipping", "version": "1"}
                capabilities = {"tools": {}, **extension}
                say(id=id_, result={"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
            case "tools/list":
                say(id=id_, result={"tools": [{"name": "words", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                self.call(id_, params)
            case "dev.mcp-hub/streams.read":
                self.read(id_, int(params["cursor"]))
            case _:
                say(id=id_, error={"code": -32601, "message": "Method not found"})

    def call(self, id_: Any, params: dict[str, Any]) -> None:
        self.reads = params["arguments"]["reads"]
        for number, seq in enumerate(params["arguments"]["sent"]):
            part = {"stream": "st_theirs", "cursor": str(seq), "events": [delta(seq)]}
            shown = {"progressToken": params["_meta"]["progressToken"], "progress": number, "_meta": {STREAMS: part}}
            say(method="notifications/progress", params=shown)
        mark = {"stream": "st_theirs", "cursor": str(END["seq"]), "status": "completed"}
        say(id=id_, result={**RESULT, "_meta": {STREAMS: mark}})

    def read(self, id_: Any, cursor: int) -> None:
        if self.reads == "dies":
            os._exit(3)
        if self.reads == "nothing":
            say(id=id_, error={"code": -32602, "message": "Unknown stream", "data": {"code": "unknown_stream"}})
            return
        events = [event for event in LOG if event["seq"] > cursor]
        kept = events[1:] if self.reads == "hole" else events[:3]
        shown = [{"v": 1, "stream": "st_theirs", "ts": "2026-11-20T11:02:03.412Z", **event} for event in kept]
        last = kept[-1]["seq"]
        page = {"events": shown, "cursor": str(last), "truncated": False, "closed": last == END["seq"]}
        say(id=id_, result=page)


if __name__ == "__main__":
    server = Server()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            server.handle(message["method"], message["id"], message.get("params", {}))
