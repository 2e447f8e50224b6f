"""An authorization server for tests, as far as a resource server sees one: a key set by HTTP, and tokens."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.fronts.oauth_tokens import jwk, rsa_key, token


class FakeIssuer:
    """Key sets at `/<name>/keys`, one for each issuer `url/<name>`; `broken` ones answer with 500."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        self.url = url
        # made now: threads that each made a key of the same name would have two
        self._keys = {name: rsa_key(name) for name in names}
        self.broken: set[str] = set()
        self.reads: list[str] = []

    def name(self, who: str = "one") -> str:
        return f"{self.url}/{who}"

    def keys(self, who: str) -> bytes:
        return json.dumps({"keys": [jwk(self._keys[who], "key")]}).encode()

    def settings(self, who: str = "one", **more: Any) -> dict[str, Any]:
        return {"issuer": self.name(who), "jwks_url": f"{self.name(who)}/keys", **more}

    def token(self, resource: str, who: str = "one", **changed: Any) -> str:
        """A good token for ten minutes, but for what is `changed`."""
        said = {"iss": self.name(who), "aud": resource, "sub": "alice", "exp": time.time() + 600, "scope": "mcp"}
        return token({**said, **changed}, self._keys[who], kid="key").decode()


@contextmanager
def running_issuer(*names: str) -> Iterator[FakeIssuer]:
    """Serves the keys of these issuers on a free port of 127.0.0.1."""
    found: list[FakeIssuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer, who = found[0], self.path.split("/")[1]
            issuer.reads.append(who)
            body = b"" if who in issuer.broken else issuer.keys(who)
            self.send_response(200 if body else 500)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.append(FakeIssuer(f"http://127.0.0.1:{server.server_port}", names))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
