"""Bodies of HTTP responses: pieces with a bound, one layer of gzip or deflate removed (RFC 9110 §8.4), messages."""

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import httpx2
import msgspec

from mcp_hub.errors import UpstreamLost
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, BadMessage, Envelope, Unset
from mcp_hub.protocol.jsonrpc.repair import elements, in_body, placeholder
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import is_own_answer, salvage_id
from mcp_hub.protocol.sse import EventParser, SseEvent
from mcp_hub.wire.base import Pending
from mcp_hub.wire.remote import Exchanges
from mcp_hub.wire.responses import Refused, error_in, lost_request

_PIECE: Final = 1 << 18
"""Bytes that come out of one piece of a compressed body."""
_SMALL: Final = 1 << 16
"""Bytes that any unfinished message may have, however much others hold."""
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""The `wbits` of `zlib` for each format; `deflate` is the zlib format (RFC 9110 §8.4.1.2)."""

_NO_ENCODING: Final = frozenset(
    ("", "identity", "none", "binary", "8bit", "utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1")
)
"""Encodings that change nothing: people name the set of characters, or how a mail would be sent."""
_MOST_LIMITS: Final = 4
"""Messages of the greatest length whose bytes a server may have sent at once, none of them whole."""
TAIL_SECONDS: Final = 0.2
"""Seconds to read a stream to its end after the answer, so that its connection is used again."""
_HEAD: Final = 4096
"""Bytes of a bad message that are looked at."""
_MEMBER: Final = re.compile(rb'"(method|result|error)"')
_NULL: Final = msgspec.Raw(b"null")
_NEITHER: Final = "neither a method nor an id"
_OTHERS: Final = "the answer to another request"


class _BadEncoding(httpx2.DecodingError):
    """The body has an unknown encoding, or not the one it names."""


def chunks(response: httpx2.Response) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """The body's pieces, within the context. Raises `httpx2.DecodingError`, `TransportError`."""
    header = response.headers.get("content-encoding", "")
    encoding = header.strip().lower()
    if encoding in _NO_ENCODING:
        return aclosing(_raw(response))
    if encoding not in _WINDOWS:
        raise _BadEncoding(f"content-encoding {hide_head(header, 50)!r}, though none was asked for")
    return aclosing(_inflated(response, encoding))


async def whole_body(response: httpx2.Response, limit: int) -> bytes:
    """The body; empty for one over the limit. Raises as `chunks`."""
    content = b""
    async with chunks(response) as pieces:
        async for chunk in pieces:
            content += chunk
            if len(content) > limit:
                return b""
    return content


def _raw(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    raw = response.aiter_raw()
    assert isinstance(raw, AsyncGenerator)  # its type says less
    return raw


async def _inflated(response: httpx2.Response, encoding: str) -> AsyncGenerator[bytes, None]:
    inflate = inflater(encoding)
    async with aclosing(_raw(response)) as raw:
        async for chunk in raw:
            for piece in inflate(chunk):
                yield piece
                await anyio.lowlevel.checkpoint()  # much may come out of one chunk


def inflater(encoding: str) -> Callable[[bytes], Iterator[bytes]]:
    """Removes compression from one chunk after another, lazily; a piece has at most `_PIECE` bytes.

    The iterator raises `httpx2.DecodingError`.
    """
    unpacked = zlib.decompressobj(_WINDOWS[encoding])

    def inflated(chunk: bytes) -> Iterator[bytes]:
        data = chunk
        while data and not unpacked.eof:
            try:
                piece = unpacked.decompress(data, _PIECE)
            except zlib.error as exc:
                raise _BadEncoding(f"the body is not {encoding}: {exc}") from None
            data = unpacked.unconsumed_tail
            if piece:
                yield piece

    return inflated


class _Unfinished:
    """Counts the bytes of a server's unfinished messages, at most `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    @contextmanager
    def share(self, let_go: Callable[[], None]) -> Iterator[Callable[[int], bool]]:
        """Yields a function of a response's size: whether it fits; `let_go` drops the bytes."""
        mine = 0

        def fits(size: int) -> bool:
            nonlocal mine
            self.held += size - mine
            mine = size
            return size <= _SMALL or self.held <= self.most

        try:
            yield fits
        finally:
            let_go()
            self.held -= mine


class _EventTaker(Protocol):
    def take_event(self, event: SseEvent, source: Pending | None) -> None: ...

    def take_long(self, head: bytes) -> None:
        """Takes the head of an event over the limit."""


class _Session(Protocol):
    @property
    def has_server_requests(self) -> bool: ...

    def may_be_lost(self, pending: Pending) -> bool: ...


class Intake:
    """Reads the responses of a server and takes their messages; `source` is the request on whose stream one came.

    `limit`: bytes of a message. `tap` gets each, and returns it. Raises `Refused` for an error on a request's stream
    that may be about the `session`.
    """

    def __init__(
        self, exchanges: Exchanges, limit: int, tap: Callable[[bytes], bytes], session: _Session | None = None
    ) -> None:
        self._handler = exchanges.handler
        self._requests = exchanges.requests
        self._counts = exchanges.counts
        self._server = exchanges.server.name
        self._limit = limit
        self._tap = tap
        self._session = session
        self._unfinished = _Unfinished(_MOST_LIMITS * limit)

    def parser(self, after: bytes | None = None) -> EventParser:
        """A parser for a stream, which may follow the event `after`."""
        return EventParser(self._limit, after)

    async def body(self, response: httpx2.Response) -> bytes:
        """The whole body. Raises `UpstreamLost` for one over the limit."""
        parts: list[bytes] = []
        size = 0
        async with chunks(response) as pieces:
            with self._unfinished.share(parts.clear) as fits:
                async for chunk in pieces:
                    size += len(chunk)
                    if size > self._limit:
                        raise self._too_long()
                    if not fits(size):
                        raise self._too_much()
                    parts.append(chunk)
                return b"".join(parts)

    async def follow(
        self,
        response: httpx2.Response,
        parser: EventParser,
        source: Pending | None = None,
        events: _EventTaker | None = None,
    ) -> None:
        """Takes a stream's messages until `source` is settled.

        Raises `UpstreamLost` for one over the limit on a request's stream.
        """
        taker = self if events is None else events
        async with chunks(response) as pieces:
            with self._unfinished.share(parser.end) as fits:
                async for chunk in pieces:
                    for event in parser.events(chunk):
                        if isinstance(event, SseEvent):
                            taker.take_event(event, source)
                        elif source is None:
                            taker.take_long(event.head)
                        else:
                            raise self._too_long()
                        if source is not None and source.is_settled:
                            with anyio.move_on_after(TAIL_SECONDS):
                                async for _ in pieces:
                                    pass
                            return
                    if not fits(parser.held):
                        raise self._too_much()
                last = parser.unended if source is not None else None
                if last is not None and not isinstance(_message(last), BadMessage):
                    taker.take_event(last, source)

    def take_long(self, head: bytes, id_: bytes | None = None) -> None:
        """Takes the head of a message over the limit; `id_`: its id, if it cannot be read there."""
        reason = f"message over the limit of {self._limit} bytes"
        self._take_bad(BadMessage(PARSE_ERROR, reason, salvage_id(head) or id_), head)

    def take_event(self, event: SseEvent, source: Pending | None) -> None:
        if event.type == b"message" and event.data:
            self._take(event.data, source)

    def take_body(self, body: bytes, pending: Pending) -> Envelope | BadMessage:
        """The message of a body that answers a request; takes the other messages in it."""
        text = envelope.one_line(self._tap(body))
        message = envelope.decode(text)
        if isinstance(message, BadMessage):
            message, messages = in_body(text, message, pending.id)
            for data in messages:
                self._take(data, pending)
        return message

    def take_answer_to(self, pending: Pending, body: bytes) -> None:
        """Takes a body if it answers a request."""
        data = self._tap(body)
        message = envelope.decode(envelope.one_line(data))
        if isinstance(message, Envelope) and message.kind in ("result", "error") and message.id_key == pending.id:
            self._take_answer(message, data, None)

    def settle_bad(self, pending: Pending, bad: BadMessage, data: bytes = b"") -> None:
        """Settles a request with an unreadable answer."""
        self._requests.pending.pop(pending.id, None)
        pending.settle(placeholder(bad, data, pending.method))

    def settle(self, pending: Pending, answer: Envelope) -> None:
        """Settles a request, unless it was abandoned."""
        if self._requests.pending.pop(pending.id, None) is not None:
            pending.settle(answer)

    def _take(self, data: bytes, source: Pending | None = None) -> None:
        line = envelope.one_line(self._tap(data))
        message = envelope.decode(line)
        if isinstance(message, BadMessage):
            parts, remainder = elements(line, message)
            for part in parts:
                self._take(part, source)
            if remainder is not None:
                self._take_bad(*remainder, source)
        elif message.kind == "request":
            self._take_request(message, source)
        elif message.kind == "notification":
            self._handler.on_notification(message, source)
        else:
            self._take_answer(message, data, source)

    def _take_request(self, message: Envelope, source: Pending | None) -> None:
        if self._session is None or self._session.has_server_requests:
            self._handler.on_request(message, source)
        else:
            self._counts["stray"] += 1

    def _take_answer(self, message: Envelope, data: bytes, source: Pending | None) -> None:
        key = message.id_key
        if source is not None and key in (None, source.id) and self._may_be_lost(source, message):
            raise Refused(200, message)
        if source is not None and key != source.id:
            self._take_odd_answer(message, data, source)
            return
        if key is None:
            self._take_bad(BadMessage(INVALID_REQUEST, _NEITHER), data)
            return
        pending = self._requests.pending.pop(key, None) if isinstance(key, int) else None
        if pending is not None:
            pending.settle(message)
        elif isinstance(key, int) and self._requests.take_late(key, message):
            self._counts["late"] += 1
            self._handler.on_late_answer(key)
        else:
            self._counts["stray"] += 1

    def _take_odd_answer(self, message: Envelope, data: bytes, source: Pending) -> None:
        is_nameless = message.id in (ABSENT, _NULL)
        if source.is_settled:
            self._counts["stray"] += 1
        elif is_nameless and message.jsonrpc is not Unset and message.kind == "error" and message.error != _NULL:
            source.doubt(message)
            self._handler.on_bad_line(BadMessage(INVALID_REQUEST, _NEITHER), data, source)
        else:
            self._counts["bad"] += 1
            bad = BadMessage(INVALID_REQUEST, _NEITHER if is_nameless else _OTHERS)
            if message.kind != "none" or message.jsonrpc is not Unset:
                source.doubt(placeholder(bad, data, source.method))
            self._handler.on_bad_line(bad, data, source)

    def _take_bad(self, bad: BadMessage, data: bytes, source: Pending | None = None) -> None:
        self._counts["bad"] += 1
        key = envelope.id_key(bad.id) if bad.id is not None else None
        pending: Pending | None = None
        if source is None:
            member = _MEMBER.search(data[:_HEAD])
            is_answer = member is not None and member[1] != b"method"  # the id of a broken request is not ours
            pending = self._requests.pending.get(key) if isinstance(key, int) and is_answer else None
        elif is_own_answer(data) and not source.is_settled:
            if key == source.id:
                pending = source
            else:
                source.doubt(placeholder(bad, data, source.method))
        if pending is not None:
            self.settle_bad(pending, bad, data)
        self._handler.on_bad_line(bad, data, source)

    def _may_be_lost(self, source: Pending, message: Envelope) -> bool:
        is_open = self._session is not None and not source.is_settled and self._session.may_be_lost(source)
        return is_open and error_in(message) is not None

    def _too_long(self) -> UpstreamLost:
        return lost_request(
            self._server, f"sent a message over the limit of {self._limit} bytes", code="unreadable_answer"
        )

    def _too_much(self) -> UpstreamLost:
        return lost_request(self._server, f"sent over {self._unfinished.most} bytes of unfinished messages at once")


def _message(event: SseEvent) -> Envelope | BadMessage:
    return envelope.decode(envelope.one_line(event.data))
