"""A web site on this machine, which has documents of strangers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

CARD: Final = "application/mcp-server-card+json"
CATALOG: Final = "application/ai-catalog+json"
WELL_KNOWN: Final = "/.well-known/ai-catalog.json"


class Site:
    """A web site on this machine; `answers` has status, type and body by path, `asked` the requests so far.

    After `hold` an answer waits until it is `free`; `came` says that a request is there.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.asked: list[tuple[str, str]] = []
        self.place = ""
        self.came, self.free = threading.Event(), threading.Event()
        self.free.set()

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def put(self, path: str, document: object, kind: str = CARD, status: int = 200) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.answers[path] = (status, kind, body)

    def catalog(self, *entries: object, **more: object) -> None:
        self.put(WELL_KNOWN, {"specVersion": "1.0", "entries": entries, **more}, CATALOG)

    def hold(self) -> None:
        self.came.clear()
        self.free.clear()

    def move(self, path: str, target: str, status: int = 302) -> None:
        self.put(path, b"", "text/html", status)
        self.headers[path] = {"location": target}


@contextmanager
def served() -> Iterator[Site]:
    made = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append((self.path, self.headers.get("accept", "")))
            made.came.set()
            made.free.wait(240)
            status, kind, body = made.answers.get(self.path, (404, "text/html", b"nothing"))
            self.send_response(status)
            for name, value in {"content-type": kind, **made.headers.get(self.path, {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.place = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield made
        server.shutdown()
        thread.join(10)
