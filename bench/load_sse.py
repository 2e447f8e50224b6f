"""The load generator for HTTP+SSE, the transport before Streamable HTTP: answers come over one event stream.

Requests are POSTs over one connection, sent without waiting for the `202` of the one before; what it answers is read
and looked at for other statuses. The handshake era only.
"""

import os
import select
import socket
import time
from collections.abc import Iterator

from bench.ledger import Call, RelayFailed, Stats
from bench.load import SILENCE, PipeClient
from bench.load_http import IDLE_LIMIT, READ_SIZE, Response

# seconds until a relay that listens has its event stream
READY = 20.0
STATUS = b"HTTP/1.1 "
ACCEPTED = b"HTTP/1.1 202"


class Statuses:
    """The statuses of responses on one connection, wherever their bytes are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Raises RelayFailed for one that is not `202`."""
        data = self._rest + data
        at = data.find(STATUS)
        while at >= 0 and len(data) >= at + len(ACCEPTED):
            if not data.startswith(ACCEPTED, at):
                raise RelayFailed(f"a request was not accepted: {data[at : at + 200]!r}")
            at = data.find(STATUS, at + len(ACCEPTED))
        self._rest = data[at:] if at >= 0 else data[-len(STATUS) + 1 :]


class SseClient(PipeClient):
    """Drives the relay that listens on this port of 127.0.0.1 and has its event stream at `/mcp`."""

    def __init__(self, port: int) -> None:
        self._silence = SILENCE
        self._port = port
        self._next_id = 0
        self._unsent = bytearray()
        self._poll = select.poll()
        self._stream, self._response, self._path = self._subscribed()
        self._in = self._stream.fileno()
        self._poll.register(self._in, select.POLLIN)
        self._posts = self._connected()
        self._out = self._posts.fileno()
        self._poll.register(self._out, select.POLLIN)
        self._statuses = Statuses()
        self._used_at = time.monotonic()

    def _connected(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=SILENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        return connection

    def _subscribed(self) -> tuple[socket.socket, Response, str]:
        """The event stream and where requests go, once the relay has both. Raises RelayFailed."""
        until = time.monotonic() + READY
        while time.monotonic() < until:
            stream, response = self._connected(), Response()
            stream.setblocking(True)
            stream.settimeout(SILENCE)
            stream.sendall(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
            while not response.done and (data := stream.recv(READ_SIZE)):
                if found := response.feed(data):
                    if response.status != 200:
                        break
                    stream.setblocking(False)
                    return stream, response, found[0].decode()
            stream.close()
            time.sleep(0.1)
        raise RelayFailed(f"no event stream in {READY:g} s: HTTP {response.status}")

    def close(self) -> None:
        self._stream.close()
        self._posts.close()

    def prepare(self, in_flight: int) -> None:
        """A new connection for requests when the last one was idle: servers close such."""
        if time.monotonic() - self._used_at > IDLE_LIMIT:
            self._reconnect()

    def _reconnect(self) -> None:
        self._poll.unregister(self._out)
        self._posts.close()
        self._posts, self._statuses = self._connected(), Statuses()
        self._out = self._posts.fileno()
        self._poll.register(self._out, select.POLLIN)

    def begin(self, method: str, params: dict[str, object]) -> None:
        self.prepare(1)
        super().begin(method, params)

    def run(self, calls: Iterator[Call], in_flight: int) -> Stats:
        self.prepare(in_flight)
        return super().run(calls, in_flight)

    def _send(self, data: bytes) -> None:
        head = f"POST {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        for line in data.splitlines():
            self._unsent += head.encode() + b"%d\r\n\r\n%b" % (len(line), line)
        self._used_at = time.monotonic()
        self._flush()

    def _flush(self) -> None:
        events = select.POLLIN
        try:
            while self._unsent:
                del self._unsent[: os.write(self._out, self._unsent)]
        except BlockingIOError:
            events |= select.POLLOUT
        except OSError as error:
            raise RelayFailed(f"the relay closed the connection of requests: {error}") from error
        self._poll.register(self._out, events)

    def _receive(self) -> list[bytes]:
        """Waits for input and returns the messages of it (maybe none)."""
        ready = self._poll.poll(self._silence * 1000)
        if not ready:
            raise RelayFailed(f"no message for {self._silence:g} s")
        messages: list[bytes] = []
        for fd, event in ready:
            if fd == self._in:
                messages = self._read()
                continue
            if event & select.POLLOUT:
                self._flush()
            if event & ~select.POLLOUT:
                self._read_statuses()
        self._used_at = time.monotonic()
        return messages

    def _read(self) -> list[bytes]:
        data = self._stream.recv(READ_SIZE)
        if not data:
            raise RelayFailed("the relay ended the event stream")
        return self._response.feed(data)

    def _read_statuses(self) -> None:
        try:
            data = self._posts.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            raise RelayFailed(f"{type(error).__name__}: {error}") from error
        if not data and self._unsent:
            raise RelayFailed("the relay closed the connection of requests")
        if data:
            self._statuses.feed(data)
        else:  # idle, while a long answer comes over the stream
            self._reconnect()
