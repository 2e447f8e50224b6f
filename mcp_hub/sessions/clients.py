"""Kinds of clients, with limits of tools, results and calls; clients since the hub's start, with masked texts."""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, Protocol
from weakref import ref

import msgspec

from mcp_hub.call import CallingClient
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.meta import APPS, TASKS, declares
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import ClientKind, Era, Mode, PartialForm

_NAME: Final = 256
"""Characters of a client's name that count."""
_NAMES: Final = 1024
"""Clients whose kind is remembered."""


class _ClientFacts(Protocol):
    """Hashable facts about a kind of client."""

    @property
    def expose(self) -> Literal["auto"] | Mode | None: ...
    @property
    def max_tools(self) -> int | None: ...
    @property
    def defers_tools(self) -> bool: ...
    @property
    def max_result_tokens(self) -> int | None: ...
    @property
    def first_list_wait(self) -> float | None: ...
    @property
    def partials(self) -> Literal["message", "off"]: ...
    @property
    def one_line(self) -> bool: ...
    @property
    def result_gap(self) -> float: ...


class ClientKinds:
    """Maps a session to its `ClientKind`, one object for each kind.

    `find(client_name, chosen)` returns facts by name or chosen kind, `deadline(client_name, chosen, known_only)` the
    soft deadline in seconds or None. `own` are hub tools, the first one for every client, the others for those
    with a deadline; clients with the tasks extension have none.
    """

    def __init__(
        self,
        find: Callable[[str | None, str | None], _ClientFacts],
        deadline: Callable[[str | None, str | None, bool], float | None],
        own: tuple[bytes, ...],
    ) -> None:
        self._own = own
        self._find = lru_cache(_NAMES)(find)
        self._deadline = lru_cache(_NAMES)(deadline)
        self._kinds: dict[tuple[_ClientFacts, float | None, bool], ClientKind] = {}

    def forget(self) -> None:
        """Clears the caches after a configuration change."""
        self._find.cache_clear()
        self._deadline.cache_clear()
        self._kinds.clear()

    def __call__(self, session: Session) -> ClientKind:
        client_name, chosen = session.client_info.get("name"), session.caller.client
        name = client_name[:_NAME] if isinstance(client_name, str) else None
        rules, deadline = self._find(name, chosen), None
        if not declares(session.capabilities, session.era, TASKS):
            deadline = self._deadline(name, chosen, session.era is Era.MODERN or not session.caller.has_own_hub)
        shows_apps = declares(session.capabilities, session.era, APPS)
        kind = self._kinds.get((rules, deadline, shows_apps))
        if kind is None:
            kind = self._kinds[rules, deadline, shows_apps] = ClientKind(
                expose=rules.expose,
                max_tools=rules.max_tools,
                defers_tools=rules.defers_tools,
                max_result_tokens=rules.max_result_tokens,
                hub_tools=self._own if deadline is not None else self._own[:1],
                soft_deadline=deadline,
                first_list_wait=rules.first_list_wait,
                partials=_form(rules),
                result_gap=rules.result_gap,
                shows_apps=shows_apps,
            )
        return kind


def _form(rules: _ClientFacts) -> PartialForm | None:
    if rules.partials == "off":
        return None
    return "line" if rules.one_line else "text"


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
    """A client of a background hub, for `mcp-hub status`.

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
    """Finds a client's kind by `kind_of`.

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
            client = self._clients[key] = SeenClient(
                name=hide(name), version=hide(version), era=session.era, caller=session.caller, kind=kind, first=time,
                last=time, session=ref(session) if is_lasting else None,
            )  # fmt: skip
            if len(self._clients) > _MOST:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end(key)
        came = None
        if not session.caller.has_own_hub:
            came = self._arrival(session.id if is_lasting or session.offer.apps is not None else key)
        client.last, client.kind, client.mode = time, kind, session.offer.mode
        session.offer.recognise(client, came)
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
