"""Globs of the settings that match no server's offer; hints and URIs are not judged. Pure."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.entries import Offer, offered, present
from mcp_hub.globs import any_matches, is_glob
from mcp_hub.types import Kind, Snapshot

_MOST: Final = 100
_LISTS: Final = {"tools": Kind.TOOL, "prompts": Kind.PROMPT, "events": Kind.EVENT}
"""Keys of filters, and what each is for."""


class Unmatched(msgspec.Struct, frozen=True):
    """A pattern, an offered name like it, and its path in the configuration; `why` it is of no use, if it matches."""

    path: tuple[str | int, ...]
    pattern: str
    near: str | None = None
    why: str = ""

    @property
    def reason(self) -> str:
        """The finding, for people."""
        if self.why:
            return self.why
        hint = f'Did you mean "{self.near}"?' if self.near else "Correct or remove it."
        return f'"{self.pattern}" matches nothing that the servers offer. {hint}'


def untested(rules: Mapping[str | None, ViewRules], server: str) -> str:
    """The patterns that need this server's lists, in words; or empty."""
    views = [view for view in rules.values() if server in view.servers]
    server_rules = [view.servers[server] for view in views]
    if any(rules_of.rename or rules_of.overrides or _has_patterns(rules_of) for rules_of in server_rules):
        return "its tool patterns"
    return (
        "the patterns of the hub and of profiles"
        if any(rules_of.pinned or _has_patterns(rules_of) for rules_of in views)
        else ""
    )


def _has_patterns(rules: ServerRules | ViewRules) -> bool:
    return any(_patterns(getattr(rules, key)) for key in _LISTS)


def has_patterns(rules: Mapping[str | None, ViewRules]) -> bool:
    return any(view.pinned for view in rules.values()) or any(untested(rules, server) for server in rules[None].servers)


def unmatched(
    snapshots: Iterable[Snapshot], rules: Mapping[str | None, ViewRules], absent: Collection[str] = ()
) -> list[Unmatched]:
    """Unmatched patterns in the order of the configuration, the first 100; can take a second.

    A server's section counts once it is listed; others once all their servers are, or are `absent`.
    """
    return [*islice(_every(snapshots, rules, absent), _MOST)]


def _every(
    snapshots: Iterable[Snapshot], rules: Mapping[str | None, ViewRules], absent: Collection[str]
) -> Iterator[Unmatched]:
    every = rules[None]
    servers = present(snapshots, every)
    offers = offered(servers, every).by_kind
    names = {snapshot.server for snapshot in servers}
    if _is_complete(every, names, absent):
        yield from _of_names(("hub", "pinned"), every.pinned, offers)
    for snapshot in servers:
        offers_of = {
            kind: [offer for offer in listed if offer.server == snapshot.server] for kind, listed in offers.items()
        }
        yield from _of_server(("servers", snapshot.server), every.servers[snapshot.server], offers_of)
    for profile, view in rules.items():
        if profile is None or not _is_complete(view, names, absent):
            continue
        offers_of = {
            kind: [offer for offer in listed if offer.server in view.servers] for kind, listed in offers.items()
        }
        yield from _of_filters(("profiles", profile), view, offers_of, has_own_names=False)
        if view.pinned != every.pinned:
            yield from _of_names(("profiles", profile, "pinned"), view.pinned, offers_of)


def _is_complete(view: ViewRules, listed: Collection[str], absent: Collection[str]) -> bool:
    return all(server in listed or server in absent for server in view.servers)


def _of_server(
    path: tuple[str | int, ...], rules: ServerRules, offers: Mapping[Kind, Sequence[Offer]]
) -> Iterator[Unmatched]:
    yield from _of_filters(path, rules, offers, has_own_names=True)
    tools = {offer.definition.key for offer in offers[Kind.TOOL]}
    named = tools | {offer.definition.key for kind in (Kind.PROMPT, Kind.EVENT) for offer in offers[kind]}
    for name in rules.rename:
        if name not in named:
            yield _unmatched((*path, "rename", name), name, named)
    for pattern in rules.overrides:
        if pattern not in tools and not (is_glob(pattern) and any_matches((pattern,), tools)):
            yield _unmatched((*path, "per_tool", pattern), pattern, tools)


def _of_filters(
    path: tuple[str | int, ...],
    rules: ServerRules | ViewRules,
    offers: Mapping[Kind, Sequence[Offer]],
    *,
    has_own_names: bool,
) -> Iterator[Unmatched]:
    """`has_own_names`: a server's filters see its own names, too."""
    for key, kind in _LISTS.items():
        for list_key, index, entry in _patterns(getattr(rules, key)):
            if not any(_selects(entry, offer, has_own_names) for offer in offers[kind]):
                names = {offer.exported for offer in offers[kind]}
                names |= {offer.definition.key for offer in offers[kind]} if has_own_names else set()
                yield _unmatched((*path, key, list_key, index), _pattern_text(entry), names)


def _of_names(
    path: tuple[str | int, ...], globs: Sequence[str], offers: Mapping[Kind, Sequence[Offer]]
) -> Iterator[Unmatched]:
    names = [offer.exported for offer in offers[Kind.TOOL]]
    for index, glob in enumerate(globs):
        if not any_matches((glob,), names):
            yield _unmatched((*path, index), glob, names)


def _unmatched(path: tuple[str | int, ...], pattern: str, names: Collection[str]) -> Unmatched:
    close = difflib.get_close_matches(pattern[:64], names, n=1, cutoff=0.7)
    return Unmatched(path, pattern, close[0] if close else None)


def _patterns(filter_: Filter) -> list[tuple[str, int, str | Selector]]:
    return [
        (key, index, entry)
        for key, entries in (("allow", filter_.allow or ()), ("deny", filter_.deny))
        for index, entry in enumerate(entries)
        if isinstance(entry, str) or entry.name is not None or entry.tag is not None
    ]


def _selects(entry: str | Selector, offer: Offer, has_own_names: bool) -> bool:
    names = (offer.definition.key, offer.exported) if has_own_names else (offer.exported,)
    return Filter((entry,)).admits(*names, traits=offer.definition.traits)


def _pattern_text(entry: str | Selector) -> str:
    if isinstance(entry, str):
        return entry
    return " ".join(f"{key}:{glob}" for key, glob in (("name", entry.name), ("tag", entry.tag)) if glob is not None)
