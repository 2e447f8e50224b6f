"""The input and the result of a login: frozen records, which never show a secret."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from mcp_hub.masking import hide_head

_SHOWN: Final = 200
_MARGIN: Final = 60.0
"""Seconds before its end in which a token is renewed, for requests on their way and clocks that differ."""
_PART: Final = 0.1
"""The same as a part of its life, where that is shorter."""


class LoginFailed(Exception):
    """No token can be obtained, `is_final` until a person acts. The message is for people and holds no secret."""

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The hub as a client of one server's authorization server, from the configuration (`OAuthSettings`).

    `ca` is a file of certificates that both servers may have, besides the usual ones.
    """

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
    """One login: the tokens, their client, and the place where they are renewed.

    Times are Unix seconds. `token_auth` is how the client says who it is where tokens are renewed. `client_secret` is
    kept only if the authorization server gave it out when the hub registered by itself. `scope` is what was granted,
    `asked` what was asked for, `wanted` what a server has missed since.
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
    asked: str | None = None
    wanted: str | None = None
    obtained_at: float = 0.0
    expires_at: float | None = None

    @property
    def renew_at(self) -> float:
        """From when on there should be another token; never if it does not say when it ends."""
        if self.expires_at is None:
            return float("inf")
        return self.expires_at - min(_MARGIN, _PART * max(self.expires_at - self.obtained_at, 0.0))

    def secrets(self) -> Iterator[str]:
        """The texts that must not be shown."""
        return (text for text in (self.access_token, self.refresh_token, self.client_secret) if text)


def grant_key(url: str, client: ClientRegistration) -> str:
    """Names the login of one client to one server; a digest, which reveals neither."""
    who = client.client_id or client.metadata_url or ""
    text = "\0".join((url, who, "machine" if client.is_machine else "person"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def foreign_text(text: str) -> str:
    """A text of a server, fit to be shown: one masked line of at most 200 printable characters."""
    return "".join(char if char.isprintable() else " " for char in hide_head(text.strip(), _SHOWN, "…"))
