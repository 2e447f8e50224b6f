"""What servers and authorization servers answer: taken however they write it, and never shown."""

import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.clock import wall_time
from mcp_hub.upstreams.auth.grants import GrantStore, LoginFailed
from mcp_hub.upstreams.auth.token_requests import challenge, challenge_of, repaired
from tests.unit.upstreams.authorization import Authorization, machine
from tests.unit.upstreams.test_login import logged_in, never, refused
from tests.unit.wire.http_server import Reply, Request, serving

pytestmark = pytest.mark.anyio

DAY = 86400.0
SECRET = "gho_S3cr3tOfAnAnswer"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "life"),
    [
        (b"3599.7", 3599.0),
        (b'"3600"', 3600.0),
        (b"0.5", 1.0),
        (b"1e999", 3650 * DAY),
        (b"-1", None),
        (b'"soon"', None),
        (b"[1]", None),
        (b'"NaN"', None),
    ],
)
async def test_life_of_a_token_is_believed_within_bounds(tmp_path: Path, written: bytes, life: float | None) -> None:
    answer = b'{"access_token":"a-1","token_type":"BEARER","expires_in":%b,"more":{}}' % written
    async with serving(Authorization(token_answer=(200, answer))) as server:
        before = wall_time()
        grant = await logged_in(server, GrantStore(tmp_path))
        after = wall_time()
    assert grant.access_token == "a-1"
    if life is None:
        assert grant.expires_at is None
    else:
        assert grant.expires_at is not None and before + life <= grant.expires_at <= after + life


@pytest.mark.parametrize(
    "answer",
    [
        f"access_token={SECRET}&token_type=mac".encode(),
        f"access_token={SECRET}%0a&token_type=bearer".encode(),
        f"code={SECRET}".encode(),
        {"accessToken": SECRET},
        {"access_token": f"{SECRET}\n"},
        {"access_token": SECRET, "token_type": "mac"},
        {"access_token": SECRET, "scope": [7]},
        b"\xff" + SECRET.encode(),
        b"[" * 100_000,
    ],
)
async def test_what_is_no_token_is_one_sentence_without_its_content(tmp_path: Path, answer: Any) -> None:
    guard = Authorization(token_answer=(200, answer))
    async with serving(guard) as server:
        assert await refused(server, GrantStore(tmp_path)) == f"{guard.base} answered with no bearer token"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "scope", "life"),
    [
        (b"access_token=a-1&token_type=bearer&scope=repo%20gist&expires_in=3600&refresh_token=r-1", "repo gist", 3600),
        (b"access_token=a-1&scope=&token_type=bearer", None, None),
        ({"access_token": "a-1", "scope": ["a", "b"], "expires_in": 60}, "a b", 60),
        ({"access_token": "a-1", "scope": [], "token_type": None}, None, None),
        ({"access_token": "a-1", "scope": None, "refresh_token": None, "id_token": None}, None, None),
    ],
)
async def test_token_is_read_from_any_form(tmp_path: Path, answer: Any, scope: str | None, life: int | None) -> None:
    async with serving(Authorization(token_answer=(200, answer))) as server:
        grant = await logged_in(server, GrantStore(tmp_path))
    assert (grant.access_token, grant.scope or None) == ("a-1", scope)
    assert (grant.expires_at is None) == (life is None)


def answered(members: object) -> Any:
    request = httpx2.Request("GET", "https://auth.example.com/")
    return json.loads(repaired(httpx2.Response(200, json=members, request=request)).content)


def test_metadata_and_clients_are_repaired_where_they_can_be() -> None:
    assert answered({"issuer": "x", "scopes_supported": "a b", "jwks_uri": None}) == {
        "issuer": "x",
        "scopes_supported": ["a", "b"],
    }
    assert answered({"authorization_servers": "https://a"}) == {"authorization_servers": ["https://a"]}
    assert answered({"client_id": "c", "scope": ["a", "b"], "redirect_uris": "http://x/"}) == {
        "client_id": "c",
        "scope": "a b",
        "redirect_uris": ["http://x/"],
    }
    for same in ({"issuer": "x", "client_id_metadata_document_supported": "true"}, [1], {"scope": "a"}):
        assert answered(same) == same


TOKEN, CLIENT = "token_answer", "client_answer"
TOO_OLD = {"error": "bad_code", "error_description": "too\nold"}


@pytest.mark.parametrize(
    ("asked", "status", "body", "said"),
    [
        (TOKEN, 400, f"code=c-1&{SECRET}".encode(), "did not give a token: HTTP 400"),
        (TOKEN, 400, {"error": "no_such_thing", "form": SECRET}, "did not give a token: HTTP 400, no_such_thing"),
        (TOKEN, 400, {"error": "invalid_grant", "form": SECRET}, "refused to give a token: invalid_grant"),
        (TOKEN, 503, {"error": "invalid_grant"}, "did not give a token: HTTP 503, invalid_grant"),
        (TOKEN, 200, TOO_OLD, "answered with no bearer token: bad_code (too old)"),
        (TOKEN, 302, SECRET.encode(), "Token exchange failed (302)"),
        (CLIENT, 201, {"client_secret": SECRET}, "was asked for a client and answered with an invalid response"),
        (CLIENT, 400, {"error": "invalid_redirect_uri"}, "refused to register the hub as a client: invalid_redirect_"),
        (CLIENT, 500, SECRET.encode(), "did not register the hub as a client: HTTP 500"),
    ],
)
async def test_refusal_shows_an_error_and_no_secret(
    tmp_path: Path, asked: str, status: int, body: Any, said: str
) -> None:
    answer: Any = {asked: (status, body)}
    guard = Authorization(**answer)
    async with serving(guard) as server:
        found = await refused(server, GrantStore(tmp_path))
    assert said in found and SECRET not in found
    assert ("/authorize" in guard.asked) is (asked == TOKEN)


@pytest.mark.parametrize("place", ["/token", "/register"])
async def test_a_redirect_within_the_origin_is_followed_for_the_same_purpose(tmp_path: Path, place: str) -> None:
    guard = Authorization()

    async def script(request: Request, reply: Reply) -> None:
        if request.path == place and sum(seen.path == place for seen in server.seen) == 1:
            return await reply.status(307, location=place)
        await guard(request, reply)

    async with serving(script) as server:
        assert (await logged_in(server, GrantStore(tmp_path))).access_token == "a-1"


async def test_a_code_that_is_repeated_in_a_refusal_is_blacked_out(tmp_path: Path) -> None:
    about = {"error": "invalid_grant", "error_description": f"the code {SECRET}-code is unknown"}
    guard = Authorization(token_answer=(400, about), redirect={"code": f"{SECRET}-code"})
    async with serving(guard) as server:
        assert (await refused(server, GrantStore(tmp_path))).endswith("invalid_grant (the code *** is unknown)")


async def test_sdk_logs_nothing_of_a_login_of_the_hub_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(Authorization(client_answer=(201, {"client_secret": SECRET}))) as server:
        await refused(server, GrantStore(tmp_path))
    assert [record for record in caplog.records if record.name.startswith("mcp.client.auth")] == []
    logging.getLogger("mcp.client.auth.oauth2").warning("a login of the host program")
    assert caplog.messages[-1] == "a login of the host program"


async def test_metadata_that_is_none_is_one_sentence_with_its_place(tmp_path: Path) -> None:
    guard = Authorization()
    guard._metadata = lambda: (200, SECRET.encode())  # type: ignore[method-assign]  # bytes are sent as they are
    async with serving(guard) as server:
        client = machine(server.url.removesuffix("/mcp"))
        with pytest.raises(LoginFailed) as caught:
            await logged_in(server, GrantStore(tmp_path), client, show=never)
    said = str(caught.value)
    assert not caught.value.is_final and SECRET not in said
    assert f"{guard.base} was asked for metadata and answered with an invalid response" in said


async def test_a_challenge_with_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.status(401, www_authenticate='Bearer resource_metadata="https://a:x/"')

    async with serving(script) as server:
        base = server.url.removesuffix("/mcp")
        found = await refused(server, GrantStore(tmp_path))
    assert found == f"{base} was asked for a way to log in and answered with an invalid response"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Bearer scope="a b", error="insufficient_scope"', {"scope": "a b", "error": "insufficient_scope"}),
        ("bearer error=invalid_token", {"error": "invalid_token"}),
        ('Basic realm="x", Bearer resource_metadata="https://a.b/c"', {"resource_metadata": "https://a.b/c"}),
        (r'Bearer error_description="say \"no\", twice"', {"error_description": 'say "no", twice'}),
        ('Bearer scope="first", scope="second"', {"scope": "first"}),
        ("Bearer", {}),
        ("", {}),
        ('DPoP scope="x"', {}),
        ('Bearer scope="never closed', {}),
    ],
)
def test_parameters_are_read(header: str, found: dict[str, str]) -> None:
    assert challenge_of(header) == found


@given(st.text(max_size=300))
def test_anything_can_be_read(header: str) -> None:
    challenge_of("Bearer " + header)


@given(st.text(max_size=100))
def test_what_is_composed_is_one_challenge_whatever_a_value_holds(value: str) -> None:
    found = challenge_of(challenge(scope=value, error="insufficient_scope"))
    assert found["error"] == "insufficient_scope" and set(found) <= {"scope", "error"}


def test_a_value_of_which_nothing_can_be_held_is_left_out() -> None:
    assert challenge(scope="é", error="x") == 'Bearer error="x"' and challenge(scope="é") == "Bearer"


def test_a_long_header_is_read_in_linear_time() -> None:
    for header in ("Bearer " + "a=b," * 100_000, 'Bearer x="' + "\\" * 100_000, "Bearer " + "a" * 100_000):
        challenge_of(header)
