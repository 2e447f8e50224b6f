"""Input and result of a login. Their representations show no secret."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from mcp_hub.masking import hide_head

_SHOWN: Final = 200
_MARGIN: Final = 60.0
"""Seconds before its expiry at which a token is renewed."""
_PART: Final = 0.1
"""A shorter margin for short-lived tokens: this part of the lifetime."""


class LoginFailed(Exception):
    """No token can be obtained; if `is_final`, until a person acts. The message holds no secret."""

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The hub as a client of an authorization server (`OAuthSettings`). `ca` is a file with additional certificates."""

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_auth: Literal["basic", "post"] | None = None
    private_key: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    metadata_url: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    is_machine: bool = False
    ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One login: tokens, client and token endpoint. Times are Unix seconds.

    `token_auth`: how the client authenticates. `client_secret`: from a registration by the hub. Scopes: `scope` was
    granted, `requested` at the login, `missing` noted since.
    """

    access_token: str = field(repr=False)
    token_endpoint: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    token_auth: Literal["none", "basic", "post"] = "none"
    redirect_uris: tuple[str, ...] = ()
    is_registered: bool = False
    issuer: str | None = None
    resource: str | None = None
    refresh_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    requested: str | None = None
    missing: str | None = None
    obtained_at: float = 0.0
    expires_at: float | None = None

    @property
    def renew_at(self) -> float:
        """When to renew the token; infinite without an expiry."""
        if self.expires_at is None:
            return float("inf")
        return self.expires_at - min(_MARGIN, _PART * max(self.expires_at - self.obtained_at, 0.0))

    def secrets(self) -> Iterator[str]:
        return (text for text in (self.access_token, self.refresh_token, self.client_secret) if text)


def grant_key(url: str, client: ClientRegistration) -> str:
    """A digest that identifies a client's login at a server."""
    who = client.client_id or client.metadata_url or ""
    text = "\0".join((url, who, "machine" if client.is_machine else "person"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def foreign_text(text: str) -> str:
    """One masked line of at most 200 printable characters."""
    return "".join(char if char.isprintable() else " " for char in hide_head(text.strip(), _SHOWN, "…"))
