"""A person's browser without a screen, pages of logins served in process, and a desk to serve them."""

import html
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urljoin

import httpx2
import pytest
from cryptography.fernet import Fernet
from starlette.responses import Response

from mcp_hub.errors import Rejected
from mcp_hub.fronts.http.login_pages import login_pages
from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.desk import LoginDesk
from mcp_hub.upstreams.accounts.rows import RowFiles, Seal
from mcp_hub.upstreams.auth.grants import ClientRegistration
from tests.upstreams.own_accounts import OwnAccounts

BASE = "http://127.0.0.1:7"
PUBLIC = "https://hub.example.com"


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A desk with files under `root`, for servers that all are the `upstream`; another hub has the same `root`."""

    def __init__(self, root: Path, upstream: OwnAccounts, key: str, clock: Clock, base: str = BASE) -> None:
        seal = Seal([key])
        self.clock = clock
        self.accounts = Accounts(RowFiles(root / "accounts"), seal, clock)
        self.url = upstream.resource
        self.desk = LoginDesk(
            self.accounts, RowFiles(root / "pending"), seal, clock=clock, address=lambda: base,
            target=lambda server: (self.url, ClientRegistration()),
        )  # fmt: skip
        self._pages = login_pages(self.desk)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        server = scope["path"].split("/", 2)[-1]
        route = self._pages([server]).get(scope["path"])
        if route is None:
            await Response(status_code=404)(scope, receive, send)
        else:
            await route.handle(scope, receive, send)

    async def link(self, principal: str = "ann", server: str = "own", *fields: str) -> str:
        return (await self.desk.offer(server, principal, fields))[1]

    async def person(self, principal: str = "ann", server: str = "own") -> str | None:
        """Whose account the principal has there."""
        account = await self.accounts.read(server, principal)
        return None if account is None else account.label or str(dict(account.values))


def new_key() -> str:
    return Fernet.generate_key().decode()


class Browser:
    """Follows links and sends forms, with the cookies of one person, who is logged in at the authorization server."""

    def __init__(self, desk: Any, person: str = "", base: str = BASE) -> None:
        self.person = person
        self.base = base
        self.cookies: dict[str, str] = {}
        self.page: httpx2.Response
        self._hub = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=desk))
        self._web = httpx2.AsyncClient()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for client in (self._hub, self._web):
            await self._stack.enter_async_context(client)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def get(self, url: str, **headers: str) -> httpx2.Response:
        return await self._send("GET", url, headers=headers)

    async def send_form(
        self, fields: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Sends a form of the page that is shown, with these fields filled in."""
        form = re.findall(r'<form method="post" action="([^"]*)">(.*?)</form>', self.page.text, re.DOTALL)[0]
        inputs = re.findall(r'<input[^>]*?name="([^"]*)"(?:[^>]*?value="([^"]*)")?', form[1])
        values = {html.unescape(name): html.unescape(value) for name, value in inputs}
        action = urljoin(self.base, html.unescape(form[0]))
        site = {"origin": self.base, "sec-fetch-site": "same-origin", **(headers or {})}
        return await self._send("POST", action, data={**values, **(fields or {})}, headers=site)

    async def _send(self, method: str, url: str, **how: Any) -> httpx2.Response:
        jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        how["headers"] = {**({"cookie": jar} if jar else {}), **(how.get("headers") or {})}
        self.page = await self._hub.request(method, url, **how)
        for set_cookie in self.page.headers.get_list("set-cookie"):
            name, _, value = set_cookie.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return self.page

    @property
    def way_out(self) -> str:
        """Where the page goes on to by itself."""
        found = re.search(r'http-equiv="refresh" content="0;url=([^"]*)"', self.page.text)
        assert found is not None, self.page.text
        return html.unescape(found[1])

    async def to_authorization(self, page: str = "") -> str:
        """Visits the authorization server; where that sends the browser back to."""
        response = await self._web.get(page or self.way_out, headers={"cookie": f"person={self.person}"})
        assert response.status_code == 302, response.text
        return response.headers["location"]

    async def log_in(self, link: str) -> httpx2.Response:
        """All of it: the last page."""
        await self.get(link)
        assert self.page.status_code == 200, self.page.text
        await self.send_form()
        assert self.page.status_code == 200, self.page.text
        return await self.get(await self.to_authorization())

    @property
    def code(self) -> str:
        found = re.search(r'<output class="code">(\d{6})</output>', self.page.text)
        assert found is not None, self.page.text
        return found[1]


@dataclass
class Scene:
    """A hub's desk, an authorization server, and the browsers of its people."""

    desk: Desk
    upstream: OwnAccounts
    root: Path
    key: str

    def browser(self, person: str) -> Browser:
        return Browser(self.desk, person, self.desk.desk.base or BASE)

    def restarted(self) -> Desk:
        """Another hub on the same store."""
        return Desk(self.root, self.upstream, self.key, self.desk.clock, self.desk.desk.base or BASE)

    async def confirmed(self, code: str, principal: str = "ann", server: str = "own") -> None:
        await self.desk.desk.confirm(server, principal, code)

    async def refused(self, code: str, principal: str = "ann", server: str = "own") -> Rejected:
        with pytest.raises(Rejected) as refused:
            await self.confirmed(code, principal, server)
        return refused.value

    async def pending(self, principal: str = "ann") -> int:
        return len(await self.desk.desk.pending("own", principal))
