"""The tools that a client is listed, and the hub's own for the others. Pure."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog import texts as discovery
from mcp_hub.catalog.compact import compact_tool
from mcp_hub.catalog.offers.definitions import parse, without, without_app
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.entries import Entry, by_server
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.code.tool import RUN_CODE, definition
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import OWN, ClientKind, Kind, Mode, RawObject

MOST_IN_FULL: Final = 60  # tools that `auto` lists in full to a client that does not defer them by itself
MOST_APPS: Final = 20
"""Tools that are listed for their apps besides others."""
_CHARS_PER_TOKEN: Final = 4
_ALWAYS: Final = "anthropic/alwaysLoad"
_HINT: Final = "anthropic/searchHint"
_RESULT_SIZE: Final = "anthropic/maxResultSizeChars"
_MOST_HINT: Final = 120
_COMPACTED: Final = 4096  # definitions whose compacted form is remembered

EVENTS_TOOL: Final = msgspec.json.encode(
    {
        "name": "hub_events",
        "description": "Events of servers (a failed build): list types, subscribe for this session, wait for the next",
        "inputSchema": {
            "type": "object",
            "properties": {
                "action": {"enum": ["list", "subscribe", "wait"]},
                "name": {"type": "string"},
                "arguments": {"type": "object"},
                "after": {"type": "string", "description": "Cursor of an answer"},
            },
            "required": ["action"],
        },
        "annotations": {"readOnlyHint": True},
    }
)
"""For profiles with events: at most 120 tokens, always the same bytes."""


def decided(view: CatalogView, rules: ViewRules, client: ClientKind) -> Mode:
    """The mode for the current tools; decides `auto`."""
    setting = client.expose or rules.expose
    if setting != "auto":
        return setting
    tools = [entry for entry in view.for_model.entries(Kind.TOOL) if _is_listed(entry, rules, "full")]
    if client.max_tools is not None and len(tools) > client.max_tools:
        return "search"
    if client.defers_tools:
        return "full"
    return "full" if len(tools) <= MOST_IN_FULL and _fits(_shaped(tools, rules, client), rules.budget) else "search"


def exposed(
    view: CatalogView, rules: ViewRules, client: ClientKind, mode: Mode, *, is_partial: bool = False
) -> CatalogView:
    """The view for this kind of client; every tool can be called. The hub's own come first: clients cut the end.

    `is_partial`: servers are missing, so lists must not be cached.
    """
    view = view if client.shows_apps else view.for_model
    tools = view.entries(Kind.TOOL)
    chosen = [entry for entry in tools if _is_listed(entry, rules, mode)]
    if client.shows_apps:
        chosen = _with_apps(chosen, tools)
    listed = list(_shaped(chosen, rules, client))
    is_auto = (client.expose or rules.expose) == "auto"
    has_search = mode != "full" or len(listed) < len(tools) or (is_auto and is_partial)
    groups = by_server((entry.server, entry.exported) for entry in view.for_model.entries(Kind.TOOL))
    meta_tools = _hub_entries(discovery.definitions(groups, is_names=mode == "names"), client)
    reading = _hub_entries([discovery.READ_RESULT], client)
    on_events = [EVENTS_TOOL] if view.entries(Kind.EVENT) else []
    on_calls = _hub_entries([*client.hub_tools, *on_events], client)
    code = _hub_entries([] if view.find(Kind.TOOL, RUN_CODE) is None else [definition(rules.code)], client)
    hub_tools = [*code, *(reading if results_of(rules, client) else []), *([] if _is_bare(rules, client) else on_calls)]
    max_tools = client.max_tools
    if (
        is_auto
        and max_tools is not None
        and len(listed) + len(hub_tools) + (len(meta_tools) if has_search else 0) > max_tools
    ):
        has_search = True
        listed = _cut(listed, max(0, max_tools - len(hub_tools) - len(meta_tools)))
    listed = [*(meta_tools if has_search else []), *hub_tools, *listed]
    return view.exposed(
        [*meta_tools, *code, *reading, *on_calls, *tools], listed, _resources(view, client), is_partial=is_partial
    )


def _with_apps(listed: Sequence[Entry], tools: Sequence[Entry]) -> list[Entry]:
    """Adds up to `MOST_APPS` tools with apps, and all for apps alone: clients check an app's calls by their list."""
    names = {entry.exported for entry in listed}
    more = [entry for entry in tools if entry.has_app and not entry.is_app_only and entry.exported not in names]
    names |= {entry.exported for entry in more[:MOST_APPS]}
    return [entry for entry in tools if entry.exported in names or entry.is_app_only]


def _cut(listed: Sequence[Entry], limit: int) -> list[Entry]:
    positions = sorted(range(len(listed)), key=lambda position: not listed[position].is_app_only)[:limit]
    return [listed[position] for position in sorted(positions)]


def _resources(view: CatalogView, client: ClientKind) -> dict[Kind, tuple[Entry, ...]]:
    kinds = [kind for kind in (Kind.RESOURCE, Kind.TEMPLATE) if any(entry.app for entry in view.entries(kind))]
    return {kind: tuple(_resource(entry, client) for entry in view.entries(kind)) for kind in kinds}


def _resource(entry: Entry, client: ClientKind) -> Entry:
    is_plain = entry.app is None or client.shows_apps
    return entry if is_plain else replace(entry, raw=without_app(entry.raw))


def results_of(rules: ViewRules, client: ClientKind) -> int:
    """Tokens above which results are cut; 0: never."""
    return rules.max_result_tokens if client.max_result_tokens is None else client.max_result_tokens


def _is_bare(rules: ViewRules, client: ClientKind) -> bool:
    """Whether only servers' tools are wanted: all of them, whole results, no early answers."""
    is_full = (client.expose or rules.expose) == "full"
    return is_full and not results_of(rules, client) and client.soft_deadline is None


def _is_listed(entry: Entry, rules: ViewRules, mode: Mode) -> bool:
    server_mode = rules.servers[entry.server].expose if entry.server in rules.servers else None
    return entry.is_pinned or (server_mode or mode) == "full"


def _shaped(tools: Iterable[Entry], rules: ViewRules, client: ClientKind) -> Iterable[Entry]:
    for entry in tools:
        raw = entry.raw
        server_compact = rules.servers[entry.server].compact if entry.server in rules.servers else None
        if entry.app is not None and not client.shows_apps:
            raw = without_app(raw)
        if rules.compact if server_compact is None else server_compact:
            raw = _compacted(raw)
        if client.soft_deadline is not None:
            raw = without(raw, "outputSchema")
        if client.defers_tools:
            raw = _hinted(raw, entry, results_of(rules, client))
        yield entry if raw is entry.raw else replace(entry, raw=raw)


_compacted = lru_cache(_COMPACTED)(compact_tool)


def _hinted(raw: bytes, entry: Entry, results: int) -> bytes:
    fields = raw_object(msgspec.Raw(raw)) or {}
    meta = raw_object(fields.get("_meta", msgspec.UNSET)) or {}
    added: RawObject = {_HINT: _raw(f"{entry.server}: {entry.summary}"[:_MOST_HINT])}
    if results:
        added[_RESULT_SIZE] = _raw(results * _CHARS_PER_TOKEN)
    return msgspec.json.encode({**fields, "_meta": _raw({**added, **meta})})


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _fits(tools: Iterable[Entry], budget: int) -> bool:
    for entry in tools:
        budget -= estimate(entry.raw)
        if budget < 0:
            return False
    return True


def _hub_entries(definitions: Iterable[bytes], client: ClientKind) -> list[Entry]:
    parsed, _ = parse(Kind.TOOL, list(definitions), OWN)
    more = {"_meta": _raw({_ALWAYS: True})} if client.defers_tools else {}
    return [
        Entry(
            kind=Kind.TOOL,
            server=OWN,
            key=tool.key,
            exported=tool.key,
            raw=msgspec.json.encode({**tool.fields, **more}),
            summary=tool.summary,
            hints=tool.hints,
            is_read_only=tool.traits.hints.read_only,
        )
        for tool in parsed
    ]
