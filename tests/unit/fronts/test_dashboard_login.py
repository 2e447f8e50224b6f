"""A login to a remote server that is started on the dashboard: an event stream that lasts as long as the page waits."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.fronts.dashboard import api
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import NARROW, Response, problem
from tests.unit.upstreams.authorization import Authorization, browse
from tests.unit.upstreams.remote import Remote
from tests.unit.wire.http_server import serving
from tests.upstreams.child import until

OTHERS: dict[str, Any] = {
    "near": {"command": "no-such"},
    "own": {"url": "https://127.0.0.1:1/mcp", "bearer": "token"},
}


@pytest.fixture
def guard() -> Authorization:
    return Authorization(scope="read")


@pytest.fixture
async def peer(tmp_path: Path, guard: Authorization) -> AsyncIterator[DashboardPeer]:
    async with serving(guard) as server, serving(Remote(modern=True)) as free:
        remote = {"far": server.url, "free": free.url}
        servers = {**{name: {"url": url} for name, url in remote.items()}, **OTHERS}
        servers["named"] = {"url": free.url, "oauth": {"client_id": "hub"}}
        async with dashboard_hub(tmp_path, tokens=True, servers=servers) as running:
            yield running


def news(response: Response) -> list[Any]:
    return [json.loads(event.data) for event in response.events]


async def started(peer: DashboardPeer) -> tuple[Response, str]:
    """A login that waits for its person, and the page for them."""
    response = peer.page("POST", "/login", {"server": "far"})
    await response.has(b'"page"')
    return response, news(response)[0]["url"]


async def test_a_login_shows_its_page_then_its_outcome_and_the_server_gets_ready(peer: DashboardPeer) -> None:
    response, page = await started(peer)
    await browse(page, "")
    (_, ended) = news(await response.ended())
    assert ended == {"type": "ended", "text": "Logged in to far with scope read."}
    await until(lambda: {own.server: own.state for own in peer.app.hub.statuses()}["far"] == "ready")
    assert (await peer.get("/server?server=far"))["login"] is True


async def test_login_is_offered_where_the_server_takes_one(peer: DashboardPeer) -> None:
    await until(lambda: {own.server: own.state for own in peer.app.hub.statuses()}["free"] == "ready")
    await until(lambda: {own.server: own.code for own in peer.app.hub.statuses()}["far"] == "login_needed")
    offered = {
        name: (await peer.get(f"/server?server={name}")).get("login", False)
        for name in ("far", "free", "named", *OTHERS)
    }
    assert offered == {"far": True, "free": False, "named": True, "near": False, "own": False}


async def test_page_that_leaves_lets_another_login_begin(peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    response, _ = await started(peer)
    with monkeypatch.context() as patched:
        patched.setattr(api, "_LAST_LOGIN", 0.01)
        problem(await peer.post("/login", {"server": "far"}), 409, "login_running")
    again = peer.page("POST", "/login", {"server": "far"})  # the other one is not noticed to have left yet
    response.leave()
    await again.has(b'"page"')
    page = news(again)[0]["url"]
    await browse(page, "")
    assert news(await again.ended())[-1]["type"] == "ended"


async def test_a_login_that_is_refused_says_why(peer: DashboardPeer, guard: Authorization) -> None:
    guard.redirect = {"error": "access_denied", "code": None}
    response, page = await started(peer)
    await browse(page, "")
    (_, ended) = news(await response.ended())
    assert ended["code"] == "login_failed" and "access_denied" in ended["text"]


async def test_a_login_ends_when_the_hub_stops(peer: DashboardPeer) -> None:
    response, _ = await started(peer)
    peer.front.close()
    await response.ended()


@pytest.mark.parametrize(
    ("server", "status", "code"), [("none", 404, "unknown_server"), ("near", 409, "no_login"), ("own", 409, "no_login")]
)
async def test_a_server_without_a_login_is_refused(peer: DashboardPeer, server: str, status: int, code: str) -> None:
    problem(await peer.post("/login", {"server": server}), status, code)


async def test_a_bound_token_logs_in_nowhere_and_logins_are_bounded(
    peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(await peer.post("/login", {"server": "far"}, token=NARROW), 403, "profile_bound")
    assert api.MOST_LOGINS == 8
    monkeypatch.setattr("mcp_hub.fronts.dashboard.api.MOST_LOGINS", 0)
    problem(await peer.post("/login", {"server": "far"}), 503, "busy")
