"""`account: own` against an authorization server and servers that others wrote, which check every token.

The authorization server is npm's oidc-provider: PKCE, dynamic registration, tokens for one resource (RFC 8707), rotated
refresh tokens, revocation (RFC 7009). Servers of the SDK check tokens by authlib (RFC 9068): signature, issuer,
expiry, scope and audience.
"""

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import pytest
from cryptography.fernet import Fernet

from rigs.clients.install import ROOT
from tests.e2e.answers import Answers
from tests.e2e.client import HttpClient, Hub
from tests.e2e.oidc_provider import Watched, allowed, oidc_provider
from tests.e2e.rest_client import RestClient
from tests.e2e.test_accounts import arrived, ran
from tests.e2e.test_cli_login import ran as ran_with
from tests.e2e.test_own_logins import ANN, BOB, ELICIT, Person, client, code_at, leave
from tests.interaction.fronts import ERAS, http_hub
from tests.upstreams.child import WAIT, Child
from tests.upstreams.launch import free_port, journal, patient
from tests.upstreams.messages import rpc

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow, pytest.mark.proof]

TOKENS = [{"token": ANN, "principal": "ann"}, {"token": BOB, "principal": "bob"}]
SECRET = "secret-of-the-machine-0123"
OWN = {"account": "own"}
NAMED = {**OWN, "oauth": {"scopes": ["openid", "offline_access", "whoami"]}}


@dataclass
class Place:
    """The provider, and the servers that it gives tokens for, by URL."""

    provider: Watched
    root: Path
    urls: dict[str, str]
    key: str

    def shown(self, server: str) -> list[dict[str, Any]]:
        """The tokens that reached a server, each with its `person`, or why it was `refused`."""
        return journal(self.root / f"{server}.jsonl")

    @asynccontextmanager
    async def hub(self, *args: str, **entries: dict[str, Any]) -> AsyncIterator[Hub]:
        servers = {name: {"url": self.urls[name], **entry} for name, entry in entries.items()}
        settings = {"servers": servers, "hub": {"tokens": TOKENS, "accounts": {"key": self.key}}}
        async with http_hub(json.dumps(patient(settings)), self.root, *args) as running:
            yield running


@asynccontextmanager
async def place(root: Path, *servers: str) -> AsyncIterator[Place]:
    pytest.importorskip("authlib.oauth2.rfc9068", reason="authlib is not installed, which checks the tokens")
    ports = {name: free_port() for name in servers or ("docs",)}
    urls = {name: f"http://127.0.0.1:{port}/mcp" for name, port in ports.items()}
    async with AsyncExitStack() as stack:
        provider = oidc_provider("authorization_server.mjs", RESOURCES=" ".join(urls.values()), MACHINE=SECRET)
        issuer = await stack.enter_async_context(provider)
        script = str(Path(__file__).with_name("checking_server.py"))
        commands = [
            [sys.executable, script, str(port), issuer, str(root / f"{name}.jsonl")] for name, port in ports.items()
        ]
        for child in [await stack.enter_async_context(Child(argv)) for argv in commands]:
            await child.wait_stderr("running on")
        yield Place(Watched(issuer), root, urls, Fernet.generate_key().decode())


def log_in(link: str, person: str) -> str:
    """What a person does in a browser, at the hub and at the provider; the code on the last page. Blocks."""
    server = urlsplit(link).path.rpartition("/")[2]
    callback = f"{link.partition('/login/')[0]}/login-callback/{server}"
    with httpx2.Client(timeout=WAIT, trust_env=False) as web:
        return code_at(web, allowed(web, leave(web, link), person, callback))


def person(name: str) -> Answers:
    return Answers({ELICIT: Person(name, log_in=log_in)})


async def confirmed(rest: RestClient, server: str, name: str) -> Any:
    """The account of a login over REST."""
    link = (await rest.ask("POST", f"/accounts/{server}/login")).json()["url"]
    code = await anyio.to_thread.run_sync(log_in, link, name)
    answer = await rest.ask("POST", f"/accounts/{server}/confirm", {"code": code})
    assert answer.status_code == 200, answer.text
    await arrived(rest, "/tools", f"{server}_whoami")
    return answer.json()


async def status_at(url: str, token: str) -> int:
    """What a server answers to a token."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(trust_env=False, timeout=WAIT) as http:
        return (await http.post(url, json=rpc("initialize", params, id=1), headers=headers)).status_code


@pytest.mark.parametrize("era", ERAS)
async def test_each_person_and_each_server_gets_its_own_token(tmp_path: Path, era: str) -> None:
    async with place(tmp_path, "docs", "mail") as at, at.hub(docs=NAMED, mail=OWN) as hub:
        ann, bob = person("alice"), person("bella")
        async with client(hub, era, ANN, ann) as first, client(hub, era, BOB, bob) as second:
            for peer, name in ((first, "alice"), (second, "bella")):
                for server in ("docs", "mail"):
                    assert f"You have an account at {server}" in (await peer.call(f"{server}_log_in")).text
                    assert (await peer.call(f"{server}_whoami")).text == f"you are {name}"
            assert '"alice@example.com" at "docs" will belong to "ann"' in ann.params(ELICIT)[1]["message"]
            assert (await first.call("docs_whoami")).text == "you are alice"
        docs, mail = at.shown("docs"), at.shown("mail")
        assert not {each["token"] for each in docs} & {each["token"] for each in mail}
        assert not [each for each in docs + mail if "refused" in each]
        for name in ("alice", "bella"):
            [token] = {each["token"] for each in docs if each["person"] == name}
            assert await status_at(at.urls["docs"], token) == 200
            assert await status_at(at.urls["mail"], token) == 401


async def test_link_and_code_of_one_principal_give_another_nothing(tmp_path: Path) -> None:
    async with place(tmp_path) as at, at.hub(docs=OWN) as hub, RestClient(hub, ANN) as ann, RestClient(hub, BOB) as bob:
        link = (await ann.ask("POST", "/accounts/docs/login")).json()["url"]
        code = await anyio.to_thread.run_sync(log_in, link, "bella")  # bob's browser, with the link of ann
        refused = await bob.ask("POST", "/accounts/docs/confirm", {"code": code})
        assert refused.status_code == 404 and refused.json()["code"] == "login_unknown", refused.text
        for client_, name in ((ann, "ann"), (bob, "bob")):
            assert [tool["name"] for tool in (await client_.ask("GET", "/tools")).json()["tools"]] == ["docs_log_in"], (
                name
            )
        async with httpx2.AsyncClient(trust_env=False, timeout=WAIT) as browser:
            assert (await browser.get(link)).status_code == 410, "it was used"
        assert at.shown("docs") == [], "nobody has confirmed"


async def test_client_that_cannot_be_asked_gets_the_link_in_an_error_or_as_text(tmp_path: Path) -> None:
    async with place(tmp_path) as at, at.hub(docs=OWN) as hub, RestClient(hub, ANN) as ann:
        async with HttpClient(hub.url, ANN) as wire:
            await wire.initialize(capabilities={"elicitation": {"url": {}}})
            call = {"name": "docs_log_in", "arguments": {}}
            answer = await wire.request("tools/call", call, headers={"accept": "application/json"})
            refusal = answer.last["error"]
            assert refusal["code"] == -32042, refusal
            [elicitation] = refusal["data"]["elicitations"]
            code = await anyio.to_thread.run_sync(log_in, elicitation["url"], "alice")
            assert (await ann.ask("POST", "/accounts/docs/confirm", {"code": code})).status_code == 200
            await arrived(ann, "/tools", "docs_whoami")
            answer = await wire.request("tools/call", {"name": "docs_whoami", "arguments": {}})
            assert answer.last["result"]["content"][0]["text"] == "you are alice"
        async with client(hub, ERAS[1], BOB) as peer, RestClient(hub, BOB) as bob:
            [link] = re.findall(r"http://\S+/login/docs\?t=\S+", (await peer.call("docs_log_in")).text)
            code = await anyio.to_thread.run_sync(log_in, link, "bella")
            assert (await bob.ask("POST", "/accounts/docs/confirm", {"code": code})).status_code == 200
            await arrived(bob, "/tools", "docs_whoami")
            assert (await peer.call("docs_whoami")).text == "you are bella"


async def test_rotated_refresh_tokens_are_used_once_each_also_after_a_kill(tmp_path: Path) -> None:
    async with place(tmp_path) as at:
        at.provider.lifetime(2)
        async with at.hub(docs=NAMED) as hub, RestClient(hub, ANN) as ann:
            await confirmed(ann, "docs", "alice")
            await renewed(at, ann, 2)
            port = urlsplit(hub.url).port
            hub.kill()
            await hub.wait()
        before = len(at.provider.seen("token", type="refresh_token"))
        async with at.hub("--port", str(port), docs=NAMED) as hub, RestClient(hub, ANN) as ann:
            await arrived(ann, "/tools", "docs_whoami")
            await renewed(at, ann, before + 2)
            assert (await ann.ask("GET", "/accounts")).json()["accounts"][0]["account"] == "alice@example.com"
        renewals = at.provider.seen("token", type="refresh_token")
        assert [each["status"] for each in renewals] == [200] * len(renewals), renewals
        used = [each["token"] for each in renewals]
        assert len(used) == len(set(used)) and len({each["grant"] for each in renewals}) == 1
        assert len(at.provider.seen("token", type="authorization_code")) == 1, "nobody was asked again"
        assert {each["resource"] for each in renewals} == {at.urls["docs"]}


async def renewed(at: Place, client: RestClient, count: int) -> None:
    """Calls, each of which has to work, until the provider has renewed the login so often."""
    with anyio.fail_after(WAIT):
        while len(at.provider.seen("token", type="refresh_token")) < count:
            assert "you are alice" in (await client.call("docs_whoami")).text


@pytest.mark.parametrize("era", ERAS)
async def test_login_that_was_ended_at_the_provider_leads_to_another_one(tmp_path: Path, era: str) -> None:
    async with place(tmp_path) as at, at.hub(docs=OWN) as hub, RestClient(hub, BOB) as bob:
        await confirmed(bob, "docs", "bella")
        at.provider.lifetime(2)
        answers = person("alice")
        async with client(hub, era, ANN, answers) as peer:
            assert "You have an account" in (await peer.call("docs_log_in")).text
            assert (await peer.call("docs_whoami")).text == "you are alice"
            at.provider.end("alice")
            at.provider.lifetime(3600)
            with anyio.fail_after(WAIT):
                while len(answers.params(ELICIT)) == 2:  # until its token has expired
                    seen = (await peer.call("docs_whoami")).text
                    assert seen == "you are alice", seen
        assert len(at.provider.seen("token", type="authorization_code", person="alice")) == 2
        refused = at.provider.seen("token", type="refresh_token", status=400)
        assert [each["error"] for each in refused] == ["invalid_grant"], "it is not tried again and again"
        assert "you are bella" in (await bob.call("docs_whoami")).text, "whose login stays"


async def test_command_lists_accounts_and_revokes_at_the_provider(tmp_path: Path) -> None:
    async with place(tmp_path, "docs", "mail") as at, at.hub(docs=NAMED, mail=OWN) as hub:
        async with RestClient(hub, ANN) as ann, RestClient(hub, BOB) as bob:
            for server in ("docs", "mail"):
                await confirmed(ann, server, "alice")
            await confirmed(bob, "docs", "bella")
            listed = (await ran(tmp_path, "account", "list")).stdout.splitlines()
            accounts = ["docs  ann as alice@example.com  ", "docs  bob as bella@example.com  ", "mail  ann  "]
            assert len(listed) == 3 and all(map(str.startswith, listed, accounts)), listed
            assert at.provider.seen("revocation") == []
            gone = await ran(tmp_path, "account", "remove", "docs", "--principal", "ann")
            assert (gone.returncode, gone.stderr) == (0, "Removed the account of ann at docs.\n")
            [refresh, access] = at.provider.seen("revocation")
            assert (refresh["hint"], refresh["status"]) == ("refresh_token", 200)
            assert (access["hint"], access["error"]) == ("access_token", "unsupported_token_type"), (
                "a JWT ends by itself"
            )
            await arrived(ann, "/tools", "docs_log_in")
            assert "you are alice" in (await ann.call("mail_whoami")).text
            assert "you are bella" in (await bob.call("docs_whoami")).text


async def test_machine_logs_in_for_all_with_tokens_for_each_server(tmp_path: Path) -> None:
    """`grant: client_credentials`."""
    async with place(tmp_path, "docs", "mail") as at:
        at.provider.lifetime(2)
        oauth = {"grant": "client_credentials", "client_id": "machine", "client_secret": SECRET, "scopes": ["whoami"]}
        entry = {"oauth": {**oauth, "issuer": at.provider.issuer}}
        async with at.hub(docs=entry, mail=entry) as hub, RestClient(hub, ANN) as ann:
            await ann.settled()
            with anyio.fail_after(WAIT):
                while len(at.provider.seen("token", type="client_credentials", resource=at.urls["docs"])) < 2:
                    for server in ("docs", "mail"):
                        answer = await ann.call(f"{server}_whoami")
                        assert "you are machine" in answer.text, (answer.text, hub.stderr)
        assert {each["person"] for server in ("docs", "mail") for each in at.shown(server) if "person" in each} == {
            "machine"
        }
        assert not {each["token"] for each in at.shown("docs")} & {each["token"] for each in at.shown("mail")}


BROWSER = """
import sys
from urllib.parse import parse_qs, urlsplit
import httpx2
from tests.e2e.oidc_provider import allowed

callback = parse_qs(urlsplit(sys.argv[1]).query)["redirect_uri"][0]
with httpx2.Client(timeout=240, trust_env=False) as web:
    web.get(allowed(web, sys.argv[1], "sharon", callback))
"""


async def test_shared_login_of_the_command_is_that_of_all(tmp_path: Path) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER)
    async with place(tmp_path) as at, at.hub(docs={}) as hub:
        env = {"BROWSER": f"{sys.executable} {browser} %s", "PYTHONPATH": str(ROOT)}
        done = await ran_with(tmp_path, "login", "docs", **env)
        assert done.returncode == 0 and "Logged in to docs" in done.stderr, done.stderr
        for token in (ANN, BOB):
            async with RestClient(hub, token) as client_:
                await arrived(client_, "/tools", "docs_whoami")
                assert "you are sharon" in (await client_.call("docs_whoami")).text
