"""Two principals with accounts of their own: nothing of the other on the dashboard, or by subscriptions."""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import httpx2
import pytest

from mcp_hub.fronts.dashboard.api import OPEN, DashboardApi
from mcp_hub.fronts.rest.routes import ROUTES
from tests.e2e.client import HttpClient, Hub
from tests.e2e.people_server import People, hub_token, log_in, people_server, settings
from tests.e2e.rest_client import RestClient
from tests.e2e.test_accounts import ALL_OF, arrived, other
from tests.interaction.fronts import ERAS, connected, http_hub
from tests.interaction.hearing import UPDATED, Ear, hearing
from tests.upstreams.child import WAIT, until

pytestmark = pytest.mark.anyio


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS[::-1])
async def test_updates_of_resources_reach_only_whose_account_they_are_of(tmp_path: Path, era: str) -> None:
    with people_server("anna", "bert", pushes=True) as people:
        for name in ALL_OF:
            await log_in(people, tmp_path / "state", name)
        async with http_hub(settings(people, *ALL_OF), tmp_path) as hub, AsyncExitStack() as stack:
            ears: dict[str, Ear] = {}
            for name in ALL_OF:
                peer = await stack.enter_async_context(connected(hub, era, hub_token(name)))
                await peer.request("resources/list", {})
                uris = ["people://me", f"people://private/{other(name)}"]  # which the server takes, as of this account
                ears[name] = await stack.enter_async_context(hearing(peer, uris))
            for turn, name in enumerate(("anna", "bert", "anna", "bert")):
                meta = {"example.org/of": f"secret of {name} {turn}"}
                for uri in (f"people://private/{name}", "people://me"):
                    people.push(name, UPDATED, {"uri": uri, "_meta": meta})
                heard = await ears[name].next(UPDATED, after=turn // 2)
                assert heard["params"]["_meta"]["example.org/of"] == meta["example.org/of"]
            for name in ALL_OF:
                assert ears[name].updated() == ["people://me"] * 2
                assert f"secret of {other(name)}" not in json.dumps(ears[name].heard)
    assert people.requests.count(("anna", "resources/subscribe")) == 2


async def fed(http: httpx2.AsyncClient, seen: list[str], until: str) -> None:
    """What the feed of the dashboard sends, up to this text."""
    cursor = (await http.get("/api/state")).json()["cursor"]
    async with http.stream("GET", f"/api/feed?answers=1&after={cursor}") as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            seen.append(line)
            if until in line:
                return


async def test_over_every_route_of_the_dashboard_nothing_is_the_others(tmp_path: Path) -> None:
    with people_server("anna", "bert") as people:
        for name in ALL_OF:
            await log_in(people, tmp_path / "state", name)
        async with http_hub(settings(people, *ALL_OF), tmp_path) as hub:
            await walked(hub, people)


async def walked(hub: Hub, people: People) -> None:
    """Bert asks for everything while anna works."""
    base = hub.url.removesuffix("/mcp")
    headers = {"authorization": f"Bearer {hub_token('bert')}", "x-mcp-hub": "1"}
    async with (
        RestClient(hub, hub_token("anna")) as anna,
        RestClient(hub, hub_token("bert")) as bert,
        httpx2.AsyncClient(base_url=base, headers=headers, timeout=WAIT, trust_env=False, verify=False) as http,
        HttpClient(hub.url, hub_token("anna")) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.initialize(name="program of anna")
        assert "only_anna" in (await client.request("tools/list")).text
        seen: list[str] = []
        fed_all = anyio.Event()

        async def feed() -> None:
            with anyio.fail_after(WAIT):
                await fed(http, seen, "whoami")
            fed_all.set()

        tasks.start_soon(feed)
        stream = (await anna.call("long")).json()["stream"]
        slow = await anna.started("slow")
        await until(lambda: ("anna", "tools/call") in people.requests)
        past = (await arrived(anna, "/history?details=1", "long"))["calls"][0]["id"]
        assert "account of bert" in (await bert.call("whoami")).text
        await fed_all.wait()
        assert "anna" not in "".join(seen), seen
        api = [f"/api{path}" for path, methods in dashboard_routes().items() if "GET" in methods and path != "/feed"]
        values = {"name": "people", "stream": slow, "id": past, "key": "x", "server": "people"}
        for route in ROUTES:
            path = route.path
            for name, value in values.items():
                path = path.replace(f"{{{name}}}", value)
            if route.method == "GET" and path.split("/")[2] in OPEN:
                assert "{" not in path, path
                api.append(f"/api{path}{'?q=anna&format=mcp' if 'search' in path or 'losses' in path else ''}")
        texts: dict[str, str] = {}
        for path in api:
            with anyio.fail_after(WAIT):
                answer = await http.get(path, headers={"prefer": "wait=0"})
            texts[path] = answer.text.replace('"query":"anna"', "").replace("q=anna", "")
            assert "anna" not in texts[path], (path, answer.text)
            assert answer.status_code in (200, 403, 404, 400), (path, answer.text)
        assert "only_bert" in texts["/api/tools"] and "only_bert" in texts["/api/v1/tools"]
        assert '"whoami"' in texts["/api/state"] and '"slow"' not in texts["/api/state"]
        for id_ in (slow, stream, past):
            for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", ""), ("POST", "/input")):
                body = {"key": "q", "action": "accept"} if method == "POST" else None
                answer = await http.request(method, f"/api/v1/streams/{id_}{path}", json=body)
                assert answer.status_code == 404 and "anna" not in answer.text.replace(id_, ""), answer.text
        people.held.set()
        assert "account of anna" in str(await anna.until(slow, "completed"))


def dashboard_routes() -> Mapping[str, Mapping[str, object]]:
    return DashboardApi.__new__(DashboardApi).routes
