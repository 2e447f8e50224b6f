"""Documents of clients that the hub fetches: whose they are, and where they may be."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.fronts.http.authorization import clients
from mcp_hub.upstreams.auth import addresses
from tests.e2e.consents import CALLBACK, Flow, fields_of
from tests.unit.fronts.authorized_hub import browser, hub
from tests.unit.fronts.dashboard_peer import DashboardPeer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with hub(tmp_path) as running:
        yield running


@pytest.fixture
async def flow(peer: DashboardPeer) -> AsyncIterator[Flow]:
    async with browser(peer) as http:
        flow = Flow(http)
        await flow.register()
        yield flow


Fetch = Callable[[str], Awaitable[bytes]]
DOCUMENT = "https://client.example/oauth/client.json"


def serving(monkeypatch: pytest.MonkeyPatch, peer: DashboardPeer, document: Any) -> list[str]:
    """Documents come from here; the URLs that were fetched."""
    fetched: list[str] = []

    async def fetch(self: clients.OAuthClients, url: str) -> bytes:
        fetched.append(url)
        return document if isinstance(document, bytes) else json.dumps(document).encode()

    monkeypatch.setattr(clients.OAuthClients, "_fetch", fetch, raising=False)
    original = clients.OAuthClients.__init__

    def init(self: clients.OAuthClients, *args: Any) -> None:
        original(self, *args)
        del self._fetch

    monkeypatch.setattr(clients.OAuthClients, "__init__", init)
    peer.front._look_again()
    return fetched


async def test_client_is_known_by_its_document(
    flow: Flow, peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"client_id": DOCUMENT, "client_name": "ChatGPT", "redirect_uris": [CALLBACK]}
    fetched = serving(monkeypatch, peer, document)
    flow.client = DOCUMENT
    await flow.http.get(flow.address())
    await flow.login("wrong")
    assert fetched == [], "nothing is fetched for a stranger"
    page = await flow.login()
    assert "ChatGPT" in page.text and "client.example" in page.text
    code = fields_of((await flow.answer(page)).headers["location"])["code"]
    assert (await flow.redeem(code)).status_code == 200
    assert fetched == [DOCUMENT], "and it is kept for a while"
    assert (await flow.login(address=flow.address(redirect_uri="https://evil.example/cb"))).status_code == 400


@pytest.mark.parametrize(
    "document",
    [{"client_id": "https://evil.example/c.json", "redirect_uris": [CALLBACK]}, {"redirect_uris": [CALLBACK]},
     {"client_id": DOCUMENT, "redirect_uris": ["javascript:alert(1)"]}, {"client_id": DOCUMENT}, b"<html>", b""],
)  # fmt: skip
async def test_document_of_another_or_none_is_refused(
    document: Any, flow: Flow, peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving(monkeypatch, peer, document)
    flow.client = DOCUMENT
    assert (await flow.login()).status_code == 401


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/c.json", "https://localhost/c.json", "https://10.1.2.3/c.json", "https://192.168.0.1:8443/c.json",
     "https://169.254.169.254/c.json", "https://[::1]/c.json", "https://[fd00::1]/c.json", "https://[::ffff:10.0.0.1]/c",
     "https://0x7f.1/c.json", "https://2130706433/c.json"],
)  # fmt: skip
async def test_document_at_a_private_address_is_not_fetched(url: str, flow: Flow) -> None:
    flow.client = url
    answer = await flow.login()
    assert answer.status_code == 401 and "refused" in answer.text, answer.text


@pytest.mark.parametrize(
    "url",
    ["http://client.example/c.json", "https://client.example/", "https://client.example", "https://u@client.example/c",
     "https://client.example/a/../c.json", "https://client.example/c#f", "ftp://client.example/c", "https://client.example/<"],
)  # fmt: skip
async def test_malformed_address_of_a_document_is_refused_before_any_login(url: str, flow: Flow) -> None:
    assert (await flow.http.get(flow.address(client_id=url))).status_code == 401


class Reply(httpx2.AsyncBaseTransport):
    """The network behind the check of addresses: what was asked there, and one answer."""

    def __init__(self, status: int = 200, content: bytes = b"", location: str = "") -> None:
        self.asked: list[str] = []
        self._answer = status, content, {"location": location} if location else {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.host)
        status, content, headers = self._answer
        return httpx2.Response(status, stream=httpx2.ByteStream(content), headers=headers)


def network(monkeypatch: pytest.MonkeyPatch, reply: Reply, *answers: str) -> list[str]:
    """Names lead to `answers`, one after the other; the hosts that were looked up."""
    looked_up: list[str] = []

    async def resolved(host: str) -> list[object]:
        looked_up.append(host)
        return [ip_address(text) for text in answers[min(len(looked_up), len(answers)) - 1].split()]

    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(addresses, "resolved", resolved)
    monkeypatch.setattr(httpx2, "AsyncHTTPTransport", lambda **_: reply)
    return looked_up


@pytest.mark.parametrize("private", ["10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.5",
                                     "100.64.0.1", "64:ff9b::a00:5", "0.0.0.0"])  # fmt: skip
async def test_name_that_leads_to_a_private_address_is_not_fetched(
    private: str, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Reply()
    network(monkeypatch, reply, private)
    flow.client = DOCUMENT
    answer = await flow.login()
    assert answer.status_code == 401 and "refused" in answer.text and reply.asked == []


async def test_name_is_looked_up_once_and_its_public_addresses_alone_are_used(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.dumps({"client_id": DOCUMENT, "client_name": "ChatGPT", "redirect_uris": [CALLBACK]}).encode()
    reply = Reply(content=document)
    looked_up = network(monkeypatch, reply, "10.0.0.5 8.8.8.8", "10.0.0.5")
    flow.client = DOCUMENT
    assert (await flow.login()).status_code == 200
    assert reply.asked == ["8.8.8.8"] and looked_up == ["client.example"], "what was checked is what is asked"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(Reply(content=b" " * (16 << 10) + b"{}"), "bytes"), (Reply(content=b" " * (2 << 20)), "bytes"),
     (Reply(404), "404"), (Reply(302, location="http://10.0.0.5/"), "302"), (Reply(content=b"[" * 9000), "metadata")],
    ids=["large", "larger", "missing", "redirect", "deep"],
)  # fmt: skip
async def test_document_that_is_large_or_elsewhere_is_refused(
    reply: Reply, reason: str, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    network(monkeypatch, reply, "8.8.8.8")
    flow.client = DOCUMENT
    answer = await flow.login()
    assert answer.status_code == 401 and reason in answer.text and len(reply.asked) == 1, answer.text
