"""Server cards and the AI catalog (SEP-2127): what they say, to whom, and what they leave out."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
import yaml
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError, StoreUnavailable
from mcp_hub.fronts.http.cards import card_routes, is_card, receiver_routes
from mcp_hub.fronts.rest.pages import event_posts
from mcp_hub.protocol.shape.webhooks import RECEIVERS
from tests.captured import DATA
from tests.e2e.consents import PUBLIC
from tests.unit.fronts.authorized_hub import hub
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE

pytestmark = pytest.mark.anyio

CATALOG, CARD, PROFILE = "/.well-known/ai-catalog.json", "/mcp/server-card", "/mcp/p/narrow/server-card"
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "Content-Type, If-None-Match",
    "access-control-expose-headers": "ETag",
}
SCHEMA = DATA / "server-card" / "schema.json"
"""`schema.json` of the extension's repository."""
NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")


def browser(peer: DashboardPeer, base: str = PUBLIC) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=peer.front.endpoints), base_url=base)


def published(root: Path, **more: Any) -> Any:
    root.mkdir(exist_ok=True)
    return dashboard_hub(root, http={"public_url": PUBLIC}, is_public=True, **more)


def documents(public: str, name: str = "mcp-hub", profiles: tuple[str, ...] = ("a",), **more: bool) -> dict[str, Any]:
    """By path, as the routes answer."""
    return answered(card_routes(public, name, profiles, asks_token=more.get("asks_token", True)))


def answered(routes: dict[str, Route]) -> dict[str, Any]:
    client = TestClient(Starlette(routes=[*routes.values()]))
    return {path: client.get(path).json() for path in routes}


def test_golden_card_and_catalog() -> None:
    made = documents("https://hub.example.com/tools/", profiles=("phone", "ci"))
    assert made["/mcp/p/phone/server-card"] == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
        "name": "com.example.hub/mcp-hub.phone",
        "version": "1.0.0",
        "description": "Tools of several MCP servers at one address",
        "title": "mcp-hub · phone",
        "remotes": [
            {
                "type": "streamable-http",
                "url": "https://hub.example.com/tools/mcp/p/phone",
                "supportedProtocolVersions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
                "headers": [
                    {
                        "name": "Authorization",
                        "description": "A token from the owner of the hub.",
                        "isRequired": True,
                        "isSecret": True,
                        "value": "Bearer {token}",
                        "variables": {"token": {"isRequired": True, "isSecret": True}},
                    }
                ],
            }
        ],
    }
    kind = "application/mcp-server-card+json"
    assert made[CATALOG] == {
        "specVersion": "1.0",
        "entries": [
            {"identifier": f"urn:air:hub.example.com:mcp:{name}", "type": kind,
             "url": f"https://hub.example.com/tools/mcp/p/{name}/server-card"}
            for name in ("phone", "ci")
        ],
    }  # fmt: skip
    assert made[CARD]["name"] == "com.example.hub/mcp-hub" and made[CARD]["title"] == "mcp-hub"
    assert made[CARD]["remotes"][0]["url"] == "https://hub.example.com/tools/mcp"
    assert "headers" not in documents("https://h.example", asks_token=False)[CARD]["remotes"][0]


NAMES = ("mcp-hub", "Türkçe ✓", "a/b c", "//", "x" * 300, "-", "\x1b[2J")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("host", ["https://hub.example.com", "https://10.0.0.8:8443/", "https://[2001:db8::1]",
                                  f"https://{'.'.join(['a' * 60] * 4)}.example"])  # fmt: skip
def test_every_name_and_host_is_within_the_bounds_of_the_schema(name: str, host: str) -> None:
    for path, card in documents(host, name, ("a-b_c.1", "x" * 64)).items():
        if path == CATALOG:
            assert all(re.fullmatch(r"urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+", each["identifier"])
                       for each in card["entries"])  # fmt: skip
            continue
        assert NAME.fullmatch(card["name"]) and 3 <= len(card["name"]) <= 200 and 1 <= len(card["title"]) <= 100
        assert re.fullmatch(r"https?://[^\s]+", card["remotes"][0]["url"])


@pytest.mark.data("server-card")
@pytest.mark.parametrize("name", NAMES)
def test_cards_are_valid_by_the_schema_of_the_extension(name: str) -> None:
    whole = json.loads(SCHEMA.read_bytes())
    schema = {**whole, "$ref": "#/$defs/ServerCard"}
    for asks_token in (True, False):
        for path, card in documents("https://hub.example.com", name, ("a", "b"), asks_token=asks_token).items():
            if path != CATALOG:
                jsonschema.validate(card, schema)
                with pytest.raises(jsonschema.ValidationError):
                    jsonschema.validate({**card, "name": "x"}, schema)


@pytest.mark.parametrize(
    ("public", "prefix"),
    [("https://hub.example.com/", "/v1/events/in/"), ("https://h.example/tools/", "/tools/v1/events/in/")],
)
def test_servers_find_where_the_hub_takes_webhooks(public: str, prefix: str) -> None:
    assert answered(receiver_routes(public)) == {RECEIVERS: {"receivers": [prefix]}} and not receiver_routes(None)


def test_server_sends_its_event_again_while_the_key_of_the_replicas_is_not_known() -> None:
    def takes(id_: str) -> bool:
        raise StoreUnavailable("not yet")

    async def receive(*_: object) -> tuple[int, bytes]:
        raise AssertionError("nothing is read")

    answer = TestClient(Starlette(routes=[*event_posts(takes, receive).values()])).post(
        "/v1/events/in/abc", content=b"{}"
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


async def test_without_the_public_address_there_is_nothing(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as peer, browser(peer, "http://localhost") as http:
        for path in (CATALOG, CARD, RECEIVERS):
            assert (await http.get(path)).status_code == 404, path
        assert not [path for path in peer.front.endpoints.paths if is_card(path)]


@pytest.mark.parametrize("tokens", [True, False])
async def test_everybody_may_read_them_and_only_that(tmp_path: Path, tokens: bool) -> None:
    async with published(tmp_path, tokens=tokens) as peer, browser(peer) as http:
        kinds = {CATALOG: "ai-catalog", CARD: "mcp-server-card", PROFILE: "mcp-server-card"}
        for path, kind in kinds.items():
            for origin in (
                {},
                {"origin": "https://evil.example"},
                {"origin": "null"},
                {"origin": "https://reader.example"},
            ):
                answer = await http.get(path, headers=origin)
                assert answer.status_code == 200 and answer.headers["content-type"] == f"application/{kind}+json"
                assert {name: answer.headers[name] for name in CORS} == CORS, "once, and for every origin"
                assert answer.headers["cache-control"] == "public, max-age=3600"
            head = await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == str(len(answer.content))
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                refused = await http.request(method, path, headers={"origin": "https://evil.example"})
                assert refused.status_code == 405 and set(refused.headers["allow"].split(", ")) == {
                    "GET",
                    "HEAD",
                    "OPTIONS",
                }
            asks = {"origin": "https://evil.example", "access-control-request-method": "GET"}
            preflight = await http.options(path, headers={**asks, "access-control-request-headers": "if-none-match"})
            assert preflight.status_code == 204 and {name: preflight.headers[name] for name in CORS} == CORS
            assert (await http.get(path, headers={"host": "evil.example"})).status_code == 421, "no rebound name"
            assert (await http.get(f"{path}?token=x")).status_code == 400
        for path in ("/mcp", "/v1/tools", "/mcp/p/narrow"):
            page = {"origin": "https://evil.example", "authorization": f"Bearer {ALICE}"}
            assert (await http.get(path, headers=page)).status_code == 403, "no other path is open to pages"


async def test_what_did_not_change_is_not_sent_again(tmp_path: Path) -> None:
    async with published(tmp_path) as peer, browser(peer) as http:
        for path in (CATALOG, CARD):
            tag = (await http.get(path)).headers["etag"]
            for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
                known = await http.get(path, headers={"if-none-match": condition})
                assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
                assert known.headers["access-control-allow-origin"] == "*"
            for condition in ('"other"', tag.strip('"'), ""):
                assert (await http.get(path, headers={"if-none-match": condition})).status_code == 200


async def test_strangers_learn_nothing_of_what_is_behind(tmp_path: Path) -> None:
    servers = {"secret-server": {"url": "https://inner.example/mcp", "enabled": False}}
    async with published(tmp_path, tokens=True, servers=servers) as peer, browser(peer) as http:
        texts = [(await http.get(path)).text for path in (CATALOG, CARD, PROFILE)]
        version = (await http.get("/healthz")).text
        for text in texts:
            for word in ("secret-server", "inner", "local", "echo", "elsewhere", "0.1.0", "alice", ALICE, "operator"):
                assert word not in text, word
        assert "0.1.0" not in version
        assert [entry["url"] for entry in json.loads(texts[0])["entries"]] == [f"{PUBLIC}{PROFILE}"]
        assert (await http.get("/mcp/p/elsewhere/server-card")).status_code in (401, 404), "it is not public"


async def test_clients_that_can_log_in_are_not_asked_for_a_token(tmp_path: Path) -> None:
    async with hub(tmp_path) as peer, browser(peer) as http:
        assert "headers" not in (await http.get(CARD)).json()["remotes"][0]
    async with published(tmp_path / "other", tokens=True) as peer, browser(peer) as http:
        assert (await http.get(CARD)).json()["remotes"][0]["headers"][0]["name"] == "Authorization"


async def test_reload_publishes_and_withdraws_at_once(tmp_path: Path) -> None:
    async with published(tmp_path) as peer, browser(peer) as http:
        settings = peer.app.settings
        http_settings = settings.hub.http.model_copy(update={"public_url": None})
        closed = settings.model_copy(update={"hub": settings.hub.model_copy(update={"http": http_settings})})
        peer.front._prepared(closed)()
        assert (await http.get(CARD, headers={"host": "localhost"})).status_code == 404
        peer.front._prepared(settings)()
        assert (await http.get(CARD)).status_code == 200


@pytest.mark.parametrize(
    ("name", "hub_", "code"),
    [
        ("a", {}, "missing_key"),
        *((name, {"http": {"public_url": PUBLIC}}, "invalid_value")
          for name in ("a b", "../x", "x/server-card", "é", ".a", "x" * 65, "%2e", "a\nb")),
    ],
)  # fmt: skip
def test_public_profile_needs_an_address_and_a_plain_name(name: str, hub_: Any, code: str, tmp_path: Path) -> None:
    text = yaml.safe_dump({"profiles": {name: {"public": True}}, "hub": hub_, "servers": {"a": {"command": "x"}}})
    with pytest.raises(ConfigError) as refused:
        parse(text, "servers.yaml", {}, tmp_path)
    assert [finding.code for finding in refused.value.findings] == [code]
    assert parse(text.replace("true", "false"), "servers.yaml", {}, tmp_path).settings.profiles[name].public is False
