"""The gates of calls that the settings ask for: limits, and kept results. Modules of others are not loaded."""

from typing import TYPE_CHECKING, Literal

from mcp_hub.app.limits import Current
from mcp_hub.call import Call
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.catalog.catalog import caller_lists
from mcp_hub.catalog.views.unmatched import Unmatched
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.fields import parse_rate
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import ToolRules, ToolSettings
from mcp_hub.globs import first_match
from mcp_hub.hub import HubPort
from mcp_hub.stores.base import EventStore
from mcp_hub.types import Kind

if TYPE_CHECKING:
    from mcp_hub.calls.gates.rate import LimitRule

_Kind = Literal["rate", "concurrency"]


def follow(hub: HubPort, current: Current, store: EventStore) -> None:
    """Puts the gates in place for the present settings; those that are there keep their counts and results."""
    _follow_limits("rate", hub, current, store)
    _follow_limits("concurrency", hub, current, store)
    _follow_cache(hub, current)


def _follow_limits(kind: _Kind, hub: HubPort, current: Current, store: EventStore) -> None:
    gates = hub.starter.gates
    maker = gates.makers.get(kind)
    if maker is None and not any(_amount(kind, entry) for entry in _entries(current.settings)):
        return
    from mcp_hub.calls.gates.rate import CallLimits, LimitRule

    def rules(server: str, tool: str) -> tuple[LimitRule | None, LimitRule | None]:
        settings, key = current.settings, f"servers.{server}"
        entry, tool_rules = settings.servers.get(server), settings.tool_rules(server, tool)
        whole = None if entry is None else _amount(kind, entry)
        return _rule(key, whole), _rule(f'{key}.per_tool."{tool_rules.pattern}"', _amount(kind, tool_rules))

    if not isinstance(maker, CallLimits):
        shared = None if store.replicas is None else store.replicas.counts()
        maker = CallLimits(rules, current.limits, SystemClock(), shared)
    gates.install(kind, maker)
    maker.look()


def _amount(kind: _Kind, entry: ServerSettings | ToolSettings | ToolRules) -> str | int | None:
    return entry.rate if kind == "rate" else entry.concurrency


def _rule(key: str, amount: str | int | None) -> "LimitRule | None":
    from mcp_hub.calls.gates.rate import LimitRule

    if not amount:
        return None
    return LimitRule(key, *parse_rate(amount)) if isinstance(amount, str) else LimitRule(key, running=amount)


def _follow_cache(hub: HubPort, current: Current) -> None:
    gates = hub.starter.gates
    maker, room = gates.makers.get("cache"), current.settings.hub.limits.cache_size
    if maker is None and not any(
        isinstance(entry, ToolSettings) and entry.cache for entry in _entries(current.settings)
    ):
        return
    from mcp_hub.calls.gates.cache import ResultCache

    def lifetime(server: str, tool: str) -> float:
        return current.settings.tool_rules(server, tool).cache

    def reads_only(call: Call) -> bool:
        view = hub.catalog.view(call.profile, caller_lists(hub.upstreams, call))
        entry = view.find(Kind.TOOL, exported_name(call))
        return entry is not None and entry.is_read_only and entry.server == call.upstream

    if isinstance(maker, ResultCache):
        maker.room = room
    else:
        maker = ResultCache(lifetime, hub.upstreams, reads_only, lambda call: "", SystemClock(), gates, room)
    gates.install("cache", maker)


def _entries(settings: Settings) -> list[ServerSettings | ToolSettings]:
    servers = settings.servers.values()
    return [*servers, *(tool for server in servers for tool in server.per_tool.values())]


def idle_caches(settings: Settings, view: CatalogView) -> list[Unmatched]:
    """Tools with a `cache` whose results are not kept, since they do not only read."""
    findings = []
    for entry in view.entries(Kind.TOOL):
        server = settings.servers.get(entry.server)
        pattern = None if server is None or entry.is_read_only else first_match(entry.key, server.per_tool)
        if server is not None and pattern is not None and server.per_tool[pattern].cache:
            why = (
                f'"{entry.key}" does not only read (it has no readOnlyHint), so its results are not kept. Remove cache.'
            )
            path = ("servers", entry.server, "per_tool", pattern, "cache")
            findings.append(Unmatched(path, entry.key, why=why))
    return findings
