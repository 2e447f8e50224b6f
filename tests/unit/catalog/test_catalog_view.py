import json
from collections.abc import Mapping

import pytest

from mcp_hub.catalog.offers.filters import EVERYTHING, Filter, Selector
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.errors import InvalidParams
from mcp_hub.types import CacheHint, Era, Kind, Snapshot
from tests.unit.catalog.offers import names as listed
from tests.unit.catalog.offers import tool

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN


def resource(uri: str) -> bytes:
    return json.dumps({"uri": uri, "name": uri}).encode()


def template(text: str) -> bytes:
    return json.dumps({"uriTemplate": text, "name": text}).encode()


def snapshot(server: str, *tools: str, hint: CacheHint | None = None, era: Era = MODERN) -> Snapshot:
    hints = {} if hint is None else {Kind.TOOL: hint}
    return Snapshot(server, era, {Kind.TOOL: tuple(map(tool, tools))}, hints)


def resources(server: str, *uris: str, templates: tuple[str, ...] = ()) -> Snapshot:
    lists = {Kind.RESOURCE: tuple(map(resource, uris)), Kind.TEMPLATE: tuple(map(template, templates))}
    return Snapshot(server, HANDSHAKE, lists, capabilities={"resources": {}})


def view(*snapshots: Snapshot, tools: Filter = EVERYTHING, shared: bool = True, **rules: ServerRules) -> CatalogView:
    servers = {one.server: rules.get(one.server, ServerRules(one.server)) for one in snapshots}
    return build(snapshots, ViewRules(servers, tools, shared=shared))


def page(catalog: CatalogView, era: Era, cursor: str | None = None, size: int = 100) -> Mapping[str, object]:
    result = json.loads(catalog.page(Kind.TOOL, era, cursor, size))
    assert isinstance(result, dict)
    return result


def test_lists_follow_the_configured_order_whatever_order_snapshots_come_in() -> None:
    servers = {"b": ServerRules("b"), "a": ServerRules("a"), "down": ServerRules()}
    snapshots = [snapshot("a", "z", "y"), snapshot("b", "x"), snapshot("unconfigured", "q")]
    catalog = build(snapshots, ViewRules(servers))
    assert listed(catalog) == ["b_x", "a_z", "a_y"]
    assert listed(build(reversed(snapshots), ViewRules(servers))) == ["b_x", "a_z", "a_y"]


def test_an_entry_is_found_by_its_exported_name_only() -> None:
    catalog = view(snapshot("a", "x"))
    entry = catalog.find(Kind.TOOL, "a_x")
    assert entry is not None and (entry.server, entry.key) == ("a", "x")
    assert json.loads(entry.raw)["name"] == "a_x"
    assert catalog.find(Kind.TOOL, "x") is None
    assert catalog.find(Kind.PROMPT, "a_x") is None


def test_a_hidden_tool_is_neither_listed_nor_found() -> None:
    hiding = ServerRules("a", tools=Filter(deny=("drop_*", "a_wipe")))
    catalog = view(snapshot("a", "drop_all", "wipe", "get"), a=hiding)
    assert listed(catalog) == ["a_get"]
    assert catalog.find(Kind.TOOL, "a_drop_all") is None
    assert catalog.nearest(Kind.TOOL, "a_drop_all") == []
    assert listed(view(snapshot("a", "x"), snapshot("b", "x"), tools=Filter(allow=("b_*",)))) == ["b_x"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("echo", ["everything_echo", "hub_everything_echo"]),
        ("ECHO", ["everything_echo", "hub_everything_echo"]),
        ("everything.echo", ["everything_echo", "hub_everything_echo"]),
        ("everything__echo", ["everything_echo", "hub_everything_echo"]),
        ("mcp__mcp-hub__everything_echo", ["everything_echo"]),
        ("getSum", ["everything_getSum"]),
        ("x.add", ["b_x_add"]),
        ("échos", ["b_echos"]),
        ("", []),
        ("___", []),
        ("ech", ["b_ech0"]),
    ],
)
def test_entry_of_the_same_name_is_nearest_whatever_prefix_and_signs_it_has(name: str, near: list[str]) -> None:
    servers = (
        snapshot("everything", "echo", "getSum"),
        snapshot("b", "ech0", "x_add", "échos"),
        snapshot("hub", "everything_echo"),
    )
    assert view(*servers).nearest(Kind.TOOL, name)[: len(near)] == near


def test_a_profile_does_not_rename_tools() -> None:
    bare, both = ServerRules(), (snapshot("a", "x"), snapshot("b", "x"))
    everything = view(*both, a=bare, b=bare)
    narrow = view(*both, tools=Filter(deny=(listed(everything)[0],)), a=bare, b=bare)
    assert listed(narrow) == listed(everything)[1:]


def test_tools_and_prompts_are_named_apart_and_renamed() -> None:
    offered = Snapshot("a", MODERN, {Kind.TOOL: (tool("x"),), Kind.PROMPT: (b'{"name":"x"}', b'{"name":"run_tool"}')})
    catalog = view(offered, a=ServerRules(rename={"x": "y"}))
    assert listed(catalog) == ["y"]
    assert listed(catalog, Kind.PROMPT) == ["y", "run_tool"]


def test_a_broken_definition_is_reported_and_the_rest_listed() -> None:
    offered = Snapshot("a", MODERN, {Kind.TOOL: (b"{}", tool("x"))})
    catalog = view(offered)
    assert listed(catalog) == ["a_x"]
    assert [(one.server, one.kind, one.key) for one in catalog.quarantined] == [("a", Kind.TOOL, "#1")]


def test_header_parameters_are_noticed() -> None:
    schema = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "Region"}}}
    offered = Snapshot("a", MODERN, {Kind.TOOL: (tool("x", inputSchema=schema), tool("y"))})
    assert [entry.has_header_params for entry in view(offered).entries(Kind.TOOL)] == [True, False]


def test_pages_have_the_shape_of_their_era() -> None:
    odd = tool("x", outputSchema={"type": "array"}, execution={"x-future": 1})
    catalog = view(Snapshot("a", MODERN, {Kind.TOOL: (odd,)}, {Kind.TOOL: CacheHint(500, True)}))
    schema = {"type": "object"}
    assert page(catalog, HANDSHAKE) == {"tools": [{"name": "a_x", "inputSchema": schema, "execution": {"x-future": 1}}]}
    assert page(catalog, MODERN) == {
        "resultType": "complete",
        "tools": [{"name": "a_x", "inputSchema": schema, "outputSchema": {"type": "array"}}],
        "ttlMs": 500,
        "cacheScope": "public",
    }
    assert json.loads(catalog.page(Kind.TEMPLATE, HANDSHAKE, None, 5)) == {"resourceTemplates": []}


def test_a_cursor_survives_changes_elsewhere_in_the_list() -> None:
    cursor = str(page(view(snapshot("a", "x", "y")), HANDSHAKE, size=1)["nextCursor"])
    (entry,) = json.loads(view(snapshot("a", "w", "x", "y")).page(Kind.TOOL, MODERN, cursor, 9))["tools"]
    assert entry["name"] == "a_y"


@pytest.mark.parametrize("cursor", ["", "?", "é", "YV94!", "YV94\n", "YV9nb25l", "_w==", "=" * 9])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    catalog = view(snapshot("a", "x", "y"))
    assert page(catalog, HANDSHAKE, "YV94")  # a_x
    with pytest.raises(InvalidParams, match="unknown cursor") as caught:
        catalog.page(Kind.TOOL, HANDSHAKE, cursor, 1)
    assert caught.value.code == -32602


def test_pages_are_rendered_once_and_only_so_many_are_kept() -> None:
    catalog = view(snapshot("a", "x", "y"))
    first = catalog.page(Kind.TOOL, MODERN, None, 1)
    assert catalog.page(Kind.TOOL, MODERN, None, 1) is first
    for size in range(2, 1000):
        catalog.page(Kind.TOOL, MODERN, None, size)
    again = catalog.page(Kind.TOOL, MODERN, None, 1)
    assert again == first and again is not first


@pytest.mark.parametrize(
    ("hints", "shared", "ttl_ms", "scope"),
    [
        ((CacheHint(900, True), CacheHint(500, True)), True, 500, "public"),
        ((CacheHint(900, True), CacheHint(500, True)), False, 500, "private"),
        ((CacheHint(900, True), CacheHint(500, False)), True, 500, "private"),
        ((CacheHint(900, True), None), True, 0, "private"),
        ((CacheHint(-5, True),), True, 0, "public"),
        ((), True, 0, "private"),
    ],
)
def test_cache_hints_are_the_least_of_all_contributors(
    hints: tuple[CacheHint | None, ...], shared: bool, ttl_ms: int, scope: str
) -> None:
    catalog = view(*(snapshot(f"s{n}", "x", hint=hint) for n, hint in enumerate(hints)), shared=shared)
    result = page(catalog, MODERN)
    assert (result["ttlMs"], result["cacheScope"]) == (ttl_ms, scope)


def test_a_handshake_contributor_forbids_caching_and_a_stranger_to_the_kind_does_not() -> None:
    hint = CacheHint(900, True)
    old = snapshot("b", "x", hint=hint, era=HANDSHAKE)
    assert page(view(snapshot("a", "x", hint=hint), old), MODERN)["ttlMs"] == 0
    assert page(view(snapshot("a", "x", hint=hint), resources("b", "x:1")), MODERN)["ttlMs"] == 900
    empty = Snapshot("b", MODERN, {}, capabilities={"tools": {}})
    assert page(view(snapshot("a", "x", hint=hint), empty), MODERN)["ttlMs"] == 0


def test_uris_resolve_to_their_server_both_ways() -> None:
    catalog = view(resources("a", "x:1"), resources("b", "x:1", templates=("db://{id}",)))
    assert listed(catalog, Kind.RESOURCE) == ["x:1", "hub://b/x:1"]
    assert catalog.resolve_uri("x:1") == ("a", "x:1")
    assert catalog.resolve_uri("hub://b/x:1") == ("b", "x:1")
    assert catalog.exported_uri("b", "x:1") == "hub://b/x:1"
    assert catalog.resolve_uri("db://5") == ("b", "db://5")
    assert catalog.resolve_uri("nobody:1") is None


def test_a_hidden_resource_cannot_be_read_by_any_road() -> None:
    hiding = ServerRules(resources=Filter(deny=("x:secret*", "vault://*")))
    offered = resources("a", "x:secret1", "x:open", templates=("x:{+any}", "vault://{id}"))
    catalog = view(offered, resources("b", "y:1"), a=hiding)
    assert listed(catalog, Kind.RESOURCE) == ["x:open", "y:1"]
    assert listed(catalog, Kind.TEMPLATE) == ["x:{+any}"]
    for uri in ("x:secret1", "x:secret2", "hub://a/x:secret1", "hub://a!1/x%3Asecret1", "hub://a/vault://1"):
        assert catalog.resolve_uri(uri) is None, uri
    assert catalog.resolve_uri("x:other") == ("a", "x:other")


def test_a_listed_resource_outside_allow_is_not_readable_through_a_template() -> None:
    rules = ServerRules(resources=Filter(allow=("x:{+any}", "x:open")))
    catalog = view(resources("a", "x:open", "x:closed", templates=("x:{+any}",)), a=rules)
    assert listed(catalog, Kind.RESOURCE) == ["x:open"]
    assert catalog.resolve_uri("x:closed") is None
    assert catalog.resolve_uri("x:unlisted") == ("a", "x:unlisted")


def test_the_only_reader_is_asked_for_unlisted_uris_within_its_filter() -> None:
    rules = ServerRules(resources=Filter(allow=("doc:*", "log://{id}"), deny=("doc:no", "tmp://{id}")))
    catalog = view(resources("a", "doc:1", templates=("log://{id}", "tmp://{id}", "raw://{id}")), a=rules)
    assert listed(catalog, Kind.TEMPLATE) == ["log://{id}"]
    assert catalog.resolve_uri("doc:2") == ("a", "doc:2")
    assert catalog.resolve_uri("log://2") == ("a", "log://2")
    for uri in ("doc:no", "else:1", "tmp://1", "raw://1"):
        assert catalog.resolve_uri(uri) is None, uri
    only_deny = ServerRules(resources=Filter(deny=("tmp://{id}",)))
    assert view(resources("a", templates=("tmp://{id}",)), a=only_deny).resolve_uri("tmp://1") is None


def test_the_repr_says_what_is_in_it() -> None:
    expected = "<CatalogView 1 tools, 0 resources, 0 templates, 0 prompts, 0 events, 0 skills, 0 quarantined>"
    assert repr(view(snapshot("a", "x"))) == expected


def test_profile_filters_resources_and_prompts_too_and_cannot_be_got_round() -> None:
    prompts = (b'{"name":"ask"}', b'{"name":"tell","_meta":{"tags":["risky"]}}')
    offered = resources("a", "x:1", "x:2", "y:1", templates=("x:{+any}", "y:{+any}"))
    snapshots = [offered, Snapshot("b", HANDSHAKE, {Kind.PROMPT: prompts})]
    servers = {"a": ServerRules(resources=Filter(deny=("x:2",))), "b": ServerRules("b")}
    rules = ViewRules(
        servers, resources=Filter(deny=("y:*",)), prompts=Filter(allow=("b_*",), deny=(Selector(tag="risky"),))
    )
    catalog = build(snapshots, rules)
    assert listed(catalog, Kind.RESOURCE) == ["x:1"]
    assert listed(catalog, Kind.TEMPLATE) == ["x:{+any}"]
    for uri in ("x:2", "y:1", "y:other", "hub://a/y:1", "hub://a/y:other"):
        assert catalog.resolve_uri(uri) is None, uri
    assert catalog.resolve_uri("x:other") == ("a", "x:other")
    assert listed(catalog, Kind.PROMPT) == ["b_ask"]
    assert catalog.find(Kind.PROMPT, "b_tell") is None
    closed = build(snapshots, ViewRules(servers, resources=Filter(allow=("z:*",)), prompts=Filter(allow=("ask",))))
    assert listed(closed, Kind.RESOURCE) == [] and closed.resolve_uri("x:other") is None
    assert listed(closed, Kind.PROMPT) == []  # a profile sees exported names


@pytest.mark.parametrize("of_profile", [False, True])
def test_empty_allow_leaves_nothing_that_is_listed_or_can_be_used(of_profile: bool) -> None:
    snapshots = [
        resources("a", "x:1", templates=("x:{+any}",)),
        Snapshot("b", HANDSHAKE, {Kind.PROMPT: (b'{"name":"ask"}',), Kind.TOOL: (b'{"name":"do","inputSchema":{}}',)}),
    ]
    own, nothing = ServerRules(), Filter(())
    if not of_profile:
        own = ServerRules(tools=nothing, resources=nothing, prompts=nothing)
    every = {"a": own, "b": own}
    closed = ViewRules(every, tools=nothing, resources=nothing, prompts=nothing)
    catalog = build(snapshots, closed if of_profile else ViewRules(every))
    assert [name for kind in Kind for name in listed(catalog, kind)] == []
    assert catalog.find(Kind.TOOL, "do") is None and catalog.find(Kind.PROMPT, "ask") is None
    for uri in ("x:1", "x:unlisted", "hub://a/x:1", "hub://a/x:unlisted"):
        assert catalog.resolve_uri(uri) is None, uri
