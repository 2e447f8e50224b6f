"""OAuth 2.1 access tokens: JWTs (RFC 9068), cached by digest.

Source: specification 2025-11-25 and 2026-07-28, basic/authorization; RFC 6750, 8707, 8725, 9728.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

import jwt
import msgspec
from jwt.types import Options

from mcp_hub.fronts.http.auth import Refusal, challenged
from mcp_hub.fronts.http.oauth.keys import Keys
from mcp_hub.sessions.session import Caller
from mcp_hub.types import JsonObject

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_LONGEST: Final = 8192
"""Bytes of a token."""
_LONGEST_NAME: Final = 255
"""Characters of whom a token stands for."""
_MOST_KNOWN: Final = 4096
_TYPES: Final = frozenset(("", "jwt", "at+jwt", "application/at+jwt"))
"""Other types are made for something else: logout, events, proofs of possession (RFC 8725 §3.11)."""
_UNVERIFIED: Final[Options] = {
    "verify_signature": False, "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False,
}  # fmt: skip
_PROVEN: Final[Options] = {
    "require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False,
    "enforce_minimum_key_length": True,
}  # fmt: skip
"""Times are checked here, by the clock of this process."""


class Issuer(msgspec.Struct, frozen=True):
    """An authorization server: keys, required claims, `scope_profiles` in order of precedence."""

    name: str
    keys: Keys
    algorithms: frozenset[str]
    audience: tuple[str, ...]
    scopes: frozenset[str] = frozenset()
    principal_claim: str = "sub"
    profile_claim: str | None = None
    scope_profiles: Mapping[str, str] = msgspec.field(default_factory=dict)
    profile: str | None = None


class Resource(msgspec.Struct, frozen=True):
    """The hub as a protected resource (RFC 9728)."""

    url: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()

    @property
    def metadata_path(self) -> str:
        """The path of its metadata (RFC 9728 §3.1)."""
        return WELL_KNOWN + urlsplit(self.url).path.rstrip("/")

    @property
    def metadata_url(self) -> str:
        """The URL of its metadata."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{self.metadata_path}"

    def metadata(self) -> bytes:
        """The metadata document (RFC 9728 §2)."""
        document: JsonObject = {
            "resource": self.url,
            "authorization_servers": list(self.issuers),
            "bearer_methods_supported": ["header"],
            "resource_name": "mcp-hub",
        }
        if self.scopes:
            document["scopes_supported"] = list(self.scopes)
        return json.dumps(document).encode()

    def challenge(self, error: str = "", description: str = "", scopes: Iterable[str] = ()) -> bytes:
        """A `WWW-Authenticate` (RFC 6750 §3, RFC 9728 §5.1)."""
        scope = " ".join(scopes or self.scopes)
        parameters = {"error": error, "error_description": description, "scope": scope}
        parameters["resource_metadata"] = self.metadata_url
        return ("Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)).encode(
            "ascii"
        )


class _Refused(Exception):
    """A token is refused; the message repeats nothing of it."""


class _Known(msgspec.Struct, frozen=True):
    caller: Caller
    until: float
    issuer: Issuer
    version: object


class TokenVerifier:
    """Checks access tokens. `leeway` in seconds; `clock` returns Unix seconds. `profile` is the default.

    Callers get the claims of `claim_names`.
    """

    def __init__(
        self,
        resource: Resource,
        issuers: Iterable[Issuer],
        *,
        leeway: float,
        clock: Callable[[], float],
        profiles: Iterable[str] = (),
        profile: str | None = None,
        claim_names: Collection[str] = (),
    ) -> None:
        self.resource = resource
        self._claim_names = claim_names
        self._issuers = {issuer.name: issuer for issuer in issuers}
        self._leeway = leeway
        self._clock = clock
        self._profiles = frozenset(profiles)
        self._profile = profile
        self._cache: dict[bytes, _Known] = {}

    def can_verify(self, token: bytes) -> bool:
        return token.count(b".") == 2

    def find(self, digest: bytes) -> Caller | None:
        cached = self._cache.get(digest)
        if cached is None:
            return None
        if self._clock() >= cached.until or cached.version != cached.issuer.keys.version:
            del self._cache[digest]
            return None
        return cached.caller

    def challenge(self, *, has_token: bool) -> bytes:
        return self.resource.challenge("invalid_token" if has_token else "")

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        try:
            header, issuer = self._addressed(token)
            named = header.get("kid"), header["alg"]
            if not issuer.keys.find(*named):
                await issuer.keys.refresh()
            version, keys = issuer.keys.version, issuer.keys.find(*named)
            if not keys and (trouble := issuer.keys.trouble) is not None:
                # the token may be good, so this is not a 401
                reason = f"the keys of {issuer.name} are not available: {trouble}. Try again later."
                return Refusal(503, "keys_unavailable", reason, ((b"retry-after", b"10"),))
            claims = self._claims(token, header["alg"], keys, issuer)
            if "cnf" in claims:
                raise _Refused("the token is bound to a proof of possession, which is not checked here")
            until = self._checked_times(claims)
            caller = Caller(_principal(claims, issuer))
        except _Refused as refused:
            reason = str(refused)
            return challenged(self.resource.challenge("invalid_token", reason), "invalid_token", reason)
        admitted = self._admitted(caller, claims, issuer)
        if isinstance(admitted, Caller):
            self._remember(digest, _Known(admitted, until, issuer, version))
        return admitted

    def _addressed(self, token: bytes) -> tuple[JsonObject, Issuer]:
        """The header and the claimed issuer, both unproven."""
        if len(token) > _LONGEST:
            raise _Refused(f"the token is longer than {_LONGEST} bytes")
        try:
            parts = jwt.decode_complete(token, options=_UNVERIFIED)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise _Refused("the token is not a JWT") from None
        header, claimed = parts["header"], parts["payload"].get("iss")
        if str(header.get("typ", "")).lower() not in _TYPES:
            raise _Refused("the token is not an access token: its typ says otherwise")
        if "crit" in header:
            raise _Refused("the token has unsupported critical headers (crit)")
        issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
        if issuer is None:
            raise _Refused("the issuer of the token is not trusted here")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
            raise _Refused("the signature algorithm of the token is not accepted")
        return header, issuer

    def _claims(self, token: bytes, algorithm: str, keys: Iterable[jwt.PyJWK], issuer: Issuer) -> JsonObject:
        """The claims, with signature, issuer and audience proven."""
        for key in keys:
            try:
                return jwt.decode(
                    token, key, algorithms=[algorithm], audience=issuer.audience, issuer=issuer.name, options=_PROVEN
                )
            except jwt.InvalidSignatureError:
                continue
            except (jwt.InvalidAudienceError, jwt.MissingRequiredClaimError):
                raise _Refused("the token has the wrong audience (aud), or no expiry (exp)") from None
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
                raise _Refused("the token cannot be used") from None
        raise _Refused("the token is not signed with a key of its issuer")

    def _checked_times(self, claims: JsonObject) -> float:
        """The expiry in Unix seconds."""
        now, until = self._clock(), _seconds(claims["exp"])
        if "nbf" in claims and _seconds(claims["nbf"]) > now + self._leeway:
            raise _Refused("the token is not valid yet (nbf)")
        if until + self._leeway <= now:
            raise _Refused("the token has expired")
        return until + self._leeway

    def _admitted(self, caller: Caller, claims: JsonObject, issuer: Issuer) -> Caller | Refusal:
        granted = _scopes(claims)
        required = [*dict.fromkeys([*self.resource.scopes, *sorted(issuer.scopes)])]
        if not granted.issuperset(required):
            return self._insufficient("the token lacks a scope", required)
        is_mapped = issuer.profile_claim is not None or bool(issuer.scope_profiles)
        named = claims.get(issuer.profile_claim) if issuer.profile_claim is not None else None
        profile = named if isinstance(named, str) and named else None
        if profile is None:
            profile = next((name for scope, name in issuer.scope_profiles.items() if scope in granted), None)
        profile = profile or issuer.profile or self._profile
        if profile is None and is_mapped:
            return self._insufficient("the token gives no profile", [*required, *issuer.scope_profiles])
        if profile is not None and profile not in self._profiles:
            return self._insufficient("the token names a profile that does not exist", required)
        claims = {name: claims[name] for name in sorted(self._claim_names) if name in claims}
        return Caller(caller.principal, profile, claims=json.dumps(claims) if claims else "")

    def _insufficient(self, reason: str, scopes: Iterable[str]) -> Refusal:
        code = "insufficient_scope"
        return challenged(self.resource.challenge(code, reason, scopes), code, reason, 403)

    def _remember(self, digest: bytes, entry: _Known) -> None:
        self._cache.pop(digest, None)
        if len(self._cache) >= _MOST_KNOWN:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = entry


def _principal(claims: JsonObject, issuer: Issuer) -> str:
    """No issuer has a `#` (RFC 8414 §2): principals differ."""
    name = claims.get(issuer.principal_claim)
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise _Refused(f"the token does not name its principal ({issuer.principal_claim})")
    return f"{issuer.name}#{name}"


def _scopes(claims: JsonObject) -> set[str]:
    """`scope` of RFC 9068, and `scp` of some servers."""
    scopes: set[str] = set()
    for value in (claims.get("scope"), claims.get("scp")):
        if isinstance(value, str):
            scopes.update(value.split(" "))
        elif isinstance(value, list):
            scopes.update(item for item in value if isinstance(item, str))
    return scopes


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused("the token has a time that is not a number")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise _Refused("the token has a time that is not a number")
    return seconds
