"""The load generator for stdio: newline JSON over pipes, n calls in flight, no SDK, one thread.

It speaks the handshake era. Reads and writes never block for good, so a relay that stops reading until it
is read from (and the reverse) cannot deadlock the run.
"""

import os
import select
import subprocess
import time
from collections.abc import Iterator
from typing import Protocol

import msgspec

from bench.ledger import Call, Ledger, Message, RelayFailed, Stats, decode_message

HANDSHAKE = "2025-11-25"
CLIENT_INFO = {"name": "bench", "version": "1"}
READ_SIZE = 1 << 18
# a relay that says nothing for this long while calls are open has failed
SILENCE = 30.0
# how long progress may still come after its result before it counts as lost for good
LINGER = 0.3


class Listing(msgspec.Struct):
    """A complete tool list: names, and the bytes of all its pages."""

    names: list[str]
    size: int


class Client(Protocol):
    """One way of driving a relay."""

    def start(self) -> None: ...

    def list_tools(self) -> Listing: ...

    def prepare(self, in_flight: int) -> None:
        """Does what should not count as a part of the next run."""

    def run(self, calls: Iterator[Call], in_flight: int) -> Stats: ...

    def close(self) -> None: ...


class ToolName(msgspec.Struct):
    name: str


class Page(msgspec.Struct):
    tools: list[ToolName]
    nextCursor: str | None = None


def follow_pages(client: "PipeClient | HttpAsker") -> Listing:
    """Asks for every page of `tools/list`."""
    names: list[str] = []
    size = 0
    cursor: dict[str, object] = {}
    while True:
        raw = client.ask("tools/list", cursor)
        size += len(raw)
        page = msgspec.json.decode(raw, type=Page)
        names += [tool.name for tool in page.tools]
        if page.nextCursor is None:
            return Listing(names, size)
        cursor = {"cursor": page.nextCursor}


class HttpAsker(Protocol):
    def ask(self, method: str, params: dict[str, object]) -> bytes: ...


class PipeClient:
    """Drives the relay whose standard input and output it is given, which is never silent for so many seconds."""

    def __init__(self, process: subprocess.Popen[bytes], silence: float = SILENCE) -> None:
        self._silence = silence
        assert process.stdin is not None and process.stdout is not None
        self._in = process.stdout.fileno()
        self._out = process.stdin.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._unsent = bytearray()
        self._rest: list[bytes] = []
        self._next_id = 0
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)

    def start(self) -> None:
        self.initialize()
        self.list_tools()

    def initialize(self) -> None:
        params: dict[str, object] = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO}
        self.ask("initialize", params)
        self._send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def list_tools(self) -> Listing:
        return follow_pages(self)

    def prepare(self, in_flight: int) -> None:
        """Nothing: one pipe carries any number of calls."""

    def close(self) -> None:
        """The pipes belong to the process; there is nothing to close."""

    def begin(self, method: str, params: dict[str, object]) -> None:
        """Sends a request whose answer nobody waits for."""
        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self._send(msgspec.json.encode(request) + b"\n")

    def ask(self, method: str, params: dict[str, object]) -> bytes:
        """One request; its result as JSON. Raises RelayFailed for an error or silence."""
        self.begin(method, params)
        while True:
            for line in self._receive():
                message = decode_message(line)
                if message.method is not None and message.id is not None:
                    self._refuse(message)
                elif message.id == self._next_id:
                    if not message.result:
                        raise RelayFailed(f"{method}: {bytes(message.error)[:300]!r}")
                    return bytes(message.result)

    def run(self, calls: Iterator[Call], in_flight: int) -> Stats:
        """Keeps n calls open until there are no more, then waits for the last answer."""
        ledger = Ledger(calls)
        started = time.perf_counter()
        try:
            while True:
                self._fill(ledger, in_flight)
                if not ledger.open:
                    break
                for line in self._receive():
                    if request := ledger.receive(line):
                        self._refuse(request)
            if ledger.stats.lost:
                self._linger(ledger)
        except RelayFailed as failure:
            ledger.give_up(str(failure))
        ledger.stats.wall = time.perf_counter() - started
        return ledger.stats

    def _fill(self, ledger: Ledger, in_flight: int) -> None:
        batch = []
        while not ledger.exhausted and len(ledger.open) < in_flight:
            call = ledger.take(self._next_id + 1)
            if call is None:
                break
            self._next_id += 1
            meta = b',"_meta":{"progressToken":%d}' % self._next_id if call.events else b""
            form = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":%b%b}}\n'
            batch.append(form % (self._next_id, call.tool.encode(), call.arguments, meta))
        if batch:
            self._send(b"".join(batch))

    def _linger(self, ledger: Ledger) -> None:
        """Books the progress that comes after its result (the specification forbids it)."""
        until = time.perf_counter() + LINGER
        while (left := until - time.perf_counter()) > 0:
            if self._poll.poll(left * 1000):
                for line in self._receive():
                    ledger.receive(line)

    def _refuse(self, request: Message) -> None:
        refusal = {"jsonrpc": "2.0", "id": request.id, "error": {"code": -32601, "message": "not offered"}}
        answer: dict[str, object] = {"jsonrpc": "2.0", "id": request.id, "result": {}}
        self._send(msgspec.json.encode(answer if request.method == "ping" else refusal) + b"\n")

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._out, self._unsent)]
        except BlockingIOError:
            self._poll.register(self._out, select.POLLOUT)
        except OSError as error:
            raise RelayFailed(f"the relay closed its standard input: {error}") from error

    def _receive(self) -> list[bytes]:
        """Waits for input and returns the complete lines of it (maybe none)."""
        ready = self._poll.poll(self._silence * 1000)
        if not ready:
            raise RelayFailed(f"no message for {self._silence:g} s")
        lines: list[bytes] = []
        for fd, _ in ready:
            if fd == self._out:
                self._poll.unregister(self._out)
                self._flush()
            else:
                lines = self._read()
        return lines

    def _read(self) -> list[bytes]:
        data = os.read(self._in, READ_SIZE)
        if not data:
            raise RelayFailed("the relay closed its standard output")
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        if tail:
            self._rest.append(tail)
        return [line for line in lines if line.strip()]
