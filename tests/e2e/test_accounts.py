"""Two principals with accounts of their own at one server: nothing of the other over any route of any front."""

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub.fronts.rest.routes import ROUTES
from tests.e2e.client import HttpClient, Hub
from tests.e2e.people_server import (
    KEY,
    People,
    accounts_at,
    hub_token,
    log_in,
    people_server,
    settings,
    token_of,
)
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import ERAS, connected, http_hub
from tests.interaction.replicas import replicas
from tests.redis_server import NO_SERVER, binary
from tests.unit.cli.command import command_env
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

ALL_OF = ("anna", "bert")


@pytest.fixture
def people() -> Any:
    with people_server("anna", "bert", "carl") as running:
        yield running


@pytest.fixture
async def hub(people: People, tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub at which anna and bert have logged in, and carl has not."""
    for name in ALL_OF:
        await log_in(people, tmp_path / "state", name)
    async with http_hub(settings(people, "anna", "bert", "carl"), tmp_path) as running:
        yield running


async def ran(folder: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """The command, while this process serves."""

    def run() -> "subprocess.CompletedProcess[str]":
        argv = [*forked_command(), *args]
        return subprocess.run(argv, capture_output=True, text=True, env=command_env(folder), cwd=folder, timeout=240)

    return await anyio.to_thread.run_sync(run)


def other(name: str) -> str:
    return "bert" if name == "anna" else "anna"


async def used(hub: Hub, name: str, era: str) -> list[str]:
    """Everything that a principal does over MCP, each answer as text."""
    lists = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
    tools = ("whoami", f"only_{name}", f"only_{other(name)}", "long", "log_in")
    asked: list[tuple[str, Any]] = [(method, {}) for method in lists]
    asked += [("tools/call", {"name": tool, "arguments": {}}) for tool in tools]
    asked += [("resources/read", {"uri": uri}) for uri in ("people://me", f"people://private/{name}")]
    asked += [("prompts/get", {"name": prompt}) for prompt in (f"prompt_{name}", "prompt_nobody")]
    async with connected(hub, era, hub_token(name)) as peer:
        texts = [json.dumps((await peer.request(method, params)).answer) for method, params in asked]
    return texts


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
async def test_over_mcp_each_has_the_lists_and_answers_of_their_own_account(hub: Hub, people: People, era: str) -> None:
    seen: dict[str, list[str]] = {}

    async def use(name: str) -> None:
        seen[name] = await used(hub, name, era)

    async with anyio.create_task_group() as tasks:
        for name in ALL_OF:
            tasks.start_soon(use, name)
    for name in ALL_OF:
        tools, *_ = seen[name]
        assert f'"only_{name}"' in tools and '"log_in"' not in tools
        assert f"account of {name}" in seen[name][4] and f"account of {name}" in seen[name][5]
        unknown = seen[name].pop(6)  # the tool of the other, whose name the caller has sent
        assert "Unknown tool" in unknown and f"account of {other(name)}" not in unknown
        assert other(name) not in "".join(seen[name])
    assert {account for account, _ in people.requests} == {"anna", "bert"}


async def test_who_has_no_account_is_listed_one_tool_and_nothing_is_sent_for_them(hub: Hub, people: People) -> None:
    async with HttpClient(hub.url, hub_token("anna")) as anna, HttpClient(hub.url, hub_token("carl")) as carl:
        await anna.initialize()
        await anna.request("tools/list")
        await carl.initialize()
        listed = (await carl.request("tools/list")).last["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["log_in"]
        answer = (await carl.request("tools/call", {"name": "log_in", "arguments": {}})).last
        assert answer["result"]["isError"] and "/login/people?t=" in json.dumps(answer), answer
        answer = (await carl.request("tools/call", {"name": "whoami", "arguments": {}})).last
        assert answer["error"]["data"]["code"] == "unknown_entry"
    assert {account for account, _ in people.requests} == {"anna"}


async def arrived(client: RestClient, path: str, text: str) -> Any:
    """The answer, once it has this text."""
    answer = await client.ask("GET", path)
    while text not in answer.text:
        await anyio.sleep(0.1)
        answer = await client.ask("GET", path)
    return answer.json()


async def test_over_every_route_of_rest_nothing_is_the_others(hub: Hub, tmp_path: Path) -> None:
    async with RestClient(hub, hub_token("anna")) as anna, RestClient(hub, hub_token("bert")) as bert:
        assert "account of anna" in (await anna.call("whoami")).text
        long = (await anna.call("long")).json()
        stream = long["stream"]
        tools = [tool["name"] for tool in (await anna.ask("GET", "/tools")).json()["tools"]]
        assert "only_anna" in tools
        hits = (await anna.ask("GET", "/search?q=secret%20tool")).json()["hits"]
        assert [hit["name"] for hit in hits][0] == "only_anna"
        assert "account of bert" in (await bert.call("whoami")).text
        past = await arrived(anna, "/history?details=1", "whoami")
        call = past["calls"][0]["id"]
        values = {"name": "people", "stream": stream, "id": call, "key": "x", "server": "people", "executor": "x"}
        seen: dict[str, str] = {}
        for route in ROUTES:
            if route.method != "GET" or route.operation in ("fetchCalls", "describe"):
                continue
            path = route.path.removeprefix("/v1")
            for name, value in values.items():
                path = path.replace(f"{{{name}}}", value)
            assert "{" not in path, path
            query = "?q=anna&query=anna&format=mcp" if "search" in path else ""
            response = await bert.ask("GET", path + query)
            text = response.text.replace("q=anna", "").replace('"query":"anna"', "")
            seen[route.operation] = text
            assert "anna" not in text, (route.operation, text)
        assert "only_bert" in seen["listTools"] and "prompt_bert" in seen["listPrompts"]
        for refused in (
            await bert.ask("GET", f"/streams/{stream}"),
            await bert.ask("GET", f"/streams/{stream}/events"),
            await bert.ask("DELETE", f"/streams/{stream}"),
            await bert.call("only_anna"),
            await bert.ask("GET", "/accounts?principal=anna"),
            await bert.ask("DELETE", "/accounts/people?principal=anna"),
            await bert.ask("PUT", "/accounts/people/values/TOKEN?principal=anna", {"value": "x"}),
        ):
            assert refused.status_code in (403, 404) and "account of anna" not in refused.text, refused.text
        assert (await bert.ask("GET", "/accounts")).json()["accounts"][0]["principal"] == "bert"
        assert "account of anna" in (await anna.call("whoami")).text, "still there"


async def test_metrics_have_no_principals_and_operators_see_counts_and_no_secret(hub: Hub) -> None:
    async with RestClient(hub, hub_token("anna")) as anna, RestClient(hub, hub_token("boss")) as boss:
        await anna.call("whoami")
        (server,) = (await boss.ask("GET", "/servers")).json()["servers"]
        assert (server["scope"], server["connections"], server["state"]) == ("principal", 1, "ready")
        accounts = await boss.ask("GET", "/accounts")
        assert [entry["principal"] for entry in accounts.json()["accounts"]] == ["anna", "bert"]
        url = hub.url.removesuffix("/mcp")
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {hub_token('boss')}"}, verify=False) as http:
            metrics = (await http.get(f"{url}/metrics")).text
        assert "anna" not in metrics and 'server="people"' in metrics
    for secret in (token_of("anna"), token_of("bert"), "again-anna", KEY):
        assert secret not in hub.stderr + accounts.text + metrics


async def test_a_removed_account_ends_its_connection_and_calls_at_once_and_is_revoked(
    hub: Hub, people: People, tmp_path: Path
) -> None:
    async with RestClient(hub, hub_token("anna")) as anna, RestClient(hub, hub_token("bert")) as bert:
        assert "account of bert" in (await bert.call("whoami")).text
        stream = await anna.started("slow")
        await until(lambda: ("anna", "tools/call") in people.requests)
        began = time.monotonic()
        removed = (await anna.ask("DELETE", "/accounts/people")).json()
        assert removed == {"server": "people", "principal": "anna", "was": True}
        await arrived(anna, f"/streams/{stream}", '"failed"')
        assert time.monotonic() - began < 5
        assert sorted(people.revoked) == ["again-anna", token_of("anna")]
        listed = [tool["name"] for tool in (await anna.ask("GET", "/tools")).json()["tools"]]
        assert listed == ["log_in"]
        assert "account of bert" in (await bert.call("whoami")).text, "whose account stays"


async def test_a_hub_notices_an_account_that_a_command_removes_or_another_hub_stores(
    hub: Hub, people: People, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with RestClient(hub, hub_token("anna")) as anna, RestClient(hub, hub_token("carl")) as carl:
        assert "account of anna" in (await anna.call("whoami")).text
        await accounts_at(state).remove("people", "anna")
        await arrived(anna, "/tools", "log_in")
        assert (await anna.call("whoami")).status_code == 404
        assert "log_in" in (await carl.ask("GET", "/tools")).text
        await log_in(people, state, "carl")
        await arrived(carl, "/tools", "only_carl")
        assert "account of carl" in (await carl.call("whoami")).text


async def test_a_login_is_renewed_once_and_stored_before_it_is_used(people: People, tmp_path: Path) -> None:
    state = tmp_path / "state"
    await log_in(people, state, "anna", obtained_at=0.0, expires_at=1.0)
    async with http_hub(settings(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
        texts: list[str] = []

        async def call() -> None:
            texts.append((await anna.call("whoami")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
        assert all("account of anna" in text for text in texts) and people.renewed == ["anna"]
    account = await accounts_at(state).read("people", "anna")
    assert account is not None and account.grant is not None and account.grant.access_token == "renewed-anna-0"


async def test_rows_that_are_swapped_give_nobody_the_account_of_another(people: People, tmp_path: Path) -> None:
    from mcp_hub.upstreams.accounts.rows import row_name

    state = tmp_path / "state"
    for name in ALL_OF:
        await log_in(people, state, name)
    folder = state / "oauth" / "accounts"
    anna, bert = (folder / f"{row_name('people', name)}.json" for name in ALL_OF)
    mine, theirs = anna.read_bytes(), bert.read_bytes()
    anna.write_bytes(theirs)
    bert.write_bytes(mine)
    async with http_hub(settings(people, "anna", "bert"), tmp_path) as hub:
        for name in ALL_OF:
            async with RestClient(hub, hub_token(name)) as client:
                answer = await client.call("whoami")
                assert answer.status_code >= 400 and "account of" not in answer.text
        assert "account_of_another" in hub.stderr
    assert people.requests == []


async def test_another_url_or_issuer_of_the_server_gets_no_token_of_the_old_one(people: People, tmp_path: Path) -> None:
    await log_in(people, tmp_path / "state", "anna")
    with people_server("nobody") as elsewhere:
        async with http_hub(settings(elsewhere, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            assert "log_in" in (await anna.ask("GET", "/tools")).text
            assert elsewhere.requests == [] and elsewhere.revoked == []


async def test_an_account_is_kept_over_a_restart_and_the_command_lists_it(people: People, tmp_path: Path) -> None:
    await log_in(people, tmp_path / "state", "anna")
    for _ in range(2):
        async with http_hub(settings(people, "anna"), tmp_path) as hub, RestClient(hub, hub_token("anna")) as anna:
            assert "account of anna" in (await anna.call("whoami")).text
    listed = await ran(tmp_path, "account", "list")
    assert listed.returncode == 0 and listed.stdout.startswith("people  anna  since "), (listed.stdout, listed.stderr)
    assert token_of("anna") not in listed.stdout
    gone = await ran(tmp_path, "account", "remove", "--principal", "anna")
    assert "Removed the account of anna at people." in gone.stderr and people.revoked


PROGRAM = """
import glob, json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    method = message["method"]
    if method == "initialize":
        info = {"name": "mine", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        others = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                others += [value for value in open(path, "rb").read().split(b"\\0") if value.startswith(b"PASSWORD=")]
            except OSError:
                pass
        with open(os.path.expanduser("~/mine"), "a") as file:
            file.write(sys.argv[1])
        texts = {
            "argv": sys.argv[1:], "seen": sorted({other.decode() for other in others}),
            "home": open(os.path.expanduser("~/mine")).read(),
        }
        result = {"content": [{"type": "text", "text": json.dumps(texts)}]}
    else:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def local(root: Path, *principals: str) -> str:
    program = root / "mine.py"
    program.write_text(PROGRAM)
    server = {
        "command": sys.executable,
        "args": [str(program), "${client.principal}"],
        "env": {"PASSWORD": "${account:PASSWORD}"},
        "account": "own",
        "sandbox": {"mode": "on", "read": [str(program)], "write": []},
    }
    tokens = [{"token": hub_token(name), "principal": name} for name in principals]
    hub = {"tokens": tokens, "accounts": {"key": KEY}, "prefix": "never", "expose": "full"}
    return json.dumps({"hub": hub, "servers": {"mine": server}})


async def test_each_principal_has_a_process_with_their_own_values_which_no_other_can_read(tmp_path: Path) -> None:
    async with http_hub(local(tmp_path, *ALL_OF), tmp_path) as hub:
        for name in ALL_OF:
            async with RestClient(hub, hub_token(name)) as client:
                assert "log_in" in (await client.ask("GET", "/tools")).text
                unknown = await client.ask("PUT", "/accounts/mine/values/OTHER", {"value": "x"})
                assert unknown.status_code == 404
                body = {"value": f"password-of-{name}"}
                assert (await client.ask("PUT", "/accounts/mine/values/PASSWORD", body)).status_code == 200
                await arrived(client, "/tools", '"look"')
        for _ in range(2):
            for name in ALL_OF:
                async with RestClient(hub, hub_token(name)) as client:
                    response = await client.call("look")
                assert response.status_code == 200, response.text
                answer = response.json()["result"]["content"][0]["text"]
                seen = json.loads(answer)
                assert seen["argv"] == [name] and seen["seen"] == [f"PASSWORD=password-of-{name}"], seen
                assert set(seen["home"].replace(name, "")) == set(), seen
        listed = await ran(tmp_path, "account", "list", "--json")
        assert [account["values"] for account in json.loads(listed.stdout)["accounts"]] == [["PASSWORD"], ["PASSWORD"]]
        assert "password-of" not in listed.stdout + hub.stderr


@pytest.mark.first(1)
@pytest.mark.parametrize("principal", ["--config=/etc/passwd", "a\u0007b", "x" * 600])
async def test_a_principal_that_looks_like_an_option_gets_no_process(tmp_path: Path, principal: str) -> None:
    config = json.loads(local(tmp_path, "anna"))
    config["hub"]["tokens"][0]["principal"] = principal
    async with http_hub(json.dumps(config), tmp_path) as hub, RestClient(hub, hub_token("anna")) as client:
        body = {"value": "a password"}
        assert (await client.ask("PUT", "/accounts/mine/values/PASSWORD", body)).status_code == 200
        assert '"look"' not in (await client.ask("GET", "/tools")).text
        assert "upstream_ready" not in hub.stderr


@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_any_replica_serves_an_account_that_another_stored_and_ends_with_it(
    people: People, tmp_path: Path
) -> None:
    config = json.loads(settings(people, *ALL_OF))
    config["servers"]["people"] |= {"bearer": "${account:TOKEN}"}
    async with replicas(json.dumps(config), tmp_path, lease=1.0) as running:
        first, second, *_ = running.hubs
        async with RestClient(first, hub_token("anna")) as here, RestClient(second, hub_token("anna")) as there:
            assert "log_in" in (await there.ask("GET", "/tools")).text
            body = {"value": token_of("anna")}
            assert (await here.ask("PUT", "/accounts/people/values/TOKEN", body)).status_code == 200
            for client in (there, here):
                await arrived(client, "/tools", "only_anna")
                assert "account of anna" in (await client.call("whoami")).text
            async with RestClient(second, hub_token("bert")) as bert:
                assert "anna" not in (await bert.ask("GET", "/tools")).text
            assert (await here.ask("DELETE", "/accounts/people")).json()["was"]
            await arrived(there, "/tools", "log_in")
            assert (await there.call("whoami")).status_code == 404
