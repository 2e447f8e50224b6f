"""Apps in definitions: what is read of them, and what changes where an address does or a client shows none."""

import json
from typing import Any

import pytest

from mcp_hub.catalog.offers.definitions import AppMeta, app_meta, with_address, without_app
from mcp_hub.protocol.jsonrpc.envelope import raw_object

NO_APP: list[Any] = [None, 5, [], "x", {"visibility": "app"}, {"resourceUri": "https://a"}]
NO_META: list[Any] = [{}, {"uix": {}}, {"com.example/ui": {}}]
MODEL_AND_APP = {"visibility": ["model", "app"]}


def read(meta: Any) -> AppMeta | None:
    return app_meta(raw_object(json.dumps(meta).encode()))


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({"ui": {"resourceUri": "ui://a/x"}}, AppMeta("ui://a/x")),
        ({"ui/resourceUri": "ui://a/x"}, AppMeta("ui://a/x")),
        ({"ui": {"resourceUri": "ui://new"}, "ui/resourceUri": "ui://old"}, AppMeta("ui://new")),
        ({"ui": {"resourceUri": 5}, "ui/resourceUri": "ui://old"}, AppMeta("ui://old")),
        ({"ui": {"resourceUri": "ui://x", "visibility": ["app"]}}, AppMeta("ui://x", for_model=False)),
        ({"ui": {"visibility": ["model"]}}, AppMeta(for_app=False)),
        ({"ui": MODEL_AND_APP}, AppMeta()),
        ({"ui": {"visibility": []}}, AppMeta(for_model=False, for_app=False)),
        ({"ui": {"visibility": ["app", 5, None]}}, AppMeta(for_model=False)),
        *(({"ui": ui}, AppMeta()) for ui in NO_APP),
        ({"ui": {"resourceUri": f"ui://{'x' * 1024}"}}, AppMeta()),
        *((meta, None) for meta in NO_META),
    ],
)
def test_an_app_is_read_from_the_members_that_are_as_specified(meta: Any, found: AppMeta | None) -> None:
    assert read(meta) == found


def test_a_tool_without_meta_has_no_app() -> None:
    assert app_meta(None) is None


def test_another_address_changes_the_address_alone_wherever_it_stands() -> None:
    raw = (
        b'{"name":"t","_meta":{"ui/resourceUri":"ui://x","ui":{"visibility":[ "model" ],"resourceUri":"ui://x",'
        b'"n":1.50},"k":{"resourceUri":"ui://x"}},"inputSchema":{ "type":"object" }}'
    )
    changed = with_address(raw, "ui://x", "ui://b/x")
    assert changed == raw.replace(b'"ui/resourceUri":"ui://x"', b'"ui/resourceUri":"ui://b/x"').replace(
        b'],"resourceUri":"ui://x"', b'],"resourceUri":"ui://b/x"'
    )
    assert with_address(raw, "ui://x", "ui://x") is raw
    assert with_address(raw, "ui://other", "ui://b/other") == raw


@pytest.mark.parametrize("rest", [{}, {"k": 1.5}])
def test_a_client_without_apps_is_shown_nothing_of_them(rest: dict[str, Any]) -> None:
    raw = json.dumps({"name": "t", "_meta": {"ui": {"resourceUri": "ui://x"}, "ui/resourceUri": "ui://x", **rest}})
    plain = json.loads(without_app(raw.encode()))
    assert plain == {"name": "t", **({"_meta": rest} if rest else {})}
