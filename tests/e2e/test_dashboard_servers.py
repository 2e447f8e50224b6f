"""Servers on the dashboard in a real browser, with the keyboard alone: what they are, on a phone, too.

Each test ends with a page that has thrown nothing, has broken no rule of its policy, and has asked no other host.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.browser import BROWSER, WHY_NOT, Page, base, browsed
from tests.e2e.client import Hub
from tests.interaction.fronts import http_hub

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    servers = {
        "text": {"local": "mcp_hub.examples.tools"},
        "jobs": {"local": "mcp_hub.examples.jobs:registry"},
        "bad": {"command": "no-such", "args": ["--token", "abc123def456ghi"], "env": {"API_KEY": "k1k2k3k4k5"}},
    }
    async with http_hub(json.dumps({"servers": servers}), root, HOME=str(root / "home")) as running:
        yield running


@pytest.fixture(scope="module")
async def browser(hub: Hub, root: Path) -> AsyncIterator[Page]:
    async with browsed() as page:
        await page.enter(hub, root)
        yield page


@pytest.fixture
async def page(browser: Page, hub: Hub) -> AsyncIterator[Page]:
    """A page with a token, at the overview."""
    await browser.go("#/overview", "Needs you")
    yield browser
    assert browser.errors == []
    assert await browser.js("window.violations") == []
    assert browser.hosts == {base(hub)}


async def test_phone_is_used_by_the_keyboard_alone(page: Page) -> None:
    await page.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    try:
        assert await page.js("!document.querySelector('nav').offsetParent"), "behind a button"
        await page.js("document.querySelector('.menu').focus()")
        await page.press("Enter")
        await page.until("!!document.querySelector('nav').offsetParent")
        await page.press("Escape")
        await page.until("document.activeElement === document.querySelector('.menu[aria-expanded=false]')")
        await page.press("Enter")
        for _ in range(2):
            await page.press("Tab")
        assert await page.js("document.activeElement.innerText") == "Servers"
        await page.press("Enter")
        await page.sees("Sort by")
        assert await page.js("document.querySelector('.tr a').innerText") == "bad", "a problem is first"
        await page.js("document.querySelector('.pick input').focus()")
        await page.press(" ")
        await page.sees("3 chosen")
        await page.choose(".sorts select", "-server")
        await page.until("document.querySelector('.tr a').innerText === 'text'")
        await page.choose("select[aria-label=State]", "bad")
        await page.until("document.querySelectorAll('.tr').length === 1")
    finally:
        await page.ask("Emulation.clearDeviceMetricsOverride")
