"""Tokens for servers in exchange for the callers' own tokens of the hub (RFC 8693).

A caller's token goes to the configured issuer's token endpoint, never to a server; the new one is for one server, and
in memory until 30 s before its end.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, Grants, LoginFailed, is_same_issuer
from mcp_hub.upstreams.auth.token_requests import GIVEN, UNREADABLE, granted
from mcp_hub.wire.responses import origin

_MOST: Final = 4096
"""Principals whose newest token is kept."""
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
_MARGIN: Final = 30.0
"""Seconds before its end at which a token is exchanged again."""


class SubjectTokens:
    """The newest verified token of each principal, until its end, in memory alone."""

    def __init__(self, clock: Callable[[], float] = wall_time) -> None:
        self._clock = clock
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def note(self, principal: str, token: str, until: float) -> None:
        """Keeps a token that the hub has accepted, until then (Unix seconds)."""
        learn([token])
        self._tokens[principal] = token, until
        self._tokens.move_to_end(principal)
        if len(self._tokens) > _MOST:
            self._tokens.popitem(last=False)

    def find(self, principal: str) -> str:
        """Raises `LoginFailed` without a token."""
        token, until = self._tokens.get(principal, ("", 0.0))
        if until <= self._clock():
            self._tokens.pop(principal, None)
            reason = "it is given in exchange for the caller's own token, and the hub does not have a valid one"
            raise LoginFailed(reason, is_final=False)
        return token


class _Metadata(msgspec.Struct):
    issuer: str = ""
    token_endpoint: str = ""


async def exchanged(client: ClientRegistration, addresses: Addresses, subject: str, time: float) -> Grant:
    """A token for the caller with the token `subject`. Raises `LoginFailed`."""
    assert client.issuer is not None
    endpoint = await _token_endpoint(client.issuer, addresses)
    login = Grant(
        access_token="", token_endpoint=endpoint, client_id=client.client_id or "", issuer=client.issuer,
        token_auth=client.token_auth or ("basic" if client.client_secret else "none"),
    )  # fmt: skip
    form = {
        "grant_type": _GRANT, "subject_token": subject, "subject_token_type": _ACCESS_TOKEN,
        "requested_token_type": _ACCESS_TOKEN,
    }  # fmt: skip
    wishes = {"audience": client.audience, "resource": client.resource, "scope": " ".join(client.scopes)}
    form |= {name: wish for name, wish in wishes.items() if wish}
    grant, _ = await granted(login, client, addresses, form, "exchange the token of the caller", time)
    # no refresh token: the caller's own is there for the next one, unless it was revoked since
    return replace(grant, refresh_token=None, renew_before=_MARGIN)


async def _token_endpoint(issuer: str, addresses: Addresses) -> str:
    """The endpoint that the issuer itself names (RFC 8414 §3.3, OpenID Connect Discovery 1.0 §4.3)."""
    parts = urlsplit(issuer)
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = (
        f"{base}/.well-known/oauth-authorization-server{path}",
        f"{base}{path}/.well-known/openid-configuration",
    )
    for url in urls:
        response = await addresses.send(httpx2.Request("GET", url, headers={"accept": "application/json"}), "issuer")
        if response.status_code not in GIVEN:
            continue
        try:
            metadata = msgspec.json.decode(response.content, type=_Metadata)
        except UNREADABLE:
            continue
        if is_same_issuer(metadata.issuer, issuer) and metadata.token_endpoint:
            return metadata.token_endpoint
    raise LoginFailed(f"{origin(issuer)} does not say where it exchanges tokens (RFC 8414)", is_final=False)


def in_memory() -> Grants:
    """A store of one token, in memory alone."""
    return _InMemory()


class _InMemory:
    def __init__(self) -> None:
        self._grant: Grant | None = None

    def advice(self, server: str) -> str:
        return "call again with a new token of your identity provider"

    async def read(self, key: str) -> Grant | None:
        return self._grant

    @asynccontextmanager
    async def locked(self, key: str, seconds: float) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def renewing(self, key: str) -> AsyncIterator[Callable[[Grant], Awaitable[None]]]:
        async def store(grant: Grant) -> None:
            learn(grant.secrets())
            self._grant = grant

        yield store
