"""The session of a Streamable HTTP connection, and its era.

Source: specification 2025-11-25, basic/transports "Session Management"; 2026-07-28, basic/versioning "Backward
Compatibility".
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import httpx2

from mcp_hub.errors import HttpRefused, UpstreamLost
from mcp_hub.protocol.headers import request_headers
from mcp_hub.protocol.jsonrpc import rpc_errors
from mcp_hub.protocol.jsonrpc.rpc_errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR
from mcp_hub.types import Era, RawJson
from mcp_hub.wire.base import NotSent, Pending
from mcp_hub.wire.responses import POSTED, Refused, code_in, error_in, is_overload, lost_request

_DISCOVER: Final = "server/discover"
_UNKNOWN: Final = "the server no longer knows the session"
_CLIENT_FAULTS: Final = (400, 404, 405)
_NOT_BEGUN: Final = (400, 404)
"""Statuses by which a server that does not know the session refuses a request before it acts on it."""
_CHECKS: Final = ("initialize", "ping")
"""Requests that show whether a session lives: their own refusal starts no further check."""
_MODERN_FAULTS: Final = (METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR, PARSE_ERROR)
"""Codes that modern servers have for these; the reserved ones besides."""
_SURE: Final = 5.0
"""Seconds for which a server that was asked is known to be modern."""


class HttpSession:
    """The session at a server, its headers, and the checks whether it has ended.

    `speaks`: era and version. `is_forgotten`: the server has lost the session, or changed its era. `still_modern`
    checks the era after a doubtful refusal, `is_lost` the session (None: unclear); its argument: the refusal names the
    session. `retire` refuses new messages.
    """

    def __init__(
        self,
        server: str,
        *,
        id_: str | None,
        speaks: Callable[[], tuple[Era, str]],
        still_modern: Callable[[], Awaitable[bool]] | None,
        is_lost: Callable[[bool], Awaitable[bool | None]],
        retire: Callable[[str, str], None],
    ) -> None:
        self.id = id_
        self.is_forgotten = False
        self._server = server
        self._speaks = speaks
        self._still_modern = still_modern
        self._is_lost = is_lost
        self._retire = retire
        self._sure_until = 0.0
        self._asking = anyio.Lock()

    @property
    def is_modern(self) -> bool:
        return self._speaks()[0] is Era.MODERN

    @property
    def has_server_requests(self) -> bool:
        """Whether the server may send requests; the modern era does not have them, nor a way to answer."""
        return not self.is_modern

    def headers(self, method: str | None = None, params: RawJson = b"") -> dict[str, str]:
        """The headers of a message; `method`: of a request."""
        era, version = self._speaks()
        headers = dict(POSTED)
        if era is Era.MODERN and method is not None:
            headers |= request_headers(version, method, params)
        elif method != "initialize":  # which is sent before anything is settled
            headers["mcp-protocol-version"] = version
            if self.id is not None:
                headers["mcp-session-id"] = self.id
        return headers

    def begin(self, response: httpx2.Response, pending: Pending) -> None:
        """Takes the id from the answer to `initialize`."""
        if pending.method == "initialize":
            id_ = response.headers.get("mcp-session-id", "")
            self.id = id_ if id_.isascii() and id_.isprintable() and id_ else None

    def may_be_lost(self, pending: Pending) -> bool:
        """Whether an error may be about the session."""
        return self.id is not None and pending.method not in _CHECKS

    def may_have_changed(self, status: int | None, code: int | None, pending: Pending) -> bool:
        """Whether the server may have changed to the handshake era."""
        if self._still_modern is None or not self._is_settled(pending) or status not in _CLIENT_FAULTS:
            return False
        return code not in _MODERN_FAULTS and (code is None or not rpc_errors.is_reserved(code))

    def check_version(self, pending: Pending, code: int | None) -> None:
        """Raises `NotSent` for a refusal of the settled version."""
        if self._is_settled(pending) and code == rpc_errors.UNSUPPORTED_VERSION:
            raise self._forget("the server no longer speaks the version that was settled on", "era_changed")

    async def check_refusal(self, pending: Pending, refusal: Exception) -> None:
        """Raises `NotSent` or `UpstreamLost` if session or era have ended."""
        status = refusal.status if isinstance(refusal, Refused | HttpRefused) else None
        code = code_in(refusal.answer) if isinstance(refusal, Refused) else None
        if self.may_have_changed(status, code, pending) and await self._has_changed():
            raise self._forget("the server no longer speaks the era that was settled on", "era_changed")
        if self.may_be_lost(pending) and not is_overload(refusal):
            is_explicit = _names_session(refusal)
            is_lost = self.is_forgotten or await self._is_lost(is_explicit)
            if is_lost or (is_lost is None and is_explicit):
                gone = self._forget(_UNKNOWN)
                pending.dismiss_doubt()
                raise self._without_session(refusal, gone) from None

    async def check(self, *, is_explicit: bool = True) -> None:
        """Checks the session after a refusal that belongs to no request."""
        if self.id is not None and not self.is_forgotten:
            is_lost = await self._is_lost(is_explicit)
            if is_lost or (is_lost is None and is_explicit):
                self._forget(_UNKNOWN)

    def _is_settled(self, pending: Pending) -> bool:
        return self.is_modern and pending.method != _DISCOVER

    async def _has_changed(self) -> bool:
        """Probes the era; one request asks for all that wait."""
        assert self._still_modern is not None
        async with self._asking:
            if not self.is_forgotten and anyio.current_time() >= self._sure_until and await self._still_modern():
                self._sure_until = anyio.current_time() + _SURE
        return self.is_forgotten or anyio.current_time() >= self._sure_until

    def _forget(self, reason: str, code: str = "session_lost") -> NotSent:
        self.is_forgotten = True
        self._retire(reason, code)
        return NotSent(reason)

    def _without_session(self, refusal: Exception, gone: NotSent) -> Exception:
        if not isinstance(refusal, Refused | HttpRefused):
            return refusal
        if refusal.status in _NOT_BEGUN:
            return gone
        error = (error_in(refusal.answer) or "not an answer") if isinstance(refusal, Refused) else refusal
        return lost_request(self._server, f"lost the session and refused the request: {error}", code="session_lost")


def _names_session(refusal: Exception) -> bool:
    """Whether this refuses an unknown session (2025-11-25, "Session Management" 3)."""
    if isinstance(refusal, UpstreamLost):
        return refusal.about_upstream.get("status") == 404
    if not isinstance(refusal, Refused):
        return False
    if refusal.status == 404:
        return code_in(refusal.answer) != METHOD_NOT_FOUND
    answer = refusal.answer
    return refusal.status == 400 and answer.id_key is None and b"session" in bytes(answer.error).lower()
