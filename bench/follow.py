"""The load generator for durable streams: calls and followers over REST, on raw sockets, one thread.

A follower notes what comes and when, and nothing more; it is looked at afterwards, so that checking costs the
measurement nothing. Every event is checked then: its number, its place in the order, and what it says.
"""

import select
import socket
import time
from typing import NamedTuple

import msgspec

from bench.ledger import RelayFailed, Stats
from bench.load import SILENCE
from bench.load_http import Response

READ_SIZE = 1 << 18
# the empty chunk that ends a response; no event holds a carriage return
LAST_CHUNK = b"\r\n0\r\n\r\n"
ENDINGS = ("end", "error")


class Data(msgspec.Struct):
    progress: float = 0.0
    message: str = ""
    outcome: str = ""


class Line(msgspec.Struct):
    """An event of a stream, or what `event: closed` says."""

    stream: str = ""
    seq: int = 0
    type: str = ""
    data: Data = msgspec.field(default_factory=Data)
    cursor: int = 0


class StreamInfo(msgspec.Struct):
    stream: str
    status: str


class StreamList(msgspec.Struct):
    """The newest streams, the latest first."""

    streams: list[StreamInfo]


class Event(NamedTuple):
    """One event and when its last byte had come, in seconds of the monotonic clock."""

    at: float
    line: Line


decode_line = msgspec.json.Decoder(Line).decode


def call_request(tool: str, arguments: bytes, headers: str) -> bytes:
    """A call; `headers` say how it is to be answered."""
    body = b'{"arguments":%b}' % arguments
    head = f"POST /v1/tools/{tool}/call HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def follow_request(stream: str, form: str = "text/event-stream") -> bytes:
    """A stream from its first event on."""
    head = f"GET /v1/streams/{stream}/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {form}\r\n\r\n"
    return head.encode()


class Follower:
    """One connection and the events that come over it. `window`: the bytes that it may hold unread."""

    def __init__(self, port: int, request: bytes, window: int = 0) -> None:
        self.socket = socket.socket()
        if window:
            # before the connection is made, since then the other side learns of it
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.settimeout(SILENCE)
        self.socket.connect(("127.0.0.1", port))
        self.pieces: list[tuple[float, bytes]] = []
        self.done = False
        self.begun = time.monotonic()
        self.socket.sendall(request)

    def read(self) -> None:
        """Takes what is there. Raises RelayFailed."""
        try:
            data = self.socket.recv(READ_SIZE)
        except OSError as error:
            raise RelayFailed(f"{type(error).__name__}: {error}") from error
        if not data:
            raise RelayFailed("the connection was closed before the stream had ended")
        self.pieces.append((time.monotonic(), data))
        last = data if len(data) >= len(LAST_CHUNK) else b"".join(piece for _, piece in self.pieces[-8:])
        self.done = last.endswith(LAST_CHUNK) or self._is_refused(data)

    def _is_refused(self, data: bytes) -> bool:
        return len(self.pieces) == 1 and data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200")

    def read_all(self) -> "Follower":
        """To the end of the stream."""
        while not self.done:
            self.read()
        self.close()
        return self

    def read_stream(self) -> str:
        """The stream of which the first event has come, once it has."""
        while True:
            self.read()
            if found := self.events():
                return found[0].line.stream

    def close(self) -> None:
        self.socket.close()

    def events(self) -> list[Event]:
        """All that has come, `closed` included. Raises RelayFailed for anything that is no event."""
        response = Response()
        found: list[Event] = []
        for at, data in self.pieces:
            for message in response.feed(data):
                try:
                    line = decode_line(message)
                except msgspec.DecodeError as error:
                    raise RelayFailed(f"no event ({error}): {message[:200]!r}") from error
                if not line.seq and not line.cursor:
                    raise RelayFailed(f"no event: HTTP {response.status} {message[:200]!r}")
                found.append(Event(at, line))
        return found


def follow_all(followers: list[Follower]) -> None:
    """Reads all of them to their ends. Raises RelayFailed for silence."""
    with select.epoll() as poll:
        reading = {follower.socket.fileno(): follower for follower in followers if not follower.done}
        for fd in reading:
            poll.register(fd, select.EPOLLIN)
        while reading:
            ready = poll.poll(SILENCE)
            if not ready:
                raise RelayFailed(f"no event for {SILENCE:g} s")
            for fd, _ in ready:
                follower = reading[fd]
                follower.read()
                if follower.done:
                    poll.unregister(fd)
                    del reading[fd]
                    follower.close()


def check(stats: Stats, events: list[Event], count: int) -> list[Event]:
    """Books what is wrong with a stream that has `count` progress events; returns these.

    They have to be complete and in order, numbered without a hole, and behind them one ending and `closed`.
    """
    steps = [event for event in events if event.line.type == "progress"]
    stats.calls += 1
    stats.events += len(steps)
    stats.lost += max(0, count - len(steps))
    lines = [event.line for event in events]
    if [line.seq for line in lines[:-1]] != list(range(1, len(lines))):
        stats.fail("the events of a stream are not numbered 1, 2, 3…")
    if [step.line.data.progress for step in steps] != list(range(1, count + 1)):
        stats.fail(f"not progress 1 to {count} in order, but {len(steps)} events of it")
    if not lines or lines[-1].cursor != len(lines) - 1:
        stats.fail("a stream did not end with `closed` and the number of its last event")
    endings = [line for line in lines if line.type in ENDINGS]
    if len(endings) != 1 or endings[0] is not lines[-2] or endings[0].data.outcome != "ok":
        stats.fail(f"not one good ending, and that at the end, but {[line.type for line in endings]}")
    return steps


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Requests:
    """Requests that are answered at once, one after the other over one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Requests":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, request: bytes) -> Answer:
        """Raises RelayFailed."""
        response, messages = Response(), []
        try:
            self._socket.sendall(request)
            while not response.done:
                data = self._socket.recv(READ_SIZE)
                if not data:
                    raise RelayFailed("the hub closed the connection")
                messages += response.feed(data)
        except OSError as error:
            raise RelayFailed(f"{type(error).__name__}: {error}") from error
        return Answer(response.status, response.headers, b"".join(messages))

    def get(self, path: str) -> Answer:
        return self.send(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode())

    def begin(self, tool: str, arguments: bytes) -> str:
        """Starts a call that nobody waits for; its stream."""
        answer = self.send(call_request(tool, arguments, "Prefer: wait=0"))
        if answer.status != 202:
            raise RelayFailed(f"a call that is not waited for: HTTP {answer.status} {answer.body[:200]!r}")
        return answer.headers[b"location"].rpartition(b"/")[2].decode()
