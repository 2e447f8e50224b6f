"""Connections to servers over HTTP."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.abc
import httpx2
import msgspec

from mcp_hub.errors import HttpRefused, UpstreamLost, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.batches import several
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, BadMessage, Envelope, Unset
from mcp_hub.protocol.jsonrpc.repair import placeholder
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import is_own_answer, salvage_id
from mcp_hub.protocol.sse import Event, EventParser
from mcp_hub.types import JsonObject, RawJson
from mcp_hub.wire.base import Cancellation, Headers, NotSent, Params, Pending, Requests, Tapped, WireClosed, WireHandler
from mcp_hub.wire.bodies import Unfinished, chunks
from mcp_hub.wire.responses import DENIED, NO_CONNECTION, Refused, code_of, origin, reason_of, refusal

log = get_logger(__name__)

AT_ONCE: Final = 128
"""Requests on the network at once, each on its own connection; more wait."""
_MOST_REQUESTS, _MOST_NOTES = 2048, 256
"""Requests under way, and notifications that wait, above which the server counts as congested; twice as many
notifications are never kept."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of the notifications that wait."""
_MOST_LIMITS: Final = 4
"""Messages of the greatest length whose bytes a server may have sent at once, none of them whole."""
_NOTE_SECONDS: Final = 15.0
"""Seconds for a server to accept a notification or an answer."""
TAIL_SECONDS: Final = 0.2
"""Seconds to read a stream to its end after the answer, so that its connection is used again."""
_HEAD: Final = 4096
"""Bytes of a bad message that are looked at."""
_MEMBER: Final = re.compile(rb'"(method|result|error)"')
_NOTES: Final = "notes"
_NULL: Final = msgspec.Raw(b"null")
_NEITHER: Final = "neither a method nor an id"
_OTHERS: Final = "the answer to another request"

Explain = Callable[[httpx2.Response], Awaitable[str | None]]
"""Finds out the reason of a 401 or 403."""


class HttpStreams(Protocol):
    """The part of an HTTP client that is used."""

    def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Headers | Mapping[bytes, bytes] | None = None,
    ) -> AbstractAsyncContextManager[httpx2.Response]: ...


class RemoteWire(Tapped, ABC):
    """A `Wire` over HTTP, with a task for each request, which fails alone.

    `limit`: bytes of an incoming message. `http` must not follow redirects to other origins.
    """

    is_pipe = False

    def __init__(
        self,
        handler: WireHandler,
        http: HttpStreams,
        tasks: anyio.abc.TaskGroup,
        *,
        server: str,
        url: str,
        limit: int,
        explain: Explain | None = None,
    ) -> None:
        self.requests = Requests()
        self.can_send = True
        self._explain = explain
        self.counts = {"bad": 0, "late": 0, "stray": 0, "dropped": 0}
        self._handler = handler
        self._http = http
        self._tasks = tasks
        self._server = server
        self._url = url
        self._limit = limit
        self._is_closed = False
        self._slots = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._scopes: dict[int | str, anyio.CancelScope] = {}  # of the tasks: requests by id, others by name
        self._notes: deque[bytes] = deque()
        self._note_bytes = 0
        self._unfinished = Unfinished(_MOST_LIMITS * limit)
        self._drained = anyio.Event()

    # -- sending (Wire) -------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return len(self.requests.pending) >= _MOST_REQUESTS or len(self._notes) >= _MOST_NOTES

    def send(self, frame: bytes) -> None:
        """Queues a notification or an answer. Drops it if the queue is full."""
        is_full = len(self._notes) >= 2 * _MOST_NOTES or self._note_bytes + len(frame) > _MOST_BYTES
        if not self.can_send or is_full:
            self.counts["dropped"] += 1
            return
        self._notes.append(frame)
        self._note_bytes += len(frame)
        if _NOTES not in self._scopes:
            self._drained = anyio.Event()
            self._start(_NOTES, self._post_notes)

    async def drained(self) -> None:
        """Waits until the queue is empty."""
        if _NOTES in self._scopes:
            await self._drained.wait()

    async def settled(self) -> None:
        """Waits until no request is under way."""
        if self.requests.pending:
            await asyncio.wait([pending.future for pending in self.requests.pending.values()])

    def request(self, method: str, params: Params, context: object = None, headers: Headers | None = None) -> Pending:
        if not self.can_send:
            raise NotSent("the connection is closed")
        pending = self.requests.expect(method, context)
        body = params(pending.id) if callable(params) else params
        self._start(pending.id, partial(self._run, pending, body, headers or {}))
        return pending

    async def answer(self, pending: Pending, cancellation: Cancellation | None) -> Envelope:
        try:
            return await pending.future
        except asyncio.CancelledError:
            if self.requests.abandon(pending):
                self._stop(pending.id)
                if cancellation is not None:
                    self._send_cancelled(cancellation(pending.id))
            raise

    def _send_cancelled(self, notification: bytes) -> None:
        self.send(notification)

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        if not self._is_closed:
            self._is_closed = True
            for key in list(self._scopes):
                self._stop(key)
            self.requests.fail_all(reason)
            self.retire(reason, code)

    def retire(self, reason: str, code: str) -> None:
        """Refuses new messages; requests under way may still end."""
        if self.can_send:
            self.can_send = False
            self._handler.on_closed(reason, code)

    # -- what a transport adds ------------------------------------------------------------------------------------

    @abstractmethod
    async def _exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        """Sends a request; settles it if this response has the answer."""

    @abstractmethod
    async def _post(self, frame: bytes) -> None:
        """Sends a notification or an answer."""

    def _start(self, key: int | str, run: Callable[[], Awaitable[None]]) -> None:
        scope = self._scopes[key] = anyio.CancelScope()
        self._tasks.start_soon(self._within, key, scope, run)

    async def _within(self, key: int | str, scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
        with scope:
            try:
                await run()
            except Exception:  # would end the session and every other with it
                log.exception("upstream_wire_crashed", upstream=self._server)
        self._scopes.pop(key, None)

    def _stop(self, key: int | str) -> None:
        if (scope := self._scopes.pop(key, None)) is not None:
            scope.cancel()

    async def _run(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        try:
            try:
                async with self._slots:
                    await self._exchange(pending, params, headers)
            except (UpstreamLost, Refused) as exc:
                await self._refused(pending, exc)
        except (UpstreamLost, WireClosed) as exc:
            self._fail(pending, exc)
        except NO_CONNECTION as exc:
            self._unreachable(exc, pending)
        except Exception as exc:  # the HTTP stack lets others' errors out; whatever it was, the request has failed
            if not isinstance(exc, httpx2.HTTPError):
                log.exception("upstream_request_crashed", upstream=self._server)
            self._fail(pending, self._lost(f"broke off the connection: {reason_of(exc)}"))

    async def _refused(self, pending: Pending, refusal: Exception) -> None:
        """Ends a request whose connection is free. Raises its error."""
        raise refusal

    async def _post_notes(self) -> None:
        try:
            while self._notes and self.can_send:
                frame = self._notes.popleft()
                self._note_bytes -= len(frame)
                with anyio.move_on_after(_NOTE_SECONDS):
                    try:
                        await self._post(frame)
                    except (UpstreamLost, WireClosed, httpx2.HTTPError) as exc:
                        log.debug("upstream_notification_refused", upstream=self._server, reason=reason_of(exc))
        finally:
            self._drained.set()

    def _fail(self, pending: Pending, error: Exception) -> None:
        is_open = self.requests.pending.pop(pending.id, None) is not None
        if pending.doubtful is not None:
            pending.settle(pending.doubtful)
        elif is_open:
            pending.fail(error)

    async def _refusal(self, response: httpx2.Response) -> HttpRefused:
        why = await self._explain(response) if self._explain is not None and response.status_code in DENIED else None
        return refusal(self._server, response, why)

    def _lost(self, reason: str, **members: object) -> UpstreamLost:
        data: JsonObject = {"upstream": {"server": self._server, **members}, "outcome": "unknown"}
        return UpstreamLost(f'server "{self._server}" {reason}', data=data)

    def _unreachable(self, exc: Exception, pending: Pending | None = None) -> None:
        reason = f"cannot connect to {origin(self._url)}: {reason_of(exc)}"
        if pending is not None and len(self.requests.pending) > 1:
            message = f'server "{self._server}": {reason}. The request was not sent.'
            data = {"upstream": {"server": self._server, "code": code_of(exc)}}
            self._fail(pending, UpstreamUnavailable(message, data=data))
            return
        if pending is not None:
            self._fail(pending, NotSent(reason))
        if not self.requests.pending:
            self.close(reason, code_of(exc))

    # -- what comes in --------------------------------------------------------------------------------------------

    async def _body(self, response: httpx2.Response) -> bytes:
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

    async def _follow(self, response: httpx2.Response, parser: EventParser, source: Pending | None = None) -> None:
        """Takes the messages of a stream until `source` is settled. Raises `UpstreamLost` for a message over the limit
        on a request's stream.
        """
        async with chunks(response) as pieces:
            with self._unfinished.share(parser.end) as fits:
                async for chunk in pieces:
                    for event in parser.events(chunk):
                        if isinstance(event, Event):
                            self._take_event(event, source)
                        elif source is None:
                            reason = f"message over the limit of {self._limit} bytes"
                            self._take_bad(BadMessage(PARSE_ERROR, reason, self._salvaged_id(event.head)), event.head)
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
                    self._take_event(last, source)

    def _too_long(self) -> UpstreamLost:
        return self._lost(f"sent a message over the limit of {self._limit} bytes", code="unreadable_answer")

    def _too_much(self) -> UpstreamLost:
        return self._lost(f"sent over {self._unfinished.most} bytes of unfinished messages at once")

    def _salvaged_id(self, head: bytes) -> bytes | None:
        return salvage_id(head)

    def _take_event(self, event: Event, source: Pending | None) -> None:
        if event.type == b"message" and event.data:
            self._take(event.data, source)

    def _take(self, data: bytes, source: Pending | None = None) -> None:
        line = envelope.one_line(self._incoming(data))
        message = envelope.decode(line)
        if isinstance(message, BadMessage):
            parts, remainder = several(line, message)
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
        self._handler.on_request(message, source)

    def _take_answer(self, message: Envelope, data: bytes, source: Pending | None) -> None:
        key = message.id_key
        if source is not None and key != source.id:
            self._take_odd_answer(message, data, source)
            return
        if key is None:
            self._take_bad(BadMessage(INVALID_REQUEST, _NEITHER), data)
            return
        pending = self.requests.pending.pop(key, None) if isinstance(key, int) else None
        if pending is not None:
            pending.settle(message)
        elif isinstance(key, int) and self.requests.take_late(key, message):
            self.counts["late"] += 1
            self._handler.on_late_answer(key)
        else:
            self.counts["stray"] += 1

    def _take_odd_answer(self, message: Envelope, data: bytes, source: Pending) -> None:
        is_nameless = message.id in (ABSENT, _NULL)
        if source.is_settled:
            self.counts["stray"] += 1
        elif is_nameless and message.jsonrpc is not Unset and message.kind == "error" and message.error != _NULL:
            source.doubt(message)
            self._handler.on_bad_line(BadMessage(INVALID_REQUEST, _NEITHER), data, source)
        else:
            self.counts["bad"] += 1
            bad = BadMessage(INVALID_REQUEST, _NEITHER if is_nameless else _OTHERS)
            if message.kind != "none" or message.jsonrpc is not Unset:
                source.doubt(placeholder(bad, data, source.method))
            self._handler.on_bad_line(bad, data, source)

    def _take_bad(self, bad: BadMessage, data: bytes, source: Pending | None = None) -> None:
        self.counts["bad"] += 1
        key = envelope.id_key(bad.id) if bad.id is not None else None
        pending: Pending | None = None
        if source is None:
            member = _MEMBER.search(data[:_HEAD])
            is_answer = member is not None and member[1] != b"method"  # the id of a broken request is not ours
            pending = self.requests.pending.get(key) if isinstance(key, int) and is_answer else None
        elif is_own_answer(data) and not source.is_settled:
            if key == source.id:
                pending = source
            else:
                source.doubt(placeholder(bad, data, source.method))
        if pending is not None:
            self._settle_bad(pending, bad, data)
        self._handler.on_bad_line(bad, data, source)

    def _settle_bad(self, pending: Pending, bad: BadMessage, data: bytes = b"") -> None:
        self.requests.pending.pop(pending.id, None)
        pending.settle(placeholder(bad, data, pending.method))


def _message(event: Event) -> Envelope | BadMessage:
    return envelope.decode(envelope.one_line(event.data))
