"""People of a real OpenID provider on the dashboard of a hub that is a process."""

import json
from pathlib import Path

import anyio.to_thread
import httpx2
import pytest

from tests.e2e.consents import PUBLIC, TOKENS, web
from tests.e2e.oidc_provider import allowed, oidc_provider
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]
CALLBACK = f"{PUBLIC}/dashboard/callback"
PAGE = {"x-mcp-hub": "dashboard", "sec-fetch-site": "same-origin"}


def allowed_by(name: str, page: str) -> str:
    with httpx2.Client(timeout=WAIT) as http:
        return allowed(http, page, name, CALLBACK)


@pytest.mark.proof
async def test_people_of_a_real_provider_get_what_their_groups_say(tmp_path: Path) -> None:
    async with oidc_provider("openid_provider.mjs", CALLBACK=CALLBACK) as issuer:
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
                    back = await anyio.to_thread.run_sync(allowed_by, name, leaving.headers["location"])
                    answer = await page.get(back)
                    state = await page.get("/api/state", headers=PAGE)
                    modes[name] = answer.status_code, state.json().get("mode") or state.json()["code"]
        assert modes == {"olga": (303, "full"), "dana": (303, "read"), "otto": (403, "login_required")}
