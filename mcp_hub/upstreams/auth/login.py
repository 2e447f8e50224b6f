"""Logs in, by a person's browser, by the hub itself or in the web, and out.

A login in the web has two requests, with a record between: another process, or the hub after a restart, can end it.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import msgspec

from mcp_hub.addresses import is_cleartext
from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore, LoginFailed, foreign_text, grant_key
from mcp_hub.upstreams.auth.redirect import Show, listening
from mcp_hub.upstreams.auth.token_requests import granted
from mcp_hub.wire.responses import origin

_FLOWS: Final = "mcp_hub.upstreams.auth.flows"
_LOCK: Final = 15.0
"""Seconds that another process may take to renew a login."""
_ALONE: Final = 30.0
"""Seconds of a login without a person."""


async def log_in(url: str, client: ClientRegistration, store: GrantStore, show: Show, seconds: float) -> Grant:
    """Logs in at `url` and replaces the stored login; waits `seconds` for a person. Raises `LoginFailed`."""
    if is_cleartext(url):
        raise LoginFailed("a token must not go over http://, where others on the network can read it; use https://")
    key = grant_key(url, client)
    if client.is_machine:
        grant = await log_in_alone(url, client)
    else:
        try:
            prior = store.load(key)
        except LoginFailed:  # it is to be replaced anyway
            prior = None
        grant = await _in_browser(url, client, prior, show, seconds)
    async with store.locked(key, _LOCK):
        store.save(key, grant)
    return grant


async def log_in_alone(url: str, client: ClientRegistration) -> Grant:
    """A login without a person, not stored. Raises `LoginFailed`."""
    if client.alone is not None:
        return await client.alone()
    flows = await sdk_flows()
    try:
        with anyio.fail_after(_ALONE):
            grant: Grant = await flows.login_alone(url, client)
    except TimeoutError:
        raise LoginFailed(f"the login took longer than {_ALONE:g} s", is_final=False) from None
    return grant


async def _in_browser(url: str, client: ClientRegistration, prior: Grant | None, show: Show, seconds: float) -> Grant:
    flows, port = await sdk_flows(), client.redirect_port
    if port is None and prior is not None and prior.is_registered and prior.redirect_uris:
        port = urlsplit(prior.redirect_uris[0]).port
    async with listening(port, or_any=client.redirect_port is None) as redirect:
        grant: Grant = await flows.login_in_browser(url, client, prior, redirect, show, seconds)
    return grant


async def sdk_flows() -> Any:
    """The module of flows, which imports the SDK at its first use."""
    return await anyio.to_thread.run_sync(import_module, _FLOWS)


async def log_out(url: str, client: ClientRegistration, store: GrantStore) -> bool:
    """Removes the stored login; whether there was one. Raises `LoginFailed`."""
    key = grant_key(url, client)
    async with store.locked(key, _LOCK):
        return store.remove(key)


_LONGEST_CODE: Final = 8192
"""Characters of an authorization code."""
_OURS: Final = ("state", "code_challenge", "code_challenge_method")


class WebLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login that a browser has left for: PKCE verifier, `issuer` fixed at the begin, and the login without tokens."""

    verifier: str
    redirect_uri: str
    names_itself: bool
    grant: Grant

    @property
    def issuer(self) -> str:
        return self.grant.issuer or ""

    def __repr__(self) -> str:
        return f"WebLogin({origin(self.issuer)})"


async def begin_in_web(
    url: str, client: ClientRegistration, prior: Grant | None, redirect_uri: str, state: str
) -> tuple[str, WebLogin]:
    """The authorization server's page, and what `end_in_web` needs. Raises `LoginFailed`."""
    if is_cleartext(url):
        raise LoginFailed("a token must not go over http://, where others on the network can read it; use https://")
    page, names_itself, grant = await (await sdk_flows()).leave_for_browser(url, client, prior, redirect_uri)
    verifier = secrets.token_urlsafe(64)
    learn([verifier])
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    # the query of the flow is encoded, and has no ? of its own; that of an endpoint comes before it
    endpoint, _, query = page.rpartition("?")
    parameters = [(name, value) for name, value in parse_qsl(query) if name not in _OURS]
    sent = urlencode([*parameters, ("state", state), ("code_challenge", challenge), ("code_challenge_method", "S256")])
    login = WebLogin(verifier=verifier, redirect_uri=redirect_uri, names_itself=names_itself, grant=grant)
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{sent}", login


async def end_in_web(
    login: WebLogin, url: str, client: ClientRegistration, returned: Mapping[str, str], time: float
) -> tuple[Grant, str | None]:
    """The login by the browser's parameters, and the account's name if known. Raises `LoginFailed`.

    The issuer is compared before the code is shown to anybody (RFC 9207 §2.4).
    """
    issuer = returned.get("iss")
    if issuer is not None and issuer != login.issuer:
        raise LoginFailed(f"another authorization server answered than {login.issuer}, where the login began")
    if issuer is None and login.names_itself:
        raise LoginFailed(f"{login.issuer} says that it names itself in its answer (iss), and this one has no name")
    if "error" in returned:
        refusal = " ".join(foreign_text(returned.get(name, "")) for name in ("error", "error_description")).rstrip()
        raise LoginFailed(f"refused by the authorization server: {refusal}")
    code = returned.get("code", "")
    if not 0 < len(code) <= _LONGEST_CODE:
        raise LoginFailed("the authorization server gave no code that can be used")
    learn([code])  # token endpoints may repeat it in what they refuse
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": login.redirect_uri}
    form["code_verifier"] = login.verifier
    if login.grant.resource is not None:
        form["resource"] = login.grant.resource
    return await granted(login.grant, client, Addresses(url, client.ca), form, "give a token", time)
