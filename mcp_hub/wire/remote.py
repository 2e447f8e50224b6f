"""Connections to servers over HTTP."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.abc
import httpx2

from mcp_hub.errors import HttpRefused, UpstreamLost, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.types import RawJson
from mcp_hub.wire.base import Cancellation, Headers, NotSent, Params, Pending, Requests, Tapped, WireClosed, WireHandler
from mcp_hub.wire.responses import DENIED, NO_CONNECTION, Refused, code_of, lost_request, origin, reason_of, refusal

log = get_logger(__name__)

AT_ONCE: Final = 128
"""Requests on the network at once, each on its own connection; more wait."""
_MOST_REQUESTS, _MOST_NOTES = 2048, 256
"""Requests under way, and notifications that wait, above which the server counts as congested; twice as many
notifications are never kept."""
_MOST_BYTES: Final = 64 << 20
"""Bytes of the notifications that wait."""
_NOTE_SECONDS: Final = 15.0
"""Seconds for a server to accept a notification or an answer."""
_NOTES: Final = "notes"

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


class RemoteServer:
    """A server at a URL. `http` must not follow redirects to other origins."""

    def __init__(self, name: str, url: str, http: HttpStreams, explain: Explain | None = None) -> None:
        self.name = name
        self.url = url
        self._http = http
        self._explain = explain

    def post(
        self, frame: bytes, headers: Headers, url: str | None = None
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        return self._http.stream("POST", self.url if url is None else url, content=frame, headers=headers)

    def stream(
        self, method: str, headers: Headers | Mapping[bytes, bytes]
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        return self._http.stream(method, self.url, headers=headers)

    async def refusal(self, response: httpx2.Response) -> HttpRefused:
        """The error for a response without a message."""
        why = await self._explain(response) if self._explain is not None and response.status_code in DENIED else None
        return refusal(self.name, response, why)


class Exchanges:
    """The requests under way to one server, and their tasks; other tasks have names.

    `retire` refuses new requests, `close` ends those under way.
    """

    def __init__(self, handler: WireHandler, server: RemoteServer, tasks: anyio.abc.TaskGroup) -> None:
        self.requests = Requests()
        self.counts = {"bad": 0, "late": 0, "stray": 0, "dropped": 0}
        self.can_send = True
        self.handler = handler
        self.server = server
        self._is_closed = False
        self._tasks = tasks
        self._scopes: dict[int | str, anyio.CancelScope] = {}

    def is_running(self, key: int | str) -> bool:
        return key in self._scopes

    def start(self, key: int | str, run: Callable[[], Awaitable[None]]) -> None:
        """Starts the task of a request, or one with a name."""
        scope = self._scopes[key] = anyio.CancelScope()
        self._tasks.start_soon(self._within, key, scope, run)

    async def _within(self, key: int | str, scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
        with scope:
            try:
                await run()
            except Exception:  # would end the session and every other with it
                log.exception("upstream_wire_crashed", upstream=self.server.name)
        self._scopes.pop(key, None)

    def stop(self, key: int | str) -> None:
        if (scope := self._scopes.pop(key, None)) is not None:
            scope.cancel()

    def fail(self, pending: Pending, error: Exception) -> None:
        """Fails a request, unless something may have been its answer."""
        is_open = self.requests.pending.pop(pending.id, None) is not None
        if pending.doubtful is not None:
            pending.settle(pending.doubtful)
        elif is_open:
            pending.fail(error)

    def unreachable(self, exc: Exception, pending: Pending | None = None) -> None:
        """Fails a request without a connection; closes if it was the last."""
        server = self.server
        reason = f"cannot connect to {origin(server.url)}: {reason_of(exc)}"
        if pending is not None and len(self.requests.pending) > 1:
            message = f'server "{server.name}": {reason}. The request was not sent.'
            data = {"upstream": {"server": server.name, "code": code_of(exc)}}
            self.fail(pending, UpstreamUnavailable(message, data=data))
            return
        if pending is not None:
            self.fail(pending, NotSent(reason))
        if not self.requests.pending:
            self.close(reason, code_of(exc))

    def close(self, reason: str, code: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            for key in list(self._scopes):
                self.stop(key)
            self.requests.fail_all(reason)
            self.retire(reason, code)

    def retire(self, reason: str, code: str) -> None:
        if self.can_send:
            self.can_send = False
            self.handler.on_closed(reason, code)


class _Transport(Protocol):
    """The form of messages to a server, and of its answers."""

    @property
    def takes_cancellations(self) -> bool:
        """Whether a notification cancels a request; else its connection's end."""

    async def exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        """Sends a request; settles it if this response has the answer."""

    async def refused(self, pending: Pending, refusal: Exception) -> None:
        """Ends a request whose connection is free. Raises its error."""

    async def post(self, frame: bytes) -> None:
        """Sends a notification or an answer."""


class _Notes:
    """Notifications and answers on their way, one after another."""

    def __init__(self, exchanges: Exchanges, transport: _Transport) -> None:
        self._exchanges = exchanges
        self._transport = transport
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._drained = anyio.Event()

    @property
    def is_congested(self) -> bool:
        return len(self._frames) >= _MOST_NOTES

    def put(self, frame: bytes) -> None:
        """Queues a frame. Drops it if the queue is full."""
        exchanges = self._exchanges
        is_full = len(self._frames) >= 2 * _MOST_NOTES or self._size + len(frame) > _MOST_BYTES
        if not exchanges.can_send or is_full:
            exchanges.counts["dropped"] += 1
            return
        self._frames.append(frame)
        self._size += len(frame)
        if not exchanges.is_running(_NOTES):
            self._drained = anyio.Event()
            exchanges.start(_NOTES, self._post)

    async def drained(self) -> None:
        if self._exchanges.is_running(_NOTES):
            await self._drained.wait()

    async def _post(self) -> None:
        try:
            while self._frames and self._exchanges.can_send:
                frame = self._frames.popleft()
                self._size -= len(frame)
                with anyio.move_on_after(_NOTE_SECONDS):
                    try:
                        await self._transport.post(frame)
                    except (UpstreamLost, WireClosed, httpx2.HTTPError) as exc:
                        server = self._exchanges.server.name
                        log.debug("upstream_notification_refused", upstream=server, reason=reason_of(exc))
        finally:
            self._drained.set()


class RemoteWire(Tapped):
    """A `Wire` over HTTP: each request has a task, which fails alone."""

    is_pipe = False

    def __init__(self, exchanges: Exchanges, transport: _Transport) -> None:
        self.requests = exchanges.requests
        self.counts = exchanges.counts
        self._exchanges = exchanges
        self._transport = transport
        self._notes = _Notes(exchanges, transport)
        self._slots = anyio.Semaphore(AT_ONCE, fast_acquire=True)

    @property
    def can_send(self) -> bool:
        return self._exchanges.can_send

    @property
    def is_congested(self) -> bool:
        return len(self.requests.pending) >= _MOST_REQUESTS or self._notes.is_congested

    def send(self, frame: bytes) -> None:
        """Queues a notification or an answer. Drops it if the queue is full."""
        self._notes.put(frame)

    async def drained(self) -> None:
        """Waits until the queue is empty."""
        await self._notes.drained()

    async def settled(self) -> None:
        """Waits until no request is under way."""
        if self.requests.pending:
            await asyncio.wait([pending.future for pending in self.requests.pending.values()])

    def request(self, method: str, params: Params, context: object = None, headers: Headers | None = None) -> Pending:
        if not self.can_send:
            raise NotSent("the connection is closed")
        pending = self.requests.expect(method, context)
        body = params(pending.id) if callable(params) else params
        self._exchanges.start(pending.id, partial(self._run, pending, body, headers or {}))
        return pending

    async def answer(self, pending: Pending, cancellation: Cancellation | None) -> Envelope:
        try:
            return await pending.future
        except asyncio.CancelledError:
            if self.requests.abandon(pending):
                self._exchanges.stop(pending.id)
                if cancellation is not None and self._transport.takes_cancellations:
                    self.send(cancellation(pending.id))
            raise

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        self._exchanges.close(reason, code)

    def retire(self, reason: str, code: str) -> None:
        """Refuses new messages; requests under way may still end."""
        self._exchanges.retire(reason, code)

    async def _run(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        exchanges, transport = self._exchanges, self._transport
        try:
            try:
                async with self._slots:
                    await transport.exchange(pending, params, headers)
            except (UpstreamLost, Refused) as exc:
                await transport.refused(pending, exc)
        except (UpstreamLost, WireClosed) as exc:
            exchanges.fail(pending, exc)
        except NO_CONNECTION as exc:
            exchanges.unreachable(exc, pending)
        except Exception as exc:  # the HTTP stack lets others' errors out; whatever it was, the request has failed
            server = exchanges.server.name
            if not isinstance(exc, httpx2.HTTPError):
                log.exception("upstream_request_crashed", upstream=server)
            exchanges.fail(pending, lost_request(server, f"broke off the connection: {reason_of(exc)}"))
