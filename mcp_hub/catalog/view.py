"""The catalog as one kind of caller sees it: snapshots and rules become an immutable, deterministic `CatalogView`.

Everything here is decided from frozen data: a change of a server or of the settings is a new view, and `diff` tells
what to announce. Names are assigned before filters apply, so a tool has the same name in every profile, and a
hidden one is neither listed nor found.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from heapq import nlargest
from types import MappingProxyType

import msgspec

from mcp_hub.catalog import names, uris
from mcp_hub.catalog.definitions import Definition, Quarantined, encode_as, in_era, parse, without_output
from mcp_hub.catalog.filters import EVERYTHING, Filter
from mcp_hub.catalog.links import Remembered
from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import CacheHint, Era, JsonObject, Kind, Snapshot

__all__ = [
    "CatalogView",
    "Entry",
    "ListDiff",
    "ServerRules",
    "ViewDiff",
    "ViewRules",
    "apply",
    "build",
    "diff",
    "same_list",
]

Origin = tuple[str, str]
# all pages of 10,000 entries at 100 a page, in both eras
_MAX_PAGES = 256
# an unknown name costs at most this many comparisons, of names of at most this length
_MAX_COMPARED = 100
_MAX_COMPARED_LENGTH = 64
_LIKENESS = 0.5


@dataclass(frozen=True, slots=True)
class ServerRules:
    """What the settings say of one server's listing. No `prefix` means `never`; `rename` maps upstream names.

    `tools` and `prompts` see the upstream's and the exported name; `resources` sees URIs and URI templates.
    """

    prefix: str | None = None
    always: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    tools: Filter = EVERYTHING
    resources: Filter = EVERYTHING
    prompts: Filter = EVERYTHING


@dataclass(frozen=True, slots=True)
class ViewRules:
    """The servers in the order of their lists, and the profile's own filter, on exported tool names.

    `shared` is a claim that no profile, token or session influences the answer.
    """

    servers: Mapping[str, ServerRules]
    tools: Filter = EVERYTHING
    max_name_length: int = 48
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """One listed thing. `key` is the upstream's own name, URI or template; `raw` the definition under `exported`."""

    kind: Kind
    server: str
    key: str
    exported: str
    raw: bytes
    summary: str = ""

    @property
    def has_header_params(self) -> bool:
        """Whether arguments of this tool may have to travel as HTTP headers (2026-07-28, `x-mcp-header`)."""
        return b"x-mcp-header" in self.raw


class CatalogView:
    """Immutable; made by `build`. Caches only what follows from its contents, but shares a memory of unlisted URIs."""

    def __init__(
        self,
        entries: Mapping[Kind, tuple[Entry, ...]],
        hidden: Mapping[Kind, Sequence[Origin]],
        table: uris.UriTable,
        filters: Mapping[str, Filter],
        hints: Mapping[Kind, CacheHint],
        quarantined: tuple[Quarantined, ...],
    ) -> None:
        self._entries = entries
        self._origins_hidden = hidden
        self._places = {
            kind: {entry.exported: place for place, entry in enumerate(listed)} for kind, listed in entries.items()
        }
        self._table = table
        self._filters = filters
        self._listed = {(entry.server, entry.key) for entry in entries[Kind.RESOURCE]}
        self._hidden = frozenset(hidden[Kind.RESOURCE])
        self._templates = uris.Templates((entry.server, entry.key) for entry in entries[Kind.TEMPLATE])
        self._hidden_templates = uris.Templates(hidden[Kind.TEMPLATE])
        self._hints = hints
        self._pages: dict[tuple[Kind, Era, str | None, int], bytes] = {}
        self.quarantined = quarantined

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(listed)} {kind}s" for kind, listed in self._entries.items())
        return f"<CatalogView {counts}, {len(self.quarantined)} quarantined>"

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """In configured order of servers, then in the upstream's order."""
        return self._entries[kind]

    def find(self, kind: Kind, exported: str) -> Entry | None:
        place = self._places[kind].get(exported)
        return None if place is None else self._entries[kind][place]

    def resolve_uri(self, uri: str) -> Origin | None:
        """The server and its own URI behind `uri`, listed or not; None if nobody's, ambiguous or hidden."""
        origin = self._table.resolve(uri)
        if origin is None or origin in self._listed:
            return origin
        server, upstream_uri = origin
        allowed = self._filters[server]
        if origin in self._hidden or allowed.denies(upstream_uri, uri):
            return None
        if self._templates.covers(server, upstream_uri):
            return origin
        hidden = self._hidden_templates.covers(server, upstream_uri)
        return origin if allowed.admits(upstream_uri, uri) and not hidden else None

    def exported_uri(self, server: str, upstream_uri: str) -> str:
        """The URI under which clients know it, or can reach it from now on if it is not listed (it is remembered)."""
        return self._table.exported(server, upstream_uri)

    def nearest(self, kind: Kind, name: str, n: int = 3) -> list[str]:
        """Up to `n` exported names like `name`, best first, for error messages. Bounded effort."""
        wanted = name[:_MAX_COMPARED_LENGTH].lower()
        grams = [wanted[at : at + 3] for at in range(0, max(1, len(wanted) - 2), 3)]
        folded = {exported[:_MAX_COMPARED_LENGTH].lower(): exported for exported in self._places[kind]}
        pool = nlargest(_MAX_COMPARED, folded, key=lambda text: sum(gram in text for gram in grams))
        return [folded[text] for text in get_close_matches(wanted, pool, n, _LIKENESS)]

    def page(self, kind: Kind, era: Era, cursor: str | None, size: int) -> bytes:
        """The encoded result of the list method, at most `size` (1 or more) entries after `cursor`.

        Raises: InvalidParams for a cursor that names nothing listed here; the empty string is one.
        """
        wanted = (kind, era, cursor, size)
        page = self._pages.get(wanted)
        if page is None:
            page = self._render(kind, era, self._after(kind, cursor), max(1, size))
            if len(self._pages) >= _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            self._pages[wanted] = page
        return page

    def for_early_answers(self, own: Snapshot | None) -> "CatalogView":
        """The same for clients that are answered before their calls have ended, with the hub's `own` tools in front.

        Without output schemas: such an answer would not be valid. In front because clients cut long lists at the end.
        """
        offered, _ = parse(Kind.TOOL, own.lists[Kind.TOOL], own.server) if own is not None else ([], [])
        server = own.server if own is not None else ""
        first = [
            Entry(Kind.TOOL, server, tool.key, tool.key, encode_as(tool, tool.key), tool.summary) for tool in offered
        ]
        tools = (*first, *(replace(entry, raw=without_output(entry.raw)) for entry in self._entries[Kind.TOOL]))
        hints = {**self._hints, Kind.TOOL: replace(self._hints[Kind.TOOL], public=False)}
        entries = MappingProxyType({**self._entries, Kind.TOOL: tools})
        return CatalogView(entries, self._origins_hidden, self._table, self._filters, hints, self.quarantined)

    def _after(self, kind: Kind, cursor: str | None) -> int:
        if cursor is None:
            return 0
        place = self._places[kind].get(_exported_in(cursor))
        if place is None:
            raise InvalidParams(f"unknown cursor for {KINDS[kind].list_method}: list again from the start")
        return place + 1

    def _render(self, kind: Kind, era: Era, start: int, size: int) -> bytes:
        listed = self._entries[kind]
        shown = listed[start : start + size]
        body = b",".join(in_era(kind, entry.raw, era) for entry in shown)
        result: JsonObject = {KINDS[kind].result_key: msgspec.Raw(b"[" + body + b"]")}
        if start + size < len(listed):
            result["nextCursor"] = _cursor_at(shown[-1].exported)
        if era is Era.MODERN:
            hint = self._hints[kind]
            scope = "public" if hint.public else "private"
            result = {"resultType": "complete", **result, "ttlMs": hint.ttl_ms, "cacheScope": scope}
        return msgspec.json.encode(result)


def _cursor_at(exported: str) -> str:
    return urlsafe_b64encode(exported.encode()).decode()


def _exported_in(cursor: str) -> str:
    """The id in a cursor; of anything else, the empty string, which nothing is listed under."""
    try:
        exported = urlsafe_b64decode(cursor).decode()
    except ValueError:
        return ""
    return exported if _cursor_at(exported) == cursor else ""


def build(snapshots: Iterable[Snapshot], rules: ViewRules, remembered: Remembered | None = None) -> CatalogView:
    """The view of these servers, one snapshot each in any order; servers without rules are left out.

    `remembered` holds the unlisted URIs that servers mentioned and outlives the view; by default it is the view's own.
    """
    offered = {snapshot.server: snapshot for snapshot in snapshots}
    present = [offered[server] for server in rules.servers if server in offered]
    found: dict[Kind, list[tuple[str, Definition]]] = {}
    quarantined: list[Quarantined] = []
    for kind in Kind:
        found[kind] = []
        for snapshot in present:
            usable, unfit = parse(kind, snapshot.lists.get(kind, ()), snapshot.server)
            found[kind] += ((snapshot.server, definition) for definition in usable)
            quarantined += unfit
    exported = {kind: _exported_ids(kind, found[kind], rules) for kind in Kind}
    shown, hidden = _filtered(found, exported, rules)
    table = uris.UriTable(
        exported[Kind.RESOURCE],
        uris.Templates((entry.server, entry.key) for entry in shown[Kind.TEMPLATE]),
        [snapshot.server for snapshot in present],
        [snapshot.server for snapshot in present if _lists(snapshot, Kind.RESOURCE)],
        Remembered() if remembered is None else remembered,
    )
    filters = {snapshot.server: rules.servers[snapshot.server].resources for snapshot in present}
    hints = {kind: _hint(kind, present, rules) for kind in Kind}
    return CatalogView(MappingProxyType(shown), hidden, table, filters, hints, tuple(quarantined))


def _exported_ids(kind: Kind, found: Sequence[tuple[str, Definition]], rules: ViewRules) -> Mapping[Origin, str]:
    origins = [(server, definition.key) for server, definition in found]
    if kind is Kind.RESOURCE:
        return uris.assign(origins)
    if kind is Kind.TEMPLATE:
        return uris.assign_templates(origins)
    wanted = []
    for server, key in origins:
        own = rules.servers[server]
        wanted.append(names.Wanted(server, key, own.prefix, own.always, own.rename.get(key)))
    reserved = names.RESERVED if kind is Kind.TOOL else frozenset()
    return names.assign(wanted, max_length=rules.max_name_length, reserved=reserved)


def _filtered(
    found: Mapping[Kind, Sequence[tuple[str, Definition]]],
    exported: Mapping[Kind, Mapping[Origin, str]],
    rules: ViewRules,
) -> tuple[dict[Kind, tuple[Entry, ...]], dict[Kind, list[Origin]]]:
    """The entries to list, and the origins of those to hide."""
    shown: dict[Kind, tuple[Entry, ...]] = {}
    hidden: dict[Kind, list[Origin]] = {}
    for kind, pairs in found.items():
        listed: list[Entry] = []
        hidden[kind] = []
        for server, definition in pairs:
            key = definition.key
            name = exported[kind][server, key]
            if _is_admitted(kind, rules, server, key, name):
                raw = encode_as(definition, name)
                listed.append(Entry(kind, server, key, name, raw, definition.summary))
            else:
                hidden[kind].append((server, key))
        shown[kind] = tuple(listed)
    return shown, hidden


def _is_admitted(kind: Kind, rules: ViewRules, server: str, key: str, exported: str) -> bool:
    own = rules.servers[server]
    match kind:
        case Kind.TOOL:
            return own.tools.admits(key, exported) and rules.tools.admits(exported)
        case Kind.PROMPT:
            return own.prompts.admits(key, exported)
        case _:
            return own.resources.admits(key, exported)


def _lists(snapshot: Snapshot, kind: Kind) -> bool:
    """Whether this server has a say in the lists of this kind, even with nothing in it now."""
    return bool(snapshot.lists.get(kind)) or KINDS[kind].capability in snapshot.capabilities


def _hint(kind: Kind, present: Sequence[Snapshot], rules: ViewRules) -> CacheHint:
    """What holds for the whole list: the least that any contributor grants (protocol.md §2)."""
    least = CacheHint()
    hints = [
        snapshot.hints.get(kind, least) if snapshot.era is Era.MODERN else least
        for snapshot in present
        if _lists(snapshot, kind)
    ]
    ttl_ms = min((hint.ttl_ms for hint in hints), default=0)
    return CacheHint(max(0, ttl_ms), rules.shared and bool(hints) and all(hint.public for hint in hints))


@dataclass(frozen=True, slots=True)
class ListDiff:
    """What turns one list into another: ids that go, entries that are new or changed, and the ids in final order."""

    removed: tuple[str, ...]
    upserted: tuple[Entry, ...]
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewDiff:
    """The lists that differ; `bool(diff)` says whether any does."""

    lists: Mapping[Kind, ListDiff]

    def __bool__(self) -> bool:
        return bool(self.lists)


def same_list(a: CatalogView, b: CatalogView, kind: Kind) -> bool:
    """Whether a client would see no difference: compared by content, never by version."""
    return [entry.raw for entry in a.entries(kind)] == [entry.raw for entry in b.entries(kind)]


def diff(a: CatalogView, b: CatalogView) -> ViewDiff:
    """What changed from `a` to `b`, origins included: a name that moved to another server is an upsert."""
    return ViewDiff({kind: _list_diff(a, b, kind) for kind in Kind if a.entries(kind) != b.entries(kind)})


def _list_diff(a: CatalogView, b: CatalogView, kind: Kind) -> ListDiff:
    return ListDiff(
        removed=tuple(old.exported for old in a.entries(kind) if b.find(kind, old.exported) is None),
        upserted=tuple(new for new in b.entries(kind) if a.find(kind, new.exported) != new),
        order=tuple(new.exported for new in b.entries(kind)),
    )


def apply(entries: Mapping[Kind, tuple[Entry, ...]], change: ViewDiff) -> dict[Kind, tuple[Entry, ...]]:
    """`apply(entries of a, diff(a, b))` is the entries of b."""
    return {kind: _applied(listed, change.lists.get(kind)) for kind, listed in entries.items()}


def _applied(listed: tuple[Entry, ...], change: ListDiff | None) -> tuple[Entry, ...]:
    if change is None:
        return listed
    known = {entry.exported: entry for entry in (*listed, *change.upserted)}
    for exported in change.removed:
        del known[exported]
    return tuple(known[exported] for exported in change.order)
