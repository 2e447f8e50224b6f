"""Settled protocol, announced changes and end of a session."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import anyio
import msgspec

from mcp_hub import __version__, aio
from mcp_hub.call import Call
from mcp_hub.protocol.capabilities import EVENTS, WITH_APPS, WITHOUT_APPS, extensions_in
from mcp_hub.protocol.jsonrpc.envelope import ABSENT, Envelope
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.types import Cause, Era, JsonObject, Kind, LogFlow, LogRule, RawObject

CLIENT_INFO: Final[JsonObject] = {"name": "mcp-hub", "version": __version__}


LAST_WORDS: Final = 1.0
"""Seconds for the exit code and the rest of stderr of a process that closed its output."""
MOST_FAILURES: Final = 5
"""Requests in a row without a valid response after which a server is not ready."""
_DOUBT: Final = 3
"""Requests in a row without an answer after which the server is pinged."""
_NAMELESS: Final = (ABSENT, msgspec.Raw(b"null"))
"""Ids of an error that names no request."""
CONNECTION_LOST: Final = Cause("connection_lost", "the connection was lost")


class PeerInfo(msgspec.Struct, frozen=True):
    """The result of handshake or discovery, and what the hub `declares`."""

    era: Era
    version: str
    server_info: JsonObject = msgspec.field(default_factory=dict)
    capabilities: JsonObject = msgspec.field(default_factory=dict)
    instructions: str | None = None
    declares: Mapping[Era, JsonObject] = WITH_APPS

    def announces(self, feature: str, option: str) -> bool:
        """Whether the capabilities have `{feature: {option: true}}`."""
        offered = self.capabilities.get(feature)
        return isinstance(offered, dict) and offered.get(option) is True

    @property
    def announces_events(self) -> bool:
        """Whether it sends changes of its list of event types (SEP-3415)."""
        settings = extensions_in(self.capabilities).get(EVENTS)
        is_extension = isinstance(settings, dict) and settings.get("listChanged") is True
        return is_extension or self.announces("events", "listChanged")

    @property
    def can_watch(self) -> bool:
        return self.announces("resources", "subscribe")


NOT_SETTLED: Final = PeerInfo(Era.HANDSHAKE, "")


def not_settled(*, apps: bool) -> PeerInfo:
    """Before the handshake; `apps`: clients show apps."""
    return PeerInfo(Era.HANDSHAKE, "", declares=WITH_APPS if apps else WITHOUT_APPS)


class SignsOfLife:
    """The `answers` of a server, and `failures` in a row.

    Failures are HTTP error statuses, broken connections and unreadable messages, not timeouts. Immediate answers over a
    pipe count only after a failure. `last` is the call answered last, at `last_at` (the loop's time); `other_at` is the
    last answer to another session.
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
        return self.failures >= MOST_FAILURES

    def answered(self, call: Call | None = None) -> None:
        """Notes a response, maybe an error."""
        self.answers += 1
        self.failures = 0
        if call is not None:
            if self.last is not None and self.last.session != call.session:
                self.other_at = self.last_at
            self.last, self.last_at = call, self._time()

    def take(self, message: Envelope, call: Call | None = None) -> None:
        """Notes a response, or its replacement."""
        if type(message) is Placeholder or (message.kind == "error" and message.id in _NAMELESS):
            self.last = None  # whose it was is not certain
            self.failed(Cause("unreadable_answer", "it sent an answer that is not one to the request"))
        else:
            self.answered(call)

    def failed(self, cause: Cause) -> None:
        self.failures += 1
        self.reason = cause
        self._news.set()

    async def doubted(self) -> None:
        """Waits for consecutive failures."""
        while self.failures < _DOUBT:
            self._news = anyio.Event()
            await self._news.wait()


class ServerLogs:
    """The rule for a server's log messages, and counts over all its connections."""

    def __init__(self, rule: Callable[[], LogRule] = lambda: "hub") -> None:
        self._rule = rule
        self._sent = 0
        self._unsent = 0

    @property
    def rule(self) -> LogRule:
        return self._rule()

    def count(self, *, is_sent: bool, is_counted: bool = False) -> None:
        """Counts a message. `is_counted`: it was counted as kept before."""
        self._sent += is_sent
        self._unsent += -1 if is_counted else not is_sent

    def flow(self) -> LogFlow:
        return LogFlow(self.rule, self._sent, self._unsent)


class Observer(Protocol):
    """The owner of a session, which outlives it: `logs` counts its messages. Must not block."""

    @property
    def logs(self) -> ServerLogs: ...

    def passes(self, method: str) -> bool:
        """Whether the server may send messages of a method unknown to the hub."""

    def on_notice(self, method: str, params: RawObject) -> None:
        """Receives a resource update, or a subscription's acknowledgement or end."""

    def on_message(self, session: str, frame: bytes) -> None:
        """Receives a notification for one handshake session."""


class PeerEnding:
    """Whether a connection is `closed`, and why. `is_explained`: the first cause is final."""

    def __init__(self, *, is_explained: bool) -> None:
        self.closed = anyio.Event()
        self.cause: Cause | None = None
        self.explained = anyio.Event()
        if is_explained:
            self.explained.set()

    async def last_words(self) -> None:
        """Waits a moment for the cause."""
        with anyio.move_on_after(LAST_WORDS):
            await self.explained.wait()

    def explain(self, cause: Cause) -> None:
        self.cause = cause
        self.explained.set()

    def close(self, cause: Cause) -> None:
        """An earlier cause counts."""
        self.cause = self.cause or cause
        self.closed.set()


class ListChanges:
    """Kinds announced as changed and not read since."""

    def __init__(self) -> None:
        self._kinds: set[Kind] = set()
        self._is_missed = False
        self._news = anyio.Event()

    def miss(self) -> None:
        """Notes a gap in announcements."""
        self._is_missed = True
        self._news.set()

    def take_missed(self) -> bool:
        """Whether there was a gap since the last call."""
        is_missed, self._is_missed = self._is_missed, False
        return is_missed

    def announce(self, kinds: Iterable[Kind]) -> None:
        """Notes changed kinds; without any it only wakes `wait`."""
        self._kinds.update(kinds)
        self._news.set()

    async def wait(self) -> None:
        await self._news.wait()
        self._news = anyio.Event()

    def take(self) -> set[Kind]:
        kinds, self._kinds = self._kinds, set()
        return kinds
