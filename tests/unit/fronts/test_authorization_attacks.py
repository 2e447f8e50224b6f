"""The hub as an authorization server, in this process: attacks on it, each refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from mcp_hub.clock import wall_time
from mcp_hub.fronts.http.authorization import grants, server
from tests.e2e.consents import ALICE, BOB, CALLBACK, PUBLIC, Flow, form_of
from tests.unit.fronts.authorized_hub import browser, grants_of, hub
from tests.unit.fronts.dashboard_peer import DashboardPeer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with hub(tmp_path) as running:
        yield running


@pytest.fixture
async def flow(peer: DashboardPeer) -> AsyncIterator[Flow]:
    async with browser(peer) as http:
        flow = Flow(http)
        await flow.register()
        yield flow


# -- attacks


WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "no PKCE": ({"code_challenge": None, "code_challenge_method": None}, "PKCE"),
    "PKCE plain": ({"code_challenge_method": "plain"}, "S256"),
    "PKCE without a method": ({"code_challenge_method": None}, "S256"),
    "short challenge": ({"code_challenge": "abc"}, "S256"),
    "token in the answer": ({"response_type": "token"}, "response_type"),
    "fragment": ({"response_mode": "fragment"}, "response_mode"),
    "form": ({"response_mode": "form_post"}, "response_mode"),
    "request object": ({"request_uri": "https://evil.example/r"}, "request objects"),
    "another audience": ({"resource": "https://other.example.com/mcp"}, "not this hub"),
    "audience by prefix": ({"resource": f"{PUBLIC}.evil.example/mcp"}, "not this hub"),
    "audience by user": ({"resource": "https://hub.example.com@evil.example/mcp"}, "not this hub"),
    "long state": ({"state": "s" * 3000}, "too long"),
}


@pytest.mark.parametrize(("other", "reason"), WRONG.values(), ids=WRONG)
async def test_wrong_request_is_refused_and_sends_nobody_anywhere(
    other: dict[str, str | None], reason: str, flow: Flow
) -> None:
    answer = await flow.login(address=flow.address(**other))
    assert answer.status_code == 400 and reason in answer.text and "location" not in answer.headers


REDIRECTS = [
    "https://evil.example/callback", f"{CALLBACK}/", f"{CALLBACK}?x=1", f"{CALLBACK}#x", "https://client.example/Callback",
    "https://client.example:444/callback", "http://client.example/callback", "https://client.example@evil.example/callback",
    "https://client.example/callback/../x", "//client.example/callback", "javascript:alert(1)", "data:text/html,x", "",
    "https://client.example\\@evil.example/callback", "https://client.example/callback\r\nx: y", "http://127.0.0.1/cb",
]  # fmt: skip


@pytest.mark.parametrize("redirect", REDIRECTS)
async def test_another_address_is_refused_before_any_login(redirect: str, flow: Flow) -> None:
    answer = await flow.http.get(flow.address(redirect_uri=redirect))
    assert answer.status_code == 400 and "location" not in answer.headers and "<form" not in answer.text
    assert redirect not in answer.text or not redirect


@pytest.mark.parametrize(
    "uri",
    ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "http://evil.example/cb", "file:///etc/passwd",
     "https://a.example/#f", "https://u:p@a.example/", "https:///cb", "vbscript:x", "about:blank", "blob:https://a.example/1",
     "https://a.example/<script>", "https://a.example/ x", "intent://x#Intent;end", "https://bücher.example/",
     "x" * 600, "https://a.example;script-src/cb", "https://a.example'/cb"],
)  # fmt: skip
async def test_registration_of_a_dangerous_address_is_refused(uri: str, flow: Flow) -> None:
    answer = await flow.register(redirect_uris=[uri])
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_redirect_uri"


async def test_code_that_comes_again_ends_what_came_of_it(flow: Flow, peer: DashboardPeer) -> None:
    await flow.register()
    code = await flow.code()
    tokens = (await flow.redeem(code)).json()
    assert await flow.status(tokens["access_token"]) == 200
    assert (await flow.redeem(code)).json()["error"] == "invalid_grant"
    assert await flow.status(tokens["access_token"]) == 401
    assert (await flow.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"


STOLEN: dict[str, dict[str, str | None]] = {
    "without a verifier": {"code_verifier": None},
    "another verifier": {"code_verifier": "x" * 43},
    "another redirect": {"redirect_uri": "https://evil.example/cb"},
    "another client": {"client_id": "https://evil.example/client.json"},
    "another audience": {"resource": "https://other.example.com/mcp"},
}


@pytest.mark.parametrize("other", STOLEN.values(), ids=STOLEN)
async def test_stolen_code_gives_nothing(other: dict[str, str | None], flow: Flow) -> None:
    answer = await flow.redeem(await flow.code(), **other)
    assert answer.status_code == 400 and "access_token" not in answer.json()


async def test_code_expires(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "_CODE_SECONDS", 0.0)
    assert (await flow.redeem(await flow.code())).json()["error"] == "invalid_grant"


async def test_used_refresh_token_ends_the_family(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "_AGAIN", -1.0)
    first = await flow.tokens()
    second = (await flow.refresh(first["refresh_token"])).json()
    assert await flow.status(second["access_token"]) == 200
    thief = await flow.refresh(first["refresh_token"])
    assert thief.json()["error"] == "invalid_grant"
    assert await flow.status(second["access_token"]) == 401
    assert (await flow.refresh(second["refresh_token"])).json()["error"] == "invalid_grant"


async def test_used_refresh_token_ends_the_family_with_a_clock_that_was_set_back(
    flow: Flow, peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = await flow.tokens()
    renewed = (await flow.refresh(tokens["refresh_token"])).json()
    monkeypatch.setattr(grants_of(peer), "_clock", lambda: wall_time() - 3600)
    assert (await flow.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert await flow.status(renewed["access_token"]) == 401


async def test_refresh_token_before_the_last_ends_the_family_at_once(flow: Flow) -> None:
    first = await flow.tokens()
    second = (await flow.refresh(first["refresh_token"])).json()
    third = (await flow.refresh(second["refresh_token"])).json()
    assert (await flow.refresh(first["refresh_token"])).json()["error"] == "invalid_grant"
    assert await flow.status(third["access_token"]) == 401


async def test_refresh_token_is_its_clients_alone(flow: Flow) -> None:
    tokens = await flow.tokens()
    answer = await flow.refresh(tokens["refresh_token"], client_id="https://evil.example/client.json")
    assert answer.json()["error"] == "invalid_grant"
    assert (await flow.refresh(tokens["refresh_token"])).status_code == 200, "a stranger could not end it"


async def test_guessed_tokens_change_nothing(flow: Flow, peer: DashboardPeer, tmp_path: Path) -> None:
    tokens = await flow.tokens()
    [file] = (tmp_path / "state/access").glob("*.json")
    before = file.read_bytes()
    for guess in ("", "x", "mcphub_", f"mcphub_{'a' * 65}", "a" * 5000, "mcphub_" + "\u00e9" * 65):
        assert (await flow.refresh(guess)).status_code == 400
        assert (await flow.redeem(guess)).status_code == 400
    assert await flow.status(f"mcphub_{'a' * 65}") == 401
    assert file.read_bytes() == before and await flow.status(tokens["access_token"]) == 200


async def test_consent_needs_the_page_that_was_shown(flow: Flow) -> None:
    page = await flow.login()
    form = form_of(page.text)
    other = flow.address(redirect_uri=CALLBACK, state="another")
    swapped = await flow.post(other, **form.fields, profile="", step="allow")
    assert swapped.status_code == 403 and "location" not in swapped.headers
    for origin in ("https://evil.example", "null"):
        forged = await flow.http.post(form.action, data={**form.fields, "step": "allow"}, headers={"origin": origin})
        assert forged.status_code == 403
    forged = await flow.http.post(
        form.action, data={**form.fields, "step": "allow"}, headers={"sec-fetch-site": "cross-site"}
    )
    assert forged.status_code == 403
    for proof in ("", "x", "é", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")):
        assert (await flow.answer(page, proof=proof)).status_code == 403, proof
    flow.http.cookies.clear()
    assert (await flow.answer(page)).status_code == 403, "without the cookie the page is worth nothing"


async def test_proof_of_one_person_is_not_that_of_another(flow: Flow, peer: DashboardPeer) -> None:
    page = await flow.login(BOB)
    async with browser(peer) as http:
        victim = Flow(http, flow.client, flow.verifier)
        await victim.login(ALICE)
        forged = await victim.post(form_of(page.text).action, **form_of(page.text).fields, profile="", step="allow")
    assert forged.status_code == 403 and "location" not in forged.headers


async def test_forged_cookies_are_nobody(flow: Flow) -> None:
    page = await flow.login()
    cookie = flow.http.cookies[server.COOKIE]
    mark, until, nonce, seal = cookie.split(".")
    for forged in ("", "x", "a.b.c.d", f"{mark}.{int(until) + 999}.{nonce}.{seal}", f"{mark}.{until}.{nonce}.", "...."):
        flow.http.cookies.clear()
        flow.http.cookies.set(server.COOKIE, forged, domain="hub.example.com")
        assert (await flow.answer(page)).status_code == 403, forged


async def test_pages_cannot_be_framed_and_run_nothing(flow: Flow) -> None:
    for page in (await flow.http.get(flow.address()), await flow.login(), await flow.http.get("/oauth/authorize")):
        policy = page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy and "script" not in policy
        assert page.headers["x-frame-options"] == "DENY" and page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "same-origin"
    cookie = (await flow.login()).headers["set-cookie"]
    assert all(word in cookie for word in ("__Host-", "HttpOnly", "Secure", "SameSite=strict", "Path=/"))


async def test_texts_of_clients_are_never_markup(flow: Flow) -> None:
    name = "<img src=x onerror=alert(1)>\"'&\u202eevil\x1b[2J\nline"
    await flow.register(
        client_name=name, logo_uri="javascript:alert(1)", client_uri="https://evil.example/'\"><script>"
    )
    for page in (await flow.http.get(flow.address(state='"><script>alert(1)</script>')), await flow.login()):
        assert page.status_code == 200
        assert "<img" not in page.text and "<script" not in page.text and "\x1b" not in page.text
        assert "\u202e" not in page.text and "evil.example" not in page.text
    scoped = await flow.login(address=flow.address(scope='"><script>', client_id=flow.client))
    assert "<script" not in scoped.text


async def test_wrong_tokens_are_counted(flow: Flow) -> None:
    for _ in range(20):
        page = await flow.login("wrong-token")
        assert page.status_code == 403 and "set-cookie" not in page.headers
    assert (await flow.login(ALICE)).status_code == 429


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"{" * 5000, b'{"redirect_uris": []}', b'{"redirect_uris": "https://a.example/"}', b"\xff",
     json.dumps({"redirect_uris": [CALLBACK] * 9}).encode(),
     json.dumps({"redirect_uris": [CALLBACK], "client_name": 1}).encode(),
     json.dumps({"redirect_uris": [CALLBACK], "grant_types": ["implicit"]}).encode(), b"x" * 20000,
     json.dumps({"redirect_uris": [f"{CALLBACK}/{n}{'x' * 400}" for n in range(8)]}).encode()],
)  # fmt: skip
async def test_malformed_registration_is_refused(body: bytes, flow: Flow) -> None:
    answer = await flow.http.post("/oauth/register", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 413) and answer.json()["error"]


async def test_flood_of_registrations_stores_nothing(flow: Flow, tmp_path: Path) -> None:
    [file] = (tmp_path / "state/access").glob("*.json")
    before, first = file.read_bytes(), flow.client
    for n in range(300):
        assert (await flow.register(client_name=f"n{n}")).status_code == 201
    assert file.read_bytes() == before
    flow.client = first
    assert (await flow.redeem(await flow.code())).status_code == 200, "none is forgotten for others"


async def test_forged_registration_is_not_a_client(flow: Flow) -> None:
    head, sealed, seal = flow.client.split(".")
    for forged in (
        f"{head}.{sealed}x.{seal}",
        f"{head}.{sealed}.",
        f"{head}..",
        f"{head}.{sealed}.{seal}x",
        "nobody",
        "",
    ):
        assert (await flow.http.get(flow.address(client_id=forged))).status_code == 401, forged


async def test_parameters_that_come_twice_are_refused(flow: Flow) -> None:
    twice = f"{flow.address()}&redirect_uri=https://evil.example"
    assert (await flow.http.get(twice)).status_code == 400
    body = urlencode([("grant_type", "refresh_token"), ("client_id", flow.client), ("client_id", "x")])
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await flow.http.post("/oauth/token", content=body, headers=form)).status_code == 400


async def test_principal_has_so_many_grants(flow: Flow, peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "EACH_GRANTS", 2)
    bobs = await flow.tokens(BOB)
    first, *_, last = [await flow.tokens() for _ in range(3)]
    assert await flow.status(first["access_token"]) == 401 and await flow.status(last["access_token"]) == 200
    assert await flow.status(bobs["access_token"]) == 200, "one principal's grants push out no others"
    monkeypatch.setattr(grants, "MOST_GRANTS", 3)
    monkeypatch.setattr(grants, "EACH_GRANTS", 50)
    full = await flow.answer(await flow.login())
    assert full.status_code == 503 and "3 grants" in full.text
