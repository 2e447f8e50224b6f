"""A hub under its public address, as clients and the browser of a person see it through a proxy that ends TLS."""

import base64
import hashlib
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

PUBLIC = "https://hub.example.com"
CALLBACK = "https://client.example/callback"
ALICE, BOB, NARROW = "alice-token-0123456789", "bob-token-0123456789ab", "narrow-token-012345678"
TOKENS = [
    {"token": ALICE, "principal": "alice"},
    {"token": BOB, "principal": "bob"},
    {"token": NARROW, "principal": "alice", "profile": "narrow"},
]


class Proxied(httpx2.AsyncBaseTransport):
    """Sends requests for the public address to the hub at `url`, and no others anywhere."""

    def __init__(self, url: str) -> None:
        self._to = httpx2.URL(url)
        self._transport = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert str(request.url).startswith(f"{PUBLIC}/"), request.url
        url = request.url.copy_with(scheme=self._to.scheme, host=self._to.host, port=self._to.port)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        return await self._transport.handle_async_request(
            httpx2.Request(
                request.method,
                url,
                headers=[*headers, (b"host", b"hub.example.com")],
                stream=request.stream,
                extensions=request.extensions,
            )  # fmt: skip
        )

    async def aclose(self) -> None:
        await self._transport.aclose()


@asynccontextmanager
async def web(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A plain HTTP client at the public address of the hub at `url`; it follows no redirect."""
    async with httpx2.AsyncClient(transport=Proxied(url), base_url=PUBLIC, timeout=30) as client:
        yield client


@dataclass
class Form:
    """The form of a page."""

    action: str
    fields: dict[str, str]
    choices: list[str]


def form_of(page: str) -> Form:
    action = re.search(r'<form method="post" action="([^"]*)"', page)
    assert action is not None, page
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
    choices = re.findall(r'<input type="radio" name="profile" value="([^"]*)"', page)
    return Form(unescape(action[1]), {key: unescape(value) for key, value in fields.items()}, choices)


def fields_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


@dataclass
class Flow:
    """One client and one person; each step can be done wrong by what it is given."""

    http: httpx2.AsyncClient
    client: str = ""
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    state: str = "st-1"
    redirect: str = CALLBACK

    async def register(self, **more: Any) -> httpx2.Response:
        body = {"client_name": "Claude", "redirect_uris": [self.redirect], **more}
        answer = await self.http.post("/oauth/register", json=body)
        if answer.status_code == 201:
            self.client = answer.json()["client_id"]
        return answer

    @property
    def challenge(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()

    def address(self, **other: str | None) -> str:
        asked = {
            "response_type": "code", "client_id": self.client, "redirect_uri": self.redirect, "state": self.state,
            "code_challenge": self.challenge, "code_challenge_method": "S256", "resource": f"{PUBLIC}/mcp", **other,
        }  # fmt: skip
        sent = {key: value for key, value in asked.items() if value is not None}
        return f"/oauth/authorize?{urlencode(sent)}"

    async def login(self, token: str = ALICE, address: str = "") -> httpx2.Response:
        """The page after the login."""
        page = await self.http.get(address or self.address())
        if page.status_code != 200:
            return page
        return await self.post(form_of(page.text).action, token=token, step="login")

    async def post(self, action: str, **fields: str) -> httpx2.Response:
        return await self.http.post(action, data=fields, headers={"origin": PUBLIC, "sec-fetch-site": "same-origin"})

    async def answer(self, page: httpx2.Response, step: str = "allow", **fields: str) -> httpx2.Response:
        form = form_of(page.text)
        return await self.post(form.action, **{"profile": "", **form.fields, **fields, "step": step})

    async def code(self, token: str = ALICE, address: str = "", **fields: str) -> str:
        page = await self.login(token, address)
        assert page.status_code == 200, page.text
        sent = await self.answer(page, **fields)
        assert sent.status_code == 303, sent.text
        return fields_of(sent.headers["location"])["code"]

    async def redeem(self, code: str, **other: str | None) -> httpx2.Response:
        asked = {
            "grant_type": "authorization_code", "code": code, "client_id": self.client, "redirect_uri": self.redirect,
            "code_verifier": self.verifier, "resource": f"{PUBLIC}/mcp", **other,
        }  # fmt: skip
        return await self.token(asked)

    async def refresh(self, token: str, **other: str | None) -> httpx2.Response:
        return await self.token(
            {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client, **other}
        )

    async def token(self, asked: dict[str, str | None]) -> httpx2.Response:
        return await self.http.post("/oauth/token", data={key: value for key, value in asked.items() if value})

    async def tokens(self, token: str = ALICE, **fields: str) -> dict[str, Any]:
        """All of it, to the first tokens."""
        if not self.client:
            await self.register()
        answer = await self.redeem(await self.code(token, **fields))
        assert answer.status_code == 200, answer.text
        granted: dict[str, Any] = answer.json()
        return granted

    async def status(self, access: str) -> int:
        """What the hub says to a request with this token."""
        answer = await self.http.get("/v1/tools", headers={"authorization": f"Bearer {access}"})
        return answer.status_code
