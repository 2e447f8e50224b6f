"""Capabilities of a caller's servers taken together, which the hub declares. Pure.

A handshake fixes capabilities for its session and waits for no server: while a server has never been listed, in this
start or an earlier one, nothing is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import CallerLists, Catalog
from mcp_hub.protocol.capabilities import APPS
from mcp_hub.protocol.eras import HANDSHAKE_VERSIONS
from mcp_hub.protocol.meta import EVERYTHING, served_by_hub
from mcp_hub.types import HANDSHAKE, JsonObject, Snapshot, UpstreamState

_COMPLETED: Final = frozenset({"prompts", "resources"})
"""Capabilities whose names and URIs can be completed; in 2024-11-05 the method has no capability of its own."""


def servers_have(
    catalog: Catalog, upstreams: Mapping[str, Upstream], lists: CallerLists, profile: str | None
) -> JsonObject:
    """The capabilities of a profile's servers taken together, extensions included; `EVERYTHING` is among them until all
    are known.

    Those that the hub does not know are of servers with a `passthrough`; of equal names the first server's settings
    count. `lists` of the caller's own connections replace the common ones. A disabled server has nothing. Raises
    `KeyError` for an unknown profile.
    """
    rules = catalog.rules(profile)
    apart = {snapshot.server: snapshot for snapshot in lists}
    together: JsonObject = {}
    is_known = rules.capabilities == "known"
    for name, of_server in rules.servers.items():
        upstream = upstreams.get(name)
        if upstream is None or upstream.status().state is UpstreamState.DISABLED:
            continue
        snapshot = apart.get(name, upstream.snapshot())
        if snapshot is None or _is_placeholder(snapshot):
            is_known = False
            continue
        for capability, settings in _capabilities(snapshot, upstream.status().version):
            served = settings if of_server.passthrough else served_by_hub(capability, settings)
            if served is not None:
                together[capability] = _joined(together.get(capability), served)
    if not is_known:
        for capability, settings in EVERYTHING.items():
            together[capability] = _joined(together.get(capability), settings)
    if any(entry.has_app for entry in catalog.view(profile, lists).usable_tools):
        together["extensions"] = {**together.get("extensions", {}), APPS: {}}
    return together


def _is_placeholder(snapshot: Snapshot) -> bool:
    """Whether the lists stand for those of an account that is not known yet."""
    return snapshot.is_apart and not snapshot.capabilities


def _capabilities(snapshot: Snapshot, version: str | None) -> Iterator[tuple[str, JsonObject]]:
    """Capabilities with their settings; a value that is not an object declares nothing."""
    named = snapshot.capabilities
    if snapshot.era is HANDSHAKE and version == HANDSHAKE_VERSIONS[0] and not named.keys().isdisjoint(_COMPLETED):
        named = {"completions": {}, **named}
    return ((name, settings) for name, settings in named.items() if isinstance(settings, dict))


def _joined(first: JsonObject | None, second: JsonObject) -> JsonObject:
    """Settings of one or the other; one that is off counts as absent."""
    return {**{name: value for name, value in second.items() if value not in (None, False)}, **(first or {})}
