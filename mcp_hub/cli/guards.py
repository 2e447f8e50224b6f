"""The guard of the HTTP front, made from the settings: at the start, and anew whenever they change."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.issuers import IssuerSettings, ResourceServerSettings
from mcp_hub.config.schema import Settings
from mcp_hub.config.trust import problem_of_config
from mcp_hub.fronts.endpoints import Answer
from mcp_hub.fronts.exchange import Scope, Send, respond
from mcp_hub.fronts.guard import Guard, is_loopback
from mcp_hub.sessions.session import Caller

if TYPE_CHECKING:
    from mcp_hub.fronts.oauth import Issuer, Resource, TokenVerifier
    from mcp_hub.fronts.oauth_keys import KeyRing

__all__ = ["Doorkeeper", "is_authenticated", "metadata_routes", "why_not_listen"]

_MCP = ("/mcp", "/sse", "/messages")


def is_authenticated(settings: Settings) -> bool:
    """Whether everybody who comes in over HTTP has to show a token."""
    return bool(settings.hub.tokens) or settings.hub.http.oauth is not None


def why_not_listen(settings: Settings, host: str) -> str | None:
    """Why the HTTP front refuses to listen there; None if it does not."""
    if is_loopback(host) or is_authenticated(settings) or settings.hub.http.allow_public:
        return None
    return (
        f"refusing to listen on {host} without tokens: anyone who reaches it could run your tools; "
        "set hub.tokens or hub.http.oauth, or hub.http.allow_public if something else guards it"
    )


class Doorkeeper:
    """Makes the guards of one HTTP front, whose settings may change, and keeps the keys of issuers between them."""

    def __init__(self, profile: str | None) -> None:
        """`profile` is of callers whose token names none."""
        self._profile = profile
        self._ring: KeyRing | None = None
        self._has_ring = anyio.Event()

    async def run(self) -> None:
        """Keeps the keys fresh; runs until cancelled."""
        await self._has_ring.wait()
        if self._ring is not None:
            await self._ring.run()

    def guard(self, settings: Settings) -> Guard:
        """The guard that these settings ask for."""
        http = settings.hub.http
        tokens = {
            token.token.get_secret_value(): Caller(token.principal, token.profile or self._profile)
            for token in settings.hub.tokens
        }
        hosts = [*http.allowed_hosts, http.host]
        verifier = None
        if http.oauth is not None:
            verifier = _verifier(http.oauth, settings, self._profile, self._keys())
            hosts.append(urlsplit(http.oauth.resource).hostname or "")
        default = Caller(profile=self._profile)
        return Guard(tokens, hosts, http.allowed_origins, default, settings.profiles, verifier)

    def key_states(self) -> list[str]:
        """A line for each set of keys: how many, how old, what is wrong."""
        return [] if self._ring is None else self._ring.states()

    def _keys(self) -> "KeyRing":
        from mcp_hub.fronts.oauth_keys import KeyRing  # imports cryptography, which most hubs do without

        if self._ring is None:
            self._ring = KeyRing(SystemClock(), lambda found: problem_of_config(found, os.environ) is None)
            self._has_ring.set()
        return self._ring


def metadata_routes(settings: Settings) -> Mapping[str, Answer]:
    """Where clients learn which authorization servers there are: paths that need no token (RFC 9728 §3)."""
    if settings.hub.http.oauth is None:
        return {}
    from mcp_hub.fronts.oauth import WELL_KNOWN

    resource = _resource(settings.hub.http.oauth)
    body = resource.metadata()

    async def answer(scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, headers=[(b"allow", b"GET, HEAD")])
            return
        await respond(send, 200, body, [(b"cache-control", b"max-age=300")])

    paths = {WELL_KNOWN, resource.metadata_path, *(f"{WELL_KNOWN}{path}" for path in _MCP)}
    return dict.fromkeys(sorted(paths), answer)


def _verifier(
    oauth: ResourceServerSettings, settings: Settings, profile: str | None, ring: "KeyRing"
) -> "TokenVerifier":
    from mcp_hub.fronts.oauth import TokenVerifier

    return TokenVerifier(
        _resource(oauth),
        _issuers(oauth, ring),
        leeway=oauth.leeway,
        now=wall_time,
        profiles=settings.profiles,
        profile=profile,
    )


def _resource(oauth: ResourceServerSettings) -> "Resource":
    from mcp_hub.fronts.oauth import Resource

    return Resource(oauth.resource, tuple(issuer.issuer for issuer in oauth.issuers), tuple(oauth.scopes))


def _issuers(oauth: ResourceServerSettings, ring: "KeyRing") -> "list[Issuer]":
    from mcp_hub.fronts.oauth import Issuer
    from mcp_hub.fronts.oauth_keys import Keys, KeySource, SharedKey

    sources = {
        own.issuer: KeySource(
            own.jwks_url, Path(own.jwks_file) if own.jwks_file else None, frozenset(own.accepted_algorithms())
        )
        for own in oauth.issuers
        if own.shared_key is None
    }
    sets = ring.use(sources.values())

    def keys(own: IssuerSettings) -> Keys:
        if own.shared_key is not None:
            return SharedKey(own.shared_key.get_secret_value().encode(), own.accepted_algorithms())
        return sets[sources[own.issuer]]

    return [
        Issuer(
            name=own.issuer,
            keys=keys(own),
            algorithms=frozenset(own.accepted_algorithms()),
            audience=tuple(own.audience or [oauth.resource]),
            scopes=frozenset(own.scopes),
            principal_claim=own.principal_claim,
            profile_claim=own.profile_claim,
            scope_profiles=own.scope_profiles,
            profile=own.profile,
        )
        for own in oauth.issuers
    ]
