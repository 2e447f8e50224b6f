"""Who may use the dashboard, from where, and what each mode lets them do."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.fronts.dashboard import shell
from mcp_hub.fronts.dashboard.api import OPEN
from mcp_hub.fronts.rest.api import by_path
from tests.unit.fronts.dashboard_peer import BROWSER, DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, BOB, NARROW, OPERATOR, problem

CHANGES = [
    ("POST", "/v1/tools/echo/call", {"arguments": {"text": "x"}}),
    ("POST", "/v1/servers/local/restart", {}),
    ("POST", "/v1/reload", {}),
    ("POST", "/overrides", {"servers": {"local": {"echo": {"hide": True}}}}),
    ("POST", "/approvals", {"server": "local", "tool": "echo", "digest": "", "action": "reject"}),
    ("POST", "/login", {"server": "local"}),
    ("POST", "/entry", {"server": "x", "text": "url: http://127.0.0.1:9/mcp"}),
    ("POST", "/entry", {"server": "x", "text": "command: 'true'"}),
    ("POST", "/entry/check", {"server": "x", "text": "url: http://127.0.0.1:9/mcp"}),
    ("POST", "/edits", {"server": "local", "action": "remove"}),
    ("DELETE", "/v1/streams/{}", None),
    ("POST", "/v1/streams/{}/input", {"key": "q1", "action": "decline"}),
]
FOREIGN = [
    {"origin": "http://localhost:1"},
    {"origin": "https://friend.example"},
    {"origin": "https://reader.example"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


async def nothing_changed(peer: DashboardPeer) -> None:
    """No call was made, no tool hidden, no file written, nothing restarted or read again."""
    state = await peer.get("/state")
    assert (state["calls"], peer.app.reloader.last) == ([], None)
    assert "echo" in [tool["name"] for tool in (await peer.get("/tools"))["tools"]]
    assert not list(peer.app.seen.config.parent.glob("*.overrides.yaml"))
    assert not (peer.app.seen.config.parent / "state" / "proposals").exists()
    assert list(json.loads(peer.app.seen.config.read_text())["servers"]) == ["local"]
    assert [server["restarts"] for server in state["servers"]["servers"]] == [0]


@pytest.mark.parametrize("token", [None, "", "wrong", ALICE])
async def test_without_the_operator_token_nothing_is_shown_or_done_on_loopback_too(
    full: DashboardPeer, token: str | None
) -> None:
    for method, path, body in [("GET", "/state", None), ("GET", "/feed?after=x:0", None), *CHANGES]:
        response = await full.page(method, path.format("st_1"), body, token=token).ended()
        problem(response, 401, "unauthorized")
        assert response.headers["cache-control"] == "no-store"
    await nothing_changed(full)


@pytest.mark.parametrize("headers", FOREIGN)
async def test_pages_of_other_origins_are_refused_even_with_the_token(
    full: DashboardPeer, headers: dict[str, str]
) -> None:
    for method, path, body in [("GET", "/state", None), *CHANGES]:
        response = await full.page(method, path.format("st_1"), body, headers=headers).ended()
        assert response.status == 403 and response.json["code"] == "origin_not_allowed"
        assert "access-control-allow-origin" not in response.headers
    await nothing_changed(full)


async def test_its_own_page_may_ask_from_any_address_of_the_hub(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, http={"public_url": "https://hub.example"}) as peer:
        for host, origin in (("localhost:8765", "http://localhost:8765"), ("hub.example", "https://hub.example")):
            await peer.get("/state", headers={"host": host, "origin": origin, "sec-fetch-site": "same-origin"})


async def test_a_foreign_host_and_a_preflight_get_nothing(full: DashboardPeer) -> None:
    response = await full.page("GET", "/state", headers={"host": "evil.example"}).ended()
    problem(response, 421, "host_not_served")
    asks = {"origin": "https://reader.example", "access-control-request-method": "GET"}
    for path in ("/api/state", "/", "/dashboard/app.js"):
        response = await full.ask("OPTIONS", path, headers=asks, token=None)
        assert response.status != 204 and not [name for name in response.headers if name.startswith("access-control")]


async def test_a_form_changes_nothing(full: DashboardPeer) -> None:
    for media in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        body = b'{"servers":{"local":{"echo":{"hide":true}}}}'
        sent = {"content-type": media, "origin": "http://localhost"}
        problem(await full.page("POST", "/overrides", body, headers=sent, token=None).ended(), 401, "unauthorized")
    await nothing_changed(full)


async def test_a_token_in_the_address_is_refused(full: DashboardPeer) -> None:
    names = "access_token token ACCESS_TOKEN Api-Key api_key apikey x-api-key auth bearer auth_token jwt".split()
    queries = [f"{name}={{}}" for name in names]
    queries += ["authorization=Bearer%20{}", "a=b;token={}", "a=b&%74oken={}", "token", "a;Token"]
    for query in queries:
        for token in (None, full.front.operator):
            response = await full.page("GET", f"/state?{query.format(full.front.operator)}", token=token).ended()
            problem(response, 400, "token_in_query")


@pytest.mark.parametrize("path", ["/", "/dashboard/app.js"])
async def test_the_page_has_no_data_cannot_be_framed_and_loads_nothing_from_elsewhere(
    full: DashboardPeer, path: str
) -> None:
    response = await full.ask("GET", path, headers=BROWSER, token=None)
    assert response.status == 200 and full.front.operator.encode() not in response.body
    policy = response.headers["content-security-policy"]
    assert policy == shell.POLICY and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    wanted = {"x-frame-options": "DENY", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff"}
    assert wanted.items() <= response.headers.items()
    again = await full.ask("GET", path, headers={**BROWSER, "if-none-match": response.headers["etag"]}, token=None)
    assert (again.status, again.body) == (304, b"")


async def test_programs_still_get_the_places_at_the_root(full: DashboardPeer) -> None:
    assert (await full.ask("GET", "/", headers={"accept": "application/json"}, token=None)).json["mcp"] == "/mcp"


async def test_read_changes_nothing(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, mode="read") as peer:
        assert (await peer.get("/state"))["mode"] == "read"
        for method, path, body in CHANGES:
            problem(await peer.page(method, path.format("st_1"), body).ended(), 403, "read_only")
        await nothing_changed(peer)


async def test_settings_decide_over_the_default_and_off_leaves_the_places(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, http={"dashboard": False}) as peer:
        assert b"<script" not in (await peer.ask("GET", "/", headers=BROWSER, token=None)).body
        assert (await peer.ask("GET", "/dashboard/app.js", token=None)).status == 404
        problem(await peer.page("GET", "/state").ended(), 404, "not_found")


async def test_what_belongs_to_programs_is_not_reached_through_the_page(full: DashboardPeer) -> None:
    for path in ("/v1/executors/x/calls", "/v1/openapi.json", "/v1/../mcp", "/nothing"):
        assert (await full.page("GET", path).ended()).status == 404
    problem(await full.page("PUT", "/settings", {}).ended(), 405, "method_not_allowed")


async def test_operators_see_and_stop_everybodys_calls(shared: DashboardPeer) -> None:
    made = [await shared.detached("hold", {"nonce": who}, authorization=f"Bearer {who}") for who in (ALICE, BOB)]
    await shared.tools.has_come(BOB)
    for token in (shared.front.operator, OPERATOR):
        live = (await shared.get("/state", token=token))["live"]
        assert {call["principal"] for call in live} == {"alice", "bob"}
    for stream in made:
        assert (await shared.get(f"/v1/streams/{stream}"))["status"] == "working"
        assert (await shared.page("DELETE", f"/v1/streams/{stream}").ended()).status == 202
    assert (await shared.get(f"/v1/streams/{made[1]}/events?after=1&wait=5"))["events"][0]["type"] == "end"
    assert set(shared.tools.cancelled) == {ALICE, BOB}


@pytest.mark.parametrize(("token", "code"), [(NARROW, "profile_bound"), (ALICE, "operator_required")])
async def test_other_tokens_see_their_own_calls_and_operate_nothing(
    shared: DashboardPeer, token: str, code: str
) -> None:
    foreign = await shared.detached("hold", {"nonce": "b"}, authorization=f"Bearer {BOB}")
    own = await shared.detached("hold", {"nonce": "a"}, authorization=f"Bearer {token}")
    await shared.tools.has_come("a")
    state = await shared.get("/state", token=token)
    assert [call["id"] for call in state["live"]] == [own] and "operator" not in state
    assert state.get("profile") == ("narrow" if token == NARROW else None)
    problem(await shared.page("GET", f"/v1/streams/{foreign}", token=token).ended(), 404, "unknown_stream")
    problem(await shared.page("DELETE", f"/v1/streams/{foreign}", token=token).ended(), 404, "unknown_stream")
    refused: list[tuple[str, str, Any]] = [
        *CHANGES[1:6],
        *(("GET", path, None) for path in ("/settings", "/approvals", "/installs", "/server?server=local")),
    ]
    for method, path, body in refused:
        problem(await shared.page(method, path, body, token=token).ended(), 403, code)
    listed = [tool["name"] for tool in (await shared.get("/tools", token=token))["tools"]]
    assert listed == ["echo", "hold"] or token == ALICE
    assert (await shared.page("DELETE", f"/v1/streams/{own}", token=token).ended()).status == 202
    assert shared.tools.cancelled == [] or shared.tools.cancelled == ["a"]


ROOMS = {"{name}": "echo", "{id}": "st_1"}
"""Values for the parameters of routes."""


def _existing() -> list[tuple[str, str]]:
    """A method and path of each route that needs a token."""
    routes = [("POST", "/mcp"), ("POST", "/mcp/p/none")]
    for path, methods in by_path().items():
        for name, value in ROOMS.items():
            path = path.replace(name, value)
        method = next(iter(methods))
        routes.append((method, path))
        if path.split("/")[2] in OPEN:
            routes.append((method, f"/api{path}"))
    return routes


async def test_every_route_asks_for_a_token_and_other_paths_are_alike_for_all(shared: DashboardPeer) -> None:
    """404 depends on the table of routes alone, which is public; what a hub has is seen with a token only."""
    front = shared.front.dashboard
    dashboard = [(next(iter(methods)), f"/api{path}") for path, methods in front.routes.items()]
    existing = [*_existing(), *dashboard]
    assert len(existing) > 45
    for method, path in existing:
        for token in (None, "wrong"):
            answer = await shared.ask(method, path, {}, token=token)
            assert (answer.status, "www-authenticate" in answer.headers) == (401, True), (method, path)
    missing = {"/nothing", "/v1/chat/stream", "/api/v1/chat/stream", "/api/", "/api/nothing", "/v1/%ff"}
    missing |= {f"{path}{end}" for _, path in existing for end in ("/no/such", "x/y/z/a/b")}
    for path in missing - {"/mcp/p/none/no/such", "/mcp/p/nonex/y/z/a/b"}:
        for method in ("GET", "POST", "DELETE", "OPTIONS"):
            answers = [await shared.ask(method, path, token=token) for token in (None, "wrong", OPERATOR)]
            assert [answer.status for answer in answers] == [404] * 3, (method, path)
            assert len({answer.body for answer in answers}) == 1, path
