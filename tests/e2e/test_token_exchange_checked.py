"""`grant: token_exchange`, each message and token of it checked by libraries that others wrote.

idpyoidc reads requests and answers (RFC 8693), authlib the client's authentication (RFC 6749) and tokens (RFC 9068).
"""

import base64
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.test_token_exchange import config
from tests.interaction.fronts import HANDSHAKE, Peer, http_hub
from tests.upstreams.own_accounts import ACCESS, KEY, OwnAccounts, own_accounts

MISSING = "the libraries that check token_exchange are not installed (authlib and idpyoidc, of the group dev)"
rfc9068 = pytest.importorskip("authlib.oauth2.rfc9068", reason=MISSING)
errors = pytest.importorskip("authlib.oauth2.rfc6749.errors", reason=MISSING)
util = pytest.importorskip("authlib.oauth2.rfc6749.util", reason=MISSING)
messages = pytest.importorskip("idpyoidc.message.oauth2", reason=MISSING)

pytestmark = pytest.mark.anyio


class Checked(OwnAccounts):
    """An issuer and a server that refuse what the libraries refuse; `problems` says why."""

    @property
    def problems(self) -> list[str]:
        return self.faults.setdefault("problems", [])  # type: ignore[no-any-return]

    def claims(self, token: str, audience: str) -> Any:
        """The claims of an access token of this issuer (RFC 9068 §4)."""
        secret = base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("=")
        checks = rfc9068.JWTBearerTokenValidator(self.url, audience)
        checks.get_jwks = lambda: {"kty": "oct", "k": secret}
        claims = checks.authenticate_token(token)
        checks.validate_token(claims, ["read"], None)
        return claims

    def _by_exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        sent = {name: value for name, value in form.items() if name != "auth"}
        try:
            request = messages.TokenExchangeRequest(**sent)
            assert request.verify() and request.extra() == {}, f"it has {request.extra()}"
            assert (request["subject_token_type"], request["requested_token_type"]) == (ACCESS, ACCESS)
            authorization = self.places("/token")[-1].get("auth", "")
            client = util.extract_basic_authorization({"Authorization": authorization})
            assert client == ("hub", "s3cr3t-of-hub"), "who is that client?"
            person = self.claims(request["subject_token"], "hub")["sub"]
        except Exception as problem:  # of a library, or of what stands above
            self.problems.append(repr(problem))
            return 400, {"error": "invalid_request", "error_description": "it was not taken"}
        token = self.token_for(person, self.faults.get("audience", request["resource"][0]))
        answer = messages.TokenExchangeResponse(
            access_token=token, issued_token_type=ACCESS, token_type="Bearer", expires_in=600, scope=request["scope"]
        )
        assert answer.verify()
        return 200, json.loads(answer.to_json())

    def token_for(self, person: str, audience: str, **changed: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url, "sub": person, "aud": audience, "exp": now + 600, "iat": now, "scope": "read",
            "client_id": "hub", "jti": secrets.token_hex(8), **changed,
        }  # fmt: skip
        return jwt.encode(claims, KEY, headers={"typ": "at+jwt"})

    def person(self, token: str) -> str | None:
        try:
            return str(self.claims(token, self.resource)["sub"])
        except errors.OAuth2Error as problem:
            self.problems.append(repr(problem))
            return None


@pytest.fixture
def upstream() -> Iterator[Checked]:
    with own_accounts(Checked) as running:
        assert isinstance(running, Checked)
        yield running


async def test_request_and_token_of_an_exchange_pass_the_checks_of_others(upstream: Checked, tmp_path: Path) -> None:
    async with http_hub(config(upstream), tmp_path) as hub:
        for person in ("alice", "bella"):
            async with HttpClient(hub.url, upstream.token_for(person, "hub")) as wire:
                await wire.initialize()
                peer = Peer(wire, HANDSHAKE)
                assert f"only_{person}" in await peer.names(), upstream.problems
                assert (await peer.call("whoami")).text == f"you are {person}"
    assert upstream.problems == []
    first, second = upstream.places("/token")
    subjects = [upstream.claims(form["subject_token"], "hub")["sub"] for form in (first, second)]
    assert subjects == ["alice", "bella"]
    assert len(upstream.shown) == 2 and not upstream.shown & {first["subject_token"], second["subject_token"]}


async def test_token_for_another_server_opens_nothing(upstream: Checked, tmp_path: Path) -> None:
    upstream.faults["audience"] = "https://other.example/mcp"
    async with http_hub(config(upstream), tmp_path) as hub:
        async with HttpClient(hub.url, upstream.token_for("alice", "hub")) as wire:
            await wire.initialize()
            assert "only_alice" not in await Peer(wire, HANDSHAKE).names()
    assert upstream.calls == [] and any("invalid_token" in problem for problem in upstream.problems)


async def test_own_request_without_the_subject_would_be_refused(upstream: Checked) -> None:
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token_type": ACCESS}
    assert upstream.token(form)[0] == 400 and "subject_token" in upstream.problems[0]
