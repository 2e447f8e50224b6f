"""Results as callers of a profile get them: each URI is one that they can read, at the server that it came from."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.clock import SystemClock
from mcp_hub.notices import Notices
from mcp_hub.types import CallId, Era, Kind, RawObject, Snapshot
from tests.unit.catalog.offers import Listing


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
