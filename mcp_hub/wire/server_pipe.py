"""A pipe to a server: splits arrays and joins messages over several lines."""

from functools import partial
from typing import Final

from mcp_hub.protocol.jsonrpc import envelope, framing, repair
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, METHOD_NOT_FOUND, unnamed
from mcp_hub.wire.base import Pending
from mcp_hub.wire.pipe import Pipe

_OPENS: Final = (b"{", b"[")
"""First lines of pretty-printers: other lines that end within a message are answers that were cut off."""
_EACH: Final = 48
"""Bytes that a line takes besides its text."""
_UNKNOWN: Final = "an answer to an unknown request"
_NO_METHOD: Final = b"%d" % METHOD_NOT_FOUND


class _Gathered:
    """The lines so far of one JSON text, at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.lines: list[bytes] = []
        self.depth = 0
        self._limit = limit
        self._size = 0

    def take(self, line: bytes) -> bool:
        """Whether the line continues the text; if not, drops all."""
        size = self._size + len(line) + _EACH
        is_next = bool(self.lines) or line.strip() in _OPENS
        opened = framing.depth(line) if is_next and size <= self._limit else None
        if opened is None or self.depth + opened < 0:
            self._clear()
            return False
        self.lines.append(line)
        self.depth, self._size = self.depth + opened, size
        return True

    def whole(self) -> bytes | None:
        if self.depth:
            return None
        text = b" ".join(self.lines)
        self._clear()
        return text

    def _clear(self) -> None:
        self.lines, self.depth, self._size = [], 0, 0


class ServerPipe(Pipe):
    """Reports answers to unknown requests as bad lines; an error may be that of the one request that is left."""

    _gathered: _Gathered | None = None

    @property
    def unfinished(self) -> str | None:
        """The fault of a message without its line break, or None."""
        remainder = self._input.framer.rest
        if self._gathered is not None and self._gathered.lines:
            remainder = b" ".join([*self._gathered.lines, remainder])
        is_message = remainder and isinstance(envelope.decode(remainder.split(b"\r")[0].rstrip(b"\0")), Envelope)
        if not is_message:
            return None
        end = " but a carriage return" if b"\r" in remainder else " but a NUL character" if b"\0" in remainder else ""
        return f"messages with no line break{end} behind them"

    def _cut(self, line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
        before = [] if self._gathered is None else self._gathered.lines
        if self._gather(line):
            whole = None if self._gathered is None else self._gathered.whole()
            return ([], None) if whole is None else ([whole], None)
        line = b" ".join([*before, line])
        return repair.elements(line, bad)

    def _gather(self, line: bytes) -> bool:
        if self._gathered is None:
            self._gathered = _Gathered(self._line_limit)
        return self._gathered.take(line)

    def _take_nameless(self, message: Envelope, line: bytes, reason: str) -> None:
        is_part = message.jsonrpc is Unset and self._gathered is not None and bool(self._gathered.lines)
        if is_part and self._gather(line):
            return
        if not self._hold(message, line, reason):
            super()._take_nameless(message, line, reason)

    def _take_stray(self, message: Envelope, line: bytes) -> None:
        super()._take_stray(message, line)
        key = message.id_key
        if isinstance(key, int) and self.requests.was_asked(key):
            return
        if not self._hold(message, line, _UNKNOWN):
            self._handler.on_bad_line(BadMessage(INVALID_REQUEST, _UNKNOWN), line)

    def _hold(self, message: Envelope, line: bytes, reason: str) -> bool:
        """Keeps an error that names no request of the hub, but not the refusal of a notification."""
        if message.kind != "error" or _NO_METHOD in bytes(message.error):
            return False
        if not self.requests.hold(partial(_answer, message, line, reason)):
            return False
        self.counts["bad"] += 1
        self._handler.on_bad_line(BadMessage(INVALID_REQUEST, reason, is_held=True), line)
        return True


def _answer(message: Envelope, line: bytes, reason: str, pending: Pending) -> Envelope:
    if pending.context is None:
        return repair.placeholder(BadMessage(INVALID_REQUEST, reason), line, pending.method)
    return envelope.answer_of(unnamed(message.error))
