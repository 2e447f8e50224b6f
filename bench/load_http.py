"""The load generator for Streamable HTTP: a minimal HTTP/1.1 client over raw sockets, one thread.

One keep-alive connection per call in flight. Speaks the handshake era (session id) and the modern one
(required headers and `_meta` envelope); answers may be JSON or SSE, with a length or chunked.
"""

import select
import socket
import time
from collections.abc import Iterator

import msgspec

from bench.ledger import Call, Ledger, RelayFailed, Stats, decode_message
from bench.load import CLIENT_INFO, HANDSHAKE, SILENCE, Listing, follow_pages

MODERN = "2026-07-28"
READ_SIZE = 1 << 17
# servers close connections that are idle (uvicorn after 5 s): those older than this are not used again
IDLE_LIMIT = 2.0
# what a relay may need to accept one connection, before a run begins
ACCEPT_TIME = 0.0003
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Response:
    """Parses one HTTP response; `feed` returns the JSON-RPC messages that it completes."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.done = False
        self.body = bytearray()
        self._buffer = bytearray()
        self._left = -1
        self._chunked = False

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        if not self.status and not self._read_head():
            return []
        if self._chunked:
            self._read_chunks()
        else:
            self.body += self._buffer
            self._buffer.clear()
            self.done = len(self.body) >= self._left
        if b"text/event-stream" in self.headers.get(b"content-type", b""):
            return self._take_events()
        return [bytes(self.body)] if self.done and self.body else []

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *rest = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        self.status = int(first.split(b" ", 2)[1])
        for line in rest:
            name, _, value = line.partition(b":")
            self.headers[name.lower()] = value.strip()
        self._chunked = b"chunked" in self.headers.get(b"transfer-encoding", b"")
        self._left = int(self.headers.get(b"content-length", b"0"))
        return True

    def _read_chunks(self) -> None:
        """Moves what has come into the body; `_left` is what the current chunk still lacks."""
        at = 0
        while at < len(self._buffer) and not self.done:
            if self._left:
                piece = self._buffer[at : at + self._left]
                self.body += piece
                self._left -= len(piece)
                at += len(piece)
                continue
            if self._buffer.startswith(b"\r\n", at):
                at += 2
            end = self._buffer.find(b"\r\n", at)
            if end < 0:
                break
            self._left = int(bytes(self._buffer[at:end]).partition(b";")[0], 16)
            if self._left == 0:
                # complete only with its empty line, which would otherwise spoil the next response
                self.done = self._buffer.startswith(b"\r\n", end + 2)
                break
            at = end + 2
        del self._buffer[:at]

    def _take_events(self) -> list[bytes]:
        # one pass over what has come; a carriage return at its end meets its line feed in the next read
        *events, rest = bytes(self.body).replace(b"\r\n", b"\n").split(b"\n\n")
        self.body = bytearray(rest)
        messages = (
            b"\n".join(line[5:].lstrip(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
            for event in events
        )
        return [message for message in messages if message]


class Connection:
    """A keep-alive connection and the call that it carries."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.response = Response()
        self.call_id = 0
        self.busy = False
        self.used_at = time.monotonic()

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self.used_at > IDLE_LIMIT

    def send(self, data: bytes) -> None:
        self.response = Response()
        self.busy = True
        self.socket.sendall(data)


class HttpClient:
    """Drives the relay that listens on this port of 127.0.0.1, in one era."""

    def __init__(self, port: int, modern: bool) -> None:
        self._port = port
        self._modern = modern
        self._session = b""
        self._next_id = 0
        self._pool: list[Connection] = []

    def start(self) -> None:
        """Asks for the tools once; in the handshake era in a session of its own, however often."""
        if self._modern:
            self.ask("server/discover", {})
        else:
            self._session = b""
            params: dict[str, object] = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO}
            self.ask("initialize", params)
            self._exchange(self._request("notifications/initialized", "", self._initialized()))
        self.list_tools()

    @staticmethod
    def _initialized() -> bytes:
        return b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

    def list_tools(self) -> Listing:
        return follow_pages(self)

    def close(self) -> None:
        for connection in self._pool:
            connection.socket.close()
        self._pool.clear()

    def ask(self, method: str, params: dict[str, object]) -> bytes:
        """One request; its result as JSON. Raises RelayFailed for an error or silence."""
        self._next_id += 1
        if self._modern:
            params = params | {"_meta": ENVELOPE}
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        for line in self._exchange(self._request(method, "", msgspec.json.encode(request))):
            message = decode_message(line)
            if message.id == self._next_id and message.method is None:
                if not message.result:
                    raise RelayFailed(f"{method}: {bytes(message.error)[:300]!r}")
                return bytes(message.result)
        raise RelayFailed(f"{method}: the response ended without an answer")

    def _exchange(self, request: bytes) -> list[bytes]:
        self._drop_stale()
        connection = self._pool.pop() if self._pool else Connection(self._port)
        connection.socket.settimeout(SILENCE)
        messages: list[bytes] = []
        try:
            connection.send(request)
            while not connection.response.done:
                data = connection.socket.recv(READ_SIZE)
                if not data:
                    raise RelayFailed("the relay closed the connection")
                messages += connection.response.feed(data)
        except OSError as error:
            raise RelayFailed(f"{type(error).__name__}: {error}") from error
        response = connection.response
        if response.status >= 300:
            raise RelayFailed(f"HTTP {response.status}: {b' '.join(messages)[:300]!r}")
        connection.busy = False
        connection.used_at = time.monotonic()
        self._session = response.headers.get(b"mcp-session-id", self._session)
        self._pool.append(connection)
        return messages

    def _request(self, method: str, tool: str, body: bytes) -> bytes:
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n"
        )
        if self._modern:
            name = f"Mcp-Name: {tool}\r\n" if tool else ""
            head += f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}"
        elif self._session:
            head += f"MCP-Protocol-Version: {HANDSHAKE}\r\nMcp-Session-Id: {self._session.decode()}\r\n"
        return head.encode() + b"\r\n" + body

    def _drop_stale(self) -> None:
        for connection in [found for found in self._pool if found.is_stale]:
            connection.socket.close()
            self._pool.remove(connection)

    def prepare(self, in_flight: int) -> None:
        """Opens the connections that the next run needs, and lets the relay accept them."""
        self._drop_stale()
        missing = in_flight - len(self._pool)
        if missing > 0:
            self._pool += [Connection(self._port) for _ in range(missing)]
            time.sleep(0.02 + missing * ACCEPT_TIME)

    def run(self, calls: Iterator[Call], in_flight: int) -> Stats:
        """Keeps n calls open, each on its own connection, until there are no more."""
        ledger = Ledger(calls)
        try:
            self.prepare(in_flight)
        except OSError as error:
            ledger.stats.fail(f"cannot connect: {error}")
            return ledger.stats
        started = time.perf_counter()
        with select.epoll() as poll:
            self._drive(ledger, poll, in_flight)
        ledger.stats.wall = time.perf_counter() - started
        return ledger.stats

    def _drive(self, ledger: Ledger, poll: select.epoll, in_flight: int) -> None:
        used = {connection.socket.fileno(): connection for connection in self._pool[:in_flight]}
        for fd, connection in used.items():
            poll.register(fd, select.EPOLLIN)
            self._next(ledger, connection)
        # an SSE answer comes before its response ends, and the next run needs a clean connection
        while any(connection.busy for connection in used.values()):
            ready = poll.poll(SILENCE)
            if not ready:
                ledger.give_up(f"no message for {SILENCE:g} s")
                self.close()
                return
            for fd, _ in ready:
                self._read(ledger, poll, used, fd)

    def _read(self, ledger: Ledger, poll: select.epoll, used: dict[int, Connection], fd: int) -> None:
        connection = used[fd]
        try:
            data = connection.socket.recv(READ_SIZE)
        except OSError:
            data = b""
        for message in connection.response.feed(data) if data else []:
            ledger.receive(message)
        if data and not connection.response.done:
            return
        connection.busy = False
        connection.used_at = time.monotonic()
        if ledger.open.pop(connection.call_id, None):
            head = f"HTTP {connection.response.status} {bytes(connection.response.body[:200])!r}"
            ledger.stats.fail(f"the response ended without an answer: {head}" if data else "connection closed")
        if not data or connection.response.headers.get(b"connection") == b"close":
            connection = self._replace(poll, used, fd)
        self._next(ledger, connection)

    def _replace(self, poll: select.epoll, used: dict[int, Connection], fd: int) -> Connection:
        old = used.pop(fd)
        poll.unregister(fd)
        old.socket.close()
        new = Connection(self._port)
        self._pool[self._pool.index(old)] = new
        used[new.socket.fileno()] = new
        poll.register(new.socket.fileno(), select.EPOLLIN)
        return new

    def _next(self, ledger: Ledger, connection: Connection) -> None:
        if ledger.exhausted:
            return
        call = ledger.take(self._next_id + 1)
        if call is None:
            return
        self._next_id += 1
        connection.call_id = self._next_id
        connection.send(self._request("tools/call", call.tool, self._body(call)))

    def _body(self, call: Call) -> bytes:
        meta: dict[str, object] = dict(ENVELOPE) if self._modern else {}
        if call.events:
            meta["progressToken"] = self._next_id
        extra = b',"_meta":' + msgspec.json.encode(meta) if meta else b""
        form = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":%b%b}}'
        return form % (self._next_id, call.tool.encode(), call.arguments, extra)
