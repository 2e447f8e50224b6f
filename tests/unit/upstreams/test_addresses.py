"""Logins connect to addresses that were checked, and to no other that a name may stand for a moment later."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import httpx2
import pytest

from mcp_hub.upstreams.auth import addresses as module
from mcp_hub.upstreams.auth.addresses import Addresses, _Pinned
from mcp_hub.upstreams.auth.grants import LoginFailed
from tests.unit.wire.http_server import HttpServer, Reply, Request, serving

pytestmark = pytest.mark.anyio

FAR = "https://mcp.example/mcp"
NEAR = "http://localhost:1/mcp"


class Names:
    """A name server that answers a name with the next of its answers, and with the last one from then on."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "."): iter(given) for name, given in answers.items()}
        self.last: dict[str, str] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[IPv4Address | IPv6Address]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError(f"{host} is unknown")
        self.last[host] = next(self.answers[host], self.last.get(host, ""))
        return [ip_address(text) for text in self.last[host].split()]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def use(**answers: list[str]) -> Names:
        made = Names(**answers)
        monkeypatch.setattr(module, "resolved", made)
        return made

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    yield use


async def refused(addresses: Addresses, url: str) -> str:
    with pytest.raises(LoginFailed) as caught:
        await addresses.send(httpx2.Request("GET", url))
    return str(caught.value)


async def answer(request: Request, reply: Reply) -> None:
    await reply.json({"host": request.headers["host"], "path": request.path})


def port(server: HttpServer) -> int:
    found = httpx2.URL(server.url).port
    assert found is not None
    return found


@pytest.mark.parametrize("form", ["127.0.0.1", "::1", str(ip_address("::ffff:7f00:1")), "64:ff9b::7f00:1"])
async def test_a_name_that_leads_to_this_machine_is_not_asked_for_a_server_elsewhere(names: Any, form: str) -> None:
    async with serving(answer) as server:
        names(auth_example=[form])
        said = await refused(Addresses(FAR), f"https://auth.example:{port(server)}/token")
        assert "'https://auth.example:" in said and f"leads to {form}" in said and "this machine" in said
        assert not server.seen


@pytest.mark.parametrize("server", [FAR, NEAR, "https://auth.example/mcp"])
async def test_no_name_leads_to_metadata_of_a_cloud(names: Any, server: str) -> None:
    names(auth_example=["169.254.169.254 fe80::1 ::ffff:169.254.169.254"])
    assert "is refused: it leads to 169.254.169.254" in await refused(Addresses(server), "https://auth.example/token")


async def test_every_request_is_decided_anew_so_a_redirect_leads_nowhere_else(names: Any) -> None:
    known = names(auth_example=["192.0.2.1", "127.0.0.1"])
    addresses = Addresses(FAR)
    assert await addresses.allowed("auth.example", "address", "https://auth.example/a") == ["192.0.2.1"]
    assert "leads to 127.0.0.1" in await refused(addresses, "https://auth.example/b")
    assert known.asked == ["auth.example"] * 2


async def test_of_several_addresses_only_those_that_may_be_asked_are_tried(names: Any) -> None:
    names(auth_example=["169.254.1.1 192.0.2.1 ::1 2001:db8::1"])
    checked = await Addresses(FAR).allowed("auth.example", "address", "https://auth.example/")
    assert checked == ["192.0.2.1", "2001:db8::1"]


async def test_a_connection_goes_to_the_address_that_was_checked_under_the_name_of_the_server() -> None:
    asked: list[str] = []

    async def checked(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with serving(answer) as server, httpx2.AsyncClient(transport=_Pinned(checked)) as http:
        response = await http.get(f"http://name.invalid:{port(server)}/x?y")
        assert response.json() == {"host": f"name.invalid:{port(server)}", "path": "/x?y"}
        assert str(response.request.url) == f"http://name.invalid:{port(server)}/x?y"
    assert asked == ["name.invalid"]


async def test_the_next_address_is_tried_where_nobody_listens() -> None:
    async def checked(host: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with serving(answer) as server, httpx2.AsyncClient(transport=_Pinned(checked)) as http:
        assert (await http.post(f"http://name.invalid:{port(server)}/", content=b"{}")).status_code == 200


async def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[httpx2.Request] = []

    async def record(self: object, request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    async def checked(host: str) -> list[str]:
        return ["2001:db8::1"]

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", record)
    for host in ("auth.example", "[2001:db8::1]"):
        await _Pinned(checked).handle_async_request(httpx2.Request("GET", f"https://{host}/t"))
    assert [str(request.url) for request in sent] == ["https://[2001:db8::1]/t"] * 2
    assert [request.extensions.get("sni_hostname") for request in sent] == ["auth.example", None]


async def test_a_host_that_there_is_not_can_be_asked_again_later(names: Any) -> None:
    names()
    with pytest.raises(LoginFailed) as caught:
        await Addresses(FAR).send(httpx2.Request("GET", "https://auth.example/"))
    assert not caught.value.is_final and "auth.example is unknown" in str(caught.value)


async def test_a_page_for_the_browser_is_decided_by_its_address_if_that_is_known_here(names: Any) -> None:
    names(auth_example=["127.0.0.1"])
    with pytest.raises(LoginFailed, match="the authorization endpoint 'https://auth.example' is refused"):
        await Addresses(FAR).check_page("https://auth.example/authorize")
    await Addresses(FAR).check_page("https://intranet.example/authorize")
    await Addresses(NEAR).check_page("https://auth.example/authorize")


async def test_through_a_proxy_the_name_alone_is_checked(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = names(auth_example=["127.0.0.1"])

    async def closed(request: Request, reply: Reply) -> None:
        await reply.status(403)

    async with serving(closed) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port(server)}")
        await Addresses(FAR).check_page("https://auth.example/authorize")
        said = await refused(Addresses(FAR), "https://auth.example/token")
        assert "could not be asked" in said, "the proxy of this test opens no tunnel"
        assert "this machine" in await refused(Addresses(FAR), "https://[::ffff:127.0.0.1]/token")
        assert [request.method for request in server.seen] == ["CONNECT"] and not known.asked
