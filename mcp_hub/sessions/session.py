"""Who is asking: a handshake session lives as long as its connection or `Mcp-Session-Id`, a modern one a request."""

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from mcp_hub.errors import Busy
from mcp_hub.types import Audience, Era, JsonObject, Kind, Mode

__all__ = ["LOCAL", "Caller", "Session", "Sessions"]


@dataclass(frozen=True, slots=True)
class Caller:
    """What the front knows before a message is read: whose calls these are, and what they may see.

    `principal` is the token's; stdio, the CLI and unauthenticated loopback are `local` (streams.md §3). Over stdio the
    client `has_own_hub`, which it has started, and may have named the kind of client that it is (`client`).
    """

    principal: str = "local"
    profile: str | None = None
    has_own_hub: bool = False
    client: str | None = None


LOCAL = Caller()


@dataclass(slots=True)
class Session:
    """One client in one era. `log_level` None: the client never asked (handshake) or wants none (modern).

    `subscriptions` holds resources by server and its own URI, with the URI that the client knows (`Subscriptions`);
    `answers_after` is the soft deadline of its calls in seconds, None for never, and `audience` the kind of client that
    lists are made for, once they were looked up; `mode` is how it was first listed tools, which it keeps.
    `lists` says which lists the client has seen or was told of last, by their digests, if it is told of changes at all.
    """

    id: str
    caller: Caller
    era: Era
    version: str
    capabilities: JsonObject = field(default_factory=dict)
    client_info: JsonObject = field(default_factory=dict)
    log_level: str | None = None
    subscriptions: dict[tuple[str, str], str] = field(default_factory=dict)
    lists: dict[Kind, int] | None = None
    is_over: bool = False
    answers_after: float | None | UnsetType = UNSET
    audience: Audience | None = None
    mode: Mode | None = None


class Sessions:
    """Handshake sessions over HTTP, by id. At most `most`: the one unused for longest makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_id: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, session: Session) -> list[Session]:
        """Those that made room. Raises `Busy` if sessions are switched off (`most` 0)."""
        if self._most < 1:
            raise Busy("no sessions allowed (hub.http.max_sessions)")
        gone = []
        while len(self._by_id) >= self._most:
            gone.append(self._by_id.popitem(last=False)[1])
        self._by_id[session.id] = session
        return gone

    def find(self, id_: str, caller: Caller) -> Session | None:
        """The session if it is this caller's; a foreign one is as unknown as one that never was."""
        session = self._by_id.get(id_)
        if session is None or session.caller != caller:
            return None
        self._by_id.move_to_end(id_)
        return session

    def remove(self, session: Session) -> None:
        self._by_id.pop(session.id, None)
