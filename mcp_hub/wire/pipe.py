"""JSON-RPC over a pair of pipes, or one socket: framing, correlation, joined writes, back-pressure.

Uses asyncio: a memory stream and a task for each message cost 12 to 140 times a callback.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import IO, cast

from mcp_hub.aio import Turn
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, BadMessage, Envelope, Frame, Unset
from mcp_hub.protocol.jsonrpc.framing import Framer, TooLong
from mcp_hub.protocol.jsonrpc.repair import placeholder
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import is_answer, salvage_id
from mcp_hub.types import Cause
from mcp_hub.wire.base import Cancellation, Headers, Params, Pending, Requests, Tapped, WireClosed, WireHandler
from mcp_hub.wire.files import PipeOutput, read_from

_FLOOD = 1 << 16
"""Bytes in one read after which the loop gets two passes without another, so that readers get them in time."""
_SLICE = 128
"""Lines of one read that are taken in one turn of the event loop: a few milliseconds."""
_LAST_ANSWERS, _ALL_ANSWERS = 1.0, 5.0
"""Seconds for answers of a peer that closed its input: since its last bytes, and in all."""
_EMPTY = "neither a method nor a result"
_ODD_ID = "the id is neither a string nor an integer"
_MANY, _SMALL, _GATHER, _FEW = 64, 1 << 12, 0.005, 4
"""A server with many open requests that has sent as many notifications since the last request or answer: behind a small
read they gather for so many seconds, again unless they were few. A pass of the loop for each would cost more."""
_REST, _CONGESTED, _CALM = "rest", "congested", "calm"  # reasons not to read
_CLOSED_OUTPUT = Cause("closed_output", "the peer closed its output")


class _Pace:
    """Reasons not to read, and the number of `reports`: notifications while many requests are open."""

    def __init__(self) -> None:
        self.pauses: set[str] = set()
        self.reports = 0


class _Input(asyncio.Protocol):
    """The read side: a slice of the lines in each turn, and a rest after a flood, or while reports gather.

    `take` gets each line, `take_last` one that is cut off, and `on_end` the reason why nothing follows.
    """

    def __init__(
        self, turn: Turn, line_limit: int, *, take: Callable[[bytes | TooLong], None],
        take_last: Callable[[bytes], None], on_end: Callable[[Cause], object],
    ) -> None:  # fmt: skip
        self.framer = Framer(line_limit)
        self.bytes_read = 0
        self._turn = turn
        self._take = take
        self._take_last = take_last
        self._on_end = on_end
        self._backlog: deque[bytes | TooLong] = deque()  # lines that were read and wait for their turn
        self._cause: Cause | None = None  # why nothing follows the backlog
        self.pace = _Pace()
        self._transport: asyncio.ReadTransport | None = None

    async def attach(self, file: IO[bytes]) -> None:
        try:
            await read_from(file, self)
        except BaseException:
            file.close()
            raise

    def pause(self, reason: str, is_on: bool) -> None:
        """Reads only while there is no reason to pause."""
        (self.pace.pauses.add if is_on else self.pace.pauses.discard)(reason)
        self._set_reading()

    def queue_last(self, lines: list[bytes]) -> None:
        if self._backlog:
            self._backlog += lines
        else:
            for line in lines:
                self._take(line)

    def drop(self) -> deque[bytes | TooLong]:
        backlog, self._backlog = self._backlog, deque()
        return backlog

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)  # uvloop's is of no class of asyncio

    def data_received(self, data: bytes) -> None:
        self._turn.run(self._receive, data)

    def _receive(self, data: bytes) -> None:
        self.bytes_read += len(data)
        if len(data) >= _FLOOD and _REST not in self.pace.pauses:
            self.pause(_REST, True)
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self.pause, _REST, False)
        lines = self.framer.feed(data)
        if self._backlog or len(lines) > _SLICE:
            self._queue(lines)
            return
        have_gathered = self.pace.reports >= _MANY
        for line in lines:
            self._take(line)
        if have_gathered and len(lines) < _FEW:
            self.pace.reports = 0
        elif self.pace.reports >= _MANY and len(data) <= _SMALL:
            self.pause(_CALM, True)
            asyncio.get_running_loop().call_later(_GATHER, self.pause, _CALM, False)

    def hurry(self) -> None:
        """Somebody waits for what comes next."""
        if self.pace.reports >= _MANY:
            self.pause(_CALM, False)
        self.pace.reports = 0

    def _queue(self, lines: list[bytes | TooLong]) -> None:
        is_new = not self._backlog
        self._backlog += lines
        if is_new:
            self._set_reading()
            self._take_slice()

    def _take_slice(self) -> None:
        backlog = self._backlog
        if not backlog:  # dropped meanwhile
            return
        for _ in range(_SLICE):
            if not backlog or self._backlog is not backlog:  # the second: dropped by what was taken
                break
            self._take(backlog.popleft())
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._turn.run, self._take_slice)
        elif self._cause is not None:
            self._on_end(self._cause)
        else:
            self._set_reading()

    def _set_reading(self) -> None:
        if (transport := self._transport) is not None:
            is_paused = self.pace.pauses or self._backlog
            with contextlib.suppress(RuntimeError):  # uvloop's word for "closing already"
                (transport.pause_reading if is_paused else transport.resume_reading)()

    def eof_received(self) -> None:
        self._turn.run(self._finish_reading)

    def _finish_reading(self) -> None:
        for line in self.framer.finish():
            self._take_last(cast(bytes, line))  # a line that is too long was reported before
        self._end(_CLOSED_OUTPUT)

    def connection_lost(self, exc: Exception | None) -> None:
        self._turn.run(self._end, Cause("connection_lost", f"reading failed: {exc}") if exc else _CLOSED_OUTPUT)

    def _end(self, cause: Cause) -> None:
        if self._backlog:
            self._cause = self._cause or cause
        else:
            self._on_end(cause)


class Pipe(Tapped):
    """One JSON-RPC connection.

    `line_limit`: bytes of an incoming line. `write_limit`: unsent bytes above which it `is_congested`. `couples`: reads
    only while the peer reads. `patience`: seconds until a peer that reads nothing is closed. `on_end` replaces `close`
    at the end of input.
    """

    is_pipe = True

    def __init__(
        self, handler: WireHandler, *, line_limit: int, write_limit: int = 1 << 20, couples: bool = False,
        patience: float | None = None, turn: Turn | None = None, on_end: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        self._handler = handler
        self._turn = turn if turn is not None else Turn()
        self._input = _Input(self._turn, line_limit, take=self._take, take_last=self._take_last, on_end=self._end)
        self._output = PipeOutput(
            write_limit, patience, on_pressure=self._congest, on_lost=self._stop_sending, close=self.close
        )
        self._line_limit = line_limit
        self._couples = couples
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes | memoryview] = []
        self.requests = Requests()
        self.is_congested = False
        self.can_send = True  # False before it is closed, too: a peer that closed its input may still answer
        self.is_closed = False
        self.counts = {"bad": 0, "late": 0, "stray": 0}

    @property
    def bytes_read(self) -> int:
        return self._input.bytes_read

    async def open(self, read: IO[bytes], write: IO[bytes]) -> None:
        """Attaches to both files, and owns them even if it fails."""
        try:
            await self._output.attach(write)  # first: answers may be instant
        except BaseException:
            read.close()
            raise
        await self._input.attach(read)

    async def connect(self, connection: socket.socket) -> None:
        """Attaches to a socket, whose peer may still read after it stops sending."""
        await self._output.connect(connection, self._input)

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Queues one line, terminator included, for this turn."""
        if not self._out:
            self._turn.flush_later(self)
        if self.tap is not None:
            frame = self._outgoing(envelope.whole(frame))
        if isinstance(frame, tuple):
            self._out += frame
        else:
            self._out.append(frame)

    def flush(self) -> None:
        """Writes the queue at once."""
        out, self._out = self._out, []
        writer = self._output.writer
        if out and writer is not None and self.can_send:
            if len(out) > 1 and memoryview in map(type, out):
                writer.writelines(out)  # without a copy
            else:
                writer.write(out[0] if len(out) == 1 else b"".join(out))

    def request(self, method: str, params: Params, context: object = None, headers: Headers | None = None) -> Pending:
        if not self.can_send:
            raise WireClosed("the pipe is closed")
        if self._input.pace.reports:
            self._input.hurry()
        pending = self.requests.expect(method, context)
        body = params(pending.id) if callable(params) else params
        self.send(envelope.request_frame(pending.id, method, body))
        return pending

    async def answer(self, pending: Pending, cancellation: Cancellation | None) -> Envelope:
        try:
            return await pending.future
        except asyncio.CancelledError:
            if self.requests.abandon(pending) and cancellation is not None:
                self.send(cancellation(pending.id))
            raise

    def soon(self, callback: Callable[[], object]) -> None:
        self._turn.after(callback)

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        """Flushes, closes both sides, fails pending requests. Idempotent."""
        if self.is_closed:
            return
        for line in self._input.drop():  # what has been read counts, whatever ends the connection
            self._take(line)
        self._shut(reason, code)

    def _shut(self, reason: str, code: str) -> None:
        if self.is_closed:
            return
        self.flush()
        self.can_send, self.is_closed = False, True
        self._output.close()
        self._input.close()
        self.requests.fail_all(reason)
        self._handler.on_closed(reason, code)

    @property
    def has_reader(self) -> bool:
        """Whether the peer may still read."""
        return not self.is_closed and self.can_send and self._output.has_reader

    def _end(self, cause: Cause) -> None:
        if self._on_end is not None:
            self._on_end()
        else:
            self.close(cause.reason, cause.code)

    # -- receiving ------------------------------------------------------------------------------------------------

    def _take(self, line: bytes | TooLong) -> None:
        if self.is_closed:
            return
        if isinstance(line, TooLong):
            bad = BadMessage(PARSE_ERROR, f"line over the limit of {self._line_limit} bytes", salvage_id(line.head))
            self._take_bad(bad, line.head, is_certain=is_answer(line.head, is_huge=True))
            return
        message = envelope.decode(line if self.tap is None else self._incoming(line))
        if type(message) is not Envelope:
            parts, remainder = self._cut(line, cast(BadMessage, message))
            for part in parts:
                self._take(part)
            if remainder is not None:
                self._take_bad(*remainder)
        elif message.kind == "notification":
            self._handler.on_notification(message)
            self._input.pace.reports += len(self.requests.pending) >= _MANY
        elif message.kind == "request":
            self._input.pace.reports = 0
            self._handler.on_request(message)
        else:
            self._input.pace.reports = 0
            self._take_answer(message, line)

    def _cut(self, line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
        return [], (bad, line)

    def _take_last(self, line: bytes) -> None:
        message = envelope.decode(line)
        parts, remainder = self._cut(line, message) if isinstance(message, BadMessage) else ([line], None)
        self._input.queue_last(parts)
        if remainder is not None and not self.is_closed:
            self.counts["bad"] += 1
            self._handler.on_bad_line(*remainder)

    def _take_answer(self, message: Envelope, line: bytes) -> None:
        key = message.id_key
        if key is None:
            reason = "neither a method nor an id" if message.id is ABSENT else _ODD_ID
            self._take_nameless(message, line, reason)
            return
        is_empty = message.kind == "none"
        if is_empty and message.jsonrpc is Unset:
            self._take_bad(BadMessage(INVALID_REQUEST, _EMPTY), line)
            return
        pending = self.requests.pending.pop(key, None) if type(key) is int else None
        if pending is not None:
            pending.settle(message)
            if self.requests.unnamed:
                self.requests.answered(pending.id)
        elif type(key) is int and self.requests.take_late(key, message):
            self.counts["late"] += 1
            self._handler.on_late_answer(key)
            self.requests.answered(key)
        elif is_empty:
            self._take_bad(BadMessage(INVALID_REQUEST, _EMPTY), line)
        else:
            self._take_stray(message, line)

    def _take_stray(self, message: Envelope, line: bytes) -> None:
        self.counts["stray"] += 1

    def _take_nameless(self, message: Envelope, line: bytes, reason: str) -> None:
        """Takes an answer without a usable id (JSON-RPC 2.0 §5). Some peers refuse notifications like that, so the
        hub's sole request waits a moment longer.
        """
        bad = BadMessage(INVALID_REQUEST, reason)
        sole = self.requests.sole() if message.kind == "error" else None
        if sole is not None and sole.context is sole.doubtful is None:
            self.requests.doubt(sole, placeholder(bad, line, sole.method))
        self._take_bad(bad, line)

    def _take_bad(self, bad: BadMessage, line: bytes, *, is_certain: bool = False) -> None:
        """Settles the request of a bad line; `is_certain`: without an id, the sole one."""
        self.counts["bad"] += 1
        pending: Pending | None = None
        if bad.id is not None:
            key = envelope.id_key(bad.id)
            if type(key) is int and (is_certain or is_answer(line)):
                pending = self.requests.pending.pop(key, None)
        elif is_certain and (sole := self.requests.sole()) is not None:
            pending = self.requests.pending.pop(sole.id)
        if pending is not None:
            pending.settle(placeholder(bad, line, pending.method))
        self._handler.on_bad_line(bad, line)

    def _stop_sending(self) -> None:
        if self.can_send:
            self.can_send = False
            self._listen_on(self._loop.time() + _ALL_ANSWERS, -1)

    def _listen_on(self, until: float, before: int) -> None:
        time, reason = self._loop.time(), "the peer closed its input"
        if not self.requests.pending or self.bytes_read == before or time >= until:
            self._loop.call_soon(self.close, reason, "closed_input")
        else:
            self._loop.call_later(min(_LAST_ANSWERS, until - time), self._listen_on, until, self.bytes_read)

    def _congest(self, is_congested: bool) -> None:
        self.is_congested = is_congested
        if self._couples:
            self._input.pause(_CONGESTED, is_congested)
        if not is_congested and not self.is_closed:
            self._turn.run(self._handler.on_writable)
