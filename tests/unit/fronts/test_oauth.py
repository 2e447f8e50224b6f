"""Access tokens: which are taken and for whom, and every way in which one can be wrong."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

import jwt
import pytest
from msgspec.structs import replace

from mcp_hub.fronts.http.auth import Refusal
from mcp_hub.fronts.http.oauth.keys import Keys, parse_keys, shared_key
from mcp_hub.fronts.http.oauth.tokens import Issuer, Resource, TokenVerifier
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.oauth_tokens import (
    ISSUER,
    NOW,
    RESOURCE,
    claims,
    ec_key,
    forged,
    jwk,
    key_set,
    public_pem,
    rsa_key,
    token,
)

OTHER = "https://other.example.com"
SECRET = b"a-shared-key-of-more-than-32-bytes!"


class FixedKeys:
    """A key set that can be exchanged and be out of reach."""

    def __init__(self, body: bytes, algorithms: Sequence[str] = ("RS256", "ES256")) -> None:
        self.version = 0
        self.trouble: str | None = None
        self.asked = 0
        self.next: bytes | None = None
        self._algorithms = algorithms
        self._keys = parse_keys(body, algorithms)

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        return [key for key in self._keys if key.algorithm_name == algorithm and kid in (None, key.key_id)]

    async def refresh(self) -> None:
        self.asked += 1
        if self.next is not None:
            self._keys, self.next = parse_keys(self.next, self._algorithms), None
            self.version += 1


class Time:
    now = NOW

    def __call__(self) -> float:
        return self.now


def keys() -> FixedKeys:
    return FixedKeys(key_set(jwk(rsa_key()), jwk(ec_key(), "ec")))


def issuer(found: Keys | None = None, **changed: Any) -> Issuer:
    usual = Issuer(ISSUER, found or keys(), frozenset(("RS256", "ES256")), (RESOURCE,))
    return replace(usual, **changed)


def verifier(*issuers: Issuer, scopes: tuple[str, ...] = (), time: Time | None = None, **more: Any) -> TokenVerifier:
    found = issuers or (issuer(),)
    resource = Resource(RESOURCE, tuple(one.name for one in found), scopes)
    return TokenVerifier(resource, found, leeway=30, clock=time or Time(), **more)


async def asked(checked: TokenVerifier, shown: bytes) -> Caller | Refusal:
    return await checked.verify(shown, hashlib.sha256(shown).digest())


async def refused(checked: TokenVerifier, shown: bytes) -> str:
    """Why a token is no token; the answer is a 401 that says where to get one."""
    answer = await asked(checked, shown)
    assert isinstance(answer, Refusal) and (answer.status, answer.code) == (401, "invalid_token")
    challenge = dict(answer.headers)[b"www-authenticate"].decode()
    assert challenge.startswith('Bearer error="invalid_token"')
    assert 'resource_metadata="https://hub.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
    assert checked.find(hashlib.sha256(shown).digest()) is None, "what was refused is not remembered"
    return answer.reason


@pytest.mark.parametrize(
    "good",
    [
        token(),
        token(typ="at+jwt"),
        token(kid="ec", key=ec_key(), algorithm="ES256"),
        token(kid=None),
        token(claims(aud=["https://x.example", RESOURCE])),
        token(claims(exp=NOW - 29)),
        token(claims(nbf=NOW + 29)),
    ],
    ids=["usual", "at+jwt", "ec", "no kid", "one of two audiences", "expired within the leeway", "early within it"],
)
async def test_a_good_token_says_who_is_asking(good: bytes) -> None:
    assert await asked(verifier(), good) == Caller(f"{ISSUER}#alice")


def mac(text: bytes, key: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def confused() -> bytes:
    """HS256, with the public key for a secret: what a verifier that believes `alg` takes for good."""
    text = forged({"alg": "HS256", "kid": "one"}).rpartition(b".")[0]
    signature = base64.urlsafe_b64encode(mac(text, public_pem(rsa_key()))).rstrip(b"=")
    return text + b"." + signature


def with_own_key(**header: Any) -> bytes:
    return token(key=rsa_key("thief"), **header)


BAD: list[tuple[str, bytes, str]] = [
    ("alg none", forged({"alg": "none"}), "algorithm"),
    ("alg None", forged({"alg": "None", "kid": "one"}), "algorithm"),
    ("alg absent", forged({"kid": "one"}), "algorithm"),
    ("alg is no text", forged({"alg": 1, "kid": "one"}), "algorithm"),
    ("alg list", forged({"alg": ["RS256"], "kid": "one"}), "algorithm"),
    ("HS256 with the public key", confused(), "algorithm"),
    ("another of the same family", token(algorithm="RS512"), "algorithm"),
    ("PS256 with an RSA key", token(algorithm="PS256"), "algorithm"),
    ("ES256 with the kid of an RSA key", token(key=ec_key(), algorithm="ES256"), "not signed with a key"),
    ("somebody else's key", with_own_key(), "not signed with a key"),
    ("somebody else's key, brought along", with_own_key(jwk=jwk(rsa_key("thief"))), "not signed with a key"),
    ("jku", with_own_key(jku="https://thief.example/keys"), "not signed with a key"),
    ("x5u", with_own_key(x5u="https://thief.example/cert"), "not signed with a key"),
    ("unknown kid", token(kid="two"), "not signed with a key"),
    ("kid is a path", token(kid="../../etc/passwd"), "not signed with a key"),
    ("kid is no text", forged({"alg": "RS256", "kid": 7}), "not a JWT"),
    ("crit", token(crit=["exp"], exp=1), "not a JWT"),
    ("crit that the library knows", forged({"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": True}), "crit"),
    ("a proof", token(typ="dpop+jwt"), "typ"),
    ("a logout", token(typ="logout+jwt"), "typ"),
    ("wrong aud", token(claims(aud="https://hub.example.com")), "aud"),
    ("aud of a prefix", token(claims(aud=RESOURCE + "x")), "aud"),
    ("no aud", token(claims(aud=None)), "aud"),
    ("aud is no text", token(claims(aud={"a": 1})), "aud"),
    ("wrong iss", token(claims(iss=OTHER)), "issuer of the token is not trusted"),
    ("iss with a slash", token(claims(iss=ISSUER + "/")), "issuer of the token is not trusted"),
    ("no iss", token(claims(iss=None)), "issuer of the token is not trusted"),
    ("iss is a list", forged({"alg": "RS256"}, claims(iss=[ISSUER])), "issuer of the token is not trusted"),
    ("expired", token(claims(exp=NOW - 31)), "expired"),
    ("no exp", token(claims(exp=None)), "exp"),
    ("exp is text", token(claims(exp="soon")), "not a number"),
    ("exp is true", token(claims(exp=True)), "not a number"),
    ("exp is infinite", token(claims(exp=float("inf"))), "not a number"),
    ("exp is huge", token(claims(exp=10**400)), "not a number"),
    ("future nbf", token(claims(nbf=NOW + 31)), "not valid yet"),
    ("nbf is null", token({**claims(), "nbf": None}), "not a number"),
    ("no sub", token(claims(sub=None)), "does not name its principal"),
    ("empty sub", token(claims(sub="")), "does not name its principal"),
    ("sub is a number", forged({"alg": "RS256", "kid": "one"}, claims(sub=7)), "cannot be used|not signed"),
    ("endless sub", token(claims(sub="x" * 256)), "does not name its principal"),
    ("sub with a line break", token(claims(sub="a\nb")), "does not name its principal"),
    ("bound to a proof", token(claims(cnf={"jkt": "x"})), "bound"),
    ("huge", token(claims(more="x" * 8192)), "longer than 8192"),
    ("garbage", b"\xff\xfe.\x00.e30", "not a JWT"),
    ("dots", b"..", "not a JWT"),
    ("no objects", b"W10.W10.", "not a JWT"),
    ("deep", forged({"alg": "RS256"}, {"iss": ISSUER, "x": json.loads("[" * 500 + "]" * 500)}), "not signed"),
    ("encrypted", b"a.b.c", "not a JWT"),
    ("changed", token().replace(b".", b".e30.", 1).replace(b".e30.", b".", 1)[:-4] + b"AAAA", "not signed|no JWT"),
]


@pytest.mark.parametrize(("bad", "why"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_a_token_that_is_wrong_is_refused_and_says_why(bad: bytes, why: str) -> None:
    reason = await refused(verifier(), bad)
    assert any(part in reason for part in why.split("|")), reason


async def test_an_unsigned_payload_under_a_good_signature_is_refused() -> None:
    head, _, signature = token().split(b".")
    other = forged({}, claims(sub="root")).split(b".")[1]
    assert "not signed" in await refused(verifier(), b".".join((head, other, signature)))


async def test_each_issuer_has_its_own_keys_and_people() -> None:
    theirs = FixedKeys(key_set(jwk(rsa_key("theirs"))))
    both = verifier(issuer(), issuer(theirs, name=OTHER))
    assert await asked(both, token()) == Caller(f"{ISSUER}#alice")
    assert await asked(both, token(claims(iss=OTHER), rsa_key("theirs"))) == Caller(f"{OTHER}#alice")
    assert "not signed" in await refused(both, token(claims(iss=OTHER)))
    assert "not signed" in await refused(both, token(claims(), rsa_key("theirs")))


async def test_a_shared_key_checks_what_was_signed_with_it_and_nothing_else() -> None:
    shared = verifier(issuer(shared_key(SECRET, ["HS256"]), algorithms=frozenset(["HS256"])))
    assert await asked(shared, token(key=SECRET, algorithm="HS256", kid=None)) == Caller(f"{ISSUER}#alice")
    assert await asked(shared, token(key=SECRET, algorithm="HS256", kid="any")) == Caller(f"{ISSUER}#alice")
    assert "not signed" in await refused(shared, token(key=SECRET[:-1] + b"?", algorithm="HS256"))
    assert "algorithm" in await refused(shared, token(key=SECRET + b"x" * 64, algorithm="HS512"))
    assert "algorithm" in await refused(shared, token())


async def test_a_token_needs_every_scope_and_the_refusal_names_them() -> None:
    strict = verifier(issuer(scopes=frozenset(["read"])), scopes=("mcp",))
    assert await asked(strict, token()) == Caller(f"{ISSUER}#alice")
    assert await asked(strict, token(claims(scope=None, scp=["mcp", "read"]))) == Caller(f"{ISSUER}#alice")
    for scope in ("mcp", "read", "", "mcpread", "MCP READ", None):
        refusal = await asked(strict, token(claims(scope=scope)))
        assert isinstance(refusal, Refusal) and (refusal.status, refusal.code) == (403, "insufficient_scope")
        challenge = dict(refusal.headers)[b"www-authenticate"].decode()
        assert 'error="insufficient_scope"' in challenge and 'scope="mcp read"' in challenge
        assert "resource_metadata=" in challenge


@pytest.mark.parametrize(
    ("rules", "said", "profile"),
    [
        ({}, {}, None),
        ({"profile": "small"}, {}, "small"),
        ({"profile_claim": "hub"}, {"hub": "large"}, "large"),
        ({"profile_claim": "hub", "profile": "small"}, {}, "small"),
        ({"scope_profiles": {"read": "small"}}, {}, "small"),
        ({"scope_profiles": {"write": "large", "read": "small"}}, {"scope": "read write"}, "large"),
        ({"scope_profiles": {"read": "small"}, "profile_claim": "hub"}, {"hub": "large"}, "large"),
        *(({"profile_claim": "hub"}, said, 403) for said in ({}, {"hub": 7}, {"hub": "none"})),
        ({"scope_profiles": {"admin": "small"}}, {}, 403),
    ],
)
async def test_claim_scope_or_issuer_give_the_profile_and_nobody_without_a_required_one_gets_everything(
    rules: Any, said: Any, profile: str | int | None
) -> None:
    caller = await asked(verifier(issuer(**rules), profiles=("small", "large")), token(claims(**said)))
    if isinstance(profile, int):
        assert isinstance(caller, Refusal) and caller.status == profile
    else:
        assert caller == Caller(f"{ISSUER}#alice", profile)


async def test_a_token_is_checked_once_and_forgotten_when_it_expires() -> None:
    time, found = Time(), keys()
    checked = verifier(issuer(found), time=time)
    shown = token()
    digest = hashlib.sha256(shown).digest()
    assert checked.find(digest) is None
    assert await asked(checked, shown) == checked.find(digest) == Caller(f"{ISSUER}#alice")
    time.now = NOW + 629
    assert checked.find(digest) is not None
    time.now = NOW + 630
    assert checked.find(digest) is None
    assert "expired" in await refused(checked, shown)


async def test_tokens_of_a_key_that_is_withdrawn_are_forgotten() -> None:
    found = keys()
    checked = verifier(issuer(found))
    shown, digest = token(), hashlib.sha256(token()).digest()
    assert isinstance(await asked(checked, shown), Caller)
    found.next = key_set(jwk(rsa_key("new"), "new"))
    assert isinstance(await asked(checked, token(key=rsa_key("new"), kid="new")), Caller), "rotated"
    assert found.asked == 1 and checked.find(digest) is None
    assert "not signed" in await refused(checked, shown)


async def test_the_memory_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.fronts.http.oauth.tokens._MOST_KNOWN", 3)
    checked = verifier()
    shown = [token(claims(sub=f"user{number}")) for number in range(5)]
    for one in shown:
        await asked(checked, one)
    assert [checked.find(hashlib.sha256(one).digest()) is not None for one in shown] == [False, False, True, True, True]


async def test_keys_that_cannot_be_had_are_nobodys_fault_who_asks() -> None:
    found = keys()
    found.trouble = "cannot be fetched: HTTP 500"
    checked = verifier(issuer(found))
    assert isinstance(await asked(checked, token()), Caller), "a key that is known still counts"
    refusal = await asked(checked, token(kid="new"))
    assert isinstance(refusal, Refusal) and (refusal.status, refusal.code) == (503, "keys_unavailable")
    assert ISSUER in refusal.reason and "HTTP 500" in refusal.reason and dict(refusal.headers)[b"retry-after"]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://hub.example.com/mcp", "/.well-known/oauth-protected-resource/mcp"),
        ("https://hub.example.com", "/.well-known/oauth-protected-resource"),
        ("https://hub.example.com/", "/.well-known/oauth-protected-resource"),
        ("https://example.com:8443/team/mcp", "/.well-known/oauth-protected-resource/team/mcp"),
    ],
)
def test_metadata_is_where_clients_look_for_it(url: str, path: str) -> None:
    resource = Resource(url, (ISSUER,), ("mcp",))
    assert resource.metadata_path == path and resource.metadata_url.endswith(path)
    said = json.loads(resource.metadata())
    assert (said["resource"], said["authorization_servers"], said["scopes_supported"]) == (url, [ISSUER], ["mcp"])
    assert said["bearer_methods_supported"] == ["header"]


def test_a_request_without_a_token_learns_where_to_get_one() -> None:
    asked_for = verifier(scopes=("mcp",)).challenge(has_token=False).decode()
    assert asked_for == (
        'Bearer scope="mcp", resource_metadata="https://hub.example.com/.well-known/oauth-protected-resource/mcp"'
    )


async def test_claims_that_rules_name_are_the_callers_and_no_others() -> None:
    shown = token(claims(groups=["dev", "admin"], email="alice@example.com"))
    caller = await asked(verifier(claim_names=("groups", "tenant")), shown)
    assert isinstance(caller, Caller) and json.loads(caller.claims) == {"groups": ["dev", "admin"]}
    assert await asked(verifier(claim_names=("tenant",)), shown) == Caller(f"{ISSUER}#alice")
