"""The search in a registry on the dashboard in a real browser, with the keyboard alone, also on a phone."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e.browser import BROWSER, WHY_NOT, base, browsed
from tests.e2e.hostile_texts import EVIL
from tests.interaction.fronts import http_hub
from tests.unit.cli.sites import served

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WHY_NOT)]

PACKAGE: Final = {"registryType": "npm", "identifier": "@x/y", "version": "1.2.3", "transport": {"type": "stdio"}}
REMOTE: Final = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
SERVERS: Final[list[dict[str, Any]]] = [
    {"name": "io.example/weather", "version": "2.0.1", "description": "Weather forecasts", "remotes": [REMOTE]},
    {"name": "io.example/station", "description": "Donaudampfschifffahrt" * 30, "packages": [PACKAGE]},
    {"name": f"io.example/{EVIL}", "title": EVIL, "description": EVIL, "version": EVIL},
]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_server_of_a_registry_is_added_or_proposed_by_the_keyboard(
    tmp_path: Path, scheme: str, width: int
) -> None:
    with served() as site:
        found = {"servers": [{"server": server} for server in SERVERS]}
        site.put("/v0.1/servers?search=weather&version=latest&limit=20", found, "application/json")
        settings = {"servers": {"text": {"local": "mcp_hub.examples.tools"}}, "hub": {"registry": site.url}}
        async with http_hub(json.dumps(settings), tmp_path) as hub, browsed() as page:
            await page.enter(hub, tmp_path)
            await page.wide(scheme, width)
            await page.go("#/edit", "From the registry")
            await page.tab_to("Search the registry by name")
            await page.ask("Input.insertText", text="weather")
            await page.press("Enter")
            await page.sees("Weather forecasts")
            await page.sees("The hub cannot propose it here.")
            await page.is_sound()
            await page.activate("Use its URL: io.example/weather")
            await page.until("document.activeElement.id === 'entry-name'")
            assert await page.js("document.activeElement.value") == "weather"
            await page.sees("It holds at once.")
            await page.activate("Add")
            await page.sees("What it is")
            servers = yaml.safe_load((tmp_path / "servers.yaml").read_text())["servers"]
            assert servers["weather"] == {"url": "http://127.0.0.1:9/mcp"}
            await page.go("#/edit", "From the registry")
            await page.tab_to("Search the registry by name")
            await page.ask("Input.insertText", text="weather")
            await page.press("Enter")
            await page.activate("Use its command: io.example/station")
            await page.sees("It is proposed, and starts nothing")
            await page.activate("Propose")
            await page.sees("mcp-hub approve")
            assert "station" not in yaml.safe_load((tmp_path / "servers.yaml").read_text())["servers"]
            assert page.errors == [] == await page.js("window.violations") and page.hosts == {base(hub)}
