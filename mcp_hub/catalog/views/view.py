"""The catalog as one kind of caller sees it.

Names are assigned before filters apply: a tool has the same name in every profile.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cached_property
from heapq import nlargest
from itertools import compress
from operator import attrgetter, itemgetter, not_
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.offers.definitions import Quarantined, in_era
from mcp_hub.catalog.offers.filters import EVERYTHING
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.pins import INSTRUCTIONS, UnapprovedTool, pin_name
from mcp_hub.catalog.resources import uris
from mcp_hub.catalog.resources.skills import SkillRoots
from mcp_hub.catalog.resources.uris import Remembered
from mcp_hub.catalog.views.entries import Entry, Offer, entry_of, is_admitted, offered, present
from mcp_hub.catalog.views.listed import ListedResources, held_folders
from mcp_hub.code.tool import RUN_CODE, definition, python_names
from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.capabilities import KINDS, SKILLS, extensions_in
from mcp_hub.types import OWN, CacheHint, Era, JsonObject, Kind, Origin, Snapshot

_TOOL: Final = Kind.TOOL
_WAITING: Final = (_TOOL, Kind.PROMPT, Kind.TEMPLATE, Kind.EVENT)
"""The kinds that may wait for an approval, besides skills."""
Withheld = Mapping[tuple[Kind | None, str], UnapprovedTool]

_MAX_PAGES = 256  # all pages of 10,000 entries at 100 a page, in both eras
# an unknown name costs at most this many comparisons, of names of at most this length
_MAX_COMPARED = 100
_MAX_COMPARED_LENGTH = 64
_LONGEST_PLAIN = 256
_LIKENESS = 0.5
_MISSPELT = 0.8  # the likeness of a name and a misspelling of it
_NEAR = 0.85  # of the likeness of the best name; one that is less like it is noise
_SIGNS = re.compile(r"[\W_]+")
_raw = attrgetter("raw")


def _plain(name: str) -> str:
    """Its words, in small letters."""
    return _SIGNS.sub(" ", name[:_LONGEST_PLAIN].casefold()).strip()


class CatalogView:
    """Immutable; made by `build`. Shares a memory of unlisted URIs."""

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
        """`tools`: usable ones by exported name; by default the listed ones."""
        self._entries = entries
        self._places = {
            kind: {entry.exported: position for position, entry in enumerate(listed)}
            for kind, listed in entries.items()
        }
        self._tools = {entry.exported: entry for entry in entries[_TOOL]} if tools is None else tools
        self.resources = resources
        self.hints = hints
        """The cache hints of the lists."""
        self._pages: dict[tuple[Kind, Era, str | None, int], bytes] = {}
        self.quarantined = quarantined
        self.withheld = withheld
        """Findings for unapproved texts, by kind and exported name; for instructions by None and server."""
        self.removed = removed
        """Exported names of tools that an earlier view listed."""
        self._announced = announced
        """Changes that servers announced and that their lists do not show."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(listed)} {kind}s" for kind, listed in self._entries.items())
        return f"<CatalogView {counts}, {len(self.quarantined)} quarantined>"

    def entries(self, kind: Kind) -> tuple[Entry, ...]:
        """In configured order of servers, then in the server's order."""
        return self._entries[kind]

    def digest(self, kind: Kind) -> int:
        """A hash of content and announced changes."""
        return self._digests[kind]

    @cached_property
    def _digests(self) -> dict[Kind, int]:
        return {kind: hash((self._announced, *map(_raw, listed))) for kind, listed in self._entries.items()}

    def find(self, kind: Kind, exported: str) -> Entry | None:
        """The usable entry with this exported name, listed or not."""
        if kind is _TOOL:
            return self._tools.get(exported)
        position = self._places[kind].get(exported)
        return None if position is None else self._entries[kind][position]

    @property
    def usable_tools(self) -> Collection[Entry]:
        return self._tools.values()

    @cached_property
    def for_model(self) -> "CatalogView":
        """Without tools for apps alone."""
        if not any(entry.is_app_only for entry in self._tools.values()):
            return self
        listed = (entry for entry in self._entries[_TOOL] if not entry.is_app_only)
        return self.exposed((entry for entry in self._tools.values() if not entry.is_app_only), listed)

    @cached_property
    def callables(self) -> Mapping[str, Entry]:
        """Tools for scripts, by Python names; without the hub's own and those for apps alone."""
        entries = {entry.exported: entry for entry in self.for_model.usable_tools if entry.server != OWN}
        return MappingProxyType({name: entries[exported] for exported, name in python_names(entries).items()})

    def shows_output(self, exported: str) -> bool:
        """Whether it is listed with an output schema."""
        position = self._places[_TOOL].get(exported)
        return position is not None and b'"outputSchema"' in self._entries[_TOOL][position].raw

    def resolve_uri(self, uri: str) -> Origin | None:
        """The server and its own URI, listed or not; None if unknown, ambiguous or hidden."""
        return self.resources.resolve(uri)

    def exported_uri(self, server: str, upstream_uri: str, *, remembers: bool = True) -> str:
        """The client's URI; an unlisted one is remembered if it `remembers`."""
        return self.resources.exported(server, upstream_uri, remembers=remembers)

    def nearest(self, kind: Kind, name: str, n: int = 3) -> list[str]:
        """Up to `n` exported names like `name`: first those of the same name, then misspellings. Bounded effort."""
        target = name[:_MAX_COMPARED_LENGTH].lower()
        grams = [target[at : at + 3] for at in range(0, max(1, len(target) - 2), 3)]
        exported_names: Iterable[str] = self._tools if kind is _TOOL else self._places[kind]
        folded = {exported[:_MAX_COMPARED_LENGTH].lower(): exported for exported in exported_names}
        pool = nlargest(_MAX_COMPARED, folded, key=lambda text: sum(gram in text for gram in grams))
        close = get_close_matches(target, pool, n, _LIKENESS)
        likeness = {text: SequenceMatcher(None, target, text).ratio() for text in close}
        # the hub's own tools are next to no tool of a server: they are named only for a misspelling of theirs
        near = {
            text: ratio for text, ratio in likeness.items() if ratio >= _MISSPELT or not self._is_hubs(folded[text])
        }
        same = self._same_named(kind, name)
        least = _NEAR * (1.0 if same else max(near.values(), default=0.0))
        return list(dict.fromkeys([*same, *(folded[text] for text, ratio in near.items() if ratio >= least)]))[:n]

    def _same_named(self, kind: Kind, name: str) -> list[str]:
        """Exported names of servers' entries of this name, but for case, signs and prefixes: `echo`, `git.log`."""
        words = _plain(name)
        word = words.rpartition(" ")[2]
        ranked: list[tuple[int, str]] = []
        for entry in self._tools.values() if kind is _TOOL else self._entries[kind]:
            if not word or entry.server == OWN or word not in f"{entry.exported} {entry.key}".casefold():
                continue
            exported, key = _plain(entry.exported), _plain(entry.key)
            equal = exported == words, key == words, words.endswith(f" {exported}"), exported.endswith(f" {words}")
            if any(equal):
                ranked.append((equal.index(True), entry.exported))
        return [exported for _, exported in sorted(ranked, key=itemgetter(0))]

    def _is_hubs(self, exported: str) -> bool:
        entry = self._tools.get(exported)
        return entry is not None and entry.server == OWN

    def page(self, kind: Kind, era: Era, cursor: str | None, size: int) -> bytes:
        """The encoded list: `size` entries after `cursor`. Raises: InvalidParams for an unknown cursor."""
        key = (kind, era, cursor, size)
        page = self._pages.get(key)
        if page is None:
            page = self._render(kind, era, self._after(kind, cursor), max(1, size))
            if len(self._pages) >= _MAX_PAGES:
                del self._pages[next(iter(self._pages))]
            self._pages[key] = page
        return page

    def exposed(
        self,
        tools: Iterable[Entry],
        listed: Iterable[Entry],
        replaced: Mapping[Kind, tuple[Entry, ...]] = MappingProxyType({}),
        *,
        is_partial: bool = False,
    ) -> "CatalogView":
        """All of `tools` can be used, the first of a name; `listed` and `replaced` (other kinds) are in lists.

        Lists are private; with `is_partial` they are not cached.
        """
        by_name: dict[str, Entry] = {}
        for entry in tools:
            by_name.setdefault(entry.exported, entry)
        hints = {**self.hints, **{kind: replace(self.hints[kind], public=False) for kind in (_TOOL, *replaced)}}
        if is_partial:
            hints = {kind: replace(hint, ttl_ms=0) for kind, hint in hints.items()}
        entries = MappingProxyType({**self._entries, **replaced, _TOOL: tuple(listed)})
        return CatalogView(
            entries=entries, resources=self.resources, hints=hints, quarantined=self.quarantined,
            withheld=self.withheld, tools=by_name, removed=self.removed, announced=self._announced,
        )  # fmt: skip

    def _after(self, kind: Kind, cursor: str | None) -> int:
        if cursor is None:
            return 0
        position = self._places[kind].get(_exported_in(cursor))
        if position is None:
            raise InvalidParams(f"unknown cursor for {KINDS[kind].list_method}: list again from the start")
        return position + 1

    def _render(self, kind: Kind, era: Era, start: int, size: int) -> bytes:
        listed = self._entries[kind]
        page = listed[start : start + size]
        body = b",".join(in_era(kind, entry.raw, era) for entry in page)
        result: JsonObject = {KINDS[kind].result_key: msgspec.Raw(b"[" + body + b"]")}
        if start + size < len(listed):
            result["nextCursor"] = _cursor_at(page[-1].exported)
        if era is Era.MODERN:
            hint = self.hints[kind]
            scope = "public" if hint.public else "private"
            result = {"resultType": "complete", **result, "ttlMs": hint.ttl_ms, "cacheScope": scope}
        return msgspec.json.encode(result)


def _cursor_at(exported: str) -> str:
    return urlsafe_b64encode(exported.encode()).decode()


def _exported_in(cursor: str) -> str:
    try:
        exported = urlsafe_b64decode(cursor).decode()
    except ValueError:
        return ""
    return exported if _cursor_at(exported) == cursor else ""


def build(
    snapshots: Iterable[Snapshot],
    rules: ViewRules,
    remembered: Remembered | None = None,
    unapproved: Mapping[Origin, UnapprovedTool] = MappingProxyType({}),
    removed: Collection[str] = (),
    approved: Collection[Origin] = (),
) -> CatalogView:
    """The view of these servers, one snapshot each in any order, without servers that lack rules.

    `unapproved` texts, by `pin_name`, cannot be used, but keep their names; new ones take no name from others.
    `approved`: by a person. `remembered` and `removed` outlive the view.
    """
    servers = present(snapshots, rules)
    new = {origin for origin, finding in unapproved.items() if finding.kind == "new"}
    source = offered(servers, rules, new, approved)
    offers, roots = dict(source.by_kind), source.roots
    withheld, skills = _withhold(offers, rules, unapproved), offers.pop(Kind.SKILL)
    finding_of = held_folders({offer.origin: unapproved[pin] for offer in skills if (pin := _pin(offer)) in unapproved})
    entries: dict[Kind, tuple[Entry, ...]] = {}
    hidden: dict[Kind, list[Origin]] = {}
    for kind, some in offers.items():
        admitted = [is_admitted(kind, offer, rules) and not finding_of(*offer.origin) for offer in some]
        entries[kind] = tuple(entry_of(kind, offer, rules) for offer in compress(some, admitted))
        hidden[kind] = [offer.origin for offer in compress(some, map(not_, admitted))]
    templates = uris.Templates((entry.server, entry.key) for entry in entries[Kind.TEMPLATE])
    table = _uri_table(servers, source.addresses, templates, roots, remembered)
    filters = {snapshot.server: (rules.servers[snapshot.server].resources, rules.resources) for snapshot in servers}
    resources = ListedResources(
        entries=entries, hidden=hidden, table=table, templates=templates, filters=filters, roots=roots,
        finding_of=finding_of, directories=_directories(servers),
    )  # fmt: skip
    entries[Kind.SKILL] = tuple(_skills(skills, resources))
    hints, news = _hints(servers, rules, skills, entries[Kind.SKILL]), sum(snapshot.announced for snapshot in servers)
    return CatalogView(
        entries=MappingProxyType(entries), resources=resources, hints=hints, quarantined=source.quarantined,
        withheld=withheld, tools=_usable(entries[_TOOL], rules), removed=removed, announced=news,
    )  # fmt: skip


def _usable(tools: Sequence[Entry], rules: ViewRules) -> dict[str, Entry]:
    """Tools by exported name, with `run_code` if scripts can run: it is there before any server is."""
    usable = {entry.exported: entry for entry in tools}
    if rules.lists_code:
        reads = rules.code == "reads"
        usable[RUN_CODE] = Entry(
            kind=Kind.TOOL, server=OWN, key=RUN_CODE, exported=RUN_CODE, raw=definition(rules.code), is_read_only=reads
        )  # fmt: skip
    return usable


def _uri_table(
    servers: Sequence[Snapshot], addresses: Mapping[Origin, str], templates: uris.Templates, roots: SkillRoots,
    remembered: Remembered | None,
) -> uris.UriTable:  # fmt: skip
    return uris.UriTable(
        exported=addresses, templates=templates, servers=[snapshot.server for snapshot in servers],
        readers=[snapshot.server for snapshot in servers if _lists(snapshot, Kind.RESOURCE)],
        remembered=Remembered() if remembered is None else remembered, skills=roots,
    )  # fmt: skip


def _directories(servers: Iterable[Snapshot]) -> frozenset[str]:
    """SEP-2640, "Capability Declaration"."""
    settings = ((snapshot.server, extensions_in(snapshot.capabilities).get(SKILLS)) for snapshot in servers)
    return frozenset(
        server for server, setting in settings if isinstance(setting, dict) and setting.get("directoryRead") is True
    )


def _withhold(
    offers: dict[Kind, list[Offer]], rules: ViewRules, unapproved: Mapping[Origin, UnapprovedTool]
) -> Withheld:
    if not unapproved:
        return {}
    withheld: dict[tuple[Kind | None, str], UnapprovedTool] = {
        (None, server): unapproved[pin] for server in rules.servers if (pin := (server, INSTRUCTIONS)) in unapproved
    }
    for kind in _WAITING:
        waiting = [offer for offer in offers[kind] if _pin(offer) in unapproved]
        if waiting:
            offers[kind] = [offer for offer in offers[kind] if _pin(offer) not in unapproved]
        withheld |= {
            (kind, offer.exported): unapproved[_pin(offer)] for offer in waiting if is_admitted(kind, offer, rules)
        }
    return withheld


def _pin(offer: Offer) -> Origin:
    return offer.server, pin_name(offer.definition.kind, offer.definition.key)


def _skills(offers: Iterable[Offer], resources: ListedResources) -> Iterator[Entry]:
    for offer in offers:
        if (raw := resources.skill(offer)) is not None:
            key, summary = offer.definition.key, offer.definition.summary
            yield Entry(
                kind=Kind.SKILL, server=offer.server, key=key, exported=offer.exported, raw=raw, summary=summary
            )


def _lists(snapshot: Snapshot, kind: Kind) -> bool:
    return bool(snapshot.lists.get(kind)) or KINDS[kind].is_offered(snapshot.capabilities)


def _hints(
    servers: Sequence[Snapshot], rules: ViewRules, skills: Sequence[Offer], entries: Sequence[Entry]
) -> dict[Kind, CacheHint]:
    """A filtered list of skills is private."""
    hints = {kind: _hint(kind, servers, rules) for kind in Kind}
    filters = {rules.resources, *(rules.servers[snapshot.server].resources for snapshot in servers)}
    if len(entries) < len(skills) or filters != {EVERYTHING}:
        hints[Kind.SKILL] = replace(hints[Kind.SKILL], public=False)
    return hints


def _hint(kind: Kind, servers: Sequence[Snapshot], rules: ViewRules) -> CacheHint:
    listing, least = [snapshot for snapshot in servers if _lists(snapshot, kind)], CacheHint()
    hints = [each.hints.get(kind, least) if each.era is Era.MODERN or kind is Kind.SKILL else least for each in listing]
    ttl_ms = min((hint.ttl_ms for hint in hints), default=0)
    return CacheHint(max(0, ttl_ms), rules.shared and bool(hints) and all(hint.public for hint in hints))
