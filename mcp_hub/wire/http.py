"""Streamable HTTP to a server, both eras.

Source: specification 2025-11-25, basic/transports "Streamable HTTP"; 2026-07-28, basic/transports/streamable-http.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import anyio
import anyio.abc
import httpx2

from mcp_hub.errors import UpstreamLost
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.jsonrpc.repair import Placeholder, placeholder
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST
from mcp_hub.protocol.sse import EventParser
from mcp_hub.types import Era, RawJson
from mcp_hub.wire.base import Headers, Pending, WireHandler
from mcp_hub.wire.bodies import Intake
from mcp_hub.wire.http_session import HttpSession
from mcp_hub.wire.remote import Exchanges, Explain, HttpStreams, RemoteServer, RemoteWire
from mcp_hub.wire.responses import (
    DENIED,
    EVENT_STREAM,
    JSON,
    NO_CONNECTION,
    OVERLOADED,
    Refused,
    code_in,
    error_in,
    is_stream,
    kind_of,
    lost_request,
    reason_of,
    refusal,
)

log = get_logger(__name__)

_ANSWERED: Final = (200, 201, 202, 203)
"""Statuses with which servers answer, whatever they say of the type of the answer."""
_PAUSE: Final = 1.0
"""Seconds before a stream that broke off is asked for again, where the server names no pause of its own."""
_SHORTEST, _LONGEST = 0.05, 30.0
"""Bounds of that pause in seconds, when it is the hub's choice; a longer one of the server's is kept."""
_DOUBLINGS: Final = 10
"""From the shortest pause past the longest."""
_RESUMES: Final = 5
"""Attempts in a row to resume the stream of a request without a new event."""
_AWAY: Final = (429, 502, 503, 504)
"""Statuses of a server that restarts, or of the proxy before it."""


async def _unclear(is_explicit: bool) -> bool | None:
    return None


class HttpWire(RemoteWire):
    """A `RemoteWire` with one HTTP exchange for each request.

    `session`: an id to continue with; for the other functions see `HttpSession`. `on_gap`: the common stream was
    reopened, with a gap.
    """

    def __init__(
        self,
        handler: WireHandler,
        http: HttpStreams,
        tasks: anyio.abc.TaskGroup,
        speaks: Callable[[], tuple[Era, str]],
        *,
        server: str,
        url: str,
        limit: int,
        explain: Explain | None = None,
        still_modern: Callable[[], Awaitable[bool]] | None = None,
        is_lost: Callable[[bool], Awaitable[bool | None]] = _unclear,
        session: str | None = None,
        on_gap: Callable[[], None] = lambda: None,
    ) -> None:
        exchanges = Exchanges(handler, RemoteServer(server, url, http, explain), tasks)
        self.session = HttpSession(
            server, id_=session, speaks=speaks, still_modern=still_modern, is_lost=is_lost, retire=exchanges.retire
        )
        self._intake = Intake(exchanges, limit, self._incoming, self.session)
        self._streams = _EventStreams(exchanges, self.session, self._intake, on_gap)
        self._posts = _Posts(exchanges.server, self._streams, self._outgoing)
        super().__init__(exchanges, self._posts)

    @property
    def status(self) -> int | None:
        """The status of the last answer to a request."""
        return self._posts.status

    async def listen(self) -> None:
        """Follows the common stream, if any; returns at the server's answer, or after a bound."""
        answered = anyio.Event()
        self._exchanges.start("listen", partial(self._streams.listen, answered))
        with anyio.move_on_after(_PAUSE):
            await answered.wait()

    async def end(self) -> None:
        """Ends the session at the server. May raise `httpx2.HTTPError`."""
        if self.session.id is not None and not self.session.is_forgotten:
            async with self._exchanges.server.stream("DELETE", self.session.headers()):
                pass


class _EventStreams:
    """The streams of the handshake era that are asked for: a request's to resume it, and the common one."""

    def __init__(self, exchanges: Exchanges, session: HttpSession, intake: Intake, on_gap: Callable[[], None]) -> None:
        self.session = session
        self.intake = intake
        self._exchanges = exchanges
        self._server = exchanges.server
        self._on_gap = on_gap

    def _stream(self, last_id: bytes | None) -> AbstractAsyncContextManager[httpx2.Response]:
        headers = {name.encode(): value.encode() for name, value in self.session.headers().items()}
        headers[b"accept"] = EVENT_STREAM.encode()
        if last_id is not None:
            headers[b"last-event-id"] = last_id
        return self._server.stream("GET", headers)

    async def resume(self, pending: Pending, parser: EventParser, why: str) -> None:
        """Resumes a request's stream (SEP-1699). Raises `UpstreamLost`."""
        pause, silent = _pause(parser, _PAUSE), 0
        while not pending.is_settled:
            last_id = parser.last_id
            if last_id is None or silent == _RESUMES or self.session.is_modern:
                raise lost_request(self._server.name, why)
            await anyio.sleep(pause * 2**silent)
            parser = self.intake.parser(last_id)
            try:
                async with self._stream(last_id) as response:
                    if not is_stream(response):
                        status = response.status_code
                        if status not in _AWAY or silent + 1 == _RESUMES:
                            raise lost_request(
                                self._server.name, f"{why}, and did not resume it: HTTP {status}", status=status
                            )
                    else:
                        await self.intake.follow(response, parser, pending)
            except httpx2.TransportError as exc:
                why = f"broke off the connection: {reason_of(exc)}"
            pause = _pause(parser, pause)
            silent = 0 if parser.last_id != last_id else silent + 1

    async def listen(self, answered: anyio.Event) -> None:
        """Follows the common stream; sets `answered` at the server's answer."""
        last_id, pause, silent, was_open = None, _PAUSE, 0, False
        while self._exchanges.can_send:
            parser, began, status = self.intake.parser(last_id), anyio.current_time(), 0
            try:
                async with self._stream(last_id) as response:
                    answered.set()
                    if is_stream(response):
                        if was_open:
                            self._on_gap()
                        was_open = True
                        await self.intake.follow(response, parser)
                    else:
                        status = response.status_code
            except NO_CONNECTION as exc:
                self._exchanges.unreachable(exc)
            except (httpx2.HTTPError, UpstreamLost) as exc:
                log.debug("upstream_stream_broke_off", upstream=self._server.name, reason=reason_of(exc))
            answered.set()
            if status and (not was_open or status not in _AWAY):
                if was_open:
                    await self.session.check(is_explicit=status == 404)
                return
            pause = _pause(parser, pause)
            lived = anyio.current_time() - began >= _LONGEST
            silent = 0 if lived or parser.last_id != last_id else silent + 1
            last_id = parser.last_id
            await anyio.sleep(_longer(pause, silent))


class _Posts:
    """The POSTs to a server, and their responses."""

    def __init__(self, server: RemoteServer, streams: _EventStreams, tap: Callable[[bytes], bytes]) -> None:
        self.status: int | None = None
        self._server = server
        self._streams = streams
        self._session = streams.session
        self._intake = streams.intake
        self._tap = tap

    @property
    def takes_cancellations(self) -> bool:
        """In the modern era the end of the connection cancels."""
        return not self._session.is_modern

    async def exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        frame = envelope.request_frame(pending.id, pending.method, params)
        sent = {**self._session.headers(pending.method, params), **headers}
        parser = self._intake.parser()
        why = "ended its answer without a result"
        try:
            async with self._server.post(self._tap(frame), sent) as response:
                self.status = response.status_code
                if not is_stream(response):
                    await self._take_whole(response, pending)
                    return
                self._session.begin(response, pending)
                await self._intake.follow(response, parser, pending)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as exc:
            why = f"broke off the connection: {reason_of(exc)}"
        if not pending.is_settled:
            await self._streams.resume(pending, parser, why)

    async def refused(self, pending: Pending, refusal: Exception) -> None:
        await self._session.check_refusal(pending, refusal)
        if not isinstance(refusal, Refused):
            raise refusal
        self._settle_whole(pending, refusal.answer)

    async def post(self, frame: bytes) -> None:
        async with self._server.post(self._tap(frame), self._session.headers()) as response:
            if response.is_success:
                return
            if response.status_code != 404 or self._session.id is None:
                raise await self._server.refusal(response)
        await self._session.check()

    async def _take_whole(self, response: httpx2.Response, pending: Pending) -> None:
        status = response.status_code
        is_json = kind_of(response) == JSON
        body = await self._intake.body(response) if (is_json or status in _ANSWERED) and status not in DENIED else b""
        message = self._intake.take_body(body, pending) if body else None
        if not is_json and not _has_outcome(message):
            message = None
        if self._session.may_be_lost(pending) and isinstance(message, Envelope) and status not in OVERLOADED:
            if error_in(message) is not None or (status == 200 and not _has_outcome(message)):
                raise Refused(status, message)
        if status in OVERLOADED and (error := error_in(message)) is not None and error.raw is not None:
            raise refusal(self._server.name, response, error.message, error.raw)
        if isinstance(message, Envelope) and message.is_answer and (status in _ANSWERED or error_in(message)):
            if self._session.may_have_changed(status, code_in(message), pending):
                raise Refused(status, message)
            self._session.begin(response, pending)
            self._settle_whole(pending, message)
        elif isinstance(message, BadMessage) and status == 200:
            answer = placeholder(message, envelope.one_line(body), pending.method)
            if self._session.may_be_lost(pending) and isinstance(answer, Placeholder):
                raise Refused(status, answer)
            self._settle_whole(pending, answer)
        else:
            raise await self._server.refusal(response)

    def _settle_whole(self, pending: Pending, message: Envelope) -> None:
        is_servers_own = message.kind == "error" and isinstance(message.id_key, str)  # "server-error" of the Python SDK
        if message.id_key not in (None, pending.id) and not is_servers_own:
            self._intake.settle_bad(pending, BadMessage(INVALID_REQUEST, "the answer to another request"))
            return
        self._session.check_version(pending, code_in(message))
        self._intake.settle(pending, message)


def _pause(parser: EventParser, otherwise: float) -> float:
    return otherwise if parser.retry is None else max(parser.retry / 1000, _SHORTEST)


def _longer(pause: float, silent: int) -> float:
    return max(pause, min(pause * 2.0 ** min(silent, _DOUBLINGS), _LONGEST))


def _has_outcome(message: Envelope | BadMessage | None) -> bool:
    return isinstance(message, Envelope) and message.kind in ("result", "error")
