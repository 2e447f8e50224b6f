"""Clients that log in to the hub by its own authorization server: the official SDKs, over a hub that is a process."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from rigs.clients.install import NotInstalled, node, node_package
from tests.e2e.consents import ALICE, PUBLIC, TOKENS, Flow, Proxied, fields_of, web
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]
REDIRECT = "http://127.0.0.1:33418/callback"
LOCAL = {"local": "mcp_hub.examples.jobs:registry"}


def settings(**http: Any) -> str:
    hub = {"tokens": TOKENS, "http": {"public_url": PUBLIC, "authorization": True, **http}}
    profiles: dict[str, Any] = {"narrow": {}, "elsewhere": {}}
    return json.dumps({"servers": {"jobs": LOCAL}, "profiles": profiles, "hub": hub})


class Kept:
    """What a client stores."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """The browser of a person who logs in and allows; `swapped` is an issuer that a mix-up puts in."""

    def __init__(self, http: httpx2.AsyncClient, swapped: str | None = None) -> None:
        self._flow = Flow(http)
        self._swapped = swapped
        self.visits = 0
        self._sent: dict[str, str] = {}

    async def go(self, url: str) -> None:
        self.visits += 1
        page = await self._flow.login(ALICE, url)
        sent = await self._flow.answer(page, profile="narrow")
        assert sent.headers["location"].startswith(f"{REDIRECT}?")
        self._sent = fields_of(sent.headers["location"])

    async def back(self) -> AuthorizationCodeResult:
        iss = self._swapped or self._sent["iss"]
        return AuthorizationCodeResult(code=self._sent["code"], state=self._sent["state"], iss=iss)


@asynccontextmanager
async def client(url: str, kept: Kept, person: Person) -> AsyncIterator[ClientSession]:
    """A session of the official SDK, logged in as it does it itself."""
    metadata = OAuthClientMetadata(client_name="SDK", redirect_uris=[REDIRECT])  # type: ignore[list-item]
    auth = OAuthClientProvider(f"{PUBLIC}/mcp", metadata, kept, person.go, person.back)
    async with (
        httpx2.AsyncClient(transport=Proxied(url), auth=auth, timeout=WAIT) as http,
        streamable_http_client(f"{PUBLIC}/mcp", http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


async def test_python_sdk_logs_in_and_renews_across_a_killed_hub(tmp_path: Path) -> None:
    kept = Kept()
    async with http_hub(settings(), tmp_path) as hub, web(hub.url) as http:
        person = Person(http)
        async with client(hub.url, kept, person) as session:
            assert "jobs_run_job" in {tool.name for tool in (await session.list_tools()).tools}
        assert kept.tokens is not None and person.visits == 1
        async with client(hub.url, kept, person) as session:
            await session.list_tools()
        os.kill(hub.pid, signal.SIGKILL)
    async with http_hub(settings(), tmp_path) as hub, web(hub.url) as http:
        person = Person(http)
        async with client(hub.url, kept, person) as session:
            await session.list_tools()
        assert person.visits == 0, "nobody is asked again"
        assert kept.client is not None and kept.client.client_id is not None
        renewed = await Flow(http, kept.client.client_id).refresh(kept.tokens.refresh_token or "")
        assert await Flow(http).status(renewed.json()["access_token"]) == 200


async def test_client_notices_an_answer_of_another_issuer(tmp_path: Path) -> None:
    async with http_hub(settings(), tmp_path) as hub, web(hub.url) as http:
        with pytest.raises(BaseExceptionGroup) as failed:
            async with client(hub.url, Kept(), Person(http, "https://evil.example")):
                pass
        assert failed.group_contains(OAuthFlowError)


@pytest.mark.proof
@pytest.mark.slow
async def test_typescript_sdk_logs_in_and_renews(tmp_path: Path) -> None:
    try:
        package = await anyio.to_thread.run_sync(node_package, "@modelcontextprotocol/sdk@1", "sdk-1")
    except NotInstalled as why:
        pytest.skip(str(why))
    script = package.parents[2] / "access_client.mjs"
    script.write_text((Path(__file__).parent / "access_client.mjs").read_text())
    async with http_hub(settings(), tmp_path) as hub:
        env = {"PATH": "", "HUB": hub.url, "PUBLIC": PUBLIC, "TOKEN": ALICE}
        run = [str(node()), str(script)]
        done = await anyio.run_process(run, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    outcome = json.loads(done.stdout)
    assert "jobs_run_job" in outcome["tools"] and outcome["renewed"] is True
    assert (outcome["state"], outcome["iss"]) == ("state-of-sdk", PUBLIC)


async def test_access_lists_and_removes_clients_of_a_running_hub(tmp_path: Path) -> None:
    async def command(*words: str) -> tuple[int, str, str]:
        env = {**os.environ, "MCP_HUB_STATE_DIR": str(tmp_path / "state")}
        run = [*forked_command(), "access", *words, "--config", str(tmp_path / "servers.yaml")]
        done = await anyio.run_process(run, env=env, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    async with http_hub(settings(), tmp_path) as hub, web(hub.url) as http:
        flow = Flow(http)
        tokens = await flow.tokens(profile="narrow")
        code, text, _ = await command("list", "--json")
        [row] = json.loads(text)["clients"]
        assert code == 0 and (row["client"], row["principal"], row["profile"]) == ("Claude", "alice", "narrow")
        assert row["id"] in (await command("list"))[1]
        assert (await command("remove", "g_nobody"))[0] == 1 and (await command("remove"))[0] == 2
        assert (await command("remove", "--principal", "bob"))[0] == 1
        assert await flow.status(tokens["access_token"]) == 200
        code, _, said = await command("remove", row["id"])
        assert code == 0 and "Removed 1 client." in said
        with anyio.fail_after(2):
            while await flow.status(tokens["access_token"]) != 401:
                pass
        assert "No client was let in." in (await command("list"))[1]


@pytest.mark.slow
async def test_what_one_replica_gives_and_takes_counts_at_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICAS", "2")
    async with http_hub(settings(), tmp_path) as hub, web(hub.url) as http:
        flow = Flow(http)
        tokens = await flow.tokens(profile="narrow")
        assert [await flow.status(tokens["access_token"]) for _ in range(4)] == [200] * 4
        renewed = (await flow.refresh(tokens["refresh_token"])).json()
        assert [await flow.status(renewed["access_token"]) for _ in range(4)] == [200] * 4
        await http.post("/oauth/revoke", data={"token": renewed["refresh_token"], "client_id": flow.client})
        with anyio.fail_after(2):
            while [await flow.status(renewed["access_token"]) for _ in range(4)] != [401] * 4:
                pass
