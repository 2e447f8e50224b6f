"""URIs: where they stand in results, whose an unlisted one is, and how they are exported."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.resources.uris import Remembered, Templates, UriTable, assign, assign_templates, readdress
from mcp_hub.clock import SystemClock
from mcp_hub.notices import Notices
from mcp_hub.types import CallId, Era, JsonObject, Kind, RawObject, Snapshot
from tests.unit.catalog.offers import Listing

BLOCKS: list[JsonObject] = [
    {"type": "text", "text": 'see "uri"'},
    {"type": "resource_link", "uri": "x:1", "name": "n", "x-future": [1, {"uri": "x:2"}]},
    {"type": "resource", "resource": {"uri": "x:3", "text": "t", "_meta": {"uri": "x:4"}}, "uri": "x:5"},
]
RENAMED: list[JsonObject] = [
    BLOCKS[0],
    {**BLOCKS[1], "uri": "hub://x:1"},
    {**BLOCKS[2], "resource": {"uri": "hub://x:3", "text": "t", "_meta": {"uri": "x:4"}}},
]
ELSEWHERE = {"structuredContent": {"uri": "x:6", "content": [BLOCKS[1]]}, "_meta": {"uri": "x:7"}, "uri": "x:8"}


def readdressed(method: str, result: object) -> tuple[Any, list[str]]:
    """The result with `hub://` before each URI, and the URIs in their order."""
    seen: list[str] = []

    def exported(uri: str) -> str:
        seen.append(uri)
        return "hub://" + uri

    return json.loads(bytes(readdress(method, json.dumps(result).encode(), exported))), seen


def test_links_and_embedded_resources_of_a_tool_result() -> None:
    shown, seen = readdressed("tools/call", {"content": BLOCKS, **ELSEWHERE})
    assert shown == {"content": RENAMED, **ELSEWHERE} and seen == ["x:1", "x:3"]


def test_links_and_embedded_resources_of_a_prompt() -> None:
    messages = [{"role": "user", "content": block, "x": 1} for block in BLOCKS]
    expected = [{"role": "user", "content": block, "x": 1} for block in RENAMED]
    shown, _ = readdressed("prompts/get", {"messages": messages, "description": "d", **ELSEWHERE})
    assert shown == {"messages": expected, "description": "d", **ELSEWHERE}


def test_the_contents_of_a_resource() -> None:
    contents = [{"uri": "x:1", "text": "a", "x": None}, {"uri": "x:2", "blob": ""}, {"text": "without"}]
    shown, seen = readdressed("resources/read", {"contents": contents, "content": BLOCKS})
    assert [item.get("uri") for item in shown["contents"]] == ["hub://x:1", "hub://x:2", None]
    assert seen == ["x:1", "x:2"] and shown["content"] == BLOCKS


@pytest.mark.parametrize("method", ["completion/complete", "tools/list"])
def test_other_results_have_no_links(method: str) -> None:
    result = {"content": BLOCKS, "contents": [{"uri": "x:1"}], "messages": [{"content": BLOCKS[1]}]}
    assert readdressed(method, result) == (result, [])


@pytest.mark.parametrize(
    "content",
    [
        None,
        {"uri": "x:1"},
        [5, "uri", None, []],
        [{"type": "resource_link", "uri": 5}],
        [{"type": "resource_link", "url": "uri"}],
        [{"type": "resource", "resource": ["uri"]}],
        [{"type": ["resource_link"], "uri": "x:1"}],
        [{"uri": "x:1"}],
    ],
)
def test_what_has_another_shape_is_left_alone_byte_for_byte(content: object) -> None:
    raw = json.dumps({"content": content, "uri": 1}).encode()
    assert readdress("tools/call", raw, lambda uri: "hub://" + uri) is raw


def test_a_broken_block_does_not_keep_others_from_being_mapped() -> None:
    shown, _ = readdressed("tools/call", {"content": [5, {"type": "resource"}, BLOCKS[1]]})
    assert shown == {"content": [5, {"type": "resource"}, RENAMED[1]]}


def test_a_result_without_links_is_not_decoded() -> None:
    """A link whose `uri` is written with escapes, which nobody does, shows that nobody looked."""
    raw = b'{"content":[{"type":"text","text":"{\\"uri\\":1}"},{"type":"resource_link","\\u0075ri":"x:1"}]}'
    assert readdress("tools/call", raw, lambda uri: "y:1") is raw


@pytest.mark.parametrize("raw", [b'{"content":["uri"', b'{"content":' + b"[" * 10**5 + b'"uri"', b'["uri"]', b'"uri"'])
def test_what_cannot_be_read_is_left_alone(raw: bytes) -> None:
    assert readdress("tools/call", raw, lambda uri: "y:1") is raw


def test_numbers_stay_as_written() -> None:
    raw = b'{"content":[{"type":"resource_link","uri":"x:1","size":1.50,"n":123456789012345678901234567890}]}'
    assert bytes(readdress("tools/call", raw, lambda uri: "y:1")) == raw.replace(b"x:1", b"y:1")


def test_a_uri_is_claimed_once() -> None:
    seen = Remembered()
    assert seen.owner("x:1") is None
    assert seen.claim("x:1", "a") and seen.claim("x:1", "a") and not seen.claim("x:1", "b")
    assert seen.owner("x:1") == "a" and len(seen) == 1


def test_a_long_uri_is_not_remembered() -> None:
    seen = Remembered()
    assert seen.claim("x" * 2048, "a") and not seen.claim("x" * 2049, "a")
    assert len(seen) == 1


def test_the_one_unused_for_longest_is_forgotten() -> None:
    seen = Remembered(limit=3)
    assert all(seen.claim(uri, "a") for uri in ("x:1", "x:2", "x:3"))
    assert seen.owner("x:1") == "a" and seen.claim("x:2", "a")
    assert seen.claim("x:4", "b")
    assert [seen.owner(f"x:{n}") for n in (1, 2, 3, 4)] == ["a", "a", None, "b"]


def catalog() -> Catalog:
    git = ServerRules("git", resources=Filter(deny=("secret:*",)))
    others = {"ci": ServerRules("ci"), "wiki": ServerRules("wiki")}
    rules = {None: ViewRules({"git": git, **others}), "small": ViewRules(others, shared=False)}
    changes = Notices()
    upstreams = {name: Listing(name, changes) for name in ("git", "ci", "wiki")}
    for name, uris in {"git": ("x:1", "secret:1"), "ci": ("x:1", "x:2"), "wiki": ()}.items():
        raws = tuple(json.dumps({"uri": uri, "name": "n"}).encode() for uri in uris)
        upstreams[name].lists(Snapshot(name, Era.HANDSHAKE, {Kind.RESOURCE: raws}, capabilities={"resources": {}}))
    return Catalog(upstreams, rules, changes, SystemClock(), 0)


def call(server: str, method: str = "tools/call", own: str | None = None, asked: str | None = None) -> Call:
    params: RawObject = {} if own is None else {"uri": msgspec.Raw(msgspec.json.encode(own))}
    return Call(CallId("st_1"), server, method, params, {}, "s", "p", Era.MODERN, {}, exported_uri=asked)


def link(uri: str) -> dict[str, str]:
    return {"type": "resource_link", "uri": uri, "name": "n"}


def shown(hub: Catalog, server: str, *uris: str, profile: str | None = None) -> list[str]:
    """The URIs of a tool result's links, as the caller gets them."""
    raw = json.dumps({"content": [link(uri) for uri in uris]}).encode()
    result: Any = json.loads(bytes(hub.exported_in_result(profile, call(server), raw)))
    return [block["uri"] for block in result["content"]]


def test_a_listed_uri_is_shown_as_it_is_listed() -> None:
    hub = catalog()
    assert shown(hub, "git", "x:1", "x:2") == ["x:1", "hub://git/x:2"]
    assert shown(hub, "ci", "x:1", "x:2") == ["hub://ci/x:1", "x:2"]
    assert shown(hub, "ci", "x:1", profile="small") == ["x:1"]


def test_an_unlisted_uri_is_remembered_for_every_profile_that_has_its_server() -> None:
    hub = catalog()
    assert hub.view(None).resolve_uri("x:9") is None
    assert shown(hub, "ci", "x:9") == ["x:9"]
    assert hub.view(None).resolve_uri("x:9") == ("ci", "x:9") == hub.view("small").resolve_uri("x:9")
    assert shown(hub, "git", "x:9") == ["hub://git/x:9"] and shown(hub, "wiki", "x:9") == ["hub://wiki/x:9"]
    assert hub.view(None).resolve_uri("hub://git/x:9") == ("git", "x:9")


def test_a_link_to_what_is_hidden_passes_and_cannot_be_read() -> None:
    hub = catalog()
    assert shown(hub, "git", "secret:1", "secret:2") == ["secret:1", "secret:2"]
    assert hub.view(None).resolve_uri("secret:1") is None
    assert hub.view(None).resolve_uri("secret:2") is None


@pytest.mark.parametrize(
    ("own", "asked", "expected"),
    [
        ("x:1", "hub://ci/x:1", ["hub://ci/x:1", "x:2", "x:3"]),
        ("x:2", "hub://ci/x:2", ["hub://ci/x:1", "hub://ci/x:2", "x:3"]),
        ("x:1", None, ["x:1", "x:2", "x:3"]),
    ],
)
def test_what_was_read_goes_by_the_uri_that_was_asked_for(own: str, asked: str | None, expected: list[str]) -> None:
    raw = json.dumps({"contents": [{"uri": uri, "text": ""} for uri in ("x:1", "x:2", "x:3")], "x": 1}).encode()
    result = catalog().exported_in_result(None, call("ci", "resources/read", own, asked), raw)
    items = json.loads(bytes(result))
    assert [item["uri"] for item in items["contents"]] == expected and items["x"] == 1


def test_a_web_page_is_never_rewritten() -> None:
    hub = catalog()
    for server in ("ci", "git", "wiki"):
        assert shown(hub, server, "https://example.org/a", "HTTP://h/b") == ["https://example.org/a", "HTTP://h/b"]
    assert hub.view(None).resolve_uri("https://example.org/a") == ("ci", "https://example.org/a")


def table(
    *listed: tuple[str, str], templates: tuple[tuple[str, str], ...] = (), readers: tuple[str, ...] = ("a", "b")
) -> UriTable:
    return UriTable(assign(listed), Templates(templates), ("a", "b", "c"), readers, Remembered())


def test_a_unique_uri_stays_and_the_first_server_keeps_a_shared_one() -> None:
    wanted = [("a", "file:///x"), ("b", "file:///x"), ("b", "file:///y")]
    assert list(assign(wanted).values()) == ["file:///x", "hub://b/file:///x", "file:///y"]


def test_a_wrapped_uri_never_takes_an_upstreams_own_hub_uri() -> None:
    listed = (("a", "x:1"), ("b", "x:1"), ("c", "hub://b/x:1"), ("c", "hub://b!1/x%3A1"))
    exported = assign(listed)
    assert exported["b", "x:1"] == "hub://b!2/x%3A1"
    assert {table(*listed).resolve(uri) for uri in exported.values()} == set(listed)


def test_the_address_of_an_app_keeps_its_scheme() -> None:
    listed = (("a", "ui://x/y"), ("b", "ui://x/y"), ("c", "ui://x/y"), ("c", "ui://b/x/y"), ("b", "ui://a b"))
    exported = assign(listed)
    assert exported["b", "ui://x/y"] == "ui://b!/x/y" and exported["c", "ui://x/y"] == "ui://c/x/y"
    assert exported["b", "ui://a b"] == "ui://a b"
    assert assign([("a", "ui://a b"), ("b", "ui://a b")])["b", "ui://a b"] == "ui://b!1/ui%3A%2F%2Fa%20b"
    assert {table(*listed).resolve(uri) for uri in exported.values()} == set(listed)
    assert assign_templates([("a", "ui://{x}"), ("b", "ui://{x}")])["b", "ui://{x}"] == "ui://b!/{x}"
    assert table().resolve("ui://b!/7") == ("b", "ui://7") and table().resolve("ui://nobody!/7") is None


def test_an_unlisted_address_of_an_app_comes_back_whatever_server_it_seems_to_name() -> None:
    uris = table(("a", "ui://x"), ("b", "ui://x"))
    assert uris.exported("b", "ui://b/x") == "ui://b!/b/x", "which is what its listed one is exported as"
    assert uris.exported("c", "ui://b/y") == "ui://b/y" and uris.resolve("ui://b/y") == ("c", "ui://b/y")
    assert uris.exported("b", "ui://b/y") == "ui://b!/b/y" and uris.resolve("ui://b!/b/y") == ("b", "ui://b/y")
    assert uris.exported("c", "ui://b!/z") == "ui://c!/b!/z" and uris.resolve("ui://c!/b!/z") == ("c", "ui://b!/z")


def test_a_uri_that_no_server_mentioned_is_wrapped_and_stays_nobodys() -> None:
    uris = table(("a", "x:1"))
    assert uris.exported("b", "x:9", remembers=False) == "hub://b/x:9" and uris.resolve("x:9") is None
    assert uris.exported("a", "x:1", remembers=False) == "x:1"


def test_templates_keep_their_braces() -> None:
    wanted = [("a", "db://{id}{?q*}"), ("b", "db://{id}{?q*}"), ("b", "hub://a/{x}"), ("b", "HUB://{x}")]
    expected = ["db://{id}{?q*}", "hub://b/db://{id}{?q*}", "hub://b/hub://a/{x}", "hub://b/HUB://{x}"]
    assert list(assign_templates(wanted).values()) == expected


def test_an_expanded_wrapped_template_goes_to_its_server() -> None:
    assert table().resolve("hub://b/db://1?q=~x") == ("b", "db://1?q=~x")
    assert table().resolve("hub://b/db://a%20b") == ("b", "db://a%20b")
    assert table().resolve("hub://b/hub://a/x") == ("b", "hub://a/x")
    assert table().resolve("hub://nobody/db://1") is None
    alone = UriTable({}, Templates([("a", "{+any}")]), ["a"], ["a"], Remembered())
    assert alone.resolve("x:1") == ("a", "x:1")
    for uri in ("hub://nobody/x:1", "HUB://nobody/x:1", "hub://"):
        assert alone.resolve(uri) is None, uri


def test_an_unknown_uri_goes_to_the_only_server_with_resources_or_to_nobody() -> None:
    assert table(readers=("c",)).resolve("x:1") == ("c", "x:1")
    assert table(readers=("a", "c")).resolve("x:1") is None
    assert table(readers=()).resolve("x:1") is None


def test_an_unlisted_uri_is_exported_so_that_it_comes_back() -> None:
    uris = table(("a", "x:1"), templates=(("a", "db://{id}"),))
    assert uris.exported("a", "x:1") == "x:1"
    assert uris.exported("a", "db://7") == "db://7"
    assert uris.exported("b", "db://7") == "hub://b/db://7"
    assert uris.exported("b", "hub://a/x:1") == "hub://b/hub://a/x:1"
    assert uris.exported("b", "HUB://a/x:1") == "hub://b/HUB://a/x:1"
    assert uris.exported("nobody", "x:9") == "x:9" and uris.resolve("x:9") is None
    assert uris.exported("b", "x:9") == "x:9" and uris.resolve("x:9") == ("b", "x:9")


def test_an_unlisted_uri_belongs_to_who_mentioned_it_first() -> None:
    uris = table()
    assert uris.resolve("x:9") is None
    assert uris.exported("b", "x:9") == "x:9"
    assert uris.resolve("x:9") == ("b", "x:9")
    assert uris.exported("a", "x:9") == "hub://a/x:9" and uris.resolve("hub://a/x:9") == ("a", "x:9")
    assert uris.exported("b", "x:9") == "x:9"


def test_what_is_listed_or_fits_anothers_template_is_not_taken_by_a_mention() -> None:
    uris = table(("a", "x:1"), templates=(("a", "db://{id}"),))
    assert uris.exported("b", "x:1") == "hub://b/x:1" and uris.resolve("x:1") == ("a", "x:1")
    assert uris.exported("b", "db://7") == "hub://b/db://7" and uris.resolve("db://7") == ("a", "db://7")


def test_a_mention_goes_before_a_template_that_came_later_and_behind_the_list() -> None:
    seen = Remembered()
    before = UriTable({}, Templates([]), ("a", "b"), ("a", "b"), seen)
    assert before.exported("b", "db://7") == "db://7"
    after = UriTable({}, Templates([("a", "db://{id}")]), ("a", "b"), ("a", "b"), seen)
    assert after.resolve("db://7") == ("b", "db://7") and after.exported("b", "db://7") == "db://7"
    assert after.exported("a", "db://7") == "hub://a/db://7"
    listed = UriTable(assign([("a", "db://7")]), Templates([]), ("a", "b"), ("a", "b"), seen)
    assert listed.resolve("db://7") == ("a", "db://7") and listed.exported("b", "db://7") == "hub://b/db://7"


def test_a_uri_too_long_to_remember_is_wrapped_and_one_too_long_for_a_uri_stays() -> None:
    uris = table(templates=(("a", "db://{id}"),))
    for long in ("x:" + "y" * 3000, "x:" + " é" * 4000):
        wrapped = uris.exported("b", long)
        assert wrapped.startswith("hub://b") and uris.resolve(wrapped) == ("b", long)
    assert uris.exported("a", "db://" + "7" * 3000) == "db://" + "7" * 3000
    assert uris.exported("b", "data:," + "x" * 9000) == "data:," + "x" * 9000


MATCHES: list[tuple[str, list[str], list[str]]] = [
    # a template, URIs that it matches, and others
    ("a:b", ["a:b"], ["a:bb"]),
    ("a:{x}", ["a:", "a:b c"], ["a:b/c"]),
    ("a:{x,y}", ["a:1,2"], []),
    ("a:{x}/{y}", ["a:1/2"], ["a:1/2/3"]),
    ("ab{x}bc", [], ["abc"]),
    ("a:{x}-b-{y}", ["a:1-b-b-b-2"], []),
    ("a:{+x}", ["a:b/c?d#e"], []),
    ("a:{+x}/end", ["a:b/end/end"], ["a:b/end/en"]),
    ("a:{#x}", ["a:#b/c"], ["a:b"]),
    ("a:v{.x}", ["a:v.json"], ["a:vjson"]),
    ("a:{/x*}", ["a:/b/c"], ["a:b"]),
    ("a:{/x}{?q}", ["a:/b?q=1"], []),
    ("a:{;x}", ["a:;x=1"], []),
    ("a:b{?x,y}", ["a:b", "a:b?x=1&y=/2"], ["a:b&x=1"]),
    ("a:b?c=1{&x}", ["a:b?c=1&x=1"], []),
    *((broken, [], ["a:1"]) for broken in ("a:{x", "a:{}", "a:{=x}")),
    ("天:{x}", ["天:气"], []),
]


@pytest.mark.parametrize(("template", "matching", "others"), MATCHES)
def test_template_matching(template: str, matching: list[str], others: list[str]) -> None:
    server_for = Templates([("s", template)]).server_for
    assert {*map(server_for, matching)} <= {"s"} and {*map(server_for, others)} <= {None}


def test_hostile_templates_cost_little() -> None:
    hostile = Templates([("s", "{+x}a" * 200 + "b"), ("t", "".join(f"{{x}}{'a' * n}" for n in range(40)) + "b")])
    assert hostile.server_for("a" * 8191 + "b") == "s"
    assert hostile.server_for("a" * 8192) is None
    assert Templates([("s", "{+x}")]).server_for("a" * 8193) is None
