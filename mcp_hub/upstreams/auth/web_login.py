"""A login of a person in the web, in two requests: the way to the authorization server, and the way back.

What lies between is a record, so that another process, or the hub after a restart, can end what this one began.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from mcp_hub.addresses import is_cleartext
from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, foreign_text
from mcp_hub.upstreams.auth.login import sdk_flows
from mcp_hub.upstreams.auth.token_requests import granted
from mcp_hub.wire.responses import origin

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


async def begin(
    url: str, client: ClientRegistration, prior: Grant | None, redirect_uri: str, state: str
) -> tuple[str, WebLogin]:
    """The page of the authorization server with this `state`, and what `end` needs. Raises `LoginFailed`."""
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


async def end(
    login: WebLogin, url: str, client: ClientRegistration, returned: Mapping[str, str], time: float
) -> tuple[Grant, str | None]:
    """The login, and the account's name if the server says it, for what the browser brought back. Raises `LoginFailed`.

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
