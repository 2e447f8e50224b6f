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

from mcp_hub.errors import HttpRefused, UpstreamLost
from mcp_hub.logs import get_logger
from mcp_hub.protocol.headers import request_headers
from mcp_hub.protocol.jsonrpc import envelope, rpc_errors
from mcp_hub.protocol.jsonrpc.batches import in_body
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.jsonrpc.repair import Placeholder, placeholder
from mcp_hub.protocol.jsonrpc.rpc_errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR
from mcp_hub.protocol.sse import EventParser
from mcp_hub.types import Era, RawJson
from mcp_hub.wire.base import Headers, NotSent, Pending, WireHandler
from mcp_hub.wire.remote import Explain, HttpStreams, RemoteWire
from mcp_hub.wire.responses import (
    DENIED,
    EVENT_STREAM,
    JSON,
    NO_CONNECTION,
    OVERLOADED,
    POSTED,
    Refused,
    error_in,
    is_overload,
    is_stream,
    kind_of,
    reason_of,
    refusal,
)

log = get_logger(__name__)

_DISCOVER: Final = "server/discover"
_UNKNOWN: Final = "the server no longer knows the session"
_CLIENT_FAULTS: Final = (400, 404, 405)
_NOT_BEGUN: Final = (400, 404)
"""Statuses by which a server that does not know the session refuses a request before it acts on it."""
_CHECKS: Final = ("initialize", "ping")
"""Requests that show whether a session lives: their own refusal starts no further check."""
_ANSWERED: Final = (200, 201, 202, 203)
"""Statuses with which servers answer, whatever they say of the type of the answer."""
_MODERN_FAULTS: Final = (METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, PARSE_ERROR)
"""Codes that modern servers have for these; the reserved ones besides."""
_SURE: Final = 5.0
"""Seconds for which a server that was asked is known to be modern."""
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

    `speaks`: era and version. `is_forgotten`: the server has lost the session. `still_modern` checks the era after a
    doubtful refusal. `is_lost` checks the session (None: unclear); its argument: the refusal names the session.
    `on_gap`: the common stream was reopened, with a gap.
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
        super().__init__(handler, http, tasks, server=server, url=url, limit=limit, explain=explain)
        self.status: int | None = None
        self.is_forgotten = False
        self.session = session
        self._is_lost = is_lost
        self._on_gap = on_gap
        self._still_modern = still_modern
        self._sure_until = 0.0
        self._asking = anyio.Lock()
        self._speaks = speaks

    # -- requests -------------------------------------------------------------------------------------------------

    async def _exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        frame = envelope.request_frame(pending.id, pending.method, params)
        sent = {**self._headers(pending.method, params), **headers}
        parser = EventParser(self._limit)
        why = "ended its answer without a result"
        try:
            async with self._http.stream("POST", self._url, content=self._outgoing(frame), headers=sent) as response:
                self.status = response.status_code
                if not is_stream(response):
                    await self._take_whole(response, pending)
                    return
                self._begin(response, pending)
                await self._follow(response, parser, pending)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as exc:
            why = f"broke off the connection: {reason_of(exc)}"
        if not pending.is_settled:
            await self._resume(pending, parser, why)

    def _headers(self, method: str | None = None, params: RawJson = b"") -> dict[str, str]:
        era, version = self._speaks()
        headers = dict(POSTED)
        if era is Era.MODERN and method is not None:
            headers |= request_headers(version, method, params)
        elif method != "initialize":  # which is sent before anything is settled
            headers["mcp-protocol-version"] = version
            if self.session is not None:
                headers["mcp-session-id"] = self.session
        return headers

    def _begin(self, response: httpx2.Response, pending: Pending) -> None:
        if pending.method == "initialize":
            session = response.headers.get("mcp-session-id", "")
            self.session = session if session.isascii() and session.isprintable() and session else None

    async def _take_whole(self, response: httpx2.Response, pending: Pending) -> None:
        status = response.status_code
        is_json = kind_of(response) == JSON
        body = await self._body(response) if (is_json or status in _ANSWERED) and status not in DENIED else b""
        message = self._take_several(body, pending) if body else None
        if not is_json and not _has_outcome(message):
            message = None
        if self._may_be_lost(pending) and isinstance(message, Envelope) and status not in OVERLOADED:
            if error_in(message) is not None or (status == 200 and not _has_outcome(message)):
                raise Refused(status, message)
        if status in OVERLOADED and (error := error_in(message)) is not None and error.raw is not None:
            raise refusal(self._server, response, error.message, error.raw)
        if isinstance(message, Envelope) and message.is_answer and (status in _ANSWERED or error_in(message)):
            if self._may_be_another(status, _code(message), pending):
                raise Refused(status, message)
            self._begin(response, pending)
            self._settle_whole(pending, message)
        elif isinstance(message, BadMessage) and status == 200:
            answer = placeholder(message, envelope.one_line(body), pending.method)
            if self._may_be_lost(pending) and isinstance(answer, Placeholder):
                raise Refused(status, answer)
            self._settle_whole(pending, answer)
        else:
            raise await self._refusal(response)

    def _take_several(self, body: bytes, pending: Pending) -> Envelope | BadMessage:
        text = envelope.one_line(self._incoming(body))
        message = envelope.decode(text)
        if isinstance(message, BadMessage):
            message, messages = in_body(text, message, pending.id)
            for data in messages:
                self._take(data, pending)
        return message

    def _may_be_another(self, status: int | None, code: int | None, pending: Pending) -> bool:
        """Whether the server may have changed to the handshake era.

        Source: specification 2026-07-28, basic/versioning "Backward Compatibility".
        """
        if self._still_modern is None or not self._is_settled(pending) or status not in _CLIENT_FAULTS:
            return False
        return code not in _MODERN_FAULTS and (code is None or not rpc_errors.is_reserved(code))

    async def _is_another_now(self) -> bool:
        """Probes whether it has changed; one request asks for all that wait."""
        assert self._still_modern is not None
        async with self._asking:
            if not self.is_forgotten and anyio.current_time() >= self._sure_until and await self._still_modern():
                self._sure_until = anyio.current_time() + _SURE
        return self.is_forgotten or anyio.current_time() >= self._sure_until

    def _is_settled(self, pending: Pending) -> bool:
        return self._speaks()[0] is Era.MODERN and pending.method != _DISCOVER

    def _settle_whole(self, pending: Pending, message: Envelope) -> None:
        if message.id_key not in (None, pending.id):
            self._settle_bad(pending, BadMessage(rpc_errors.INVALID_REQUEST, "the answer to another request"))
        elif self._is_settled(pending) and _code(message) == rpc_errors.UNSUPPORTED_VERSION:
            raise self._forget("the server no longer speaks the version that was settled on", "era_changed")
        elif self.requests.pending.pop(pending.id, None) is not None:
            pending.settle(message)

    def _forget(self, reason: str, code: str = "session_lost") -> NotSent:
        self.is_forgotten = True
        self.retire(reason, code)
        return NotSent(reason)

    # -- lost sessions --------------------------------------------------------------------------------------------

    def _may_be_lost(self, pending: Pending) -> bool:
        return self.session is not None and pending.method not in _CHECKS

    def _take_answer(self, message: Envelope, data: bytes, source: Pending | None) -> None:
        if source is not None and not source.is_settled and self._may_be_lost(source) and error_in(message) is not None:
            if message.id_key in (None, source.id):
                raise Refused(200, message)
        super()._take_answer(message, data, source)

    async def _refused(self, pending: Pending, refusal: Exception) -> None:
        """Raises `NotSent` if the session or era is lost, else settles or raises the refusal."""
        status = refusal.status if isinstance(refusal, Refused | HttpRefused) else None
        code = _code(refusal.answer) if isinstance(refusal, Refused) else None
        if self._may_be_another(status, code, pending) and await self._is_another_now():
            raise self._forget("the server no longer speaks the era that was settled on", "era_changed")
        if self._may_be_lost(pending) and not is_overload(refusal):
            is_explicit = _names_session(refusal)
            is_lost = self.is_forgotten or await self._is_lost(is_explicit)
            if is_lost or (is_lost is None and is_explicit):
                gone = self._forget(_UNKNOWN)
                pending.dismiss_doubt()
                raise self._without_session(refusal, gone) from None
        if not isinstance(refusal, Refused):
            raise refusal
        self._settle_whole(pending, refusal.answer)

    def _without_session(self, refusal: Exception, gone: NotSent) -> Exception:
        if not isinstance(refusal, Refused | HttpRefused):
            return refusal
        if refusal.status in _NOT_BEGUN:
            return gone
        error = (error_in(refusal.answer) or "not an answer") if isinstance(refusal, Refused) else refusal
        return self._lost(f"lost the session and refused the request: {error}", code="session_lost")

    async def _check_session(self, *, is_explicit: bool = True) -> None:
        if self.session is not None and not self.is_forgotten:
            is_lost = await self._is_lost(is_explicit)
            if is_lost or (is_lost is None and is_explicit):
                self._forget(_UNKNOWN)

    def _take_request(self, message: Envelope, source: Pending | None) -> None:
        if self._speaks()[0] is Era.MODERN:  # which has no requests of servers, and no way to answer them
            self.counts["stray"] += 1
        else:
            super()._take_request(message, source)

    def _send_cancelled(self, notification: bytes) -> None:
        if self._speaks()[0] is Era.HANDSHAKE:  # in the modern era the end of the request's connection says it all
            self.send(notification)

    # -- notifications and answers ----------------------------------------------------------------------------------

    async def _post(self, frame: bytes) -> None:
        async with self._http.stream(
            "POST", self._url, content=self._outgoing(frame), headers=self._headers()
        ) as response:
            if response.is_success:
                return
            if response.status_code != 404 or self.session is None:
                raise await self._refusal(response)
        await self._check_session()

    async def end(self) -> None:
        """Ends the session at the server. May raise `httpx2.HTTPError`."""
        if self.session is not None and not self.is_forgotten:
            async with self._http.stream("DELETE", self._url, headers=self._headers()):
                pass

    # -- streams of the handshake era -------------------------------------------------------------------------------

    def _stream(self, last_id: bytes | None) -> AbstractAsyncContextManager[httpx2.Response]:
        headers = {name.encode(): value.encode() for name, value in self._headers().items()}
        headers[b"accept"] = EVENT_STREAM.encode()
        if last_id is not None:
            headers[b"last-event-id"] = last_id
        return self._http.stream("GET", self._url, headers=headers)

    async def _resume(self, pending: Pending, parser: EventParser, why: str) -> None:
        """Resumes the stream of a request (SEP-1699). Raises `UpstreamLost`."""
        pause, silent = _pause(parser, _PAUSE), 0
        while not pending.is_settled:
            last_id = parser.last_id
            if last_id is None or silent == _RESUMES or self._speaks()[0] is Era.MODERN:
                raise self._lost(why)
            await anyio.sleep(pause * 2**silent)
            parser = EventParser(self._limit, last_id)
            try:
                async with self._stream(last_id) as response:
                    if not is_stream(response):
                        status = response.status_code
                        if status not in _AWAY or silent + 1 == _RESUMES:
                            raise self._lost(f"{why}, and did not resume it: HTTP {status}", status=status)
                    else:
                        await self._follow(response, parser, pending)
            except httpx2.TransportError as exc:
                why = f"broke off the connection: {reason_of(exc)}"
            pause = _pause(parser, pause)
            silent = 0 if parser.last_id != last_id else silent + 1

    async def listen(self) -> None:
        """Follows the common stream, if there is one; returns when the server has answered, or after a bound."""
        answered = anyio.Event()
        self._start("listen", partial(self._listen, answered))
        with anyio.move_on_after(_PAUSE):
            await answered.wait()

    async def _listen(self, answered: anyio.Event) -> None:
        last_id, pause, silent, was_open = None, _PAUSE, 0, False
        while self.can_send:
            parser, began, status = EventParser(self._limit, last_id), anyio.current_time(), 0
            try:
                async with self._stream(last_id) as response:
                    answered.set()
                    if is_stream(response):
                        if was_open:
                            self._on_gap()
                        was_open = True
                        await self._follow(response, parser)
                    else:
                        status = response.status_code
            except NO_CONNECTION as exc:
                self._unreachable(exc)
            except (httpx2.HTTPError, UpstreamLost) as exc:
                log.debug("upstream_stream_broke_off", upstream=self._server, reason=reason_of(exc))
            answered.set()
            if status and (not was_open or status not in _AWAY):
                if was_open:
                    await self._check_session(is_explicit=status == 404)
                return
            pause = _pause(parser, pause)
            lived = anyio.current_time() - began >= _LONGEST
            silent = 0 if lived or parser.last_id != last_id else silent + 1
            last_id = parser.last_id
            await anyio.sleep(_longer(pause, silent))


def _pause(parser: EventParser, otherwise: float) -> float:
    return otherwise if parser.retry is None else max(parser.retry / 1000, _SHORTEST)


def _longer(pause: float, silent: int) -> float:
    return max(pause, min(pause * 2.0 ** min(silent, _DOUBLINGS), _LONGEST))


def _has_outcome(message: Envelope | BadMessage | None) -> bool:
    return isinstance(message, Envelope) and message.kind in ("result", "error")


def _code(message: Envelope | BadMessage | None) -> int | None:
    error = error_in(message)
    return None if error is None else error.code


def _names_session(refusal: Exception) -> bool:
    """Whether this refuses an unknown session (2025-11-25, "Session Management" 3)."""
    if isinstance(refusal, UpstreamLost):
        return refusal.about_upstream.get("status") == 404
    if not isinstance(refusal, Refused):
        return False
    if refusal.status == 404:
        return _code(refusal.answer) != METHOD_NOT_FOUND
    answer = refusal.answer
    return refusal.status == 400 and answer.id_key is None and b"session" in bytes(answer.error).lower()
