"""The catalog as one kind of caller sees it: snapshots and rules become an immutable, deterministic `CatalogView`.

Names are assigned before filters apply (`entries`), so a tool has the same name in every profile.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from heapq import nlargest
from itertools import compress
from operator import not_
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.offers.definitions import Quarantined, in_era
from mcp_hub.catalog.offers.filters import EVERYTHING
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.pins import INSTRUCTIONS, UnapprovedTool, pin_name
from mcp_hub.catalog.resources import uris
from mcp_hub.catalog.resources.links import Remembered
from mcp_hub.catalog.views.entries import Entry, Offer, entry_of, is_admitted, offered, present
from mcp_hub.catalog.views.listed import HeldSkills, ListedResources
from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import OWN, CacheHint, Era, JsonObject, Kind, Origin, Snapshot

_TOOL: Final = Kind.TOOL
_WAITING: Final = (_TOOL, Kind.PROMPT, Kind.TEMPLATE)  # the kinds that may wait for an approval, besides skills
Withheld = Mapping[tuple[Kind | None, str], UnapprovedTool]

_MAX_PAGES = 256  # all pages of 10,000 entries at 100 a page, in both eras
# an unknown name costs at most this many comparisons, of names of at most this length
_MAX_COMPARED = 100
_MAX_COMPARED_LENGTH = 64
_LIKENESS = 0.5
_MISSPELT = 0.8  # the likeness of a name and a misspelling of it
_NEAR = 0.85  # of the likeness of the best name; one that is less like it is noise


class CatalogView:
    """Immutable; made by `build`. Caches only what follows from its contents, but shares a memory of unlisted URIs."""

    def __init__(
        self,
        entries: Mapping[Kind, tuple[Entry, ...]],
        resources: ListedResources,
        hints: Mapping[Kind, CacheHint],
        quarantined: tuple[Quarantined, ...],
        withheld: "Withheld",
        tools: Mapping[str, Entry] | None = None,
        removed: Collection[str] = (),
        announced: int = 0,
    ) -> None:
        """`tools` are those that can be used, by exported name: by default the listed ones."""
        self._entries = entries
        self._places = {
            kind: {entry.exported: place for place, entry in enumerate(listed)} for kind, listed in entries.items()
        }
        self._tools = {entry.exported: entry for entry in entries[_TOOL]} if tools is None else tools
        self.resources = resources
        self.hints = hints
        """The cache hints of the lists."""
        self._pages: dict[tuple[Kind, Era, str | None, int], bytes] = {}
        self.quarantined = quarantined
        self.withheld = withheld
        """Findings for all that callers could use if it were approved, by kind and exported name.

        Without a kind: instructions, by server.
        """
        self.removed = removed
        """Exported names of tools that an earlier view listed."""
        self._announced = announced
        """Changes that servers announced and that their lists do not show."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(listed)} {kind}s" for kind, listed in self._entries.items())
        return f"<CatalogView {counts}, {len(self.quarantined)} quarantined>"

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """The listed entries, in configured order of servers, then in the server's order."""
        return self._entries[kind]

    def digest(self, kind: Kind) -> int:
        """Tells lists apart by their content and by the changes that were announced."""
        return hash((self._announced, *(entry.raw for entry in self._entries[kind])))

    def tool_names(self) -> dict[Origin, str]:
        """The exported names of the listed tools."""
        return {(entry.server, entry.key): entry.exported for entry in self._entries[_TOOL]}

    def find(self, kind: Kind, exported: str) -> Entry | None:
        """The entry that callers know, or can find, by this name; only that can be used."""
        if kind is _TOOL:
            return self._tools.get(exported)
        place = self._places[kind].get(exported)
        return None if place is None else self._entries[kind][place]

    @property
    def usable_tools(self) -> Collection[Entry]:
        """The tools that callers can use, listed or not."""
        return self._tools.values()

    @cached_property
    def for_model(self) -> "CatalogView":
        """The same without the tools that are for apps alone."""
        if not any(entry.is_app_only for entry in self._tools.values()):
            return self
        listed = (entry for entry in self._entries[_TOOL] if not entry.is_app_only)
        return self.exposed((entry for entry in self._tools.values() if not entry.is_app_only), listed)

    def shows_output(self, exported: str) -> bool:
        """Whether this is a tool that is listed with an output schema."""
        place = self._places[_TOOL].get(exported)
        return place is not None and b'"outputSchema"' in self._entries[_TOOL][place].raw

    def resolve_uri(self, uri: str) -> Origin | None:
        """The server and its own URI behind `uri`, listed or not; None if nobody's, ambiguous or hidden."""
        return self.resources.resolve(uri)

    def exported_uri(self, server: str, upstream_uri: str, *, remembers: bool = True) -> str:
        """The URI under which clients know it, or can reach it from now on if it is not listed.

        What is not listed is remembered as this server's unless a client has asked for it.
        """
        return self.resources.exported(server, upstream_uri, remembers=remembers)

    def nearest(self, kind: Kind, name: str, n: int = 3) -> list[str]:
        """Up to `n` exported names like `name`, best first, for error messages. Bounded effort."""
        wanted = name[:_MAX_COMPARED_LENGTH].lower()
        grams = [wanted[at : at + 3] for at in range(0, max(1, len(wanted) - 2), 3)]
        known: Iterable[str] = self._tools if kind is _TOOL else self._places[kind]
        folded = {exported[:_MAX_COMPARED_LENGTH].lower(): exported for exported in known}
        pool = nlargest(_MAX_COMPARED, folded, key=lambda text: sum(gram in text for gram in grams))
        close = get_close_matches(wanted, pool, n, _LIKENESS)
        likeness = {text: SequenceMatcher(None, wanted, text).ratio() for text in close}
        # the hub's own tools are next to no tool of a server: they are named only for a misspelling of theirs
        near = {text: own for text, own in likeness.items() if own >= _MISSPELT or not self._is_hubs(folded[text])}
        least = _NEAR * max(near.values(), default=0.0)
        return [folded[text] for text, own in near.items() if own >= least]

    def _is_hubs(self, exported: str) -> bool:
        entry = self._tools.get(exported)
        return entry is not None and entry.server == OWN

    def page(self, kind: Kind, era: Era, cursor: str | None, size: int) -> bytes:
        """The encoded list result: `size` entries after `cursor`. Raises: InvalidParams for an unknown cursor."""
        wanted = (kind, era, cursor, size)
        page = self._pages.get(wanted)
        if page is None:
            page = self._render(kind, era, self._after(kind, cursor), max(1, size))
            if len(self._pages) >= _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            self._pages[wanted] = page
        return page

    def exposed(
        self,
        tools: Iterable[Entry],
        listed: Iterable[Entry],
        others: Mapping[Kind, tuple[Entry, ...]] = MappingProxyType({}),
        *,
        is_partial: bool = False,
    ) -> "CatalogView":
        """The same with other tools: all of `tools` can be found and used, the first of a name; `listed` are in lists.

        `others` are lists of other kinds, the same with other definitions. Such lists depend on who asks, so no cache
        may share them; no list of a view that `is_partial` is to be kept.
        """
        found: dict[str, Entry] = {}
        for entry in tools:
            found.setdefault(entry.exported, entry)
        hints = {**self.hints, **{kind: replace(self.hints[kind], public=False) for kind in (_TOOL, *others)}}
        if is_partial:
            hints = {kind: replace(hint, ttl_ms=0) for kind, hint in hints.items()}
        entries = MappingProxyType({**self._entries, **others, _TOOL: tuple(listed)})
        return CatalogView(
            entries, self.resources, hints, self.quarantined, self.withheld, found, self.removed, self._announced
        )

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
            hint = self.hints[kind]
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


def build(
    snapshots: Iterable[Snapshot],
    rules: ViewRules,
    remembered: Remembered | None = None,
    held: Mapping[Origin, UnapprovedTool] = MappingProxyType({}),
    removed: Collection[str] = (),
    approved: Collection[Origin] = (),
) -> CatalogView:
    """The view of these servers, one snapshot each in any order; servers without rules are left out.

    Nobody is listed, finds or can use what is `held`, by `pin_name`; it keeps its name, but what is new takes no name
    from others. A person has `approved` some tools. `remembered` holds the unlisted URIs that servers mentioned,
    `removed` the names of tools that are no longer listed; both outlive the view.
    """
    servers = present(snapshots, rules)
    new = {origin for origin, finding in held.items() if finding.kind == "new"}
    found = offered(servers, rules, new, approved)
    offers, roots = dict(found.by_kind), found.roots
    withheld, skills = _withhold(offers, rules, held), offers.pop(Kind.SKILL)
    held_skills = HeldSkills({own.origin: held[pin] for own in skills if (pin := _pin(own)) in held})
    shown: dict[Kind, tuple[Entry, ...]] = {}
    hidden: dict[Kind, list[Origin]] = {}
    for kind, some in offers.items():
        admitted = [is_admitted(kind, own, rules) and not held_skills.finding(*own.origin) for own in some]
        shown[kind] = tuple(entry_of(kind, offer, rules) for offer in compress(some, admitted))
        hidden[kind] = [offer.origin for offer in compress(some, map(not_, admitted))]
    templates = uris.Templates((entry.server, entry.key) for entry in shown[Kind.TEMPLATE])
    table = uris.UriTable(
        found.addresses,
        templates,
        [snapshot.server for snapshot in servers],
        [snapshot.server for snapshot in servers if _lists(snapshot, Kind.RESOURCE)],
        Remembered() if remembered is None else remembered,
        roots,
    )
    filters = {snapshot.server: (rules.servers[snapshot.server].resources, rules.resources) for snapshot in servers}
    resources = ListedResources(shown, hidden, table, templates, filters, roots, held_skills, _directories(servers))
    shown[Kind.SKILL] = tuple(_skills(skills, resources))
    hints, news = _hints(servers, rules, skills, shown[Kind.SKILL]), sum(one.announced for one in servers)
    return CatalogView(MappingProxyType(shown), resources, hints, found.quarantined, withheld, None, removed, news)


def _directories(servers: Iterable[Snapshot]) -> frozenset[str]:
    """The servers that say that they can read directories (SEP-2640, "Capability Declaration")."""
    settings = ((own.server, own.capabilities.get("extensions", {}).get(SKILLS)) for own in servers)
    return frozenset(server for server, own in settings if isinstance(own, dict) and own.get("directoryRead") is True)


def _withhold(offers: dict[Kind, list[Offer]], rules: ViewRules, held: Mapping[Origin, UnapprovedTool]) -> Withheld:
    """Takes what is held out of the offers; those that callers would have."""
    if not held:
        return {}
    found: dict[tuple[Kind | None, str], UnapprovedTool] = {
        (None, server): held[pin] for server in rules.servers if (pin := (server, INSTRUCTIONS)) in held
    }
    for kind in _WAITING:
        waiting = [own for own in offers[kind] if _pin(own) in held]
        if waiting:
            offers[kind] = [own for own in offers[kind] if _pin(own) not in held]
        found |= {(kind, own.exported): held[_pin(own)] for own in waiting if is_admitted(kind, own, rules)}
    return found


def _pin(own: Offer) -> Origin:
    return own.server, pin_name(own.definition.kind, own.definition.key)


def _skills(offers: Iterable[Offer], resources: ListedResources) -> Iterator[Entry]:
    """Those whose main file callers may read."""
    for own in offers:
        if (raw := resources.skill(own)) is not None:
            key, summary = own.definition.key, own.definition.summary
            yield Entry(Kind.SKILL, own.server, key, own.exported, raw, summary)


def _lists(snapshot: Snapshot, kind: Kind) -> bool:
    """Whether this server has a say in the lists of this kind, even with nothing in it now."""
    return bool(snapshot.lists.get(kind)) or KINDS[kind].is_offered(snapshot.capabilities)


def _hints(
    servers: Sequence[Snapshot], rules: ViewRules, skills: Sequence[Offer], shown: Sequence[Entry]
) -> dict[Kind, CacheHint]:
    """Those of all lists; filters see into a skill, so a list of skills that went through one is nobody else's."""
    hints = {kind: _hint(kind, servers, rules) for kind in Kind}
    filters = {rules.resources, *(rules.servers[own.server].resources for own in servers)}
    if len(shown) < len(skills) or filters != {EVERYTHING}:
        hints[Kind.SKILL] = replace(hints[Kind.SKILL], public=False)
    return hints


def _hint(kind: Kind, servers: Sequence[Snapshot], rules: ViewRules) -> CacheHint:
    """The cache hint of the whole list: the least that any contributor grants."""
    listing, least = [snapshot for snapshot in servers if _lists(snapshot, kind)], CacheHint()
    hints = [own.hints.get(kind, least) if own.era is Era.MODERN or kind is Kind.SKILL else least for own in listing]
    ttl_ms = min((hint.ttl_ms for hint in hints), default=0)
    return CacheHint(max(0, ttl_ms), rules.shared and bool(hints) and all(hint.public for hint in hints))
