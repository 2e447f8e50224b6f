"""What the hub answers passes the SDK's own models of each version (`mcp_types.methods`)."""

import json
from typing import Any, Literal, get_args

import msgspec
import pytest
from mcp_types.methods import CACHEABLE_METHODS, validate_client_request, validate_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import SessionRules, StreamLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.clock import SystemClock
from mcp_hub.events import Completed
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.hub import HubPort
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.eras import era_of
from mcp_hub.protocol.meta import modern_meta, take_meta
from mcp_hub.protocol.shape.results import call_result
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CacheHint, Era, JsonObject, Kind, RawObject, Snapshot
from mcp_hub.upstreams.peer.state import CLIENT_INFO

RESULTS: dict[str, JsonObject] = {
    "tools/call": {
        "content": [
            {"type": "text", "text": "a", "annotations": {"priority": 1}},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:1", "text": "t"}},
            {"type": "resource_link", "uri": "x:2", "name": "n"},
        ],
        "structuredContent": {"n": 1},
        "isError": False,
        "_meta": {"x.y/z": 1},
    },
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]},
    "resources/read": {"contents": [{"uri": "x:1", "text": "a"}, {"uri": "x:2", "blob": "aGk="}]},
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
}
DEFINITIONS: dict[Kind, list[JsonObject]] = {
    Kind.TOOL: [
        {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}},
        {"name": "b", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}, "execution": {}},
    ],
    Kind.RESOURCE: [{"uri": "x:1", "name": "n", "mimeType": "text/plain", "size": 5}, {"uri": "x:2", "name": "m"}],
    Kind.TEMPLATE: [{"uriTemplate": "y:{id}", "name": "n"}, {"uriTemplate": "z:{id}", "name": "m"}],
    Kind.PROMPT: [{"name": "p", "arguments": [{"name": "a", "required": True}]}, {"name": "q", "title": "T"}],
}

versions = pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)


def of_era(method: str, era: Era) -> Completed:
    """A result as an upstream of this era sends it."""
    result = RESULTS[method]
    if era is Era.MODERN:
        cache = {"ttlMs": 9, "cacheScope": "public"} if method in CACHEABLE_METHODS else {}
        result = {"resultType": "complete", **result, **cache}
    return Completed(json.dumps(result).encode(), era)


@versions
@pytest.mark.parametrize("upstream", Era)
@pytest.mark.parametrize("method", RESULTS)
def test_call_results(method: str, upstream: Era, version: str) -> None:
    parts = call_result(method, of_era(method, upstream), era_of(version))
    validate_server_result(method, version, json.loads(b"".join(map(bytes, parts))))


def test_the_models_refuse_what_was_not_shaped() -> None:
    """Or the tests of this file would show nothing."""
    with pytest.raises(ValidationError):
        validate_server_result("tools/list", "2026-07-28", {"tools": []})
    with pytest.raises(ValidationError):
        validate_server_result("tools/call", "2025-11-25", {"content": [], "structuredContent": [1]})


def catalog_view(era: Era) -> CatalogView:
    lists = {kind: tuple(json.dumps(one).encode() for one in every) for kind, every in DEFINITIONS.items()}
    hints = {kind: CacheHint(5, True) for kind in Kind}
    return build([Snapshot("git", era, lists, hints)], ViewRules({"git": ServerRules("git")}))


@versions
@pytest.mark.parametrize("upstream", Era)
@pytest.mark.parametrize("kind", [kind for kind in Kind if KINDS[kind].extension is KINDS[kind].instead is None])
def test_list_pages(kind: Kind, upstream: Era, version: str) -> None:
    view, cursor, names = catalog_view(upstream), None, []
    for _ in DEFINITIONS[kind]:
        page = json.loads(view.page(kind, era_of(version), cursor, 1))
        validate_server_result(KINDS[kind].list_method, version, page)
        names += [entry["name"] for entry in page[KINDS[kind].result_key]]
        cursor = page.get("nextCursor")
    assert cursor is None and len(names) == len(DEFINITIONS[kind])


@versions
@pytest.mark.parametrize("kind", [kind for kind in Kind if KINDS[kind].extension is KINDS[kind].instead is None])
def test_empty_lists(kind: Kind, version: str) -> None:
    page = build([], ViewRules({})).page(kind, era_of(version), None, 10)
    validate_server_result(KINDS[kind].list_method, version, json.loads(page))


Declares = Literal["known", "all"]


def binding(instructions: str | None, declares: Declares = "all") -> Binding:
    clock = SystemClock()
    changes = Notices()
    catalog = Catalog({}, {None: ViewRules({}, capabilities=declares)}, changes, clock, 0)
    registry = CallRegistry(clock, 1, 1)
    streams = StreamTable(MemoryStore(), clock, StreamLimits())
    hub = HubPort(
        catalog, registry, {}, {}, SessionRules(10), PendingInput(clock, 1, registry.cancel), changes, streams
    )
    return Binding(hub, {"name": "hub", "version": "1"}, lambda profile: instructions)


def raws(params: JsonObject) -> RawObject:
    return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in params.items()}


HELLO: JsonObject = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


@pytest.mark.parametrize("instructions", ["do", None])
@pytest.mark.parametrize("asked", [*KNOWN_PROTOCOL_VERSIONS, "1999-01-01"])
def test_the_answer_to_initialize(asked: str, instructions: str | None) -> None:
    session, raw = binding(instructions).initialize(LOCAL, raws({"protocolVersion": asked, **HELLO}))
    answer: dict[str, Any] = json.loads(raw)
    validate_server_result("initialize", session.version, answer)
    assert answer["protocolVersion"] == session.version == (asked if era_of(asked) is Era.HANDSHAKE else "2025-11-25")
    assert answer.get("instructions") == instructions
    assert not {"resultType", "ttlMs", "cacheScope"} & answer.keys()
    assert answer["serverInfo"]["name"] == "hub" and answer["capabilities"]["tools"] == {"listChanged": True}
    assert ("completions" in answer["capabilities"]) == (asked != "2024-11-05")


@pytest.mark.parametrize("instructions", ["do", None])
@pytest.mark.parametrize("declares", get_args(Declares))
def test_the_answer_to_discover(instructions: str | None, declares: Declares) -> None:
    session = Session("1", LOCAL, Era.MODERN, "2026-07-28")
    raw = binding(instructions, declares).handle(session, "server/discover", {}, take_meta({}))
    assert isinstance(raw, bytes)
    validate_server_result("server/discover", "2026-07-28", json.loads(raw))


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
def test_what_the_hub_asks_modern_servers(method: str) -> None:
    envelope = json.loads(msgspec.json.encode(modern_meta("2026-07-28", CLIENT_INFO, {}, "info")))
    validate_client_request(method, "2026-07-28", {"_meta": envelope})
    with pytest.raises(ValidationError):
        validate_client_request(method, "2026-07-28", {"_meta": {}})
