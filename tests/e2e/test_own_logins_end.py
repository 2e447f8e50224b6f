"""Logins to own accounts that do not end in an account, and the end of those that do: at a running hub."""

import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography.fernet import Fernet

from mcp_hub.app.accounts import login_target, open_accounts
from mcp_hub.config.schema.settings import Settings
from mcp_hub.upstreams.auth.grants import Grant, grant_key
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.test_accounts import arrived
from tests.e2e.test_own_logins import ANN, BOB, a_hub, config, log_in
from tests.interaction.fronts import http_hub
from tests.interaction.hub_process import hub_process
from tests.interaction.replicas import replicas
from tests.redis_server import NO_SERVER, binary
from tests.upstreams.child import WAIT
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.own_accounts import OwnAccounts, own_accounts

pytestmark = pytest.mark.anyio

KEY = Fernet.generate_key().decode()
BOSS = "token-of-boss-0123456789"


async def test_a_call_that_waits_ends_with_the_removal_and_so_does_its_link(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        async with (
            a_hub(upstream, tmp_path, Fernet.generate_key().decode()) as hub,
            RestClient(hub, ANN) as ann,
            RestClient(hub, BOB) as bob,
        ):
            stream = await ann.started("log_in")
            (question,) = (await ann.until(stream, "input_required"))["questions"]
            assert (await bob.ask("GET", f"/streams/{stream}")).status_code == 404
            assert (await bob.ask("DELETE", "/accounts/own?principal=ann")).status_code == 403
            assert (await ann.ask("DELETE", "/accounts/own")).status_code == 200
            with anyio.fail_after(30):
                ended = await ann.until(stream, "completed", "tool_error", "failed")
            assert "not finished" in str(ended)
            async with httpx2.AsyncClient(trust_env=False, verify=False) as web:
                assert (await web.get(question["params"]["url"])).status_code == 410
        assert upstream.asked == []


async def test_a_token_for_another_audience_opens_nothing(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        upstream.faults["audience"] = "https://other.example/mcp"
        async with a_hub(upstream, tmp_path, Fernet.generate_key().decode()) as hub, RestClient(hub, ANN) as ann:
            url = (await ann.ask("POST", "/accounts/own/login")).json()["url"]
            code = await anyio.to_thread.run_sync(log_in, url, "alice")
            assert (await ann.ask("POST", "/accounts/own/confirm", {"code": code})).status_code == 200
            listed = [tool["name"] for tool in (await ann.ask("GET", "/tools", prefer="wait=20")).json()["tools"]]
            assert "whoami" not in listed and "only_alice" not in listed
        assert upstream.calls == []


async def test_issuer_of_the_settings_may_have_a_slash_at_its_end(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        async with a_hub(upstream, tmp_path, KEY, oauth={"issuer": f"{upstream.url}/"}) as hub:
            await confirmed(hub, ANN, "alice")
            async with RestClient(hub, ANN) as ann:
                await ann.settled()
                assert "you are alice" in (await ann.call("whoami")).text


async def test_a_hub_without_own_accounts_has_no_pages_of_logins(tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv(name="a")}), tmp_path) as hub, RestClient(hub) as rest:
        origin = hub.url.removesuffix("/mcp")
        async with httpx2.AsyncClient(trust_env=False, verify=False) as web:
            for path in ("/login/a", "/login-callback/a", "/login-form/a", "/login-cancel/a", "/login/", "/login"):
                assert (await web.get(origin + path)).status_code == 404
        assert (await rest.ask("POST", "/accounts/a/login")).status_code == 404
        assert (await rest.ask("POST", "/accounts/a/confirm", {"code": "123456"})).status_code == 404


@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_each_step_may_reach_another_replica(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        async with replicas(config(upstream, Fernet.generate_key().decode()), tmp_path, lease=1.0) as running:
            one, two = (hub.url.removesuffix("/mcp") for hub in running.hubs[:2])
            async with RestClient(running.hubs[0], ANN) as first, RestClient(running.hubs[1], ANN) as second:
                url = (await first.ask("POST", "/accounts/own/login")).json()["url"]
                code = await anyio.to_thread.run_sync(log_in, url.replace(one, two), "alice")
                answer = await first.ask("POST", "/accounts/own/confirm", {"code": code})
                assert answer.json()["account"] == "alice@example.com", answer.text
                await arrived(second, "/tools", "only_alice")
                assert "you are alice" in (await second.call("whoami")).text


async def test_program_that_waits_for_the_result_gets_the_link_as_soon_as_there_is_one(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        async with a_hub(upstream, tmp_path, Fernet.generate_key().decode()) as hub, RestClient(hub, ANN) as ann:
            await arrived(ann, "/tools", "log_in")
            answer = await ann.call("log_in")
            asked = answer.json()
            assert (answer.status_code, asked["status"]) == (202, "input_required"), answer.text
            [question] = asked["questions"]
            assert "/login/own?t=" in question["params"]["url"]
            assert answer.headers["location"] == f"/v1/streams/{asked['stream']}"
            waited = await ann.ask("POST", "/tools/log_in/call", {"arguments": {}}, prefer="wait=1")
            assert waited.status_code == 202 and "/login/own?t=" in waited.text, "after its wait"


async def test_a_login_is_revoked_as_the_client_of_the_present_settings(tmp_path: Path) -> None:
    with own_accounts() as upstream:

        def with_secret(secret: str, client: str = "hub") -> Settings:
            oauth = {"client_id": client, "client_secret": secret, "issuer": upstream.url}
            server = {"url": upstream.resource, "account": "own", "oauth": oauth}
            tokens = [{"token": ANN, "principal": "ann"}]
            hub = {"tokens": tokens, "accounts": {"key": KEY}}
            return Settings.model_validate({"servers": {"own": server}, "hub": hub}, context={"env": {}})

        present = [with_secret("secret-of-the-start")]
        accounts = open_accounts(lambda: present[0], {"MCP_HUB_STATE_DIR": str(tmp_path)}, None)
        target = login_target(present[0].servers["own"])
        assert target is not None
        for principal in ("ann", "bob"):
            grant = Grant(
                access_token=f"token-of-{principal}", token_endpoint=f"{upstream.url}/token", client_id="hub",
                issuer=upstream.url, token_auth="basic",
            )  # fmt: skip
            assert await accounts.keep("own", principal, grant, target=grant_key(*target), generation=0)
        present[0] = with_secret("secret-of-now")
        assert await accounts.remove("own", "ann") == (True, "")
        present[0] = with_secret("secret-of-another", "another")
        await accounts.remove("own", "bob")
        auths = [form.get("auth", "") for form in upstream.places("/revoke")]
        secrets = [base64.b64decode(auth.removeprefix("Basic ")).decode() for auth in auths]
        assert secrets[0] == "hub:secret-of-now" and "another" not in "".join(secrets)
        assert upstream.revoked == ["token-of-ann", "token-of-bob"]


async def test_key_of_accounts_that_a_reload_adds_asks_for_a_restart(tmp_path: Path) -> None:
    with own_accounts() as upstream:
        whole = json.loads(config(upstream, KEY))
        tokens = [*whole["hub"]["tokens"], {"token": BOSS, "principal": "boss", "operator": True}]
        whole["hub"]["tokens"] = tokens
        async with http_hub(json.dumps({"hub": {"tokens": tokens}, "servers": {}}), tmp_path) as hub:
            async with RestClient(hub, ANN) as ann, RestClient(hub, BOSS) as boss:
                (tmp_path / "servers.yaml").write_text(json.dumps(whole))
                reloaded = await boss.ask("POST", "/reload")
                assert reloaded.status_code == 200 and reloaded.json()["next_start"] == ["hub.accounts.key"]
                for method, path, body in (
                    ("POST", "/accounts/own/login", None),
                    ("POST", "/accounts/own/confirm", {"code": "123456"}),
                    ("PUT", "/accounts/own/values/KEY", {"value": "x"}),
                    ("DELETE", "/accounts/own", None),
                ):
                    answer = await ann.ask(method, path, body)
                    assert answer.status_code == 404 and "restart it" in answer.json()["detail"], answer.text
        async with http_hub(json.dumps(whole), tmp_path) as hub, RestClient(hub, ANN) as ann:
            assert (await ann.ask("POST", "/accounts/own/login")).status_code == 200


@asynccontextmanager
async def two_hubs(kind: str, text: str, root: Path) -> AsyncIterator[tuple[Hub, Hub]]:
    """Two processes on one folder, or on one server."""
    if kind == "folder":
        async with hub_process(text, root) as first, hub_process(text, root) as second:
            yield first, second
    elif binary() is None:
        pytest.skip(NO_SERVER)
    else:
        async with replicas(text, root) as running:
            yield running.hubs[0], running.hubs[1]


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", ["folder", "server"])
async def test_two_hubs_that_renew_one_login_use_its_refresh_token_once(tmp_path: Path, kind: str) -> None:
    """A second use would end the login (RFC 9700), and both hubs would have to ask the person."""
    with own_accounts() as upstream:
        async with two_hubs(kind, config(upstream, Fernet.generate_key().decode()), tmp_path) as hubs:
            async with RestClient(hubs[0], ANN) as first, RestClient(hubs[1], ANN) as second:
                await confirmed(hubs[0], BOB, "bella")
                for hub in hubs:  # both have what they need to connect
                    async with RestClient(hub, BOB) as bob:
                        await arrived(bob, "/tools", "only_bella")
                upstream.expires_in = 0
                await confirmed(hubs[0], ANN, "alice")
                assert renewals(upstream) == Counter(), "its token has expired, and nobody has used it"
                upstream.faults["slow_token"] = 2.0  # the other hub comes in between
                upstream.expires_in = 3600
                texts: list[str] = []

                async def call(client: RestClient) -> None:
                    await arrived(client, "/tools", "only_alice")
                    texts.append((await client.call("whoami")).text)

                with anyio.fail_after(WAIT):
                    async with anyio.create_task_group() as tasks:
                        for client in (first, second, first, second):
                            tasks.start_soon(call, client)
                assert all("you are alice" in text for text in texts) and len(texts) == 4
    assert list(renewals(upstream).values()) == [1] and upstream.ended == set()


async def confirmed(hub: Hub, token: str, person: str) -> None:
    """A login from the link to the code."""
    async with RestClient(hub, token) as client:
        url = (await client.ask("POST", "/accounts/own/login")).json()["url"]
        code = await anyio.to_thread.run_sync(log_in, url, person)
        assert (await client.ask("POST", "/accounts/own/confirm", {"code": code})).status_code == 200


def renewals(upstream: OwnAccounts) -> Counter[str]:
    """Uses of each refresh token at the issuer."""
    forms = upstream.places("/token")
    return Counter(form["refresh_token"] for form in forms if form["grant_type"] == "refresh_token")
