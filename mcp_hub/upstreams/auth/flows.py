"""Runs a login through the OAuth client of the SDK.

That is an `httpx2.Auth` flow, with requests through `Addresses`. Its first, an MCP request, gets the server's response
to a probe without credentials.

Imports the SDK (0.5 s, 60 MB). Sources: specification 2026-07-28, basic/authorization; RFC 8414, 8707, 9207, 9728,
7591, 7636.
"""

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Literal
from urllib.parse import urljoin

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from mcp_hub.clock import wall_time
from mcp_hub.masking import hide, learn
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import WITHOUT_APPS
from mcp_hub.protocol.headers import request_headers
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, request_frame
from mcp_hub.protocol.meta import modern_meta
from mcp_hub.types import MODERN
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, foreign_text, is_same_issuer
from mcp_hub.upstreams.auth.redirect import Redirect, Show
from mcp_hub.upstreams.auth.token_requests import TokenRequests, challenge, challenge_of, expiry, is_usable
from mcp_hub.upstreams.peer.state import CLIENT_INFO
from mcp_hub.wire.responses import origin

_is_own: Final = ContextVar("is_own_login", default=False)
"""Whether this task runs a login of the hub: then the SDK must not log responses, which hold tokens."""
logging.getLogger("mcp.client.auth.oauth2").addFilter(lambda record: not _is_own.get())

_METHODS: Final[dict[str, Literal["basic", "post", "none"]]] = {
    "client_secret_basic": "basic",
    "client_secret_post": "post",
    "none": "none",
}
_MOST_REQUESTS: Final = 40
"""Requests of one login, redirects included; usually about twelve."""


class _Storage:
    def __init__(self, prior: Grant | None, client_info: OAuthClientInformationFull | None) -> None:
        self.tokens: OAuthToken | None = None
        self.client_info = client_info
        self._prior = prior

    async def get_tokens(self) -> OAuthToken | None:
        prior = self._prior
        return OAuthToken(access_token=prior.access_token, scope=prior.scope) if prior is not None else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        learn(token for token in (tokens.access_token, tokens.refresh_token) if token)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info
        learn([client_info.client_secret] if client_info.client_secret else [])


class _Login(msgspec.Struct, frozen=True):
    url: str
    client: ClientRegistration
    prior: Grant | None
    provider: OAuthClientProvider
    storage: _Storage
    addresses: Addresses

    async def run(self) -> Grant:
        await self.drive()
        tokens = self.storage.tokens
        if tokens is None or not is_usable(tokens.access_token):
            raise LoginFailed("the authorization server gave no token that can be used")
        return self.grant(tokens)

    async def drive(self) -> None:
        """Runs the flow. Raises `LoginFailed`, and what its handlers raise otherwise."""
        asking = TokenRequests(self.url, self.addresses)
        learn(secret for secret in (self.client.client_secret, self.client.private_key) if secret)
        is_own = _is_own.set(True)
        try:
            await self._drive(asking)
        except LoginFailed as exc:
            raise LoginFailed(hide(str(exc)), is_final=exc.is_final) from None
        except OAuthFlowError as exc:
            if exc.__cause__ is not None:  # it is about the content of an answer, and repeats that
                raise asking.nonsense() from None
            raise asking.failed(foreign_text(str(exc))) from None
        except (ValidationError, httpx2.InvalidURL, UnicodeError):
            raise asking.nonsense() from None
        finally:
            _is_own.reset(is_own)

    async def _drive(self, asking: TokenRequests) -> None:
        headers = {"mcp-protocol-version": eras.LATEST_HANDSHAKE}  # from 2025-06-18 on a token is for one resource
        request = httpx2.Request("POST", self.url, headers=headers)
        flow = self.provider.async_auth_flow(request)
        try:
            await anext(flow)
            response = refusal = await self._refusal(request)
            for _ in range(_MOST_REQUESTS):
                next_request = await flow.asend(response)
                if next_request is request:
                    return
                renamed = asking.renamed
                response = await asking.send(next_request)
                if asking.renamed > renamed:  # it compares texts, and has to begin with the right one
                    await flow.aclose()
                    flow = self.provider.async_auth_flow(request)
                    await anext(flow)
                    response = refusal
            raise LoginFailed(f"the login took more than {_MOST_REQUESTS} requests")
        except StopAsyncIteration:
            raise LoginFailed("the login ended without a token") from None
        finally:
            await flow.aclose()

    async def _refusal(self, request: httpx2.Request) -> httpx2.Response:
        params = object_bytes({"_meta": modern_meta(eras.LATEST_MODERN, CLIENT_INFO, WITHOUT_APPS[MODERN], None)})
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **request_headers(eras.LATEST_MODERN, "server/discover", params),
        }
        probe = httpx2.Request("POST", self.url, content=request_frame(1, "server/discover", params), headers=headers)
        answer = await self.addresses.send(probe)
        parameters = (
            challenge_of(answer.headers.get("www-authenticate", "")) if answer.status_code in (401, 403) else {}
        )
        missing = self.prior.missing if self.prior is not None else None
        is_more = missing is not None and not self.client.scopes
        said_so = challenge(
            error="insufficient_scope" if is_more else None,
            resource_metadata=self._absolute(parameters.get("resource_metadata")),
            scope=" ".join(self.client.scopes) or missing or parameters.get("scope"),
        )
        return httpx2.Response(403 if is_more else 401, headers={"www-authenticate": said_so}, request=request)

    def _absolute(self, reference: str | None) -> str | None:
        """The URL that the server refers to; None if it cannot be one, since there are well-known ones."""
        try:
            return urljoin(self.url, reference) if reference else None
        except ValueError:
            return None

    def grant(self, tokens: OAuthToken) -> Grant:
        """The login with these tokens."""
        context, client = self.provider.context, self.client
        info, metadata = context.client_info, context.oauth_metadata
        if info is None:
            raise LoginFailed("the authorization server knows no client of the hub's")
        # without metadata: where servers before 2025-06-18 had it
        endpoint = metadata.token_endpoint if metadata else f"{context.get_authorization_base_url(self.url)}/token"
        now = wall_time()
        has_own_secret = info.client_secret is not None and info.client_id == client.client_id
        return Grant(
            access_token=tokens.access_token,
            token_endpoint=str(endpoint),
            client_id=info.client_id,
            client_secret=None if has_own_secret else info.client_secret,
            token_auth=_METHODS.get(info.token_endpoint_auth_method or "none", "none"),
            redirect_uris=tuple(map(str, info.redirect_uris or ())),
            is_registered=info.client_id not in (client.client_id, client.metadata_url),
            issuer=_issuer(self.provider),
            resource=context.get_resource_url(),
            refresh_token=tokens.refresh_token if tokens.refresh_token and is_usable(tokens.refresh_token) else None,
            scope=tokens.scope,
            requested=context.client_metadata.scope,
            obtained_at=now,
            expires_at=expiry(tokens.expires_in, now),
        )


async def login_in_browser(
    url: str, client: ClientRegistration, prior: Grant | None, redirect: Redirect, show: Show, seconds: float
) -> Grant:
    """Logs a person in at `url` within `seconds`, in place of `prior`. Raises `LoginFailed`."""
    addresses = Addresses(url, client.ca)
    storage = _Storage(prior, _known_client(client, prior, redirect.uri))

    async def visit(authorization_url: str) -> None:
        _check_client(provider, client, prior)
        _check_pkce(provider)
        await addresses.check_page(authorization_url)
        redirect.expect(authorization_url)
        await show(authorization_url, _issuer(provider) or authorization_url)

    async def came_back() -> AuthorizationCodeResult:
        parameters = await redirect.wait(seconds)
        learn([parameters["code"]])  # token endpoints may repeat it in what they refuse
        return AuthorizationCodeResult(code=parameters["code"], state=parameters["state"], iss=parameters.get("iss"))

    metadata = OAuthClientMetadata(
        client_name="mcp-hub", redirect_uris=[AnyUrl(redirect.uri)], scope=" ".join(client.scopes) or None
    )
    provider = OAuthClientProvider(url, metadata, storage, visit, came_back, client_metadata_url=client.metadata_url)
    return await _Login(
        url=url, client=client, prior=prior, provider=provider, storage=storage, addresses=addresses
    ).run()


class _LeftForBrowser(Exception):
    """The login continues by another request, perhaps in another process."""


async def leave_for_browser(
    url: str, client: ClientRegistration, prior: Grant | None, redirect_uri: str
) -> tuple[str, bool, Grant]:
    """Begins a login that `login` ends: the authorization URL, whose `state` and challenge are replaced, whether the
    issuer names itself on the browser's return (RFC 9207), and the login without tokens. Raises `LoginFailed`.
    """
    addresses = Addresses(url, client.ca)
    storage = _Storage(prior, _known_client(client, prior, redirect_uri))
    pages: list[str] = []

    async def visit(authorization_url: str) -> None:
        _check_client(provider, client, prior)
        _check_pkce(provider)
        await addresses.check_page(authorization_url)
        pages.append(authorization_url)
        raise _LeftForBrowser

    async def came_back() -> AuthorizationCodeResult:
        raise AssertionError("the browser returns to another place")

    metadata = OAuthClientMetadata(
        client_name="mcp-hub", redirect_uris=[AnyUrl(redirect_uri)], scope=" ".join(client.scopes) or None
    )
    provider = OAuthClientProvider(url, metadata, storage, visit, came_back, client_metadata_url=client.metadata_url)
    login = _Login(url=url, client=client, prior=prior, provider=provider, storage=storage, addresses=addresses)
    try:
        await login.drive()
    except _LeftForBrowser:
        pass
    issuer_says = provider.context.oauth_metadata
    if not pages or issuer_says is None:  # an issuer that nobody names cannot be compared afterwards
        raise LoginFailed("the authorization server does not say where to log in (RFC 8414)")
    names_itself = bool(issuer_says.authorization_response_iss_parameter_supported)
    return pages[0], names_itself, login.grant(OAuthToken(access_token=""))


def _check_pkce(provider: OAuthClientProvider) -> None:
    """Raises `LoginFailed` without PKCE (basic/authorization "Authorization Code Protection")."""
    metadata = provider.context.oauth_metadata
    if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
        lack = "code_challenge_methods_supported lacks S256 in its metadata"
        reason = f"the authorization server {_issuer(provider)} does not say that it protects logins by PKCE ({lack})"
        raise LoginFailed(reason)


async def login_alone(url: str, client: ClientRegistration) -> Grant:
    """Logs the hub in (client credentials) by a secret or a signed JWT. Raises `LoginFailed`."""
    client_id, scope, issuer = client.client_id, " ".join(client.scopes) or None, client.issuer
    assert client_id is not None
    storage = _Storage(None, None)
    provider: OAuthClientProvider
    if client.private_key is not None:
        signed = SignedJWTParameters(
            issuer=client_id, subject=client_id, signing_key=client.private_key, signing_algorithm=client.algorithm
        )
        provider = PrivateKeyJWTOAuthProvider(url, storage, client_id, _signing(signed), scope=scope, issuer=issuer)
    else:
        secret = client.client_secret
        assert secret is not None
        method: Any = f"client_secret_{client.token_auth or 'basic'}"
        provider = ClientCredentialsOAuthProvider(url, storage, client_id, secret, method, scope=scope, issuer=issuer)
    return await _Login(
        url=url, client=client, prior=None, provider=provider, storage=storage, addresses=Addresses(url, client.ca)
    ).run()


def _signing(parameters: SignedJWTParameters) -> Callable[[str], Awaitable[str]]:
    sign = parameters.create_assertion_provider()

    async def assertion(audience: str) -> str:
        try:
            return await sign(audience)
        except Exception as exc:  # the key comes from outside, and every library beneath has its own errors for it
            failure = f"{parameters.signing_algorithm}: {type(exc).__name__}"
            raise LoginFailed(f'"private_key" cannot sign by {failure}') from None

    return assertion


def _known_client(
    client: ClientRegistration, prior: Grant | None, redirect_uri: str
) -> OAuthClientInformationFull | None:
    if client.client_id is not None:
        return OAuthClientInformationFull(
            client_id=client.client_id, client_secret=client.client_secret, redirect_uris=[AnyUrl(redirect_uri)]
        )
    if prior is None or not prior.is_registered or redirect_uri not in prior.redirect_uris:
        return None
    methods = {ours: theirs for theirs, ours in _METHODS.items()}
    return OAuthClientInformationFull(
        client_id=prior.client_id,
        client_secret=prior.client_secret,
        redirect_uris=[AnyUrl(uri) for uri in prior.redirect_uris],
        token_endpoint_auth_method=methods[prior.token_auth],
        issuer=prior.issuer,
    )


def _check_client(provider: OAuthClientProvider, client: ClientRegistration, prior: Grant | None) -> None:
    """Raises `LoginFailed` for another issuer.

    A registered secret without a stated method is sent by HTTP Basic (RFC 7591 §2).
    """
    issuer, info = _issuer(provider), provider.context.client_info
    if client.issuer is not None and (issuer is None or not is_same_issuer(issuer, client.issuer)):
        raise LoginFailed(f'the server names {issuer!r} as its authorization server, and "issuer" another one')
    named = provider.context.auth_server_url
    if issuer is None and named is not None:
        raise LoginFailed(f"{origin(named)}, the authorization server, does not say where to log in (RFC 8414)")
    is_secret = client.client_secret is not None and client.issuer is None
    if is_secret and prior is not None and prior.issuer is not None and prior.issuer != issuer:
        change = f"was {prior.issuer!r} and is {issuer!r} now"
        raise LoginFailed(f'the authorization server {change}: set "issuer" to allow it')
    if info is None or info.client_secret is None or info.token_endpoint_auth_method is not None:
        return
    metadata = provider.context.oauth_metadata
    offered = metadata.token_endpoint_auth_methods_supported or () if metadata is not None else ()
    otherwise = "post" if "client_secret_post" in offered and "client_secret_basic" not in offered else "basic"
    info.token_endpoint_auth_method = f"client_secret_{client.token_auth or otherwise}"


def _issuer(provider: OAuthClientProvider) -> str | None:
    metadata = provider.context.oauth_metadata
    return str(metadata.issuer) if metadata is not None else None
