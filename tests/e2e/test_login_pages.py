"""The pages of a login in a real browser: both schemes, narrow and wide, without a script, with nothing refused."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from tests.e2e.browser import BROWSER, WHY_NOT, Page, browsed
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.test_own_logins import ANN, config
from tests.interaction.fronts import http_hub
from tests.upstreams.own_accounts import OwnAccounts, own_accounts

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]

SHOTS = os.environ.get("LOGIN_SHOTS")
"""A folder for pictures, for people to look at."""
LONG = "a name of somebody that is longer than any line of a phone and has_no_place_to_break_" + "x" * 60
TOO_WIDE = "document.documentElement.scrollWidth > innerWidth + 1"


@asynccontextmanager
async def a_hub(root: Path, **server: Any) -> AsyncIterator[tuple[Hub, OwnAccounts]]:
    with own_accounts() as upstream:
        text = config(upstream, Fernet.generate_key().decode(), **server)
        async with http_hub(text, root) as hub:
            yield hub, upstream


async def link(hub: Hub) -> str:
    async with RestClient(hub, ANN) as rest:
        return str((await rest.ask("POST", "/accounts/own/login")).json()["url"])


async def looked_at(page: Page, name: str) -> None:
    """Each width and scheme: nothing sticks out, and a picture is taken."""
    for scheme in ("light", "dark"):
        await page.scheme(scheme)
        for width in (360, 1100):
            if SHOTS is not None:
                await page.shot(Path(SHOTS) / f"{name}-{scheme}-{width}.png", width, 760)
            await page.wide(scheme, width)
            assert not await page.js(TOO_WIDE), (name, scheme, width)
    await page.ask("Emulation.clearDeviceMetricsOverride")


async def test_a_person_logs_in_by_three_pages(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (hub, upstream), browsed() as page:
        await page.open(await link(hub))
        await page.sees("Connect own")
        await page.sees("Did somebody send you this link?")
        await looked_at(page, "ask")
        await page.js("document.cookie = 'person=alice; path=/'")
        await page.click("Go on to own")
        await page.sees("alice@example.com")
        await page.sees("Give the code to nobody")
        await looked_at(page, "code")
        assert await page.js("window.violations ?? []") == []
        assert page.hosts == {hub.url.removesuffix("/mcp"), upstream.url}
        found = re.search(r"\d{6}", await page.text())
        assert found is not None
        async with RestClient(hub, ANN) as rest:
            answer = await rest.ask("POST", "/accounts/own/confirm", {"code": found[0]})
            assert answer.json()["account"] == "alice@example.com"


async def test_a_refused_login_says_so(tmp_path: Path) -> None:
    async with a_hub(tmp_path) as (hub, upstream), browsed() as page:
        upstream.faults["text"] = f"<b>no</b> {LONG}"
        url = await link(hub)
        await page.open(url)
        await page.js("document.cookie = 'person=nobody; path=/'")
        await page.click("Go on to own")
        await page.sees("The login failed")
        await page.sees("<b>no</b>")
        await looked_at(page, "failed")
        await page.open(url)
        await page.sees("This link does not work any more")
        await looked_at(page, "expired")


async def test_values_are_entered_in_a_form(tmp_path: Path) -> None:
    headers = {"X-Key": "${account:API_KEY}"}
    async with a_hub(tmp_path, headers=headers) as (hub, _), browsed() as page:
        await page.open(await link(hub))
        await page.click("Go on to own")
        await page.sees("API_KEY")
        await looked_at(page, "form")
        await page.fill("#v0", "k3y-of-alice")
        await page.click("Store")
        await page.sees("One more step")
        assert "k3y" not in await page.text()
        await page.click("This was not me: throw the login away")
        await page.sees("Thrown away")
        await looked_at(page, "thrown")
