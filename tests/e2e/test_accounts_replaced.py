"""An account that is replaced or removed, here or by another hub: what uses the old one ends, with kept results."""

import json
from pathlib import Path

import anyio
import pytest

from mcp_hub.upstreams.auth.access import Access
from mcp_hub.upstreams.auth.grants import ClientRegistration
from tests.e2e.client import HttpClient
from tests.e2e.people_server import People, accounts_at, hub_token, log_in, people_server, settings, token_of
from tests.e2e.rest_client import RestClient
from tests.e2e.test_accounts import arrived
from tests.interaction.fronts import http_hub
from tests.interaction.replicas import replicas
from tests.redis_server import NO_SERVER, binary
from tests.upstreams.child import WAIT, until

pytestmark = pytest.mark.anyio


def cached(people: People, *principals: str) -> str:
    config = json.loads(settings(people, *principals))
    config["servers"]["people"]["per_tool"] = {"whoami": {"cache": 3600}}
    return json.dumps(config)


async def answer(client: RestClient) -> str:
    return (await client.call("whoami")).text


async def test_a_login_that_another_hub_replaces_is_used(tmp_path: Path) -> None:
    with people_server("anna", "bert") as people:
        await log_in(people, tmp_path / "state", "anna")
        async with http_hub(cached(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            assert "account of anna" in await answer(anna)
            asked = len(people.requests)
            assert "account of anna" in await answer(anna)
            assert len(people.requests) == asked, "kept"
            await log_in(people, tmp_path / "state", "anna", "bert")
            await arrived(anna, "/tools", "only_bert")
            assert "account of bert" in await answer(anna)


async def test_kept_results_of_a_removed_account_are_dropped(tmp_path: Path) -> None:
    with people_server("anna") as people:
        await log_in(people, tmp_path / "state", "anna")
        async with http_hub(cached(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            assert "account of anna" in await answer(anna)
            assert (await anna.ask("DELETE", "/accounts/people")).json()["was"]
            assert "account of" not in await answer(anna)
            people.tokens[token_of("anna")] = "anna"
            await log_in(people, tmp_path / "state", "anna")
            await arrived(anna, "/tools", "only_anna")
            count = people.requests.count(("anna", "tools/call"))
            assert "account of anna" in await answer(anna)
            assert people.requests.count(("anna", "tools/call")) == count + 1, "not the one of before"


@pytest.mark.proof
async def test_kept_results_are_not_used_without_a_connection(tmp_path: Path) -> None:
    """Another hub may have removed the account, which only a hub with a connection of it sees."""
    with people_server("anna") as people:
        await log_in(people, tmp_path / "state", "anna")
        config = json.loads(cached(people, "anna"))
        config["servers"]["people"]["idle_stop"] = 0.5
        async with http_hub(json.dumps(config), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            await arrived(anna, "/tools", "only_anna")  # the first connection, however long it takes
            assert "account of anna" in await answer(anna)
            await arrived(anna, "/servers", '"connections":0')
            await accounts_at(tmp_path / "state").remove("people", "anna")
            await arrived(anna, "/tools", "log_in")
            assert "account of" not in await answer(anna)


async def test_calls_end_with_the_removal_by_a_command(tmp_path: Path) -> None:
    with people_server("anna") as people:
        await log_in(people, tmp_path / "state", "anna")
        async with http_hub(settings(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            stream = await anna.started("slow")
            await until(lambda: ("anna", "tools/call") in people.requests)
            await accounts_at(tmp_path / "state").remove("people", "anna")
            ended = await anna.until(stream, "failed", "completed")
            assert ended["status"] == "failed" and not people.held.is_set(), "the server has not answered"


CHANGED = "notifications/tools/list_changed"


@pytest.mark.proof
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_a_replica_without_a_connection_hears_of_an_account_that_another_one_removes_and_stores(
    tmp_path: Path,
) -> None:
    with people_server("anna") as people:
        config = json.loads(settings(people, "anna"))
        config["servers"]["people"] |= {"bearer": "${account:TOKEN}", "idle_stop": 0.5}
        async with (
            replicas(json.dumps(config), tmp_path) as running,
            RestClient(running.hubs[0], hub_token("anna")) as first,
            RestClient(running.hubs[1], hub_token("boss")) as boss,
            HttpClient(running.hubs[1].url, hub_token("anna")) as second,
        ):
            await second.initialize()

            async def has(name: str) -> bool:
                listed = (await second.request("tools/list")).last["result"]["tools"]
                return name in [tool["name"] for tool in listed]

            async with second.listen() as stream:
                assert await has("log_in")
                for value in (token_of("anna"), None, token_of("anna")):
                    place, body = "/accounts/people/values/TOKEN", {"value": value}
                    changed = await (
                        first.ask("PUT", place, body) if value else first.ask("DELETE", "/accounts/people")
                    )
                    assert changed.is_success, changed.text
                    await stream.wait_for(lambda message: message.get("method") == CHANGED)
                    with anyio.fail_after(WAIT):
                        while not await has("only_anna" if value else "log_in"):
                            pass
                    assert not await has("log_in" if value else "only_anna")
                    await arrived(boss, "/servers", '"connections":0')


@pytest.mark.first(1)
@pytest.mark.parametrize("value", ["日本", "é"])
async def test_a_value_that_no_header_can_hold_is_refused_and_one_in_the_store_ends_no_hub(
    tmp_path: Path, value: str
) -> None:
    with people_server("anna", "bert") as people:
        config = json.loads(settings(people, "anna", "bert"))
        config["servers"]["people"] |= {"bearer": "${account:TOKEN}"}
        async with (
            http_hub(json.dumps(config), tmp_path) as hub,
            RestClient(hub, hub_token("anna")) as anna,
            RestClient(hub, hub_token("bert")) as bert,
        ):
            refused = await anna.ask("PUT", "/accounts/people/values/TOKEN", {"value": value})
            assert refused.status_code == 400 and "printable ASCII" in refused.text, refused.text
            await accounts_at(tmp_path / "state").put_value("people", "anna", "TOKEN", value)
            for _ in range(2):
                listed = (await anna.ask("GET", "/tools")).json()["tools"]
                assert listed == [] or listed[0]["name"] == "log_in"
                await anyio.sleep(0.5)
            body = {"value": token_of("bert")}
            assert (await bert.ask("PUT", "/accounts/people/values/TOKEN", body)).status_code == 200
            await arrived(bert, "/tools", "only_bert")
            assert (await anna.ask("PUT", "/accounts/people/values/TOKEN", {"value": token_of("anna")})).is_success
            await arrived(anna, "/tools", "only_anna")


async def test_a_removal_at_servers_that_never_were_writes_nothing(tmp_path: Path) -> None:
    with people_server("anna") as people:
        async with http_hub(settings(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            for number in range(5):
                removed = await anna.ask("DELETE", f"/accounts/never-{number}")
                assert removed.json() == {"server": f"never-{number}", "principal": "anna", "was": False}
        assert [path async for path in anyio.Path(tmp_path).glob("state/oauth/accounts/*.json")] == []


async def test_two_hubs_renew_a_login_once(tmp_path: Path) -> None:
    with people_server("anna") as people:
        state = tmp_path / "state"
        await log_in(people, state, "anna", obtained_at=0.0, expires_at=1.0)
        hubs = [
            Access("people", people.url, ClientRegistration(), accounts_at(state).grants("people", "anna"))
            for _ in range(4)
        ]
        async with anyio.create_task_group() as tasks:
            for access in hubs:
                tasks.start_soon(access.prepare)
        assert people.renewed == ["anna"]
        assert {await access.token() for access in hubs} == {"renewed-anna-0"}


async def test_scripts_and_calls_to_come_back_for_are_of_their_own_account(tmp_path: Path) -> None:
    with people_server("anna", "bert") as people:
        for name in ("anna", "bert"):
            await log_in(people, tmp_path / "state", name)
        async with http_hub(settings(people, "anna", "bert", code="all"), tmp_path) as hub:
            async with RestClient(hub, hub_token("anna")) as anna, RestClient(hub, hub_token("bert")) as bert:
                texts: dict[str, str] = {}

                async def run(name: str, client: RestClient) -> None:
                    await arrived(client, "/tools", f"only_{name}")
                    script = "await whoami()"
                    texts[name] = (await client.ask("POST", "/code", {"code": script}, prefer="wait=60")).text

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run, "anna", anna)
                    tasks.start_soon(run, "bert", bert)
                for name, other in (("anna", "bert"), ("bert", "anna")):
                    assert f"account of {name}" in texts[name] and other not in texts[name], texts
                stolen = await bert.ask("POST", "/code", {"code": "await only_anna()"}, prefer="wait=60")
                assert "account of" not in stolen.text, stolen.text
                stream = await anna.started("slow")
                await until(lambda: people.requests.count(("anna", "tools/call")) == 2)
                for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", ""), ("POST", "/input")):
                    body = {"key": "q", "action": "accept"} if method == "POST" else None
                    assert (await bert.ask(method, f"/streams/{stream}{path}", body)).status_code == 404
                people.held.set()
                assert "account of anna" in str(await anna.until(stream, "completed"))
