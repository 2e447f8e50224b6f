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


class ToHub:
    """Sends to the hub, whatever the host of the URL is."""

    def __init__(self) -> None:
        self._http = SafeHttp(allow_insecure_for_tests=True)

    def check_url(self, url: str) -> None:
        self._http.check_url(url)

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        status, answer = self._http.post((FOLDER / "hub").read_text() + urlsplit(url).path, body, headers)
        return int(status), bytes(answer)


def publish(events: Any) -> None:
    for line in sys.stdin:
        queued = events.publish("ticket.updated", json.loads(line))
        print(json.dumps({"queued": queued, **events.deliver_pending()}), flush=True)


def main() -> None:
    server = MCPServer("tickets")
    definition = EventDefinition("ticket.updated", "A ticket was changed.", {"type": "object"}, SCHEMA)
    events = McpEvents(server, store=str(FOLDER / "events.sqlite3"), definitions=[definition], http=ToHub())
    events.install()
    threading.Thread(target=publish, args=(events,), daemon=True).start()
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="info")


main()
