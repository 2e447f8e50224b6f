"""Tools with apps: which clients are listed them, under which address, and where the calls of an app go."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.discovery.answers import instructions
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.routes import SERVER, AppRequests
from mcp_hub.catalog.token_costs import account
from mcp_hub.catalog.views.exposure import MOST_APPS, decided, exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.clock import SystemClock
from mcp_hub.errors import UnknownEntry
from mcp_hub.notices import Notices
from mcp_hub.types import OWN, CacheHint, ClientKind, Era, Kind, Mode, RawObject, Snapshot
from tests.unit.catalog.offers import Listing, names, offer, routed, tool

SHOWS = ClientKind(shows_apps=True)
OTHER = ClientKind()
MODES: tuple[Mode, ...] = ("full", "search", "names")
ADDRESS = "ui://board/main"


def app_tool(name: str, address: str | None = ADDRESS, *visibility: str, **members: Any) -> bytes:
    ui: dict[str, Any] = {} if address is None else {"resourceUri": address}
    return tool(name, _meta={"ui": {**ui, **({"visibility": visibility} if visibility else {})}}, **members)


def server(name: str, *more: bytes, address: str = ADDRESS, lists: bool = False) -> Snapshot:
    """A server with an app, a tool for apps alone and a plain tool. It need not list the address (`lists`)."""
    tools = [app_tool("show", address), app_tool("refresh", address, "app"), tool("plain"), *more]
    resources = (json.dumps({"uri": address, "name": "x", "_meta": {"ui": {"csp": {}}}}).encode(),) if lists else ()
    return Snapshot(name, Era.HANDSHAKE, {Kind.TOOL: tuple(tools), Kind.RESOURCE: resources}, {}, {"resources": {}})


def rules_of(*servers: str, **members: Any) -> ViewRules:
    return ViewRules({name: ServerRules(name) for name in servers}, **members)


TWO = rules_of("a", "b")
VIEW = build([server("a"), server("b")], TWO)


def addresses(view: CatalogView) -> dict[str, str]:
    """Of the tools that are listed with one."""
    metas = {entry.exported: json.loads(entry.raw).get("_meta", {}) for entry in view.entries(Kind.TOOL)}
    return {name: meta["ui"]["resourceUri"] for name, meta in metas.items() if "ui" in meta}


# -- addresses


@pytest.mark.parametrize("lists", [True, False])
def test_a_shared_address_stays_with_the_first_server_and_names_the_other_and_both_are_read(lists: bool) -> None:
    view = exposed(build([server("a"), server("b", lists=lists)], TWO), TWO, SHOWS, "full")
    assert addresses(view) == {
        **{"a_show": ADDRESS, "a_refresh": ADDRESS},
        **{"b_show": "ui://b/board/main", "b_refresh": "ui://b/board/main"},
    }
    assert view.resolve_uri(ADDRESS) == ("a", ADDRESS)
    assert view.resolve_uri("ui://b/board/main") == ("b", ADDRESS)
    assert view.exported_uri("b", ADDRESS) == "ui://b/board/main", "in results, too"
    assert names(view, Kind.RESOURCE) == (["ui://b/board/main"] if lists else [])


def test_a_unique_address_is_read_at_its_server_though_nobody_lists_it_and_others_have_resources() -> None:
    view = build([server("a", address="ui://a"), server("b", address="ui://b")], TWO)
    assert (view.resolve_uri("ui://a"), view.resolve_uri("ui://b")) == (("a", "ui://a"), ("b", "ui://b"))


def test_filters_of_resources_hold_for_an_address_in_every_spelling() -> None:
    denying = ViewRules({"a": ServerRules("a"), "b": ServerRules("b", resources=Filter(deny=("ui://board/*",)))})
    view = build([server("a"), server("b")], denying)
    assert view.resolve_uri(ADDRESS) == ("a", ADDRESS)
    for spelling in ("ui://b/board/main", "ui://b!/board/main", "ui://b!1/ui%3A%2F%2Fboard%2Fmain"):
        assert view.resolve_uri(spelling) is None, spelling


# -- lists


@pytest.mark.parametrize("mode", MODES)
def test_tools_for_apps_alone_are_listed_in_every_mode_to_clients_that_show_apps_alone(mode: Mode) -> None:
    shown, other = exposed(VIEW, TWO, SHOWS, mode), exposed(VIEW, TWO, OTHER, mode)
    assert {"a_refresh", "b_refresh", "a_show", "b_show"} <= set(names(shown))
    assert json.loads(shown.entries(Kind.TOOL)[-2 if mode == "full" else -1].raw)["_meta"]["ui"]["visibility"] == [
        "app"
    ]
    assert not {"a_refresh", "b_refresh"} & set(names(other)) and other.find(Kind.TOOL, "a_refresh") is None
    assert all(b'"ui"' not in entry.raw for entry in other.entries(Kind.TOOL))


def test_resources_are_listed_with_their_app_s_settings_to_clients_that_show_apps_alone() -> None:
    view = build([server("a", lists=True)], rules_of("a"))
    (shown,), (other,) = (exposed(view, rules_of("a"), one, "full").entries(Kind.RESOURCE) for one in (SHOWS, OTHER))
    assert json.loads(shown.raw)["_meta"] == {"ui": {"csp": {}}} and "_meta" not in json.loads(other.raw)


@pytest.mark.parametrize("client", [SHOWS, OTHER])
def test_a_list_of_resources_that_depends_on_who_shows_apps_is_no_shared_one(client: ClientKind) -> None:
    public = {Kind.RESOURCE: CacheHint(60, public=True), Kind.TEMPLATE: CacheHint(60, public=True)}
    for address, scope in ((ADDRESS, "private"), (None, "public")):
        found = server("a", lists=True) if address else offer("a", "plain")
        modern = replace(found, era=Era.MODERN, hints=public, capabilities={"resources": {}})
        view = exposed(build([modern], rules_of("a")), rules_of("a"), client, "full")
        assert json.loads(view.page(Kind.RESOURCE, Era.MODERN, None, 9))["cacheScope"] == scope


@pytest.mark.anyio
async def test_search_and_instructions_name_no_tool_for_apps_alone() -> None:
    changes = Notices()
    upstream = Listing("a", changes)
    upstream.lists(server("a"))
    upstreams: dict[str, Upstream] = {"a": upstream}
    catalog = Catalog(upstreams, {None: rules_of("a")}, changes, SystemClock(), 0)
    found = await catalog.search(None, "refresh show plain", 9)
    assert {hit.id for hit in found} == {"a_show", "a_plain"}
    assert "a (2): show, plain" in (instructions(catalog, upstreams, None) or "")


def test_search_lists_at_most_so_many_tools_for_their_apps_and_what_is_pinned_besides() -> None:
    many = [app_tool(f"t{number:02}") for number in range(MOST_APPS + 5)]
    rules = rules_of("a", pinned=("a_t24", "a_plain"))
    listed = names(exposed(build([offer("a", tool("plain"), *many)], rules), rules, SHOWS, "search"))
    assert listed[-(MOST_APPS + 2) :] == ["a_plain", *(f"a_t{number:02}" for number in range(MOST_APPS)), "a_t24"]


def test_a_client_that_takes_few_tools_is_listed_those_for_apps_first() -> None:
    rules = rules_of("a", "b", expose="auto", max_result_tokens=0)
    client = ClientKind(max_tools=5, shows_apps=True)
    assert names(exposed(VIEW, rules, client, "full")) == [
        *("find_tools", "read_tool", "run_tool"),
        *("a_refresh", "b_refresh"),
    ]


def test_tools_for_apps_alone_do_not_count_for_the_mode() -> None:
    rules = rules_of("a", expose="auto")
    many = offer("a", *(app_tool(f"t{number}", None, "app") for number in range(100)))
    assert decided(build([many], rules), rules, SHOWS) == decided(build([many], rules), rules, OTHER) == "full"


@pytest.mark.parametrize("client", [SHOWS, OTHER])
def test_a_server_without_apps_has_plain_tools_and_none_for_apps_alone(client: ClientKind) -> None:
    rules = ViewRules({"a": ServerRules("a", apps=False), "b": ServerRules("b")})
    view = exposed(build([server("a"), server("b")], rules), rules, client, "full")
    assert [name for name in names(view) if name.startswith("a_")] == ["a_show", "a_plain"]
    assert all("ui" not in json.loads(one.raw).get("_meta", {}) for one in view.entries(Kind.TOOL) if one.server == "a")
    assert view.resolve_uri(ADDRESS) == ("b", ADDRESS), "its address is nobody's but the other's"


def test_tokens_count_what_clients_that_show_apps_are_listed_besides() -> None:
    rules = rules_of("a", "b", expose="search")
    found = account(VIEW, rules, OTHER)
    assert found.apps is not None and found.apps.listed == found.current.listed + 2, (
        "two with apps, none for apps alone"
    )
    assert found.apps.tokens > found.current.tokens and "a_refresh" not in {one.name for one in found.tools}
    assert account(build([offer("a", tool("plain"))], rules), rules, OTHER).apps is None


# -- what a model reaches


@pytest.mark.parametrize("runner", ["run_tool", "read_tool"])
@pytest.mark.parametrize("client", [SHOWS, OTHER])
def test_a_model_neither_runs_nor_is_told_of_a_tool_for_apps_alone(runner: str, client: ClientKind) -> None:
    reads = app_tool("rereads", ADDRESS, "app", annotations={"readOnlyHint": True})
    view = exposed(build([server("a", reads)], rules_of("a")), rules_of("a"), client, "search")
    for name in ("a_refresh", "a_rereads", "a_refres"):
        arguments = json.dumps({"name": name}).encode()
        params = {"name": msgspec.Raw(f'"{runner}"'.encode()), "arguments": msgspec.Raw(arguments)}
        found = routed(view, params)
        assert found.server == OWN and found.refusal is not None
        assert found.refusal.message.startswith(f"Unknown tool: {name}") and "mean a_re" not in found.refusal.message


# -- the requests of apps

SEEN = exposed(VIEW, TWO, SHOWS, "search")
THREE = rules_of("a", "b", "c")
ALONE = exposed(
    build([server("a"), offer("b", tool("refresh")), offer("c", app_tool("more"))], THREE), THREE, SHOWS, "search"
)


def params_of(**members: str) -> RawObject:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()}


def asked(
    view: CatalogView, name: str, shown: list[str] | None = None, by: str | None = None, *, is_settled: bool = True
) -> str:
    """The name under which the call of a tool goes on."""
    requests = AppRequests(view, None if shown is None else dict.fromkeys(shown), lambda: is_settled)
    meta = {} if by is None else params_of(**{SERVER: by})
    return str(msgspec.json.decode(requests.exported("tools/call", params_of(name=name), meta)["name"]))


@pytest.mark.parametrize("server_name", ["a", "b"])
def test_a_bare_name_is_of_the_server_whose_app_the_session_has_read(server_name: str) -> None:
    assert asked(SEEN, "refresh", [server_name]) == f"{server_name}_refresh"
    assert asked(SEEN, "plain", [server_name]) == f"{server_name}_plain"


def test_reading_an_app_is_how_a_session_shows_it() -> None:
    shown: dict[str, None] = {}
    requests = AppRequests(SEEN, shown, lambda: True)
    params = params_of(uri="ui://b/board/main")
    assert requests.exported("resources/read", params, {}) is params and list(shown) == ["b"]
    requests.exported("resources/read", params_of(uri="ui://nobody"), {})
    assert list(shown) == ["b"]
    assert bytes(requests.exported("tools/call", params_of(name="refresh"), {})["name"]) == b'"b_refresh"'


@pytest.mark.parametrize("shown", [["a", "b"], [], None])
def test_a_bare_name_that_apps_of_two_servers_may_mean_is_refused_with_the_names(shown: list[str] | None) -> None:
    with pytest.raises(UnknownEntry, match=r"use a_refresh, b_refresh, or name the server in _meta") as refused:
        asked(SEEN, "refresh", shown)
    assert refused.value.data == {"nearest": ["a_refresh", "b_refresh"]}
    assert asked(SEEN, "b_refresh", shown) == "b_refresh", "the exported name decides"
    assert asked(SEEN, "refresh", shown, "b") == "b_refresh", "and so does _meta"
    assert asked(SEEN, "b_refresh", shown, "b") == "b_refresh", "or both"


@pytest.mark.parametrize("shown", [[], None])
def test_where_nobody_knows_the_app_a_bare_name_is_of_the_only_server_with_apps_that_has_it(
    shown: list[str] | None,
) -> None:
    assert asked(ALONE, "refresh", shown) == "a_refresh"
    assert asked(ALONE, "refresh", shown, is_settled=False) == "refresh", "another server may be on its way up"


@pytest.mark.parametrize(("name", "shown"), [("more", ["a"]), ("refresh", ["c"]), ("nothing", ["a"])])
def test_an_app_reaches_no_tool_of_a_server_that_is_not_its_own(name: str, shown: list[str]) -> None:
    assert asked(ALONE, name, shown) == name


def test_a_tool_for_the_model_alone_is_no_app_s() -> None:
    view = exposed(build([server("a", app_tool("ask", ADDRESS, "model"))], rules_of("a")), rules_of("a"), SHOWS, "full")
    assert asked(view, "ask", ["a"]) == "ask" and asked(view, "a_ask", ["a"]) == "a_ask"


def test_an_exported_name_is_the_model_s_even_where_an_app_has_the_same_bare_name() -> None:
    rules = ViewRules({"a": ServerRules(None), "b": ServerRules("b")})
    view = exposed(build([offer("a", tool("refresh")), server("b")], rules), rules, SHOWS, "full")
    assert asked(view, "refresh", ["b"]) == "refresh" and asked(view, "refresh", ["b"], "b") == "b_refresh"


@pytest.mark.parametrize("by", ["nobody", "c"])
def test_a_named_server_that_lacks_the_tool_is_an_error_that_says_so(by: str) -> None:
    with pytest.raises(UnknownEntry, match=f"Unknown tool: refresh of server '{by}'"):
        asked(ALONE, "refresh", ["a"], by)


@pytest.mark.parametrize(
    ("shown", "by", "uri", "expected"),
    [
        (["b"], None, "data:x", "hub://b/data:x"),
        (["b"], None, "ui://board/part", "ui://b!/board/part"),
        (["b"], None, ADDRESS, ADDRESS),
        (["b"], "a", "data:x", "hub://a/data:x"),
        (["a"], "b", ADDRESS, "ui://b/board/main"),
        (["a"], "b", "ui://b/board/main", "ui://b/board/main"),
        (["b"], "nobody", "data:x", "data:x"),
    ],
)
def test_a_read_that_nobody_else_can_serve_goes_to_the_app_s_server(
    shown: list[str], by: str | None, uri: str, expected: str
) -> None:
    requests = AppRequests(SEEN, dict.fromkeys(shown), lambda: True)
    meta = {} if by is None else params_of(**{SERVER: by})
    assert msgspec.json.decode(requests.exported("resources/read", params_of(uri=uri), meta)["uri"]) == expected


@pytest.mark.parametrize("shown", [{"a": None, "b": None}, None])
def test_a_read_that_two_apps_may_mean_is_refused_with_the_addresses(shown: dict[str, None] | None) -> None:
    with pytest.raises(UnknownEntry, match="use hub://a/data:x, hub://b/data:x, or name the server"):
        AppRequests(SEEN, shown, lambda: True).exported("resources/read", params_of(uri="data:x"), {})
    assert SEEN.resolve_uri("data:x") is None, "a client's word makes a URI nobody's"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", params_of(name="refresh")),
        ("tools/call", {"name": msgspec.Raw(b"5")}),
        ("tools/call", {}),
        ("resources/read", {}),
    ],
)
def test_other_requests_stay_as_they_are(method: str, params: RawObject) -> None:
    assert AppRequests(SEEN, {"a": None}, lambda: True).exported(method, params, {}) is params
