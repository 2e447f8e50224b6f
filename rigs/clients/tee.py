"""Records what a client and the hub send each other: over a pipe as a program between them, over HTTP as a proxy.

`python -m rigs.clients.tee FILE COMMAND…` runs COMMAND on its own stdin and stdout, and appends every line of both
sides to FILE before it passes the line on.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Final
from urllib.parse import urlsplit

import msgspec

from rigs.clients.transcripts import Sent

_HEADERS: Final = ("accept", "content-type", "last-event-id")
"""Headers of a request that are recorded beside those whose name begins with `mcp`."""
_NOT_PASSED: Final = ("connection", "content-length", "host", "transfer-encoding")


class Recorder:
    """A file that several threads append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def add(self, sent: Sent) -> None:
        with self._lock, self._path.open("ab") as file:
            file.write(msgspec.json.encode(sent) + b"\n")


def recorded(path: Path) -> list[Sent]:
    """All that was recorded so far."""
    lines = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []  # the last may be half there
    return [msgspec.json.decode(line, type=Sent) for line in lines]


@contextmanager
def http_tee(url: str, path: Path) -> Iterator[str]:
    """The URL of a proxy in front of `url` while the block lasts. It closes each connection after its answer."""
    recorder, port = Recorder(path), urlsplit(url).port

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            kept = {name: value for name, value in headers.items() if name.startswith("mcp") or name in _HEADERS}
            recorder.add(Sent("client", f"{self.command} {self.path}", kept, line=body.decode()))
            upstream = HTTPConnection("127.0.0.1", port)
            passed = {name: value for name, value in headers.items() if name not in _NOT_PASSED}
            try:
                upstream.request(self.command, self.path, body or None, passed)
                answer = upstream.getresponse()
            except OSError:
                self.close_connection = True  # nobody listens there, or not any more
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _NOT_PASSED:
                    self.send_header(name, value)
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for part in _parts(answer, recorder):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                pass  # the client does not listen any more
            finally:
                upstream.close()

        do_GET = do_POST = do_DELETE = _pass

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}{urlsplit(url).path}"
        server.shutdown()


def _parts(answer: HTTPResponse, recorder: Recorder) -> Iterator[bytes]:
    """The body, recorded before it is passed on: as a whole, or event by event."""
    if answer.getheader("content-type", "").startswith("text/event-stream"):
        while line := answer.readline():
            if line.startswith(b"data: {"):
                recorder.add(Sent("hub", status=answer.status, line=line.decode().removeprefix("data: ").rstrip()))
            yield line
    else:
        body = answer.read()
        recorder.add(Sent("hub", status=answer.status, line=body.decode().rstrip()))
        yield body


def main() -> int:
    path, *command = sys.argv[1:]
    recorder = Recorder(Path(path))

    def pump(side: str, source: IO[bytes], to: IO[bytes]) -> None:
        for line in source:
            recorder.add(Sent(side, line=line.decode().removesuffix("\n")))
            to.write(line)
            to.flush()
        to.close()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hub:
        assert hub.stdin and hub.stdout
        threading.Thread(target=pump, args=("client", sys.stdin.buffer, hub.stdin), daemon=True).start()
        pump("hub", hub.stdout, sys.stdout.buffer)
    return hub.returncode


if __name__ == "__main__":
    sys.exit(main())
