"""Servers as the catalog sees them: definitions, lists, and an upstream that lists what it is told to."""

import json
from collections.abc import Callable
from functools import partial

from mcp_hub.catalog.discovery.meta_tools import unwrapped
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.routes import Route, Unlisted, resolve
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.notices import Notices
from mcp_hub.protocol.meta import take_meta
from mcp_hub.types import Era, Kind, RawObject, Snapshot, UpstreamState, UpstreamStatus
from tests.unit.fakes import IdleUpstream


def tool(name: str, **members: object) -> bytes:
    return json.dumps({"name": name, "inputSchema": {"type": "object"}, **members}).encode()


def offer(server: str, *tools: str | bytes, era: Era = Era.HANDSHAKE) -> Snapshot:
    """The list of a server; a name stands for a tool of which nothing else is said."""
    return Snapshot(server, era, {Kind.TOOL: tuple(tool(one) if isinstance(one, str) else one for one in tools)})


def names(view: CatalogView, kind: Kind = Kind.TOOL) -> list[str]:
    return [entry.exported for entry in view.entries(kind)]


def routed(
    view: CatalogView,
    params: RawObject,
    is_settled: Callable[[], bool] = lambda: True,
    unlisted: Unlisted = lambda name: None,
) -> Route:
    """The route of a tool call, of `run_tool` and `read_tool` too."""
    inner = partial(unwrapped, view, is_settled, unlisted)
    return resolve(view, Era.MODERN, "tools/call", params, unlisted, inner, take_meta({}), ViewRules({}))


class Listing(IdleUpstream):
    """A server that is starting until it lists what it is told to."""

    def __init__(self, name: str, changes: Notices) -> None:
        super().__init__(name)
        self._changes = changes
        self._held: Snapshot | None = None
        self._state, self._failures = UpstreamState.STARTING, 0

    def lists(self, held: Snapshot) -> None:
        self._held = held
        self.becomes(UpstreamState.READY)

    def becomes(self, state: UpstreamState, failures: int = 0) -> None:
        self._state, self._failures = state, failures
        self._changes.bump()

    def snapshot(self) -> Snapshot | None:
        return self._held

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, self._state, failures=self._failures)
