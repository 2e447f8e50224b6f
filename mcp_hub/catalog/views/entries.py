"""Offered definitions under their exported names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from mcp_hub.catalog.offers.definitions import (
    AppMeta,
    Definition,
    Quarantined,
    encode_as,
    in_era,
    parse,
    with_address,
    with_delivery,
    without,
    without_app,
)
from mcp_hub.catalog.offers.filters import EffectiveHints
from mcp_hub.catalog.offers.rules import UNCHANGED, Override, Supplied, ViewRules, find_override, overridden
from mcp_hub.catalog.pins import pin_name
from mcp_hub.catalog.resources import uris
from mcp_hub.catalog.resources.readings import is_denied
from mcp_hub.catalog.resources.skills import SkillRoots
from mcp_hub.catalog.views import names
from mcp_hub.globs import any_matches
from mcp_hub.types import Era, Kind, Origin, Snapshot

_T = TypeVar("_T")


class Entry(msgspec.Struct, frozen=True):
    """One listed thing. `key`: the upstream's name, URI or template; `raw`: the definition under `exported`.

    `is_pinned`: listed in every mode. `supplied`: the hub's arguments. `path` projects results. `modes`: the server's
    modes of delivering an event.
    """

    kind: Kind
    server: str
    key: str
    exported: str
    raw: bytes
    summary: str = ""
    is_pinned: bool = False
    tags: tuple[str, ...] = ()
    supplied: Supplied | None = None
    hints: EffectiveHints = EffectiveHints()
    is_read_only: bool = False
    app: AppMeta | None = None
    path: str | None = None
    modes: tuple[str, ...] = ()

    @property
    def has_app(self) -> bool:
        return self.app is not None and self.app.address is not None

    @property
    def is_app_only(self) -> bool:
        """Whether no model may see or call this tool."""
        return self.app is not None and not self.app.for_model

    def definition(self, era: Era, *, explains_hints: bool = False) -> bytes:
        """The definition for this era; `explains_hints` adds where hints come from."""
        raw = in_era(self.kind, self.raw, era)
        return self.hints.explained(raw) if explains_hints else raw

    @property
    def has_header_params(self) -> bool:
        """Whether arguments may travel as HTTP headers (2026-07-28, `x-mcp-header`)."""
        return b"x-mcp-header" in self.raw


class Offer(msgspec.Struct, frozen=True):
    """A definition before filters; only tools have an `override`. `address`: its app's exported one."""

    server: str
    definition: Definition
    exported: str
    override: Override
    address: str | None = None

    @property
    def origin(self) -> Origin:
        return self.server, self.definition.key


class _Offers(msgspec.Struct, frozen=True):
    by_kind: dict[Kind, list[Offer]]
    quarantined: tuple[Quarantined, ...]
    addresses: dict[Origin, str]
    roots: SkillRoots


def present(snapshots: Iterable[Snapshot], rules: ViewRules) -> list[Snapshot]:
    """Snapshots in the order of `rules`."""
    by_server = {snapshot.server: snapshot for snapshot in snapshots}
    return [by_server[server] for server in rules.servers if server in by_server]


def offered(
    snapshots: Sequence[Snapshot],
    rules: ViewRules,
    new: Collection[Origin] = (),
    approved: Collection[Origin] = (),
) -> _Offers:
    """All that these servers offer. A `new` text, by `pin_name`, takes no other's name; hints of `approved` tools may
    count.
    """
    definitions: dict[Kind, list[tuple[str, Definition]]] = {kind: [] for kind in Kind}
    quarantined: list[Quarantined] = []
    for kind in Kind:
        for snapshot in snapshots:
            usable, unfit = parse(kind, snapshot.lists.get(kind, ()), snapshot.server)
            definitions[kind] += ((snapshot.server, definition) for definition in usable)
            quarantined += unfit
    skills, resources = (_origins(definitions[kind]) for kind in (Kind.SKILL, Kind.RESOURCE))
    roots = SkillRoots(skills, resources, [snapshot.server for snapshot in snapshots])
    addresses = _addresses(snapshots, definitions, rules, roots)
    offers = {
        kind: _named(kind, listed, rules, new, approved, addresses, roots) for kind, listed in definitions.items()
    }
    return _Offers(offers, tuple(quarantined), addresses, roots)


def _addresses(
    snapshots: Sequence[Snapshot],
    definitions: Mapping[Kind, Sequence[tuple[str, Definition]]],
    rules: ViewRules,
    roots: SkillRoots,
) -> dict[Origin, str]:
    """The first server in configured order keeps an address."""
    listed = _origins(definitions[Kind.RESOURCE])
    apps = [
        (server, tool.app.address)
        for server, tool in definitions[Kind.TOOL]
        if tool.app is not None and tool.app.address is not None and rules.servers[server].apps
    ]
    order = {snapshot.server: position for position, snapshot in enumerate(snapshots)} if apps else {}
    origins = sorted([*listed, *apps], key=lambda origin: order[origin[0]]) if apps else listed
    return uris.assign(origins, roots)


def _origins(definitions: Iterable[tuple[str, Definition]]) -> list[Origin]:
    return [(server, definition.key) for server, definition in definitions]


def _named(
    kind: Kind,
    definitions: Sequence[tuple[str, Definition]],
    rules: ViewRules,
    new: Collection[Origin],
    approved: Collection[Origin],
    addresses: dict[Origin, str],
    roots: SkillRoots,
) -> list[Offer]:
    origins = _origins(definitions)
    overrides: dict[Origin, Override] = {}
    match kind:
        case Kind.RESOURCE:
            exported = addresses
        case Kind.TEMPLATE:
            exported = uris.assign_templates(origins)
        case Kind.SKILL:
            exported = {(server, uri): roots.exported(server, uri) or uri for server, uri in origins}
        case Kind.PROMPT | Kind.EVENT:
            requests = [_name_request(kind, origin, rules, UNCHANGED, new) for origin in origins]
            exported = names.assign(requests, max_length=rules.max_name_length, reserved=frozenset(), noun=kind.value)
        case Kind.TOOL:
            overrides = {(server, key): find_override(rules.servers[server].overrides, key) for server, key in origins}
            requests = [_name_request(kind, origin, rules, override, new) for origin, override in overrides.items()]
            exported = names.assign(requests, max_length=rules.max_name_length)
    offers = []
    for origin, (server, definition) in zip(origins, definitions, strict=True):
        override = overrides.get(origin, UNCHANGED)
        if kind is Kind.TOOL:
            rule, is_approved = rules.servers[server].hints, (server, pin_name(kind, origin[1])) in approved
            definition = overridden(definition, override, rule, is_approved=is_approved)
        app_address = definition.app.address if definition.app is not None else None
        address = addresses.get((server, app_address)) if app_address is not None else None
        offers.append(
            Offer(server=server, definition=definition, exported=exported[origin], override=override, address=address)
        )
    return offers


def _name_request(
    kind: Kind, origin: Origin, rules: ViewRules, override: Override, new: Collection[Origin]
) -> names.Wanted:
    server, key = origin
    server_rules = rules.servers[server]
    rename, yields = (
        override.name or server_rules.rename.get(key),
        server_rules.yields or (server, pin_name(kind, key)) in new,
    )
    return names.Wanted(
        server=server, name=key, prefix=server_rules.prefix, always=server_rules.always, rename=rename, yields=yields
    )


def is_admitted(kind: Kind, offer: Offer, rules: ViewRules) -> bool:
    """Whether callers may use it."""
    server_rules, definition = rules.servers[offer.server], offer.definition
    both, traits = (definition.key, offer.exported), definition.traits
    match kind:
        case Kind.TOOL if offer.override.hide or (not server_rules.apps and _is_app_only(definition)):
            return False
        case Kind.TOOL:
            return server_rules.tools.admits(*both, traits=traits) and rules.tools.admits(offer.exported, traits=traits)
        case Kind.PROMPT:
            return server_rules.prompts.admits(*both, traits=traits) and rules.prompts.admits(
                offer.exported, traits=traits
            )
        case Kind.EVENT:
            is_usable = not rules.event_sources.isdisjoint(_modes(definition))
            admits = server_rules.events.admits(*both, traits=traits)
            return is_usable and admits and rules.events.admits(offer.exported, traits=traits)
        case _:
            filters, is_template = (server_rules.resources, rules.resources), kind is Kind.TEMPLATE
            if not all(each.admits(*both, traits=traits) for each in filters):
                return False
            # in doubt a template is shown: its expansions are judged one by one
            return not is_denied(filters, both, traits=traits, in_doubt=not is_template)


def entry_of(kind: Kind, offer: Offer, rules: ViewRules) -> Entry:
    """The entry of an offer."""
    definition, override = offer.definition, offer.override
    raw, app = encode_as(definition, offer.exported), definition.app
    if app is not None and not rules.servers[offer.server].apps:
        raw, app = without_app(raw), None
    if app is not None and app.address is not None and offer.address is not None:
        raw = with_address(raw, app.address, offer.address)
    if override.path is not None:  # a projected result does not fit the schema
        raw = without(raw, "outputSchema")
    modes: tuple[str, ...] = ()
    if kind is Kind.EVENT:
        modes, raw = _modes(definition), with_delivery(raw, rules.event_deliveries)
    is_pinned = override.pin
    if is_pinned is None:
        is_pinned = kind is Kind.TOOL and any_matches(rules.pinned, (offer.exported,))
    return Entry(
        kind=kind,
        server=offer.server,
        key=definition.key,
        exported=offer.exported,
        raw=raw,
        summary=definition.summary,
        is_pinned=is_pinned,
        tags=tuple(sorted(definition.traits.tags)),
        supplied=override.supplied or None,
        hints=definition.hints,
        is_read_only=definition.traits.hints.read_only,
        app=app,
        path=override.path,
        modes=modes,
    )


def _modes(event: Definition) -> tuple[str, ...]:
    return msgspec.json.decode(event.fields["delivery"], type=tuple[str, ...])


def _is_app_only(definition: Definition) -> bool:
    return definition.app is not None and not definition.app.for_model


def by_server(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    """Groups items by server."""
    groups: dict[str, list[_T]] = {}
    for server, item in pairs:
        groups.setdefault(server, []).append(item)
    return groups
