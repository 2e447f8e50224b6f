"""The current view of every profile, built on demand; its search index, built on the first search."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, Upstream
from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.offers.definitions import Quarantined
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.pins import Verdict
from mcp_hub.catalog.resources.skills import of_skill
from mcp_hub.catalog.resources.uris import Remembered, readdress
from mcp_hub.catalog.routes import text
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import Hit, SearchIndex
from mcp_hub.catalog.search.words import load
from mcp_hub.catalog.texts import search_tool
from mcp_hub.catalog.views.entries import Entry, by_server
from mcp_hub.catalog.views.exposure import decided, exposed
from mcp_hub.catalog.views.names import ExportedNames, prefix_in
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.types import ClientKind, Kind, Mode, RawJson, Snapshot, UpstreamState, UpstreamStatus, reason_for_others

log = get_logger(__name__)


class _Described(msgspec.Struct):
    description: str | None = None
    inputSchema: dict[str, object] = {}


_described = msgspec.json.Decoder(_Described).decode


class _Indexes:
    """One index for each searched profile, without its hidden tools."""

    def __init__(self, aliases: Mapping[str, Sequence[str]]) -> None:
        self._aliases = aliases
        self._indexes: dict[str | None, _Indexed] = {}
        self._turn = anyio.Lock()

    async def search(
        self, profile: str | None, view: CatalogView, query: str, limit: int, server: str | None
    ) -> tuple[Hit, ...]:
        """Indexes changes in a worker thread."""
        async with self._turn:
            indexed = self._indexes.setdefault(profile, _Indexed(SearchIndex(self._aliases)))
            if indexed.view is not view:
                await anyio.to_thread.run_sync(indexed.catch_up, view)
            return indexed.index.search(query, limit, server)


class _Indexed:
    def __init__(self, index: SearchIndex) -> None:
        self.index = index
        self.view: CatalogView | None = None
        self._tools: dict[str, list[Entry]] = {}

    def catch_up(self, view: CatalogView) -> None:
        load()  # here, in a thread, so that no search waits for it
        tools = by_server((entry.server, entry) for entry in view.entries(Kind.TOOL))
        if list(tools)[: len(self._tools)] != list(self._tools):  # equally good tools are in the order of their servers
            for server in self._tools:
                self.index.drop(server)
            self._tools = {}
        for server, entries in tools.items():
            if entries != self._tools.get(server):
                self.index.put(server, [searchable(entry) for entry in entries])
        self._tools, self.view = tools, view


def searchable(entry: Entry) -> Searchable:
    """The searched text of a tool or event type."""
    try:
        described = _described(entry.raw)
    except (msgspec.DecodeError, RecursionError):
        described = _Described()
    return Searchable(
        id=entry.exported,
        server=entry.server,
        name=entry.key,
        description=described.description or "",
        schema=described.inputSchema,
    )


_NO_VERDICT: Final[Verdict] = ({}, frozenset())
_NOTHING: Final = ViewRules({}, shared=False, max_result_tokens=0)
_MOST_LOGGED: Final = 20  # tools that are named in one line of the log
_LONGEST_REASON: Final = 300  # characters of the reason why one was left out
_LONGEST_PREFIX: Final = 256  # characters of an unknown name that are looked at
_MOST_VIEWS: Final = 64  # views that are kept, beyond which those of single callers make room
_FRESH: Final = 0.1  # seconds between looks at the age of lists
CALL_WAIT: Final = 30.0
"""Seconds that a call waits for a starting server; clients wait longer for calls than for lists."""
_MOST_GONE: Final = 1024  # profiles without rules that are remembered: sessions and streams may still have them

CallerLists = tuple[Snapshot, ...]
"""Lists of the caller's own connections, which replace those of their servers."""
_Ids = tuple[int, ...]
_View = tuple[CatalogView, CallerLists]
_Key = TypeVar("_Key")


class _ListWait(msgspec.Struct):
    """The wait of lists for servers. States are looked at once for each `version`, ages of lists also each 0.1 s."""

    clock: Clock
    started: float
    wait: float
    version: int = -1
    is_first_start: bool = True
    fresh: dict[Kind, tuple[int, float]] = {}

    def is_awaited(self, upstreams: Iterable[Upstream], version: int) -> bool:
        """Whether one of them is on its first way up."""
        if version != self.version:
            self.version, self.is_first_start = version, any(map(_on_first_way_up, upstreams))
        return self.is_first_start

    def is_outdated(self, upstreams: Iterable[Upstream], kind: Kind, version: int) -> bool:
        """Whether one of them reads its list of this kind again now."""
        seen, at = self.fresh.get(kind, (-1, 0.0))
        if seen == version and self.clock.now() - at < _FRESH:
            return False
        if any(upstream.refresh(kind) is not None for upstream in upstreams):
            return True
        self.fresh[kind] = version, self.clock.now()
        return False

    def remaining(self, client: ClientKind | None, came: float) -> float:
        client_wait = None if client is None else client.first_list_wait
        return max(self.started, came) + (self.wait if client_wait is None else client_wait) - self.clock.now()


class Catalog:
    """Views by profile and kind of client.

    `first_list_wait`: seconds that a list waits for starting servers. `judged` gives the texts held back.
    """

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        rules: Mapping[str | None, ViewRules],
        changes: Notices,
        clock: Clock,
        first_list_wait: float,
        aliases: Mapping[str, Sequence[str]] = MappingProxyType({}),
        judged: Callable[[Iterable[Snapshot]], Verdict] = lambda snapshots: _NO_VERDICT,
        started: float | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._rules = rules
        self._changes = changes
        self._list_wait = _ListWait(clock, clock.now() if started is None else started, first_list_wait)
        self._seen = -1
        self._snapshots: tuple[Snapshot, ...] = ()
        self._judged = judged
        self._verdict = _NO_VERDICT
        self._starting: tuple[str, ...] = ()
        self._views: dict[tuple[str | None, _Ids], _View] = {}
        self._names: dict[str | None, ExportedNames] = {}
        self._left_out: dict[str | None, set[Quarantined]] = {}
        self._exposed: dict[tuple[str | None, ClientKind, Mode | None, _Ids], _View] = {}
        self._modes: dict[tuple[str | None, ClientKind], Mode] = {}
        self._indexes = _Indexes(aliases)
        self._remembered = Remembered()

    def use(self, rules: Mapping[str | None, ViewRules], aliases: Mapping[str, Sequence[str]]) -> None:
        """Replaces the rules; a profile without rules lets nothing through."""
        gone = [profile for profile in self._rules if profile not in rules]
        self._rules = {**dict.fromkeys(gone[-_MOST_GONE:], _NOTHING), **rules}
        for profile in gone:
            self._names.pop(profile, None)
            self._left_out.pop(profile, None)
        self._indexes = _Indexes(aliases)
        self._views.clear()
        self._exposed.clear()
        self._modes.clear()

    @property
    def version(self) -> int:
        return self._changes.version

    def view(self, profile: str | None, lists: CallerLists = ()) -> CatalogView:
        """All that a profile (None: everything) lets through, without the hub's own tools.

        `lists` of the caller's own connections replace the common ones. All methods raise `KeyError` for an unknown
        profile.
        """
        self._look()
        built = self._views.get((profile, _ids(lists)))
        if built is None:
            names = self._names.setdefault(profile, ExportedNames())
            rules, removed = self._rules[profile], names.removed
            apart = {snapshot.server: snapshot for snapshot in lists}
            snapshots = [apart.get(snapshot.server, snapshot) for snapshot in self._snapshots]
            unapproved, confirmed = self._judged(snapshots) if lists else self._verdict
            view = build(snapshots, rules, self._remembered, unapproved, removed, confirmed)
            built = _put(self._views, (profile, _ids(lists)), view, lists)
            if not lists:
                names.note({(of.server, of.key): of.exported for of in view.entries(Kind.TOOL)}, profile)
                self._note_left_out(profile, view)
        return built[0]

    def _note_left_out(self, profile: str | None, view: CatalogView) -> None:
        logged = set().union(*self._left_out.values())
        self._left_out[profile] = set(view.quarantined)
        news: dict[str, list[str]] = {}
        for definition in view.quarantined:
            if definition not in logged:
                news.setdefault(definition.server, []).append(decoded(definition.text, _LONGEST_REASON))
        for server, changed in news.items():
            log.warning("definitions_left_out", upstream=server, count=len(changed), which=changed[:_MOST_LOGGED])

    search_tool = staticmethod(search_tool)

    def exposed(
        self, profile: str | None, client: ClientKind, mode: Mode | None, lists: CallerLists = ()
    ) -> CatalogView:
        """The list for clients of this kind; `mode` None: decided now."""
        self._look()
        key = profile, client, mode, _ids(lists)
        built = self._exposed.get(key)
        if built is None:
            whole, rules, chosen = (
                self.view(profile, lists),
                self._rules[profile],
                mode or self.mode(profile, client, lists),
            )
            view = exposed(whole, rules, client, chosen, is_partial=bool(self.starting(profile)))
            built = _put(self._exposed, key, view, lists)
        return built[0]

    def mode(self, profile: str | None, client: ClientKind, lists: CallerLists = ()) -> Mode:
        """The list mode for a new client."""
        self._look()
        if lists:
            return decided(self.view(profile, lists), self._rules[profile], client)
        mode = self._modes.get((profile, client))
        if mode is None:
            mode = self._modes[profile, client] = decided(self.view(profile), self._rules[profile], client)
        return mode

    def starting(self, profile: str | None) -> list[str]:
        """Starting servers that were never listed."""
        self._look()
        return [name for name in self._starting if name in self._rules[profile].servers]

    def unlisted(self, profile: str | None, name: str, *, shows_paths: bool = True) -> UpstreamStatus | None:
        """The never-listed server of a name's prefix.

        `shows_paths`: its reason may name local files.
        """
        prefixes = {
            server: server_rules.prefix
            for server, server_rules in self._rules[profile].servers.items()
            if server_rules.prefix
        }
        exported, longest = name[:_LONGEST_PREFIX], self._rules[profile].max_name_length
        fit = [(prefix_in(exported, prefix, longest), server) for server, prefix in prefixes.items()]
        length, server = max(fit, default=(0, ""))
        upstream = self._upstreams.get(server) if length else None
        if upstream is None or upstream.snapshot() is not None:
            return None
        status = upstream.status()
        if shows_paths or status.reason is None:
            return status
        return replace(status, reason=reason_for_others(status.code, status.reason))

    async def search(
        self, profile: str | None, query: str, limit: int, server: str | None = None, lists: CallerLists = ()
    ) -> tuple[Hit, ...]:
        return await self._indexes.search(profile, self.view(profile, lists).for_model, query, limit, server)

    def rules(self, profile: str | None) -> ViewRules:
        return self._rules[profile]

    def _look(self) -> None:
        if self._changes.version == self._seen:
            return
        self._seen = self._changes.version
        fresh = tuple(s for u in self._upstreams.values() if (s := u.snapshot()) is not None)
        starting = tuple(name for name, upstream in self._upstreams.items() if _is_awaited(upstream))
        verdict = self._judged(fresh)
        is_other = fresh != self._snapshots or verdict != self._verdict
        if is_other:
            self._views.clear()
        if is_other or starting != self._starting:
            self._snapshots, self._starting, self._verdict = fresh, starting, verdict
            self._exposed.clear()
            self._modes.clear()

    def exported_in_result(self, profile: str | None, call: Call, result: RawJson) -> RawJson:
        """The result of `call` with exported resource URIs; unlisted ones are remembered."""
        view = self.view(profile, caller_lists(self._upstreams, call))
        requested = text(call.params, "uri", call.method) if "uri" in call.params else None
        read_uri = requested if call.method == "resources/read" else None

        def exported(uri: str) -> str:
            if uri == read_uri:
                return call.exported_uri or uri
            return view.exported_uri(call.upstream, uri)

        readdressed, resources = readdress(call.method, result, exported), view.resources
        if call.method != "skills/get" and (requested is None or not resources.is_of_skill(call.upstream, requested)):
            return readdressed
        return of_skill(
            call.method, readdressed, call.upstream, exported, lambda uri: resources.resolve(uri) is not None
        )

    def is_settled(self, client: ClientKind | None = None, kind: Kind | None = None, came: float = 0.0) -> bool:
        """Whether a list, of a `kind` a fresh one, may be answered now. `came`: the client's arrival by the clock."""
        is_late = self._list_wait.remaining(client, came) <= 0
        if not is_late and self._list_wait.is_awaited(self._upstreams.values(), self._changes.version):
            return False
        return kind is None or not self._list_wait.is_outdated(self._upstreams.values(), kind, self._changes.version)

    async def settled(
        self,
        client: ClientKind | None = None,
        kind: Kind | None = None,
        came: float = 0.0,
        servers: Collection[str] | None = None,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Waits until `is_settled`, and refreshes outdated lists of `kind`.

        With `servers`: until each is listed or has failed, or `is_enough`; at most `CALL_WAIT` seconds.
        """
        if servers is not None:
            with anyio.move_on_after(CALL_WAIT):
                while (
                    any(_on_first_way_up(self._upstreams[name]) for name in servers if name in self._upstreams)
                    and not is_enough()
                ):
                    await self._changes.wait(self._changes.version)
            return
        with anyio.move_on_after(self._list_wait.remaining(client, came)):
            while not self.is_settled(client, came=came):
                await self._changes.wait(self._changes.version)
        if kind is not None:
            await _refreshed(self._upstreams.values(), kind)

    async def wait_changed(self, after: int) -> int:
        return await self._changes.wait(after)


def caller_lists(upstreams: Mapping[str, Upstream], call: Call) -> CallerLists:
    """Lists of the caller's own connections that differ from the common ones."""
    connections = filter(None, (upstream.apart(call) for upstream in upstreams.values()))
    return tuple(connection.lists for connection in connections if connection.lists is not None)


def _ids(lists: CallerLists) -> _Ids:
    return tuple(map(id, lists))


def _put(views: dict[_Key, _View], key: _Key, view: CatalogView, lists: CallerLists) -> _View:
    """Keeps the lists, too, so that nothing else gets their ids."""
    if lists and len(views) >= _MOST_VIEWS:
        views.pop(next((oldest for oldest, (_, of) in views.items() if of), key), None)
    views[key] = view, lists
    return views[key]


def _is_awaited(upstream: Upstream) -> bool:
    state = upstream.status().state
    return upstream.snapshot() is None and state in (UpstreamState.STARTING, UpstreamState.BACKING_OFF)


def _on_first_way_up(upstream: Upstream) -> bool:
    if upstream.snapshot() is not None:
        return False
    status = upstream.status()
    return status.state is UpstreamState.STARTING and status.failures == 0


async def _refreshed(upstreams: Iterable[Upstream], kind: Kind) -> None:
    """Refreshes outdated lists concurrently."""
    async with anyio.create_task_group() as tasks:
        for job in filter(None, [upstream.refresh(kind) for upstream in upstreams]):
            tasks.start_soon(_run, job)


async def _run(job: Callable[[], Awaitable[None]]) -> None:
    await job()
