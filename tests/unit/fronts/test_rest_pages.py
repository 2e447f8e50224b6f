"""Pages for whoever comes without knowing the hub: where things are, and the REST API to read."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.rest import pages
from mcp_hub.fronts.rest.pages import docs
from mcp_hub.fronts.rest.routes import ROUTES
from tests.unit.fronts.rest_peer import CALLERS, Response, RestPeer, rest_hub

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[RestPeer]:
    """A hub with tokens, which are not shown, and its pages."""
    async with rest_hub(tmp_path) as peer:
        peer._endpoints = Endpoints(HttpAuth(CALLERS), {}, peer.rest, pages.routes())
        yield peer


async def seen(guest: RestPeer, path: str, **headers: str) -> Response:
    response = await guest.ask("GET", path, headers=headers, token=None)
    assert response.status == 200, response.body
    return response


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/"])
async def test_the_first_look_shows_where_things_are(guest: RestPeer, path: str) -> None:
    places = json.loads((await seen(guest, path, accept="*/*")).body)
    assert (places["name"], places["mcp"], places["openapi"]) == ("mcp-hub", "/mcp", "/v1/openapi.json")
    shown = (await seen(guest, path, **BROWSER)).body.decode()
    assert all(place in shown for place in places.values())
    assert (await guest.ask("POST", path, token=None)).status == 405
    assert (await guest.ask("HEAD", path, token=None)).body == b""


async def test_docs_have_every_route_and_every_shape(guest: RestPeer) -> None:
    shown = (await seen(guest, "/v1/docs")).body.decode()
    assert all(f'id="{route.operation}"' in shown and f"<code>{route.path}</code>" in shown for route in ROUTES)
    links = set(re.findall(r'href="#([^"]+)"', shown))
    assert links and links <= set(re.findall(r'id="([^"]+)"', shown))
    assert "shape-StreamInfo" in links and "shape-ProblemBody" not in links


@pytest.mark.parametrize("path", ["/", "/v1/docs"])
async def test_pages_run_nothing_and_load_nothing(guest: RestPeer, path: str) -> None:
    response = await seen(guest, path, **BROWSER)
    shown = response.body.decode()
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"<(script|link|img|iframe|form)|\bon\w+=|https?:|style=", shown)
    style = re.search("<style>(.*)</style>", shown, re.DOTALL)
    assert style is not None
    digest = b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = response.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_docs_escape_what_they_show_and_follow_the_mount() -> None:
    operation = {"operationId": "x", "summary": "<b>`<i>`", "responses": {"200": {"description": "a<b"}}}
    shape = {"type": "object", "description": "<u>", "properties": {"<s>": {"enum": ["<q>"]}}}
    shown = docs({"paths": {"/v1/<x>": {"get": operation}}, "components": {"schemas": {"A": shape}}}, "/tools")
    assert not re.search("<[xiusq]>", shown) and "<code>&lt;i&gt;</code>" in shown
    assert 'href="/tools/v1/openapi.json"' in shown
