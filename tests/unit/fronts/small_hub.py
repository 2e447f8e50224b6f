"""A hub over one server whose lists a test sets; nothing of it runs."""

import json
from typing import Any

from mcp_hub.call import Call, Upstream
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import SessionRules, StreamLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.filters import EVERYTHING, Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.clock import Clock, SystemClock
from mcp_hub.hub import HubPort
from mcp_hub.notices import Notices
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import Era, Kind, Snapshot
from tests.unit.fakes import IdleUpstream

KEYS = {Kind.TOOL: "name", Kind.PROMPT: "name", Kind.RESOURCE: "uri", Kind.TEMPLATE: "uriTemplate"}


class Source(IdleUpstream):
    """A server whose lists a test sets."""

    def __init__(self, changes: Notices) -> None:
        super().__init__("git")
        self._changes = changes
        self._lists: dict[Kind, tuple[bytes, ...]] = {}
        self.subscribed: list[str] = []
        self.shown: list[tuple[Kind, bool]] = []

    def refresh(self, kind: Kind, *, is_new: bool = False) -> None:
        """Its lists are always of now."""
        self.shown.append((kind, is_new))

    def offers(self, kind: Kind, *ids: str) -> None:
        self._lists = {**self._lists, kind: tuple(_definition(kind, id_) for id_ in ids)}
        self._changes.bump()

    def adds_tool(self, definition: dict[str, Any]) -> None:
        tools = (*self._lists.get(Kind.TOOL, ()), json.dumps(definition).encode())
        self._lists = {**self._lists, Kind.TOOL: tools}
        self._changes.bump()

    def snapshot(self) -> Snapshot:
        return Snapshot("git", Era.HANDSHAKE, self._lists, capabilities={"resources": {}})

    async def subscribe(self, uri: str, call: Call) -> None:
        self.subscribed.append(uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        self.subscribed.remove(uri)


def _definition(kind: Kind, id_: str) -> bytes:
    return json.dumps({KEYS[kind]: id_, "name": id_, "inputSchema": {"type": "object"}}).encode()


def catalog_of(server: Upstream, changes: Notices, clock: Clock, rules: ServerRules | None = None) -> Catalog:
    """All that the server `git` offers, under its own names unless the rules say otherwise."""
    views: dict[str | None, ViewRules] = {None: ViewRules({"git": rules or ServerRules(prefix=None)})}
    return Catalog({"git": server}, views, changes, clock, 0)


class Hub:
    """`port` and what it is made of."""

    def __init__(self, resources: Filter = EVERYTHING) -> None:
        clock, self.changes = SystemClock(), Notices()
        self.source = Source(self.changes)
        catalog = catalog_of(self.source, self.changes, clock, ServerRules(resources=resources))
        registry = CallRegistry(clock, 1, 1)
        streams = StreamTable(MemoryStore(), clock, StreamLimits())
        pending_input = PendingInput(clock, 1, registry.cancel)
        self.port = HubPort(
            catalog, registry, {"git": self.source}, {}, SessionRules(10), pending_input, self.changes, streams
        )

    def client(self, **subscriptions: str) -> Session:
        """A session that is subscribed to own URIs under the ones that it knows."""
        held = {("git", f"x:{own}"): known for own, known in subscriptions.items()}
        return Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25", subscriptions=held)
