"""The search in a registry on the dashboard: who may, what it shows, and that it only fills in a form."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from tests.unit.cli.sites import Site, served
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, problem

pytestmark = pytest.mark.anyio
SEARCH = "/v0.1/servers?search=wea+ther&version=latest&limit=20"


def listed(*servers: Any) -> Any:
    return {"servers": [{"server": server} for server in servers]}


REMOTE = {"name": "io.example/far", "remotes": [{"type": "streamable-http", "url": "https://far.example/mcp"}]}
LOCAL = {
    "name": "io.example/near\x1b", "description": "x" * 900,
    "packages": [{"registryType": "npm", "identifier": "@x/y", "version": "1.0", "transport": {"type": "stdio"}}],
}  # fmt: skip
INNER = {"name": "io.example/inner", "remotes": [{"type": "sse", "url": "http://169.254.169.254/"}]}


@pytest.fixture
def site() -> Any:
    with served() as running:
        yield running


@pytest.fixture
async def peer(tmp_path: Path, site: Site) -> AsyncIterator[DashboardPeer]:
    async with dashboard_hub(tmp_path, tokens=True, registry=site.url) as running:
        yield running


async def test_search_gives_entries_that_the_page_then_adds_or_proposes(peer: DashboardPeer, site: Site) -> None:
    site.put(SEARCH, listed(REMOTE, LOCAL, INNER), "application/json")
    assert (await peer.get("/edits"))["registry"] is True
    before = peer.app.seen.config.read_bytes()
    far, near, inner = (await peer.get("/registry?q=wea%20ther"))["servers"]
    assert peer.app.seen.config.read_bytes() == before, "a search writes nothing"
    assert (far["short"], yaml.safe_load(far["remote"])) == ("far", {"url": "https://far.example/mcp"})
    assert "remote" not in near and near["short"] == "near-" and len(near["description"]) == 300
    assert not {"remote", "package"} & inner.keys()
    for server, text, effect in (("far", far["remote"], "now"), ("near", near["package"], "proposal")):
        done = await peer.post("/entry", {"server": server, "text": text, "digest": ""})
        assert done.json["effect"] == effect
    servers = yaml.safe_load(peer.app.seen.config.read_text())["servers"]
    assert servers["far"] == {"url": "https://far.example/mcp"} and "near" not in servers


async def test_only_an_operator_who_may_change_servers_searches(
    peer: DashboardPeer, site: Site, tmp_path: Path
) -> None:
    site.put(SEARCH, listed(REMOTE), "application/json")
    problem(await peer.page("GET", "/registry?q=wea%20ther", token=ALICE).ended(), 403, "operator_required")
    for query in ("", "?q=", "?q=%20", f"?q={'x' * 201}"):
        problem(await peer.page("GET", f"/registry{query}").ended(), 400, "invalid_params")
    public = {"public_url": "https://hub.example.com"}
    (tmp_path / "public").mkdir()
    async with dashboard_hub(tmp_path / "public", registry=site.url, http=public) as other:
        problem(await other.page("GET", "/registry?q=wea%20ther").ended(), 403, "not_on_this_machine")
    assert site.asked == [], "nothing is asked for those who may not"


async def test_registry_that_is_missing_wrong_or_busy_is_named(peer: DashboardPeer, site: Site, tmp_path: Path) -> None:
    problem(await peer.page("GET", "/registry?q=wea%20ther").ended(), 502, "fetch_failed")
    site.put(SEARCH, b"[" * 100_000, "application/json")
    problem(await peer.page("GET", "/registry?q=wea%20ther").ended(), 502, "invalid_server_json")
    site.move(SEARCH, "http://169.254.169.254/latest")
    problem(await peer.page("GET", "/registry?q=wea%20ther").ended(), 422, "invalid_configuration")
    (tmp_path / "without").mkdir()
    async with dashboard_hub(tmp_path / "without") as other:
        assert "registry" not in await other.get("/edits")
        problem(await other.page("GET", "/registry?q=x").ended(), 409, "no_registry")
    site.put(SEARCH, listed(REMOTE), "application/json")
    site.hold()
    first = peer.page("GET", "/registry?q=wea%20ther")
    await anyio.to_thread.run_sync(site.came.wait, 240)
    problem(await peer.page("GET", "/registry?q=wea%20ther").ended(), 503, "busy")
    site.free.set()
    assert json.loads((await first.ended()).body)["servers"][0]["name"] == "io.example/far"
