"""The clients since the hub's start, in a bounded list with masked texts."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from weakref import ref

import msgspec

from mcp_hub.call import CallingClient
from mcp_hub.masking import hide, hide_head
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import ClientKind, Era, Mode

_MOST: Final = 500
"""Clients that are remembered; the one unseen for longest goes first."""
_SESSIONS: Final = 4096
"""Sessions whose arrival is remembered."""
_TEXT: Final = 100
"""Characters of a name or a version."""


class SeenClient(CallingClient, eq=False):
    """A client by name, version, era and caller; handshake clients by session.

    `first` and `last` are Unix seconds.
    """

    version: str
    era: Era
    caller: Caller
    kind: ClientKind
    first: float
    last: float
    calls: int = 0
    mode: Mode | None = None
    session: "ref[Session] | None" = None

    def ended(self, at: float) -> None:
        """Counts a call that ended at this Unix time."""
        self.calls += 1
        self.last = at

    @property
    def connected(self) -> bool | None:
        """Whether a connection (over HTTP a GET stream) is open; None for single requests."""
        if self.session is None:
            return None
        presence = "over" if (session := self.session()) is None else session.presence
        return None if presence == "by request" else presence == "connected"


class PresentClient(msgspec.Struct, frozen=True):
    """A client connected to a background hub, for `mcp-hub status`.

    `name`, `version` and `era` are empty before its first request; `kind` is from `--client`; `since` in Unix seconds.
    Equal modern clients are counted together.
    """

    pid: int
    build: str
    since: float
    kind: str = ""
    name: str = ""
    version: str = ""
    era: str = ""
    calls: int = 0


class HubUse(msgspec.Struct, frozen=True):
    """A background hub's first `clients`, running `calls` and HTTP `connections`.

    Unused, it ends after `idle` seconds; `left` remain, None while in use.
    """

    clients: list[PresentClient]
    many: int
    calls: int
    connections: int
    idle: float
    left: float | None = None


class ClientsSeen:
    """Finds a client's kind by `kind_of` and records the client.

    `now` returns Unix seconds; `meet` gets each era.
    """

    def __init__(
        self,
        kind_of: Callable[[Session], ClientKind],
        now: Callable[[], float],
        clock: Callable[[], float],
        meet: Callable[[Era], object] = lambda era: None,
    ) -> None:
        self._meet = meet
        self._clock = clock
        self._came: OrderedDict[object, float] = OrderedDict()
        self._kind_of = kind_of
        self._now = now
        self._clients: OrderedDict[object, SeenClient] = OrderedDict()

    def __call__(self, session: Session) -> ClientKind:
        kind = self._kind_of(session)
        if not session.id:  # of nobody: what a kind of client would be listed
            return kind
        is_lasting = session.era is Era.HANDSHAKE
        name = _text(session.client_info.get("name"))
        key: object = session.id if is_lasting else (session.caller, name, session.version)
        client = self._clients.get(key)
        time = self._now()
        if client is None:
            self._meet(session.era)
            version = _text(session.client_info.get("version"))
            texts = hide(name), hide(version)
            client = self._clients[key] = SeenClient(*texts, session.era, session.caller, kind, time, time)
            client.session = ref(session) if is_lasting else None
            if len(self._clients) > _MOST:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(key)
        if not session.caller.has_own_hub:
            session.offer.arrive(self._arrival(session.id if is_lasting or session.offer.apps is not None else key))
        client.last, client.kind, client.mode = time, kind, session.offer.mode
        session.offer.belong(client)
        return kind

    def _arrival(self, client: object) -> float:
        if client not in self._came and len(self._came) >= _SESSIONS:
            self._came.popitem(last=False)
        return self._came.setdefault(client, self._clock())

    def of(self, caller: Caller) -> SeenClient | None:
        """The caller's client, else the last of an equal caller."""
        alike = [client for client in self._clients.values() if client.caller == caller]
        return next((client for client in alike if client.caller is caller), alike[-1] if alike else None)

    def newest(self) -> list[SeenClient]:
        return sorted(self._clients.values(), key=lambda client: -client.last)


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= _TEXT else hide_head(value, _TEXT)
