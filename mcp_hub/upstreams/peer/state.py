"""The state of a session with one server: the settled protocol, announced changes, and the end of the connection."""

import math
from collections.abc import Iterable
from typing import Final, Protocol

import anyio
import msgspec

from mcp_hub import __version__, aio
from mcp_hub.call import Call
from mcp_hub.protocol.capabilities import WITH_APPS, WITHOUT_APPS, HubCapabilities
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, Envelope
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.types import Cause, Era, JsonObject, Kind, RawObject

CLIENT_INFO: Final[JsonObject] = {"name": "mcp-hub", "version": __version__}


LAST_WORDS: Final = 1.0
"""Seconds for the exit code and the rest of stderr of a process that closed its output."""
MOST_FAILURES: Final = 5
"""Requests in a row without an answer of their own after which a server does not count as ready."""
_DOUBT: Final = 3
"""Those after which it is asked whether it lives."""
_NAMELESS: Final = (ABSENT, msgspec.Raw(b"null"))
"""Ids of an error that names no request."""
CONNECTION_LOST: Final = Cause("connection_lost", "the connection was lost")


class PeerInfo(msgspec.Struct, frozen=True):
    """The result of the handshake or the discovery, and what the hub `declares` to this server."""

    era: Era
    version: str
    server_info: JsonObject = msgspec.field(default_factory=dict)
    capabilities: JsonObject = msgspec.field(default_factory=dict)
    instructions: str | None = None
    declares: HubCapabilities = WITH_APPS

    def announces(self, feature: str, option: str) -> bool:
        """Whether the server's capabilities say `{feature: {option: true}}`."""
        offered = self.capabilities.get(feature)
        return isinstance(offered, dict) and offered.get(option) is True

    @property
    def can_watch(self) -> bool:
        """Whether it takes subscriptions to resources."""
        return self.announces("resources", "subscribe")


NOT_SETTLED: Final = PeerInfo(Era.HANDSHAKE, "")


def not_settled(*, apps: bool) -> PeerInfo:
    """Before the handshake; `apps` says that the hub declares to the server that its client shows them."""
    return PeerInfo(Era.HANDSHAKE, "", declares=WITH_APPS if apps else WITHOUT_APPS)


class SignsOfLife:
    """The `answers` of a server, and the requests in a row that ended without an answer of their own.

    Answers over a pipe that come at once count only after a failure. `reason` is that of the last failure, which is an
    HTTP status in place of a message, a broken connection, a message that cannot be read, or an error that names no
    request. A time limit that is over is not one. `last` is the call that was answered last, at the loop's time
    `last_at`; `other_at` is the time of the last answer to a call of another session.
    """

    def __init__(self) -> None:
        self.last: Call | None = None
        self.last_at = self.other_at = -math.inf
        self._time = aio.loop_clock()
        self.answers = 0
        self.failures = 0
        self.reason: Cause | None = None
        self._news = anyio.Event()

    @property
    def is_bad(self) -> bool:
        """Whether the last requests all failed."""
        return self.failures >= MOST_FAILURES

    def answered(self, call: Call | None = None) -> None:
        """The server has answered a request, maybe with an error; that of `call`, if it is one's."""
        self.answers += 1
        self.failures = 0
        if call is not None:
            if self.last is not None and self.last.session != call.session:
                self.other_at = self.last_at
            self.last, self.last_at = call, self._time()

    def take(self, message: Envelope, call: Call | None = None) -> None:
        """Something came in place of the answer to a request, that of `call` if it is one's: mostly that answer."""
        if type(message) is Placeholder or (message.kind == "error" and message.id in _NAMELESS):
            self.last = None  # whose it was is not certain
            self.failed(Cause("unreadable_answer", "it sent an answer that is not one to the request"))
        else:
            self.answered(call)

    def failed(self, cause: Cause) -> None:
        """A request has ended without an answer."""
        self.failures += 1
        self.reason = cause
        self._news.set()

    async def doubted(self) -> None:
        """Waits until some requests in a row have failed."""
        while self.failures < _DOUBT:
            self._news = anyio.Event()
            await self._news.wait()


class Observer(Protocol):
    """Receives notifications of a server that concern no call. Must not block."""

    def on_notice(self, method: str, params: RawObject) -> None:
        """An updated resource, or the acknowledgement or end of a subscription."""

    def on_message(self, session: str, frame: bytes) -> None:
        """A notification for one handshake session alone."""


class PeerEnding:
    """Whether a connection is `closed`, and why. With `is_explained` nothing more is found out after that."""

    def __init__(self, *, is_explained: bool) -> None:
        self.closed = anyio.Event()
        self.cause: Cause | None = None
        self.explained = anyio.Event()
        if is_explained:
            self.explained.set()

    async def last_words(self) -> None:
        """Waits a moment for the final cause."""
        with anyio.move_on_after(LAST_WORDS):
            await self.explained.wait()

    def explain(self, cause: Cause) -> None:
        """Sets the final cause: the exit code is known and stderr read, or the hub ends the connection itself."""
        self.cause = cause
        self.explained.set()

    def close(self, cause: Cause) -> None:
        """The connection is closed; an earlier cause counts."""
        self.cause = self.cause or cause
        self.closed.set()


class ListChanges:
    """The kinds of lists that a server has announced as changed and that were not read since."""

    def __init__(self) -> None:
        self._kinds: set[Kind] = set()
        self._is_missed = False
        self._news = anyio.Event()

    def miss(self) -> None:
        """Announcements may have been missed."""
        self._is_missed = True
        self._news.set()

    def take_missed(self) -> bool:
        """Whether announcements may have been missed since the last call."""
        is_missed, self._is_missed = self._is_missed, False
        return is_missed

    def announce(self, kinds: Iterable[Kind]) -> None:
        """These have changed. Without any it only wakes the task that waits."""
        self._kinds.update(kinds)
        self._news.set()

    async def wait(self) -> None:
        """Waits for an announcement since the last call."""
        await self._news.wait()
        self._news = anyio.Event()

    def take(self) -> set[Kind]:
        """The kinds to be read now."""
        kinds, self._kinds = self._kinds, set()
        return kinds
