"""Renews tokens, and checks requests of the SDK's client, which receives readable responses only."""

import base64
from dataclasses import replace
from urllib.parse import quote

import httpx2
import msgspec

from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.answers import BUSY, GIVEN, UNREADABLE, issued, refusal, repaired
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed
from mcp_hub.wire.responses import JSON, origin

_METADATA, _CLIENT, _TOKEN = "metadata", "a client", "a token"


async def refreshed(grant: Grant, client: ClientRegistration, addresses: Addresses, now: float) -> Grant:
    """The login with new tokens; keeps the refresh token if no other comes (RFC 6749 §6). Raises `LoginFailed`."""
    assert grant.refresh_token is not None
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    if grant.resource is not None:
        form["resource"] = grant.resource
    headers = {"accept": "application/json"}
    _identify(grant, client, form, headers)
    request = httpx2.Request("POST", grant.token_endpoint, data=form, headers=headers)
    response = await addresses.send(request, "token endpoint")
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
    return now + expires_in if expires_in is not None and expires_in > 0 else None


def _identify(grant: Grant, client: ClientRegistration, form: dict[str, str], headers: dict[str, str]) -> None:
    """Authenticates the client (RFC 6749 §2.3.1)."""
    secret = client.client_secret if grant.client_id == client.client_id else grant.client_secret
    if grant.token_auth == "basic" and secret:
        pair = f"{quote(grant.client_id, safe='')}:{quote(secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return
    form["client_id"] = grant.client_id
    if grant.token_auth == "post" and secret:
        form["client_secret"] = secret


class TokenRequests:
    """The requests of one login to `server`."""

    def __init__(self, server: str, addresses: Addresses) -> None:
        self._addresses = addresses
        self._exchange = f"{origin(server)} was asked for a way to log in and answered"
        self._lack: str | None = None
        self._is_in_doubt = False

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """A response that the SDK can read. Raises `LoginFailed` if it lacks a token or client."""
        purpose = _purpose(request)
        self._exchange = f"{origin(str(request.url))} was asked for {purpose} and answered"
        response = await self._addresses.send(request)
        if not response.is_redirect and purpose == _TOKEN:
            tokens = msgspec.structs.asdict(issued(response, "give a token"))
            return httpx2.Response(200, json={"token_type": "Bearer", **tokens}, request=request)
        if not response.is_redirect and purpose == _CLIENT and response.status_code not in GIVEN:
            raise refusal(response, "register the hub as a client")
        self._judge(response, purpose)
        return repaired(response) if response.status_code in GIVEN else response

    def failed(self, reason: str) -> LoginFailed:
        """A failure; final unless a response was missing or a server busy."""
        why = f" ({self._lack})" if self._lack is not None else ""
        return LoginFailed(f"{reason}{why}", is_final=not self._is_in_doubt and self._lack is None)

    def nonsense(self) -> LoginFailed:
        return LoginFailed(f"{self._exchange} with an invalid response", is_final=False)

    def _judge(self, response: httpx2.Response, purpose: str) -> None:
        lack = None if response.status_code in GIVEN else f"HTTP {response.status_code}"
        if lack is None and purpose == _METADATA and not _is_metadata(response.content):
            lack = "with an invalid response"
        self._is_in_doubt |= response.status_code in BUSY
        if lack is None:
            self._lack = None
        elif self._lack is None or response.status_code != 404:  # that one is none of the places where it could be
            self._lack = f"{self._exchange} {lack}"


def _purpose(request: httpx2.Request) -> str:
    if request.method != "POST":
        return _METADATA
    return _CLIENT if request.headers.get("content-type", "").startswith(JSON) else _TOKEN


def _is_metadata(content: bytes) -> bool:
    try:
        document = msgspec.json.decode(content)
    except UNREADABLE:
        return False
    return isinstance(document, dict) and ("issuer" in document or "authorization_servers" in document)
