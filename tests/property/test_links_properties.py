"""Only URIs change in a result, and each leads back to where it came from."""

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.resources.uris import MAX_MATCHED, Remembered, readdress
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import Era, Kind, Snapshot

names = st.sampled_from(["uri", "resource", "content", "contents", "messages", "type", "text", "x-future"])
scalars = st.none() | st.integers() | st.text(max_size=4) | st.sampled_from(["uri", "resource_link", "resource", "x:1"])
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
odd_uris = st.text(max_size=9) | st.sampled_from(["", "x:1", "x:a b", "x:%zz#a#b", "天:气", "hub://a/x:1"])
held = st.fixed_dictionaries({"uri": odd_uris | scalars}, optional={"text": scalars, "x-future": anything})
blocks = (
    anything
    | st.builds(lambda more, of: {**more, "type": of}, held, st.sampled_from(["resource_link", "resource", "text"]))
    | st.fixed_dictionaries({"type": st.just("resource"), "resource": held | anything})
)
lists = st.lists(blocks, max_size=4) | anything
messages = st.fixed_dictionaries({"content": blocks}, optional={"role": scalars}) | anything
results = st.fixed_dictionaries(
    {},
    optional={
        "content": lists,
        "messages": st.lists(messages, max_size=3) | anything,
        "contents": st.lists(held | anything, max_size=3) | anything,
        "structuredContent": anything,
    },
)
methods = st.sampled_from(["tools/call", "prompts/get", "resources/read", "completion/complete"])


def change_link(holder: Any) -> None:
    if isinstance(holder, dict) and isinstance(holder.get("uri"), str):
        holder["uri"] = f"hub://{holder['uri']}"


def change_block(value: Any) -> None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in ("resource_link", "resource"):
        change_link(value if kind == "resource_link" else value.get("resource"))


def expected(method: str, result: Any) -> Any:
    """The same on decoded values, place by place."""
    result = deepcopy(result)
    member = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}.get(method, "")
    items = result.get(member)
    for item in items if isinstance(items, list) else []:
        if method == "tools/call":
            change_block(item)
        elif method == "resources/read":
            change_link(item)
        elif isinstance(item, dict):
            change_block(item.get("content"))
    return result


@given(methods, results, st.booleans())
def test_only_uris_change(method: str, result: Any, ascii_only: bool) -> None:
    raw = json.dumps(result, ensure_ascii=ascii_only).encode()
    assert readdress(method, raw, lambda uri: uri) is raw
    changed = readdress(method, raw, lambda uri: f"hub://{uri}")
    assert json.loads(bytes(changed)) == expected(method, result)


SERVERS = ("a", "b", "c d", "é!")
servers = st.sampled_from(SERVERS)
uris = st.one_of(
    st.sampled_from(["", "x:1", "x:2", "x:a b", "x:%20", "x:%zz#a#b", "y:1", "file://h/p?q#f", "天:气"]),
    st.sampled_from(["hub://", "hub://a/x:1", "hub://b/x:1", "hub://b!1/x%3A1", "hub://c%20d/x:1", "hub://nobody/x"]),
    st.sampled_from(["x:" + "y" * 2046, "x:" + "y" * 2047, "x:" + "é" * (MAX_MATCHED - 2), "x" * MAX_MATCHED]),
    st.text(max_size=12),
)
mentions = st.lists(st.tuples(servers, uris), max_size=12)
templates = st.lists(st.tuples(servers, st.sampled_from(["x:{id}", "{+any}", "hub://a/{+x}"])), max_size=3)


def built(listed: list[tuple[str, str]], found: list[tuple[str, str]], seen: Remembered) -> CatalogView:
    def raws(field: str, of: list[tuple[str, str]], server: str) -> tuple[bytes, ...]:
        return tuple(json.dumps({field: value, "name": "n"}).encode() for one, value in of if one == server)

    snapshots = [
        Snapshot(
            server,
            Era.HANDSHAKE,
            {Kind.RESOURCE: raws("uri", listed, server), Kind.TEMPLATE: raws("uriTemplate", found, server)},
        )
        for server in SERVERS
    ]
    return build(snapshots, ViewRules({server: ServerRules() for server in SERVERS}), seen)


@given(mentions, templates, mentions, st.sampled_from([1, 2, 4096]))
def test_a_uri_from_a_result_leads_back_to_its_server(
    listed: list[tuple[str, str]], found: list[tuple[str, str]], mentioned: list[tuple[str, str]], most: int
) -> None:
    """Listed, mentioned first, mentioned by several: at the moment of the mention always, and for as long as the
    memory lasts."""
    view = built(listed, found, Remembered(most))
    told: dict[str, tuple[str, str]] = {}
    for origin in mentioned:
        exported = view.exported_uri(*origin)
        assert view.resolve_uri(exported) == origin
        if most > len(mentioned):
            assert told.setdefault(exported, origin) == origin
    if most > len(mentioned):
        assert all(view.resolve_uri(exported) == origin for exported, origin in told.items())


@given(mentions, mentions)
def test_what_nobody_else_knows_stays_as_it_is(listed: list[tuple[str, str]], mentioned: list[tuple[str, str]]) -> None:
    view = built(listed, [], Remembered())
    known = {entry.key for entry in view.entries(Kind.RESOURCE)}
    first: dict[str, str] = {}
    for server, uri in mentioned:
        exported = view.exported_uri(server, uri)
        if uri not in known and not uri.startswith("hub://") and len(uri) <= 2048:
            assert (exported == uri) == (first.setdefault(uri, server) == server)
