"""People log in to their own accounts at first need: a running hub, two principals, both eras, plain HTTP clients."""

import html
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from cryptography.fernet import Fernet

from tests.e2e.answers import Answers, Reply, form
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, Peer, http_hub
from tests.upstreams.child import WAIT
from tests.upstreams.launch import patient
from tests.upstreams.messages import Message
from tests.upstreams.own_accounts import OwnAccounts, own_accounts

pytestmark = pytest.mark.anyio

ANN, BOB = "token-of-ann-0123456789", "token-of-bob-0123456789"
ELICIT = "elicitation/create"
COMPLETE = "notifications/elicitation/complete"


@pytest.fixture
def upstream() -> Iterator[OwnAccounts]:
    with own_accounts() as running:
        yield running


def config(upstream: OwnAccounts, key: str, **server: Any) -> str:
    tokens = [{"token": ANN, "principal": "ann"}, {"token": BOB, "principal": "bob"}]
    entry = {"url": upstream.resource, "account": "own", "era": "handshake", **server}
    hub = {"tokens": tokens, "accounts": {"key": key}, "prefix": "never"}
    return json.dumps(patient({"servers": {"own": entry}, "hub": hub}))


@asynccontextmanager
async def a_hub(upstream: OwnAccounts, root: Path, key: str, **server: Any) -> AsyncIterator[Hub]:
    async with http_hub(config(upstream, key, **server), root) as running:
        yield running


@pytest.fixture
async def hub(upstream: OwnAccounts, tmp_path: Path) -> AsyncIterator[Hub]:
    async with a_hub(upstream, tmp_path, Fernet.generate_key().decode()) as running:
        yield running


def leave(web: httpx2.Client, link: str) -> str:
    """Opens a link and clicks; where the browser is sent then. Blocks."""
    page = web.get(link)
    assert page.status_code == 200, page.text
    action, fields = re.findall(r'<form method="post" action="([^"]*)">(.*?)</form>', page.text, re.DOTALL)[0]
    values = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', fields))
    page = web.post(urljoin(link, html.unescape(action)), data=values)
    assert page.status_code == 200, page.text
    return html.unescape(re.findall(r'content="0;url=([^"]*)"', page.text)[0])


def code_at(web: httpx2.Client, back: str) -> str:
    """The code on the last page. Blocks."""
    page = web.get(back)
    assert page.status_code == 200, page.text
    return str(re.findall(r'class="code">(\d{6})<', page.text)[0])


def log_in(link: str, person: str) -> str:
    """What a person does in a browser; the code that the last page shows. Blocks."""
    with httpx2.Client(timeout=WAIT, trust_env=False, verify=False) as web:
        way_out = leave(web, link)
        web.cookies.set("person", person)
        return code_at(web, web.get(way_out).headers["location"])


class Person:
    """Answers the questions of one client: opens the link, logs in as `name`, and enters the code."""

    def __init__(self, name: str, *, wrong: int = 0, log_in: Callable[[str, str], str] = log_in) -> None:
        self.name = name
        self.log_in = log_in
        self.wrong = wrong
        self.code = ""

    def __call__(self, question: Message) -> Reply:
        params = question["params"]
        if params.get("mode") == "url":
            self.code = self.log_in(params["url"], self.name)
            return form("accept")
        if self.wrong:
            self.wrong -= 1
            return form("accept", code=str((int(self.code) + 1) % 10**6).zfill(6))
        return form("accept", code=self.code)


@asynccontextmanager
async def client(hub: Hub, era: str, token: str, answers: Answers | None = None) -> AsyncIterator[Peer]:
    async with HttpClient(hub.url, token) as wire:
        peer = Peer(wire, era, answers)
        if era == HANDSHAKE:
            assert (await wire.initialize()).status == 200
        yield peer


async def refused_with_link(peer: Peer, tool: str = "log_in") -> str:
    """The link in the text of a failed call."""
    seen = await peer.call(tool)
    assert seen.result["isError"] is True, seen.result
    found = re.search(r"http://127\.0\.0\.1:\d+/login/own\?t=\S+", seen.text)
    assert found is not None and "mcp-hub account confirm own CODE" in seen.text, seen.text
    return found[0]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
async def test_each_person_works_with_the_account_that_they_logged_in_to(
    upstream: OwnAccounts, hub: Hub, era: str
) -> None:
    ann = Answers({ELICIT: Person("alice")})
    async with client(hub, era, ANN, ann) as peer:
        assert await peer.names() == ["log_in"]
        assert "You have an account at own" in (await peer.call("log_in")).text
        assert (await peer.call("whoami")).text == "you are alice"
        modes = [params.get("mode") for params in ann.params(ELICIT)]
        assert modes == ["url", None]
        asked = ann.params(ELICIT)[1]["message"]
        assert '"alice@example.com" at "own" will belong to "ann"' in asked
        assert "only_alice" in await peer.names()
    async with client(hub, era, BOB) as peer, RestClient(hub, BOB) as rest:
        assert await peer.names() == ["log_in"]
        code = log_in(await refused_with_link(peer), "bella")
        answer = await rest.ask("POST", "/accounts/own/confirm", {"code": code})
        assert answer.json() == {"server": "own", "principal": "bob", "account": "bella@example.com"}
        assert (await peer.call("whoami")).text == "you are bella"
        names = await peer.names()
        assert "only_bella" in names and "only_alice" not in names
    async with client(hub, era, ANN) as peer:
        assert (await peer.call("whoami")).text == "you are alice"
    assert upstream.calls == ["alice", "bella", "alice"]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS[::-1])
async def test_wrong_codes_are_asked_again_and_three_end_the_login(upstream: OwnAccounts, hub: Hub, era: str) -> None:
    ann = Answers({ELICIT: Person("alice", wrong=2)})
    async with client(hub, era, ANN, ann) as peer:
        assert "You have an account at own" in (await peer.call("log_in")).text
        assert len(ann.params(ELICIT)) == 4 and "1 try is left" in ann.params(ELICIT)[3]["message"]
    bob = Answers({ELICIT: Person("bella", wrong=3)})
    async with client(hub, era, BOB, bob) as peer:
        seen = await peer.call("log_in")
        assert seen.result["isError"] and "last try" in seen.text
        assert await peer.names() == ["log_in"]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_decline(upstream: OwnAccounts, hub: Hub, era: str, action: str) -> None:
    async with client(hub, era, ANN, Answers({ELICIT: form(action)})) as peer:
        seen = await peer.call("log_in")
        assert seen.result["isError"] and "declined" in seen.text
    assert upstream.asked == []


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
async def test_call_whose_login_the_server_has_ended_asks_for_another_one(
    upstream: OwnAccounts, hub: Hub, era: str
) -> None:
    browser = Person("alice")
    answers = Answers({ELICIT: browser})
    async with client(hub, era, ANN, answers) as peer:
        await peer.call("log_in")
        assert (await peer.call("whoami")).text == "you are alice"
        upstream.ended.add("alice")
        browser.name = "bella"
        assert (await peer.call("whoami")).text == "you are bella"
        assert [params.get("mode") for params in answers.params(ELICIT)] == ["url", None, "url", None]
        assert "not accepted" in answers.params(ELICIT)[2]["message"]
    renewals = [form for form in upstream.places("/token") if form["grant_type"] == "refresh_token"]
    assert len(renewals) == 1 and upstream.calls == ["alice", "bella"]


async def test_a_client_that_opens_links_but_takes_no_questions_gets_the_error_with_the_link(hub: Hub) -> None:
    async with HttpClient(hub.url, ANN) as wire:
        await wire.initialize(capabilities={"elicitation": {"url": {}}})
        answer = await wire.request(
            "tools/call", {"name": "log_in", "arguments": {}}, headers={"accept": "application/json"}
        )
        refusal = answer.last["error"]
        assert refusal["code"] == -32042, refusal
        (elicitation,) = refusal["data"]["elicitations"]
        assert elicitation["mode"] == "url" and "/login/own?t=" in elicitation["url"] and elicitation["elicitationId"]
        code = log_in(elicitation["url"], "alice")
        async with wire.listen() as events, RestClient(hub, ANN) as rest:
            assert (await rest.ask("POST", "/accounts/own/confirm", {"code": code})).status_code == 200
            told = await events.wait_for(lambda message: message.get("method") == COMPLETE)
        assert told["params"] == {"elicitationId": elicitation["elicitationId"]}, "the client may call again"
        answer = await wire.request(
            "tools/call", {"name": "whoami", "arguments": {}}, headers={"accept": "application/json"}
        )
        assert answer.last["result"]["content"][0]["text"] == "you are alice"


async def test_the_waiting_call_survives_a_restart_of_the_hub(upstream: OwnAccounts, tmp_path: Path) -> None:
    key = Fernet.generate_key().decode()
    async with a_hub(upstream, tmp_path, key) as hub, RestClient(hub, ANN) as rest:
        port = int(hub.url.split(":")[2].split("/")[0])
        response = await rest.call("log_in", prefer="wait=0")
        stream = response.json()["stream"]
        asked = await rest.until(stream, "input_required")
        (question,) = asked["questions"]
        link = question["params"]["url"]
        hub.kill()
    async with http_hub(config(upstream, key), tmp_path, "--port", str(port)) as hub, RestClient(hub, ANN) as rest:
        code = log_in(link, "alice")
        assert (await rest.ask("POST", "/accounts/own/confirm", {"code": code})).status_code == 200
        ended = await rest.until(stream, "completed")
        assert ended["status"] == "completed", ended
        assert "you are alice" in (await rest.call("whoami")).text
