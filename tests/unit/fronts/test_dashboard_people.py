"""People of an OpenID provider on the dashboard: who gets in, what they may do, and how a login can be wrong."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub.app import logins
from mcp_hub.fronts.dashboard import people
from mcp_hub.fronts.http.oauth import keys
from tests.e2e.consents import PUBLIC
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.oauth_tokens import ec_key, rsa_key
from tests.unit.fronts.provider import CLIENT, ISSUER, Provider

pytestmark = pytest.mark.anyio
PAGE = {"x-mcp-hub": "dashboard", "sec-fetch-site": "same-origin"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    made = Provider()

    async def fetch(url: str) -> bytes:
        assert url == f"{ISSUER}/jwks"
        return made.keys()

    monkeypatch.setattr(logins, "_send_to_provider", made.send)
    monkeypatch.setattr(keys, "_fetch", fetch)
    return made


@asynccontextmanager
async def hub(root: Path, **more: Any) -> AsyncIterator[DashboardPeer]:
    rules = {"allow_if": [{"claims": {"groups": "op*"}}, {"claims": {"groups": "dev"}}], **more}
    login = {"issuer": ISSUER, "client_id": CLIENT, "client_secret": "s3cr3t-of-client", **rules}
    http = {"public_url": PUBLIC, "dashboard": {"mode": "full", "login": login}}
    async with dashboard_hub(root, tokens=True, http=http, mode="off") as peer:
        yield peer


@pytest.fixture
async def peer(tmp_path: Path, provider: Provider) -> AsyncIterator[DashboardPeer]:
    async with hub(tmp_path, full_if=[{"claims": {"groups": "ops"}}]) as running:
        yield running


def browser(peer: DashboardPeer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=peer.front.endpoints), base_url=PUBLIC, headers=PAGE, timeout=20
    )


async def logged_in(http: httpx2.AsyncClient, provider: Provider, **claims: Any) -> httpx2.Response:
    provider.claims = claims
    leaving = await http.get("/dashboard/login")
    assert leaving.status_code == 302, leaving.text
    parameters = provider.asked(leaving.headers["location"])
    return await http.get("/dashboard/callback", params={"code": "c-1", "state": parameters["state"], "iss": ISSUER})


async def test_person_is_an_operator_whose_cookie_is_safe(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        first = await http.get("/api/state")
        assert first.status_code == 401 and first.json()["code"] == "login_required"
        answer = await logged_in(http, provider)
        assert answer.status_code == 303 and answer.headers["location"] == "/"
        cookie = next(text for text in answer.headers.get_list("set-cookie") if people.SESSION in text)
        assert all(word in cookie for word in ("__Host-", "HttpOnly", "Secure", "SameSite=strict", "Path=/"))
        state = (await http.get("/api/state")).json()
        assert state["operator"] is True and state["mode"] == "full"
        assert (await http.post("/api/approvals", json={})).status_code == 400, "it may try to change something"
        form = provider.forms[-1]
        assert form["client_secret"] == "s3cr3t-of-client" and form["redirect_uri"] == f"{PUBLIC}/dashboard/callback"


async def test_login_uses_pkce_state_and_nonce(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        one, two = [provider.asked((await http.get("/dashboard/login")).headers["location"]) for _ in range(2)]
        assert one["code_challenge_method"] == "S256" and one["response_type"] == "code" and one["tenant"] == "1"
        assert all(one[name] != two[name] for name in ("state", "nonce", "code_challenge"))
        await http.get("/dashboard/callback", params={"code": "c", "state": two["state"]})
        proof = urlsafe_b64encode(hashlib.sha256(provider.forms[-1]["code_verifier"].encode()).digest()).rstrip(b"=")
        assert proof.decode() == two["code_challenge"]


async def test_reader_sees_all_and_changes_nothing(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        await logged_in(http, provider, groups=["dev"])
        state = (await http.get("/api/state")).json()
        assert state["mode"] == "read" and state["operator"] is True
        tries: dict[str, Any] = {
            "/api/approvals": {},
            "/api/overrides": {"servers": {}},
            "/api/v1/reload": {},
            "/api/asks": {},
        }
        for path, body in tries.items():
            refused = await http.post(path, json=body)
            assert refused.status_code == 403 and refused.json()["code"] == "read_only", path


WRONG: dict[str, dict[str, Any]] = {
    "no group": {"groups": None}, "another group": {"groups": ["sales"]}, "group in a text": {"groups": "not ops"},
    "group of a number": {"groups": 7}, "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "other"}, "two audiences": {"aud": [CLIENT, "other"]},
    "azp of another": {"aud": [CLIENT, "other"], "azp": "other"}, "expired": {"exp": 1}, "no expiry": {"exp": None},
    "another nonce": {"nonce": "n"}, "no nonce": {"nonce": None}, "no subject": {"sub": None},
    "subject of a number": {"sub": 1},
    "subject with a break": {"sub": "a\nb"}, "issued tomorrow": {"iat": 9_999_999_999},
}  # fmt: skip


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
async def test_wrong_token_begins_no_session(claims: dict[str, Any], peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        answer = await logged_in(http, provider, **claims)
        assert answer.status_code == 403 and people.SESSION not in http.cookies
        assert (await http.get("/api/state")).status_code == 401


SIGNED: dict[str, dict[str, Any]] = {
    "another key": {"key": rsa_key("two")},
    "another algorithm": {"key": ec_key(), "algorithm": "ES256"},
    "a shared key": {"key": "x" * 32, "algorithm": "HS256"},
    "no signature": {"key": None, "algorithm": "none"},
    "critical": {"header": {"kid": "one", "crit": ["x"], "x": 1}},
    "unknown kid": {"header": {"kid": "two"}},
}


@pytest.mark.parametrize("how", SIGNED.values(), ids=SIGNED)
async def test_wrong_signature_begins_no_session(how: dict[str, Any], peer: DashboardPeer, provider: Provider) -> None:
    vars(provider).update(how)
    async with browser(peer) as http:
        assert (await logged_in(http, provider)).status_code == 403 and people.SESSION not in http.cookies


async def test_answer_that_is_not_that_of_this_browser_is_refused(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http, browser(peer) as attacker:
        state = provider.asked((await http.get("/dashboard/login")).headers["location"])["state"]
        other = provider.asked((await attacker.get("/dashboard/login")).headers["location"])["state"]
        wrong: list[dict[str, str]] = [
            {"code": "c", "state": other}, {"code": "c"}, {"code": "c", "state": ""}, {"state": state},
            {"code": "c", "state": state, "iss": "https://evil.example"}, {"error": "access_denied", "state": state},
        ]  # fmt: skip
        for parameters in wrong:
            answer = await http.get("/dashboard/callback", params=parameters)
            assert answer.status_code == 403 and people.SESSION not in http.cookies, parameters
        assert (await http.get(f"/dashboard/callback?code=c&state={state}&code=d")).status_code == 403
        cookie = http.cookies["__Host-mcp-hub-login"]
        for forged in (cookie[:-1] + ("a" if cookie[-1] != "a" else "b"), "", "a.b.c.d.e", "...."):
            http.cookies.clear()
            http.cookies.set("__Host-mcp-hub-login", forged, domain="hub.example.com")
            assert (await http.get("/dashboard/callback", params={"code": "c", "state": state})).status_code == 403
        assert not provider.forms, "no code was sent anywhere"


async def test_error_of_the_provider_is_text(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        state = provider.asked((await http.get("/dashboard/login")).headers["location"])["state"]
        page = await http.get("/dashboard/callback", params={"error": "<script>alert(1)</script>", "state": state})
        assert "<script" not in page.text and "frame-ancestors 'none'" in page.headers["content-security-policy"]


async def test_other_sites_cannot_use_the_session(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        await logged_in(http, provider)
        for headers in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "https://evil.example"},
        ):
            assert (await http.get("/api/state", headers=headers)).status_code == 403
            assert (await http.post("/api/overrides", json={"servers": {}}, headers=headers)).status_code == 403
            assert (await http.post("/dashboard/logout", headers=headers)).status_code == 403
        for path in ("/v1/tools", "/mcp", "/metrics"):
            assert (await http.get(path)).status_code == 401, "the cookie counts below /api alone"


async def test_logout_ends_the_session_and_its_feed(peer: DashboardPeer, provider: Provider) -> None:
    async with browser(peer) as http:
        await logged_in(http, provider)
        cookie = f"{people.SESSION}={http.cookies[people.SESSION]}"
        cursor = (await http.get("/api/state")).json()["cursor"]
        headers = {"cookie": cookie, "host": "hub.example.com", "sec-fetch-site": "same-origin"}
        feed = peer.start("GET", f"/api/feed?after={cursor}", headers=headers, token=None)
        await feed.has(b"event: batch")
        assert (await http.post("/dashboard/logout")).status_code == 204
        with anyio.fail_after(2.5):
            await feed.done.wait()
        stolen = await http.get("/api/state", headers={"cookie": cookie})
        assert stolen.status_code == 401, "not only the browser has forgotten it"


async def test_session_survives_a_restart_and_ends_with_its_rule(tmp_path: Path, provider: Provider) -> None:
    async with hub(tmp_path) as peer, browser(peer) as http:
        await logged_in(http, provider)
        cookie = http.cookies[people.SESSION]
    [file] = (tmp_path / "state/access").glob("people-*.json")
    assert cookie not in file.read_text() and file.stat().st_mode & 0o777 == 0o600
    nobody, again = ({"allow_if": [{"principal": f"{ISSUER}#{name}"}]} for name in ("u2", "u1"))
    for rules, status in (({}, 200), (nobody, 401), (again, 200)):
        async with hub(tmp_path, **rules) as peer, browser(peer) as http:
            http.cookies.set(people.SESSION, cookie, domain="hub.example.com")
            assert (await http.get("/api/state")).status_code == status, rules


async def test_removed_record_ends_sessions_and_people_log_in_again(
    peer: DashboardPeer, provider: Provider, tmp_path: Path
) -> None:
    async with browser(peer) as http:
        await logged_in(http, provider)
        [file] = (tmp_path / "state/access").glob("people-*.json")
        file.unlink()
        await anyio.sleep(0.5)
        assert (await http.get("/api/state")).status_code == 401
        await logged_in(http, provider)
        assert (await http.get("/api/state")).status_code == 200


async def test_sessions_are_bounded_and_end(
    peer: DashboardPeer, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "EACH_SESSIONS", 2)
    cookies = []
    for _ in range(3):
        async with browser(peer) as http:
            await logged_in(http, provider)
            cookies.append(http.cookies[people.SESSION])
    async with browser(peer) as http:
        found = [
            (await http.get("/api/state", headers={"cookie": f"{people.SESSION}={one}"})).status_code for one in cookies
        ]
    assert found == [401, 200, 200]
    monkeypatch.setattr(people, "_SESSION_SECONDS", 0)
    async with browser(peer) as http:
        await logged_in(http, provider)
        assert (await http.get("/api/state")).status_code == 401


async def test_provider_that_calls_itself_otherwise_is_not_used(peer: DashboardPeer, provider: Provider) -> None:
    provider.metadata = {"issuer": "https://evil.example"}
    async with browser(peer) as http:
        answer = await http.get("/dashboard/login")
        assert answer.status_code == 503 and "location" not in answer.headers


async def test_word_stays_and_has_no_login(tmp_path: Path) -> None:
    http = {"public_url": PUBLIC, "dashboard": "read"}
    async with dashboard_hub(tmp_path, tokens=True, http=http, mode="off") as peer, browser(peer) as page:
        assert (await page.get("/dashboard/login")).status_code == 404
        assert (await page.get("/api/state")).json()["code"] == "unauthorized"
        assert not (tmp_path / "state/access").exists()
