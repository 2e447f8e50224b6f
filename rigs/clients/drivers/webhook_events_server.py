"""A server with events by another author: `mcp-webhook-events`, whose events come by webhook alone, over HTTP.

`webhook_events_server.py FOLDER PORT`. `FOLDER/hub` has the origin at which the hub is reached, in place of that of the
URLs. Each line on stdin is the data of an event, which is published and sent; what came of it is a line on stdout.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server import MCPServer
from mcp_webhook_events import EventDefinition, McpEvents, SafeHttp

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class ToHub(SafeHttp):
    """Sends to the hub, whatever the host of the URL is."""

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        return super().post((FOLDER / "hub").read_text() + urlsplit(url).path, body, headers)


def publish(events: Any) -> None:
    for line in sys.stdin:
        queued = events.publish("ticket.updated", json.loads(line))
        print(json.dumps({"queued": queued, **events.deliver_pending()}), flush=True)


def main() -> None:
    server = MCPServer("tickets")
    definition = EventDefinition("ticket.updated", "A ticket was changed.", {"type": "object"}, SCHEMA)
    http = ToHub(allow_insecure_for_tests=True)
    events = McpEvents(server, store=str(FOLDER / "events.sqlite3"), definitions=[definition], http=http)
    events.install()
    threading.Thread(target=publish, args=(events,), daemon=True).start()
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="info")


main()
