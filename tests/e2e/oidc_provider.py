"""npm's oidc-provider, a certified OpenID provider, as a process of a test; a test without it is skipped."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import anyio
import anyio.to_thread
import httpx2
import pytest

from rigs.clients.install import NotInstalled, node, node_package
from tests.upstreams.child import WAIT, Child
from tests.upstreams.launch import free_port

REQUIREMENT = "oidc-provider@9"


@asynccontextmanager
async def oidc_provider(script: str, **env: str) -> AsyncIterator[str]:
    """The issuer of a provider that this script of `tests/e2e` runs."""
    try:
        package = await anyio.to_thread.run_sync(node_package, REQUIREMENT)
    except NotInstalled as why:
        pytest.skip(str(why))
    copy = package.parents[1] / script  # where imports lead to the package
    copy.write_text((Path(__file__).parent / script).read_text())
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    async with Child([str(node()), str(copy)], {"PORT": str(port), **env}) as child:
        async with httpx2.AsyncClient(trust_env=False) as http:
            with anyio.fail_after(WAIT):
                while True:
                    assert child.returncode is None, child.stderr
                    try:
                        await http.get(f"{issuer}/.well-known/openid-configuration")
                        break
                    except httpx2.ConnectError:
                        await anyio.sleep(0.05)
        yield issuer


def allowed(web: httpx2.Client, page: str, name: str, callback: str) -> str:
    """The address below `callback` to which the provider sends a person who logs in and consents. Blocks."""
    answer = web.get(page)
    while True:
        while answer.is_redirect:
            location = urljoin(str(answer.request.url), answer.headers["location"])
            if location.startswith(f"{callback}?"):
                return location
            answer = web.get(location)
        action = re.search(r'action="([^"]*)"', answer.text)
        assert action is not None, answer.text
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text))
        answer = web.post(unescape(action[1]), data={**fields, "login": name, "password": "any"})


@dataclass
class Watched:
    """What the provider of `authorization_server.mjs` was asked for; blocks."""

    issuer: str

    def _test(self, path: str, **query: Any) -> Any:
        with httpx2.Client(trust_env=False, timeout=WAIT) as http:
            return http.get(f"{self.issuer}/test/{path}", params=query).json()

    def seen(self, route: str, **members: Any) -> list[dict[str, Any]]:
        """Requests to `token`, `revocation` or `registration` with these members, oldest first."""
        every = [request for request in self._test("seen") if request["route"] == route]
        return [each for each in every if all(each.get(name) == value for name, value in members.items())]

    def lifetime(self, seconds: int) -> None:
        """From now on, access tokens live so long."""
        self._test("seconds", **{"is": seconds})

    def end(self, person: str) -> None:
        """Ends all logins of a person, as a page of a provider does."""
        self._test("end", person=person)
