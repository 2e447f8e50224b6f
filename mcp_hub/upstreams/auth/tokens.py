"""Asks an authorization server for the next access token of a login (RFC 6749 §6), without the SDK."""

import base64
from dataclasses import replace
from urllib.parse import quote

import httpx2

from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.answers import issued
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant


async def refreshed(grant: Grant, client: ClientRegistration, addresses: Addresses, now: float) -> Grant:
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
    answer = issued(response, "renew the login")
    return replace(
        grant,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or grant.refresh_token,
        scope=answer.scope or grant.scope,
        obtained_at=now,
        expires_at=expiry(answer.expires_in, now),
    )


def expiry(expires_in: int | None, now: float) -> float | None:
    """When a token ends; None if its server does not say, or nothing that makes sense."""
    return now + expires_in if expires_in is not None and expires_in > 0 else None


def _identify(grant: Grant, client: ClientRegistration, form: dict[str, str], headers: dict[str, str]) -> None:
    """Says who the hub is, as it was settled at the login (RFC 6749 §2.3.1)."""
    secret = client.client_secret if grant.client_id == client.client_id else grant.client_secret
    if grant.token_auth == "basic" and secret:
        pair = f"{quote(grant.client_id, safe='')}:{quote(secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return
    form["client_id"] = grant.client_id
    if grant.token_auth == "post" and secret:
        form["client_secret"] = secret
