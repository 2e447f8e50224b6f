"""People of a real OpenID provider on the dashboard of a hub that is a process."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest

from rigs.clients.install import NotInstalled, node, node_package
from tests.e2e.consents import PUBLIC, TOKENS, web
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT, Child
from tests.upstreams.launch import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]
CALLBACK = f"{PUBLIC}/dashboard/callback"
PAGE = {"x-mcp-hub": "dashboard", "sec-fetch-site": "same-origin"}


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    try:
        package = await anyio.to_thread.run_sync(node_package, "oidc-provider@8", "oidc-provider-8")
    except NotInstalled as why:
        pytest.skip(str(why))
    script = package.parents[1] / "openid_provider.mjs"
    script.write_text((Path(__file__).parent / "openid_provider.mjs").read_text())
    port = free_port()
    async with Child([str(node()), str(script)], {"PORT": str(port), "CALLBACK": CALLBACK}):
        issuer = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient() as http:
            with anyio.fail_after(WAIT):
                while True:
                    try:
                        await http.get(f"{issuer}/.well-known/openid-configuration")
                        break
                    except httpx2.ConnectError:
                        await anyio.sleep(0.05)
        yield issuer


async def allowed_by(name: str, page: str) -> str:
    """The address to which the provider sends a person who logs in and consents there."""
    async with httpx2.AsyncClient(timeout=WAIT) as http:
        answer = await http.get(page)
        while True:
            while answer.is_redirect:
                location = str(answer.request.url.join(answer.headers["location"]))
                if location.startswith(f"{CALLBACK}?"):
                    return location
                answer = await http.get(location)
            action = re.search(r'action="([^"]*)"', answer.text)
            assert action is not None, answer.text
            fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text))
            answer = await http.post(unescape(action[1]), data={**fields, "login": name, "password": "any"})


@pytest.mark.proof
async def test_people_of_a_real_provider_get_what_their_groups_say(tmp_path: Path) -> None:
    async with provider() as issuer:
        login = {
            "issuer": issuer, "client_id": "mcp-hub", "client_secret": "secret-of-the-hub-0123", "scopes": ["groups"],
            "allow_if": [{"claims": {"groups": ["ops", "dev"]}}], "full_if": [{"claims": {"groups": "ops"}}],
        }  # fmt: skip
        http = {"public_url": PUBLIC, "dashboard": {"mode": "full", "login": login}}
        text = json.dumps({"servers": {}, "hub": {"tokens": TOKENS[:2], "http": http}})
        modes = {}
        async with http_hub(text, tmp_path) as hub:
            for name in ("olga", "dana", "otto"):
                async with web(hub.url) as page:
                    leaving = await page.get("/dashboard/login")
                    back = await allowed_by(name, leaving.headers["location"])
                    answer = await page.get(back)
                    state = await page.get("/api/state", headers=PAGE)
                    modes[name] = answer.status_code, state.json().get("mode") or state.json()["code"]
        assert modes == {"olga": (303, "full"), "dana": (303, "read"), "otto": (403, "login_required")}
