"""A person logs in: what is asked of whom, what comes back, and who is turned away."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from mcp_hub.upstreams.auth import redirect as redirect_module
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore, LoginFailed, grant_key
from mcp_hub.upstreams.auth.login import log_in, log_out
from tests.unit.upstreams.authorization import Authorization, browse, key_of, machine, redirected, state_of, visit
from tests.unit.wire.http_server import HttpServer, serving
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

PERSON = ClientRegistration()


async def logged_in(
    server: HttpServer,
    store: GrantStore,
    client: ClientRegistration = PERSON,
    show: Any = browse,
    seconds: float = WAIT,
) -> Grant:
    with anyio.fail_after(WAIT + 5):
        return await log_in(server.url, client, store, show, seconds)


async def refused(server: HttpServer, store: GrantStore, *client: Any, **more: Any) -> str:
    with pytest.raises(LoginFailed) as caught:
        await logged_in(server, store, *client, **more)
    return str(caught.value)


async def never(page: str, issuer: str) -> None:
    raise LoginFailed("a browser was asked")


async def test_a_login_is_stored_and_shows_no_secret(tmp_path: Path) -> None:
    guard, store = Authorization(scope="read"), GrantStore(tmp_path / "oauth")
    async with serving(guard) as server:
        grant = await logged_in(server, store)
        assert store.load(key_of(server.url)) == grant
    assert (grant.access_token, grant.refresh_token, grant.scope, grant.requested) == ("a-1", "r-1", "read", "read")
    assert grant.issuer == guard.base and grant.resource == f"{guard.base}/mcp"
    assert "a-1" not in repr(grant) and "r-1" not in repr(grant)
    (file,) = (path for path in (tmp_path / "oauth").iterdir() if path.suffix == ".json")
    assert file.stat().st_mode & 0o777 == 0o600 and (tmp_path / "oauth").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", ["", "..", "/nowhere", "not a URL"])
async def test_metadata_named_without_a_host_is_that_of_the_server(tmp_path: Path, place: str) -> None:
    guard = Authorization(relative=place)
    async with serving(guard) as server:
        assert (await logged_in(server, GrantStore(tmp_path))).access_token == "a-1"


async def test_what_is_asked_is_bound_to_this_server_and_this_login(tmp_path: Path) -> None:
    guard = Authorization()
    async with serving(guard) as server:
        await logged_in(server, GrantStore(tmp_path))
    (asked,), (form,), (registered,) = guard.asked["/authorize"], guard.asked["/token"], guard.asked["/register"]
    assert asked["code_challenge_method"] == "S256" and asked["resource"] == form["resource"] == f"{guard.base}/mcp"
    assert form["redirect_uri"] == asked["redirect_uri"] and asked["redirect_uri"].startswith("http://127.0.0.1:")
    assert len(asked["state"]) >= 32 and len(form["code_verifier"]) >= 43
    assert registered["application_type"] == "native" and "refresh_token" in registered["grant_types"]
    assert registered["redirect_uris"] == [asked["redirect_uri"]]


async def test_the_registered_client_is_used_again_on_its_port(tmp_path: Path) -> None:
    guard, store = Authorization(), GrantStore(tmp_path)
    async with serving(guard) as server:
        first = await logged_in(server, store)
        second = await logged_in(server, store)
    assert len(guard.asked["/register"]) == 1 and first.redirect_uris == second.redirect_uris


async def test_a_client_of_ones_own_with_its_secret_is_not_registered_nor_its_secret_stored(tmp_path: Path) -> None:
    guard, store = Authorization(), GrantStore(tmp_path)
    client = ClientRegistration(client_id="mine", client_secret="s3cr3t-of-mine", scopes=("read", "write"))
    async with serving(guard) as server:
        grant = await logged_in(server, store, client)
        stored = store.path(grant_key(server.url, client)).read_text()
    assert "/register" not in guard.asked and guard.asked["/token"][0]["authorization"].startswith("Basic ")
    assert guard.asked["/authorize"][0]["scope"] == "read write" and grant.token_auth == "basic"
    assert "s3cr3t-of-mine" not in stored and json.loads(stored)["client_id"] == "mine"


async def test_another_port_on_this_machine_is_the_one_that_was_configured(tmp_path: Path) -> None:
    guard = Authorization()
    async with serving(guard) as server, redirect_module.listening(None) as taken:
        port = urlsplit(taken.uri).port
        said = await refused(server, GrantStore(tmp_path), ClientRegistration(redirect_port=port))
    assert said.startswith(f"cannot listen on 127.0.0.1:{port}: ")


@dataclass
class Refusal:
    """What is wrong at the authorization server or with the client, and what is said of it. No token is asked for."""

    said: str
    guard: dict[str, Any] = field(default_factory=dict)
    client: ClientRegistration = PERSON
    raw: bytes = b""
    """In place of the metadata."""
    asks_person: bool = True


OWN = ClientRegistration(client_id="mine", client_secret="s3cr3t-of-mine", issuer="https://auth.example")
NAMED = {"authorization_response_iss_parameter_supported": True}
DENIED = {"code": None, "error": "access_denied", "error_description": "no\n\x1b[31mway"}
REFUSALS = {
    "foreign issuer": Refusal("iss mismatch", {"redirect": {"iss": "https://evil.example"}, "metadata": NAMED}),
    "no issuer": Refusal("missing iss", {"redirect": {"iss": None}, "metadata": NAMED}),
    "denied": Refusal("access_denied no  [31mway", {"redirect": DENIED, "metadata": NAMED}),
    **{
        f"PKCE {methods}": Refusal(
            "protects logins by PKCE", {"metadata": {"code_challenge_methods_supported": methods}}, asks_person=False
        )
        for methods in (None, ["plain"])
    },
    "another issuer is configured": Refusal('and "issuer" another one', client=OWN, asks_person=False),
    "long metadata": Refusal("answered with more than 1048576 bytes", raw=b"x" * ((1 << 20) + 1), asks_person=False),
    "metadata no object": Refusal("does not say where to log in", raw=b"[]", asks_person=False),
    "metadata no JSON": Refusal("does not say where to log in", raw=b"not json", asks_person=False),
    "issuer of a machine": Refusal("mismatch", client=machine("https://auth.example"), asks_person=False),
}


async def refuses(folder: Path, refusal: Refusal) -> None:
    guard = Authorization(**refusal.guard)
    if refusal.raw:
        guard._metadata = lambda: (200, refusal.raw)  # type: ignore[method-assign]  # bytes are sent as they are
    async with serving(guard) as server:
        show = browse if refusal.asks_person else never
        said = await refused(server, GrantStore(folder / "oauth"), refusal.client, show=show)
    assert refusal.said in said and said != "a browser was asked"
    assert "/token" not in guard.asked and (refusal.asks_person or "/authorize" not in guard.asked)
    assert GrantStore(folder / "oauth").load(key_of(server.url)) is None


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_login_is_refused_with_the_reason_and_no_token_is_asked_for(tmp_path: Path, refusal: Refusal) -> None:
    await refuses(tmp_path, refusal)


@pytest.mark.parametrize(
    "place",
    [
        "javascript:alert(1)",
        "http://auth.example/authorize",
        "https://user@auth.example/authorize",
        "https://169.254.169.254/authorize",
        "https://0.0.0.0/",
    ],
)
async def test_no_browser_is_sent_to_such_a_place(tmp_path: Path, place: str) -> None:
    await refuses(tmp_path, Refusal("", {"metadata": {"authorization_endpoint": place}}, asks_person=False))


@pytest.mark.parametrize("key", ["token_endpoint", "registration_endpoint"])
async def test_nothing_is_sent_to_a_place_that_others_can_read(tmp_path: Path, key: str) -> None:
    said = "'http://auth.example' is refused: it is http://, which others on the network can read and change"
    await refuses(tmp_path, Refusal(said, {"metadata": {key: "http://auth.example/x"}}))


@pytest.mark.parametrize(
    ("said", "guard"),
    [
        ("does not match", {"resource": {"resource": "https://other.example/mcp"}}),
        ("issuer mismatch", {"metadata": {"issuer": "https://other.example"}}),
    ],
)
async def test_a_server_is_not_believed_that_speaks_for_another(tmp_path: Path, said: str, guard: Any) -> None:
    await refuses(tmp_path, Refusal(said, guard))


async def test_codes_that_others_bring_are_turned_away_and_the_person_still_gets_in(tmp_path: Path) -> None:
    """A page that makes the browser, or a program that knows the port, hand in the code of another account."""
    guard = Authorization()
    seen: list[Any] = []

    async def show(page: str, issuer: str) -> None:
        back = await redirected(page)
        place = back.partition("?")[0]
        queries = "code=stolen", "code=stolen&state=", f"code=stolen&state={state_of(page)}x", "error=no&state=x"
        strange = [await visit(f"{place}?{query}") for query in queries]
        strange.append(await visit(back, host="evil.example"))
        strange.append(await visit(back.replace("/callback", "/other")))
        seen.extend(answer.status_code for answer in strange)
        async with httpx2.AsyncClient(verify=False) as http:
            seen.append((await http.post(back)).status_code)
        good = await visit(back)
        again = await visit(f"{place}?code=stolen&state={state_of(page)}")
        seen.extend([good.status_code, again.status_code])
        assert good.headers["referrer-policy"] == "no-referrer" and "c-1" not in good.text

    async with serving(guard) as server:
        grant = await logged_in(server, GrantStore(tmp_path), show=show)
    assert seen == [400, 400, 400, 400, 404, 404, 405, 200, 200] and grant.access_token == "a-1"
    assert [form["code"] for form in guard.asked["/token"]] == ["c-1"]


async def test_who_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    async def show(page: str, issuer: str) -> None:
        pass

    async with serving(Authorization()) as server:
        assert await refused(server, GrantStore(tmp_path), show=show, seconds=0.05) == "no login within 0.05 s"


async def test_cleartext_servers_get_no_login(tmp_path: Path) -> None:
    with pytest.raises(LoginFailed, match="must not go over http://"):
        await log_in("http://mcp.example/mcp", PERSON, GrantStore(tmp_path), browse, 1)


async def test_a_login_that_fails_says_why_without_the_secret_and_keeps_the_old_one(tmp_path: Path) -> None:
    guard, store = Authorization(), GrantStore(tmp_path)
    client = ClientRegistration(client_id="mine", client_secret="s3cr3t-of-mine")
    async with serving(guard) as server:
        before = await logged_in(server, store, client)
        guard.token_answer = 400, {"error": "invalid_client", "error_description": "not s3cr3t-of-mine"}
        said = await refused(server, store, client)
        assert store.load(grant_key(server.url, client)) == before
    assert "invalid_client" in said and "s3cr3t-of-mine" not in said


async def test_logging_out_removes_what_there_was(tmp_path: Path) -> None:
    store = GrantStore(tmp_path)
    async with serving(Authorization()) as server:
        await logged_in(server, store)
        assert await log_out(server.url, PERSON, store)
        assert store.load(key_of(server.url)) is None
        assert not await log_out(server.url, PERSON, store)


async def test_the_hub_logs_in_by_itself_with_its_secret(tmp_path: Path) -> None:
    guard = Authorization(refreshable=False)
    async with serving(guard) as server:
        base = server.url.removesuffix("/mcp")
        grant = await logged_in(server, GrantStore(tmp_path), machine(base, scopes=("read",)), show=never)
    (form,) = guard.asked["/token"]
    assert (form["grant_type"], form["scope"], grant.access_token) == ("client_credentials", "read", "a-1")


async def test_a_key_that_cannot_sign_is_said_and_not_shown(tmp_path: Path) -> None:
    guard = Authorization()
    async with serving(guard) as server:
        base = server.url.removesuffix("/mcp")
        client = machine(base, client_secret=None, private_key="-----BEGIN s3cr3t-key", algorithm="ES256")
        said = await refused(server, GrantStore(tmp_path), client, show=never)
    assert said.startswith('"private_key" cannot sign by ES256') and "s3cr3t-key" not in said
