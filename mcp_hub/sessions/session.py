"""Sessions: a handshake session lives as long as its connection or `Mcp-Session-Id`, a modern one a request."""

from collections import OrderedDict
from typing import Final, Literal

import msgspec

from mcp_hub.call import CallingClient
from mcp_hub.errors import Busy
from mcp_hub.types import ClientKind, Era, JsonObject, Kind, Mode

_CROWD: Final = 4
"""Sessions that were never used are a crowd above this part of a principal's: a quarter."""


class Caller(msgspec.Struct, frozen=True):
    """The caller, as the front knows it before a message is read: whose calls these are, and what they may see.

    `principal` is the token's; stdio, the CLI and unauthenticated loopback are `local`. Over stdio the
    client `has_own_hub`, which it has started, and may have named the kind of client that it is (`client`). `directory`
    is the working directory of a client of a background hub. `is_operator` is a right of the token; see `operates`.
    """

    principal: str = "local"
    profile: str | None = None
    has_own_hub: bool = False
    client: str | None = None
    directory: str | None = None
    is_operator: bool = False

    @property
    def operates(self) -> bool:
        """Whether it operates the whole hub, and sees the calls of every principal: never within a profile."""
        return self.is_operator and self.profile is None

    @property
    def shows_paths(self) -> bool:
        """Whether it may read the names of files of the hub's machine: operators, and clients of the hub's user."""
        return self.operates or self.has_own_hub


LOCAL = Caller(is_operator=True)


class ClientOffer(msgspec.Struct):
    """The lists that a client is offered, and how far it knows them.

    `kind` is that of a program; that of other clients is looked up. `mode` is how the client was first listed tools,
    which it keeps. `lists` are the digests of the lists that it knows, if changes are announced to it at all. `apps`
    are the servers whose apps it has read, None where the session ends with its request. `facts` is what the hub
    derived from all this, its own, and `epoch` counts the settings that it was looked up in. `came` is when the client
    came, by the hub's clock, 0 for one that has the hub for itself. `roots_changes` counts the changes of its
    roots that it has announced. `client` is the client as it is remembered, None for a program.
    """

    kind: ClientKind | None = None
    mode: Mode | None = None
    lists: dict[Kind, int] | None = None
    facts: object = None
    epoch: int = 0
    apps: dict[str, None] | None = None
    came: float = 0.0
    roots_changes: int = 0
    client: CallingClient | None = None

    def change_roots(self) -> None:
        """The client has announced that its roots have changed."""
        self.roots_changes += 1

    def belong(self, client: CallingClient) -> None:
        """The client has been recognised."""
        self.client = client

    def arrive(self, came: float) -> None:
        """The client came at this time."""
        self.came = came

    def renew(self, epoch: int) -> None:
        """Other settings hold since the last look: all that was derived from them is looked up again."""
        self.epoch, self.facts = epoch, None
        if self.kind is None:
            self.mode = None

    def derive(self, facts: object) -> None:
        """The hub has looked up what calls depend on."""
        self.facts = facts

    def settle(self, mode: Mode) -> None:
        """The client has been listed tools in this mode for the first time, and keeps it."""
        self.mode, self.facts = mode, None

    def follow(self, lists: dict[Kind, int]) -> None:
        """Changes of these lists are announced to the client; they are kept by their digests."""
        self.lists = lists


class Session(msgspec.Struct, weakref=True):
    """One client in one era. `log_level` None: the client never asked (handshake) or wants none (modern).

    `subscriptions` holds resources by server and its own URI, with the URI that the client knows
    (`SessionSubscriptions`).
    """

    id: str
    caller: Caller
    era: Era
    version: str
    capabilities: JsonObject = msgspec.field(default_factory=dict)
    client_info: JsonObject = msgspec.field(default_factory=dict)
    log_level: str | None = None
    subscriptions: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    presence: Literal["connected", "away", "by request", "over"] = "connected"
    offer: ClientOffer = msgspec.field(default_factory=ClientOffer)

    def set_log_level(self, level: str) -> None:
        """The client asked for messages of `level` and above."""
        self.log_level = level

    def agree(self, version: str, capabilities: JsonObject, client_info: JsonObject) -> None:
        """The client has introduced itself again; requests that are open keep what held when they came."""
        self.version, self.capabilities, self.client_info = version, capabilities, client_info
        self.offer.derive(None)

    @property
    def is_over(self) -> bool:
        """Whether the client is gone."""
        return self.presence == "over"

    def be(self, presence: Literal["connected", "away", "by request"]) -> None:
        """The client has a connection of its own, has it no longer, or sends single requests."""
        self.presence = presence

    def end(self) -> None:
        """The client is gone."""
        self.presence = "over"


class _Entry(msgspec.Struct):
    """A session, when it was used last (counted), and whether it ever was since it began."""

    session: Session
    used: int
    is_fresh: bool = True


class _Lane(msgspec.Struct):
    """One principal's sessions, each kind the longest unused first."""

    fresh: OrderedDict[str, _Entry] = msgspec.field(default_factory=OrderedDict)
    used: OrderedDict[str, _Entry] = msgspec.field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self.fresh) + len(self.used)

    def least(self) -> _Entry:
        """The one to make room. A crowd that was never used, as of a client that only connects, goes before others."""
        if 1 < len(self.fresh) and len(self.fresh) * _CROWD > len(self):
            return next(iter(self.fresh.values()))
        candidates = [next(iter(kind.values())) for kind in (self.fresh, self.used) if kind]
        return min(candidates, key=lambda entry: entry.used)


class Sessions:
    """Handshake sessions over HTTP, by id. At most `most`, of one principal at most `each`.

    Where there are more the principal who has too many, or else the one who has most, gives the one unused for longest.
    """

    def __init__(self, limit: int, each: int | None = None) -> None:
        self._limit = limit
        self._each = limit if each is None else min(each, limit)
        self._by_id: dict[str, _Entry] = {}
        self._lanes: dict[str, _Lane] = {}
        self._uses = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, session: Session) -> list[Session]:
        """Those that made room. Raises `Busy` if sessions are switched off (`most` 0)."""
        if self._limit < 1:
            raise Busy("no sessions allowed (hub.http.max_sessions)")
        gone = []
        principal = session.caller.principal
        while len(self._lanes.get(principal, ())) >= self._each:
            gone.append(self._drop(self._lanes[principal].least()))
        while len(self._by_id) >= self._limit:
            fullest = max(self._lanes, key=lambda name: (len(self._lanes[name]), name == principal))
            gone.append(self._drop(self._lanes[fullest].least()))
        self._uses += 1
        entry = self._by_id[session.id] = _Entry(session, self._uses)
        self._lanes.setdefault(principal, _Lane()).fresh[session.id] = entry
        return gone

    def find(self, id_: str, caller: Caller) -> Session | None:
        """The session if it is this caller's; a foreign one is as unknown as one that never was."""
        entry = self._by_id.get(id_)
        if entry is None or entry.session.caller != caller:
            return None
        self._uses += 1
        entry.used = self._uses
        lane = self._lanes[caller.principal]
        if entry.is_fresh:
            entry.is_fresh = False
            lane.used[id_] = lane.fresh.pop(id_)
        else:
            lane.used.move_to_end(id_)
        return entry.session

    def remove(self, session: Session) -> None:
        """Idempotent."""
        entry = self._by_id.get(session.id)
        if entry is not None:
            self._drop(entry)

    def _drop(self, entry: _Entry) -> Session:
        session = entry.session
        del self._by_id[session.id]
        lane = self._lanes[session.caller.principal]
        del (lane.fresh if entry.is_fresh else lane.used)[session.id]
        if not len(lane):
            del self._lanes[session.caller.principal]
        return session
