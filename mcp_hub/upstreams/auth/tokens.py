"""Asks an authorization server for the next access token of a login (RFC 6749 §6), without the SDK."""

import base64
import re
from dataclasses import replace
from typing import Final
from urllib.parse import quote

import httpx2
import msgspec

from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import Client, Grant, LoginFailed
from mcp_hub.wire.responses import origin

__all__ = ["expiry", "is_usable", "refreshed", "said"]

_FINAL: Final = frozenset(
    ("invalid_grant", "invalid_client", "unauthorized_client", "invalid_request", "invalid_scope", "invalid_target")
    + ("unsupported_grant_type", "access_denied")
)
"""Errors that the same request would get again (RFC 6749 §5.2, RFC 8707 §2)."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_LONGEST: Final = 10 * 365 * 86400.0
"""Seconds of life that are believed."""
_SHOWN: Final = 200


class _Answer(msgspec.Struct):
    """Raw members: some servers write numbers as texts."""

    access_token: str = ""
    token_type: str = ""
    expires_in: int | float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _Refusal(msgspec.Struct):
    error: str = ""
    error_description: str = ""


async def refreshed(grant: Grant, client: Client, addresses: Addresses, now: float) -> Grant:
    """The login with a new access token, and the new refresh token if the old one was replaced.

    Raises `LoginFailed`.
    """
    assert grant.refresh_token is not None
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    if grant.resource is not None:
        form["resource"] = grant.resource
    headers = {"accept": "application/json"}
    _identify(grant, client, form, headers)
    addresses.check(grant.token_endpoint, "token endpoint")
    response = await addresses.send(httpx2.Request("POST", grant.token_endpoint, data=form, headers=headers))
    if response.status_code != 200:
        raise _refused(response)
    try:
        answer = msgspec.json.decode(response.content, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _Answer()
    if not is_usable(answer.access_token) or answer.token_type.lower() != "bearer":
        raise LoginFailed(f"{origin(grant.token_endpoint)} answered with no bearer token", is_final=False)
    learn(text for text in (answer.access_token, answer.refresh_token) if text)
    return replace(
        grant,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or grant.refresh_token,
        scope=answer.scope or grant.scope,
        obtained_at=now,
        expires_at=expiry(answer.expires_in, now),
    )


def is_usable(token: str) -> bool:
    """Whether it can be put into a header."""
    return _TOKEN.fullmatch(token) is not None


def expiry(expires_in: float | str | None, now: float) -> float | None:
    """When a token ends; None if its server does not say, or nothing that makes sense."""
    try:
        seconds = float(expires_in) if expires_in is not None else 0.0
    except (ValueError, OverflowError):
        return None
    return now + min(seconds, _LONGEST) if seconds > 0 else None


def _identify(grant: Grant, client: Client, form: dict[str, str], headers: dict[str, str]) -> None:
    """Says who the hub is, as it was settled at the login (RFC 6749 §2.3.1)."""
    secret = client.client_secret if grant.client_id == client.client_id else grant.client_secret
    if grant.token_auth == "basic" and secret:
        pair = f"{quote(grant.client_id, safe='')}:{quote(secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return
    form["client_id"] = grant.client_id
    if grant.token_auth == "post" and secret:
        form["client_secret"] = secret


def _refused(response: httpx2.Response) -> LoginFailed:
    where, status = origin(str(response.request.url)), response.status_code
    try:
        refusal = msgspec.json.decode(response.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = _Refusal()
    if 400 <= status < 500 and refusal.error in _FINAL:
        about = f" ({said(refusal.error_description)})" if refusal.error_description else ""
        return LoginFailed(f"{where} refused to renew the login: {refusal.error}{about}")
    return LoginFailed(f"{where} did not renew the login: HTTP {status}", is_final=False)


def said(text: str) -> str:
    """A foreign text, fit to be shown: one line of printable characters, not too long."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * _SHOWN]).strip()
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
