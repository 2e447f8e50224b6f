"""Client sessions: one connection or `Mcp-Session-Id` (handshake), or one request (modern); subscribed resources."""

import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal, TypeVar

import msgspec

from mcp_hub.call import LOCAL_PRINCIPAL, Call, CallingClient, Upstream
from mcp_hub.errors import Busy, RpcError
from mcp_hub.notices import Notices, Origin
from mcp_hub.protocol.eras import LOG_LEVELS
from mcp_hub.types import CallId, ClientKind, Era, JsonObject, Kind, Mode

_KIND: Final = 256
"""Characters of a client's name that count."""
_CROWD: Final = 4
"""Never used sessions above a quarter of a principal's are evicted first."""


class Caller(msgspec.Struct, frozen=True):
    """The identity and rights that a front knows before a message is read.

    `principal` is the token's, else `local`. A stdio client `has_own_hub` and may name its kind as `client`.
    `directory` is a background hub client's. `claims`: those of its token that rules name, as JSON.
    """

    principal: str = LOCAL_PRINCIPAL
    profile: str | None = None
    has_own_hub: bool = False
    client: str | None = None
    directory: str | None = None
    is_operator: bool = False
    claims: str = ""

    @property
    def operates(self) -> bool:
        """Whether it may operate the hub and see all calls; False within a profile."""
        return self.is_operator and self.profile is None

    @property
    def shows_paths(self) -> bool:
        """Whether it may see paths of the hub's machine."""
        return self.operates or self.has_own_hub

    def origin(self, client_name: object) -> bytes | None:
        """The kind of a stdio client, else its name, and its folder, as JSON; None if unknown."""
        kind, root = self.client or client_name, self.directory
        if root is None and self.has_own_hub:
            with suppress(OSError):  # it was removed
                root = os.getcwd()
        if not (isinstance(kind, str) and kind and root):
            return None
        return msgspec.json.encode({"client": kind[:_KIND], "root": root})


Derived = TypeVar("Derived")

LOCAL = Caller(is_operator=True)


class ClientOffer(msgspec.Struct):
    """The client's tool lists and its knowledge of them.

    `kind` is set for programs, `client` for others. `lists` are digests of known lists if changes are announced. `apps`
    are servers whose apps it has read; None for a modern session. `facts` are derived from settings `epoch`. `came` is
    in the hub's clock, 0 for an own hub.
    """

    kind: ClientKind | None = None
    mode: Mode | None = None
    """The way tools were first listed, which the client keeps."""
    lists: dict[Kind, int] | None = None
    facts: object = None
    epoch: int = 0
    apps: dict[str, None] | None = None
    came: float = 0.0
    roots_changes: int = 0
    client: CallingClient | None = None

    def change_roots(self) -> None:
        self.roots_changes += 1

    def recognise(self, client: CallingClient, came: float | None) -> None:
        """Names the client. `came` None: its hub is its own."""
        self.client = client
        if came is not None:
            self.came = came

    def renew(self, epoch: int) -> None:
        """Drops all of earlier settings."""
        self.epoch, self.facts = epoch, None
        if self.kind is None:
            self.mode = None

    def derive(self, facts: Derived) -> Derived:
        """Keeps facts that were derived from the settings of `epoch`; returns them."""
        self.facts = facts
        return facts

    def settle(self, mode: Mode) -> None:
        """Fixes the mode in which the client was listed tools."""
        self.mode, self.facts = mode, None

    def follow(self, digests: Mapping[Kind, int]) -> dict[Kind, int]:
        """Announces changes of these digests; each listing updates the returned record."""
        self.lists = dict(digests)
        return self.lists


class Session(msgspec.Struct, weakref=True):
    """A client in one era; `subscriptions` maps (server, its URI) to the client's URI."""

    id: str
    caller: Caller
    era: Era
    version: str
    capabilities: JsonObject = msgspec.field(default_factory=dict)
    client_info: JsonObject = msgspec.field(default_factory=dict)
    log_level: str | None = None
    """None: never asked for (handshake), or unwanted (modern)."""
    subscriptions: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    presence: Literal["connected", "away", "by request", "over"] = "connected"
    offer: ClientOffer = msgspec.field(default_factory=ClientOffer)

    def set_log_level(self, level: str) -> bool:
        """Sets the level; False for one that MCP does not have, which changes nothing."""
        if level not in LOG_LEVELS:
            return False
        self.log_level = level
        return True

    def agree(self, version: str, capabilities: JsonObject, client_info: JsonObject) -> None:
        """Applies another `initialize`; open requests are unaffected."""
        self.version, self.capabilities, self.client_info = version, capabilities, client_info
        self.offer.facts = None

    @property
    def is_over(self) -> bool:
        return self.presence == "over"

    @property
    def origin(self) -> bytes | None:
        """The kind and folder of a stdio client, as JSON; None if unknown."""
        return self.caller.origin(self.client_info.get("name"))

    def be(self, presence: Literal["connected", "away", "by request"]) -> None:
        """Notes a connection's begin or end; a session that is over stays so."""
        if not self.is_over:
            self.presence = presence

    def end(self) -> None:
        self.presence = "over"


def marked(caller: Caller, client_info: JsonObject, call: Call) -> bytes | None:
    """The mark of a stdio client's streams: its origin, for a later session."""
    return caller.origin(client_info.get("name"))


class _Entry(msgspec.Struct):
    session: Session
    used: int
    is_fresh: bool = True


class _Lane(msgspec.Struct):
    """One principal's sessions, least recently used first."""

    fresh: OrderedDict[str, _Entry] = msgspec.field(default_factory=OrderedDict)
    used: OrderedDict[str, _Entry] = msgspec.field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self.fresh) + len(self.used)

    def least(self) -> _Entry:
        """The session to evict; many never used ones go first."""
        if 1 < len(self.fresh) and len(self.fresh) * _CROWD > len(self):
            return next(iter(self.fresh.values()))
        candidates = [next(iter(kind.values())) for kind in (self.fresh, self.used) if kind]
        return min(candidates, key=lambda entry: entry.used)


class Sessions:
    """Handshake sessions over HTTP: at most `most`, `each` of one principal.

    Over a limit the principal with too many, else with most, loses its least recently used session.
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
        """Adds a session; the evicted ones. Raises `Busy` if `most` is 0."""
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
        """The session; None if unknown or another caller's."""
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


MOST_SUBSCRIPTIONS: Final = 1000
"""Limit of one session."""

_NO_ID: Final = CallId("")


def call_of(session: Session) -> Call:
    """A call that is never sent, which identifies the caller to upstreams."""
    return Call(
        id=_NO_ID,
        upstream="",
        method="",
        params={},
        meta={},
        session=session.id,
        principal=session.caller.principal,
        era=session.era,
        version=session.version,
        capabilities=session.capabilities,
        is_program=session.offer.kind is not None,
        directory=session.caller.directory,
    )


class SessionSubscriptions:
    """Pairs subscriptions of sessions with references at upstream connections."""

    def __init__(self, upstreams: Mapping[str, Upstream], changes: Notices) -> None:
        self._upstreams = upstreams
        self._changes = changes

    async def add(self, session: Session, origin: Origin, uri: str) -> None:
        """Subscribes at the upstream; the client knows the resource as `uri`.

        Raises `Busy` over the limit, and errors of `Upstream.subscribe`; then nothing is subscribed.
        """
        if session.is_over:
            raise RpcError("the session is over")
        server, original = origin
        is_new = origin not in session.subscriptions
        if is_new:
            if len(session.subscriptions) >= MOST_SUBSCRIPTIONS:
                raise Busy(f"{MOST_SUBSCRIPTIONS} subscriptions already, the most that one client may have")
            session.subscriptions[origin] = uri  # from now on, so that no update falls in between
        try:
            await self._upstreams[server].subscribe(original, call_of(session))
        except BaseException:
            if is_new and session.subscriptions.get(origin) is uri:  # not one that was made after this one was ended
                self.remove(session, origin)
            raise
        finally:
            if not is_new:  # it was only waited for
                self._release(session, origin)

    def remove(self, session: Session, origin: Origin) -> None:
        if session.subscriptions.pop(origin, None) is not None:
            self._release(session, origin)

    def _release(self, session: Session, origin: Origin) -> None:
        server, uri = origin
        if server in self._upstreams:
            self._upstreams[server].unsubscribe(uri, call_of(session))

    def updates(self, session: Session, origin: Origin, after: int) -> list[tuple[str, bytes]]:
        """Notices after number `after`."""
        server, uri = origin
        upstream = self._upstreams.get(server)
        connection = None if upstream is None else upstream.apart(call_of(session))
        return self._changes.notices((server if connection is None else connection.topic, uri), after)

    def clear(self, session: Session) -> None:
        """Ends the session and all its subscriptions."""
        session.end()
        for origin in list(session.subscriptions):
            self.remove(session, origin)
