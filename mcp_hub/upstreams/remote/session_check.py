"""Checks whether a remote server has lost a session; few answer with the specified 404.

If a ping in it is refused, a second session begins. The first is lost unless the second refuses alike. Source:
specification 2025-11-25, basic/transports "Session Management" and basic/utilities/ping.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import httpx2
import msgspec

from mcp_hub.errors import HttpRefused, RpcError
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import PeerInfo

log = get_logger(__name__)

_PATIENCE: Final = 5.0
"""Seconds that a server has to answer the ping."""
_PAUSE: Final = 1.0
"""Seconds without a check after one without a result; doubled for each in a row."""
_LONGEST: Final = 30.0
_DOUBLINGS: Final = 5
_TWICE: Final = 2
"""Refusals in a row that count more than an answered ping."""

Refusal = tuple[object, ...]
"""The way in which a ping was refused: status or code, and the message."""
_SILENCE: Final[Refusal] = ()


class NewSession(msgspec.Struct, frozen=True):
    """A begun session: its id, the negotiated protocol and its cookies."""

    id: str | None
    info: PeerInfo
    cookies: httpx2.Cookies


Begin = Callable[[Callable[[Peer], Awaitable[bool]]], Awaitable[NewSession | None]]
"""Begins another session; ends it again, and returns None, unless the function accepts it."""


class SessionCheck:
    """The checks of one session, one at a time; requests refused before a check began share its result.

    Checks nothing without `begin`, or before the session's first response. `successor` replaces a lost session.
    """

    def __init__(self, peer: Peer, begin: Begin | None) -> None:
        self.successor: NewSession | None = None
        self._peer = peer
        self._begin = begin
        self._lock = anyio.Lock()
        self._result: bool | None = False
        self._until = -1.0  # requests that were refused up to then share the result
        self._unclear = 0
        self._denials = 0
        self._answers = 0
        self._first: int | None = None  # the answers that came before the session was settled

    def settled(self) -> None:
        """Notes the end of the handshake."""
        self._first = self._peer.signs.answers

    async def is_lost(self, is_explicit: bool) -> bool | None:
        """Whether the session is lost; None if unclear. `is_explicit`: the server says so itself."""
        if self._begin is None or self._first in (None, self._peer.signs.answers):
            return None
        requested_at = anyio.current_time()
        async with self._lock:
            if self.successor is not None:
                return True
            if requested_at > self._until:
                self._until = anyio.current_time()
                self._result = await self._checked(self._begin, is_explicit)
                self._space(is_clear=self._result is not None)
            return self._result

    def _space(self, *, is_clear: bool) -> None:
        self._unclear = 0 if is_clear else self._unclear + 1
        if not is_clear:
            self._until = anyio.current_time() + min(_PAUSE * 2.0 ** min(self._unclear - 1, _DOUBLINGS), _LONGEST)

    async def _checked(self, begin: Begin, is_explicit: bool) -> bool | None:
        refusal = await ping(self._peer)
        if refusal is None and not self._is_denied(is_explicit):
            return False
        if self._peer.ending.closed.is_set() or refusal is _SILENCE:
            return None

        async def is_better(peer: Peer) -> bool:
            return is_explicit or await ping(peer) != refusal

        self.successor = await begin(is_better)
        if self.successor is None:
            return None
        log.info("upstream_session_lost", upstream=self._peer.name)
        return True

    def _is_denied(self, is_explicit: bool) -> bool:
        """Whether the server denied the session twice, and answered only pings in between."""
        answers = self._peer.signs.answers
        if answers > self._answers + 1:  # one is that to the ping
            self._denials = 0
        self._answers = answers
        self._denials += is_explicit
        return self._denials >= _TWICE


async def ping(peer: Peer) -> Refusal | None:
    """The refusal of a ping; None if it is answered, also with "method not found"."""
    with anyio.move_on_after(_PATIENCE):
        try:
            await peer.answer(peer.send("ping"), may_cancel=False)
        except HttpRefused as exc:
            return exc.status, exc.code
        except RpcError as exc:
            return exc.code, exc.message
        return None
    return _SILENCE
