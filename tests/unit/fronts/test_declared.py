"""Capabilities that the hub declares: what its servers have, and everything while one was never listed."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.call import Call, CallerConnection
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import SessionRules, StreamLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.discovery.capabilities import servers_have
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.hub import HubPort
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import APPS, KINDS, SKILLS, STREAMS, TASKS
from mcp_hub.protocol.meta import EVERYTHING, hub_capabilities, take_meta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import HANDSHAKE, MODERN, JsonObject, Kind, Snapshot, UpstreamState, UpstreamStatus

CHANGES = {"listChanged": True}
TOOL = b'{"name":"look","inputSchema":{"type":"object"}}'
APP_TOOL = b'{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://a/x"}}}'
BARE: JsonObject = {"tools": {}}


@dataclass
class Listing:
    """An upstream with these capabilities; None: never listed."""

    name: str
    capabilities: JsonObject | None
    state: UpstreamState = UpstreamState.READY
    version: str = "2025-11-25"
    tools: tuple[bytes, ...] = (TOOL,)

    def apart(self, call: Call) -> CallerConnection | None:
        return None

    def refresh(self, kind: Kind, *, is_new: bool = False) -> None: ...

    def set_log_level(self, level: str) -> None: ...

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, self.state, version=self.version)

    def snapshot(self) -> Snapshot | None:
        if self.capabilities is None:
            return None
        return Snapshot(self.name, HANDSHAKE, {Kind.TOOL: self.tools}, capabilities=self.capabilities)


def have(*servers: Listing, lists: tuple[Snapshot, ...] = (), **rules: Any) -> JsonObject:
    upstreams: Any = {server.name: server for server in servers}
    every = ViewRules({name: ServerRules() for name in upstreams}, **rules)
    picked = ViewRules({name: ServerRules() for name in list(upstreams)[:1]})
    catalog = Catalog(
        upstreams=upstreams, rules={None: every, "first": picked}, changes=Notices(), clock=SystemClock(),
        first_list_wait=0.0,
    )  # fmt: skip
    return servers_have(catalog, upstreams, lists, "first" if rules.get("code") == "reads" else None)


def declared(*servers: Listing, version: str = "2025-11-25") -> JsonObject:
    return hub_capabilities(version, have(*servers))


def test_a_server_with_one_tool_is_announced_with_tools_and_the_hubs_own() -> None:
    assert declared(Listing("a", BARE)) == {
        "tools": CHANGES, "experimental": {STREAMS: {}}, "extensions": {STREAMS: {}},
    }  # fmt: skip
    assert declared(Listing("a", BARE), version="2026-07-28") == {
        "tools": CHANGES, "extensions": {STREAMS: {}, TASKS: {}},
    }  # fmt: skip


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_everything_is_declared_while_a_server_was_never_listed(version: str) -> None:
    everything = declared(Listing("a", BARE), Listing("b", None), version=version)
    assert everything == hub_capabilities(version, EVERYTHING)
    assert {"tools", "resources", "prompts", "completions", "logging"} <= everything.keys()
    assert everything["resources"] == {"listChanged": True, "subscribe": True}
    assert (SKILLS in everything["extensions"]) == (version == "2026-07-28")


@pytest.mark.parametrize("state", [UpstreamState.FAILED, UpstreamState.INCOMPATIBLE, UpstreamState.STOPPED])
def test_a_server_that_failed_before_its_first_list_may_still_have_anything(state: UpstreamState) -> None:
    assert {**BARE, **EVERYTHING} == have(Listing("a", BARE), Listing("b", None, state))
    assert have(Listing("a", BARE), Listing("b", {"prompts": {}}, state)) == {"tools": {}, "prompts": {}}


def test_a_disabled_server_is_not_waited_for_and_has_nothing() -> None:
    assert have(Listing("a", BARE), Listing("b", None, UpstreamState.DISABLED)) == BARE


def test_list_changed_is_declared_wherever_the_list_exists() -> None:
    server = Listing("a", {"tools": {}, "prompts": {"listChanged": False}, "resources": {}})
    capabilities = declared(server)
    assert [capabilities[name] for name in ("tools", "prompts", "resources")] == [CHANGES] * 3


@pytest.mark.parametrize(
    ("settings", "subscribe"),
    [({"subscribe": True}, True), ({"subscribe": False}, False), ({"subscribe": None}, False)],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_subscriptions_are_declared_if_one_server_has_them(settings: JsonObject, subscribe: bool, first: bool) -> None:
    servers = [Listing("a", {"resources": settings}), Listing("b", {"resources": {}})]
    capabilities = declared(*(servers if first else reversed(servers)))
    assert capabilities["resources"] == ({**CHANGES, "subscribe": True} if subscribe else CHANGES)


def test_capabilities_that_are_no_objects_declare_nothing() -> None:
    assert declared(Listing("a", {"tools": {}, "prompts": None, "logging": True, "resources": [1]})) == declared(
        Listing("a", BARE)
    )


def test_extensions_of_servers_are_declared_only_if_the_hub_serves_them() -> None:
    server = Listing("a", {"tools": {}, "extensions": {SKILLS: {}, "com.acme/things": {"x": 1}, TASKS: {}}})
    assert declared(server, version="2026-07-28")["extensions"] == {
        STREAMS: {}, TASKS: {}, SKILLS: {"directoryRead": True},
    }  # fmt: skip
    assert declared(server)["extensions"] == {STREAMS: {}}


def test_a_tool_with_an_app_declares_apps() -> None:
    extensions = declared(Listing("a", BARE, tools=(APP_TOOL,)))["extensions"]
    assert extensions[APPS]["mimeTypes"]
    assert APPS not in declared(Listing("a", BARE))["extensions"]


def test_an_old_server_completes_without_a_capability() -> None:
    old = Listing("a", {"prompts": {}}, version="2024-11-05")
    assert "completions" in declared(old)
    assert "completions" not in declared(old, version="2024-11-05"), "that version has the method only"
    assert "completions" not in declared(Listing("a", {"prompts": {}}))
    assert "completions" not in declared(Listing("a", BARE, version="2024-11-05"))


def test_a_profile_is_told_of_its_own_servers_only() -> None:
    servers = Listing("a", BARE), Listing("b", {"prompts": {}, "logging": {}})
    assert have(*servers) == {"tools": {}, "prompts": {}, "logging": {}}
    assert have(*servers, code="reads") == BARE


def test_lists_of_a_callers_own_connection_count_in_place_of_the_common_ones() -> None:
    common = Listing("a", {"tools": {}, "prompts": {}})
    snapshot = common.snapshot()
    assert snapshot is not None
    apart = replace(snapshot, capabilities={"tools": {}, "logging": {}}, is_apart=True)
    assert have(common, lists=(apart,)) == {"tools": {}, "logging": {}}


def test_everything_is_declared_to_who_has_no_account_yet() -> None:
    stand_in = Snapshot("a", MODERN, {}, is_apart=True)
    assert have(Listing("a", BARE), lists=(stand_in,)) == EVERYTHING


def test_all_declares_what_no_server_has() -> None:
    assert {**BARE, **EVERYTHING} == have(Listing("a", BARE), capabilities="all")


def binding(*servers: Listing) -> Binding:
    upstreams: Any = {server.name: server for server in servers}
    clock, changes = SystemClock(), Notices()
    rules: dict[str | None, ViewRules] = {None: ViewRules({name: ServerRules() for name in upstreams})}
    catalog = Catalog(upstreams=upstreams, rules=rules, changes=changes, clock=clock, first_list_wait=0.0)
    registry, streams = CallRegistry(clock, 1, 1), StreamTable(MemoryStore(), clock, StreamLimits())
    hub = HubPort(
        catalog=catalog, registry=registry, upstreams=upstreams, limits={}, session_rules=SessionRules(10),
        pending_input=PendingInput(clock, 1, registry.cancel), changes=changes, streams=streams,
    )  # fmt: skip
    return Binding(hub, {"name": "hub", "version": "1"}, lambda profile: None)


def ask(hub: Binding, session: Session, method: str, **params: str) -> dict[str, Any]:
    raw = {key: msgspec.Raw(json.dumps(value).encode()) for key, value in params.items()}
    reply = hub.handle(session, method, raw, take_meta({}))
    assert isinstance(reply, bytes)
    answer: dict[str, Any] = json.loads(reply)
    return answer


LISTS = {spec.list_method: spec.result_key for kind, spec in KINDS.items() if kind is not Kind.SKILL}
LOCAL = Caller("local", None)


def modern() -> Session:
    return Session("1", LOCAL, MODERN, "2026-07-28")


@pytest.mark.parametrize("method", LISTS)
def test_a_list_that_is_not_declared_is_empty_for_a_handshake_client(method: str) -> None:
    hub = binding(Listing("a", BARE))
    session, answer = hub.initialize(LOCAL, {"protocolVersion": msgspec.Raw(b'"2025-11-25"')})
    assert json.loads(answer)["capabilities"].keys() == {"tools", "experimental", "extensions"}
    assert bool(ask(hub, session, method)[LISTS[method]]) == (method == "tools/list")
    assert ask(hub, session, "logging/setLevel", level="info") == {}


@pytest.mark.parametrize("method", [*LISTS, "skills/list"])
def test_a_list_that_is_not_declared_is_an_unknown_method_to_a_modern_client(method: str) -> None:
    hub = binding(Listing("a", BARE))
    assert ask(hub, modern(), "server/discover")["capabilities"].keys() == {"tools", "extensions"}
    if method == "tools/list":
        assert ask(hub, modern(), method)["tools"]
    else:
        with pytest.raises(RpcError, check=lambda error: error.code == -32601, match=method):
            ask(hub, modern(), method)


@pytest.mark.parametrize("method", LISTS)
def test_a_list_that_was_declared_while_a_server_started_stays_an_empty_list(method: str) -> None:
    server = Listing("a", None)
    hub = binding(server)
    assert "prompts" in ask(hub, modern(), "server/discover")["capabilities"]
    server.capabilities = BARE
    hub._hub.changes.bump()
    assert "prompts" not in ask(hub, modern(), "server/discover")["capabilities"]
    assert bool(ask(hub, modern(), method)[LISTS[method]]) == (method == "tools/list")
    other = Session("1", Caller("local", None, client="x"), MODERN, "2026-07-28")
    assert ask(hub, other, "prompts/list")["prompts"] == []
