"""Renews tokens, and checks requests of the SDK's client, which receives readable responses only.

Responses are not trusted; only their OAuth errors are shown.
"""

import base64
import re
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
import msgspec

from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, foreign_text, is_same_issuer
from mcp_hub.wire.responses import JSON, origin

GIVEN: Final = (200, 201)
BUSY: Final = frozenset((408, 429, *range(500, 600)))
"""Statuses that say nothing about the request itself."""
_FINAL: Final = frozenset(
    ("invalid_grant", "invalid_client", "unauthorized_client", "invalid_request", "invalid_scope", "invalid_target")
    + ("unsupported_grant_type", "access_denied", "invalid_redirect_uri", "invalid_client_metadata")
)
"""Errors that the same request would get again (RFC 6749 §5.2, RFC 8707 §2, RFC 7591 §3.2.2)."""
_TOKEN_CHARACTERS: Final = re.compile(r"[\x21-\x7e]{1,16384}")
_LONGEST: Final = 10 * 365 * 86400
"""The longest plausible lifetime, in seconds."""
_BEARER: Final = "bearer"
_MOST_FIELDS: Final = 100
"""Fields read from a form."""
_LISTS: Final = frozenset(("authorization_servers", "redirect_uris", "grant_types", "response_types"))
"""Members that are lists, besides those that name what is supported (RFC 7591 §2, 9728 §2)."""
_T = TypeVar("_T", bound=msgspec.Struct)
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONGEST_CHALLENGE: Final = 8192
_LARGEST_ID: Final = 64 << 10
"""Characters of an ID token that are read."""
_SCHEME: Final = re.compile(r"(?:^|,)\s*bearer(?:\s+|$)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'\s*,?\s*([A-Za-z0-9_-]{1,64})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_UNFIT: Final = re.compile(r'[^ -~]|["\\]')


class _Issued(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: int | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _Answer(msgspec.Struct):
    access_token: str = ""
    token_type: str | None = None
    expires_in: msgspec.Raw = msgspec.Raw(b"null")
    refresh_token: str | None = None
    scope: str | list[str] | None = None


class _Person(msgspec.Struct):
    """Claims of an ID token that show a person the account (OpenID Connect Core 1.0 §5.1)."""

    preferred_username: str | None = None
    email: str | None = None
    name: str | None = None
    sub: str | None = None


class _WithIdToken(msgspec.Struct):
    id_token: str = ""


class _Refusal(msgspec.Struct):
    error: str = ""
    error_description: str | None = None


def challenge_of(header: str) -> dict[str, str]:
    """Parameters of the Bearer challenge in `WWW-Authenticate` (RFC 6750 §3), by lower-case name."""
    text = header if len(header) <= _LONGEST_CHALLENGE else header[:_LONGEST_CHALLENGE].rpartition(",")[0]
    start = _SCHEME.search(text)
    parameters: dict[str, str] = {}
    at = start.end() if start else len(text)
    while (pair := _PARAMETER.match(text, at)) is not None:
        value = re.sub(r"\\(.)", r"\1", pair[2]) if pair[2] is not None else pair[3]
        parameters.setdefault(pair[1].lower(), value)  # the first of two of a name counts
        at = pair.end()
    return parameters


def challenge(**parameters: str | None) -> str:
    """A Bearer challenge, without unfit characters and empty values."""
    fit = {name: _UNFIT.sub("", value).strip() for name, value in parameters.items() if value}
    pairs = [f'{name}="{value}"' for name, value in fit.items() if value]
    return f"Bearer {', '.join(pairs)}".rstrip()


def issued(response: httpx2.Response, action: str) -> _Issued:
    """The response's tokens, masked from now on. Raises `LoginFailed`."""
    if response.status_code not in GIVEN:
        raise refusal(response, action)
    answer = _decoded(response, _Answer)
    if not is_usable(answer.access_token) or (answer.token_type or _BEARER).lower() != _BEARER:
        detail = _described(_refusal(response))
        why = f": {detail}" if detail else ""
        where = origin(str(response.request.url))
        raise LoginFailed(f"{where} answered with no bearer token{why}", is_final=False)
    learn(text for text in (answer.access_token, answer.refresh_token) if text)
    seconds = _seconds(bytes(answer.expires_in))
    return _Issued(answer.access_token, seconds, answer.refresh_token or None, _joined(answer.scope))


def account_name(response: httpx2.Response) -> str | None:
    """The name in an ID token, masked and cut.

    It only tells a person: its signature is not checked, since the token endpoint itself gave it (OpenID Connect Core
    1.0 §3.1.3.7).
    """
    _, _, payload = _decoded(response, _WithIdToken).id_token[:_LARGEST_ID].partition(".")
    body = payload.partition(".")[0]
    try:
        person = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_Person)
    except (ValueError, RecursionError):
        return None
    named = person.preferred_username or person.email or person.name or person.sub
    return foreign_text(named) or None if named else None


def repaired(response: httpx2.Response) -> httpx2.Response:
    """A response that the SDK can read: no nulls, scopes as text, lists where expected."""
    try:
        members = msgspec.json.decode(response.content, type=dict[str, object])
    except UNREADABLE:
        return response
    fit = {name: _fit(name, value) for name, value in members.items() if value is not None}
    return response if fit == members else _with_members(response, fit)


def _with_members(response: httpx2.Response, members: dict[str, object]) -> httpx2.Response:
    headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-length"]
    return httpx2.Response(
        response.status_code, headers=headers, content=msgspec.json.encode(members), request=response.request
    )


def refusal(response: httpx2.Response, action: str) -> LoginFailed:
    """The failure to do `action`; final for OAuth errors that would recur."""
    where, status, error = origin(str(response.request.url)), response.status_code, _refusal(response)
    if 400 <= status < 500 and status not in BUSY and error.error in _FINAL:
        return LoginFailed(f"{where} refused to {action}: {_described(error)}")
    detail = f", {_described(error)}" if error.error else ""
    return LoginFailed(f"{where} did not {action}: HTTP {status}{detail}", is_final=False)


def is_usable(token: str) -> bool:
    """Whether a header can hold the token."""
    return _TOKEN_CHARACTERS.fullmatch(token) is not None


def _refusal(response: httpx2.Response) -> _Refusal:
    return _decoded(response, _Refusal)


def _decoded(response: httpx2.Response, type_: type[_T]) -> _T:
    """JSON or a form (GitHub); empty if unreadable."""
    try:
        return msgspec.json.decode(response.content, type=type_)
    except UNREADABLE:
        pass
    try:
        form = dict(parse_qsl(response.content.decode(), max_num_fields=_MOST_FIELDS))
        return msgspec.convert({name: _raw(type_, name, value) for name, value in form.items()}, type_)
    except (ValueError, msgspec.ValidationError):
        return type_()


def _raw(type_: type, name: str, value: str) -> object:
    is_encoded = any(field.name == name and field.type is msgspec.Raw for field in msgspec.structs.fields(type_))
    return msgspec.Raw(msgspec.json.encode(value)) if is_encoded else value


def _joined(scope: str | list[str] | None) -> str | None:
    return " ".join(scope) if isinstance(scope, list) else scope


def _fit(name: str, value: object) -> object:
    if name == "scope" and isinstance(value, list):
        return " ".join(text for text in value if isinstance(text, str))
    is_list = name in _LISTS or (name.endswith("_supported") and value not in ("true", "false"))
    if isinstance(value, str) and is_list:
        return value.split()
    return value


def _described(error: _Refusal) -> str:
    description = f" ({foreign_text(error.error_description)})" if error.error_description else ""
    return f"{foreign_text(error.error)}{description}" if error.error else ""


def _seconds(written: bytes) -> int | None:
    """At least 1; None for anything but a positive number."""
    try:
        seconds = float(written.decode().strip('"'))
    except ValueError:
        return None
    return max(1, int(min(seconds, _LONGEST))) if seconds > 0 else None


_METADATA, _CLIENT, _TOKEN = "metadata", "a client", "a token"


async def refreshed(grant: Grant, client: ClientRegistration, addresses: Addresses, now: float) -> Grant:
    """The renewed login; keeps the refresh token if no other comes (RFC 6749 §6). Raises `LoginFailed`."""
    assert grant.refresh_token is not None
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    if grant.resource is not None:
        form["resource"] = grant.resource
    return (await granted(grant, client, addresses, form, "renew the login", now))[0]


async def granted(
    grant: Grant, client: ClientRegistration, addresses: Addresses, form: dict[str, str], action: str, time: float
) -> tuple[Grant, str | None]:
    """The login with tokens for `form`, and the account's name if known. Raises `LoginFailed`."""
    headers = {"accept": "application/json"}
    _identify(grant, client, form, headers)
    request = httpx2.Request("POST", grant.token_endpoint, data=form, headers=headers)
    response = await addresses.send(request, "token endpoint")
    answer = issued(response, action)
    fresh = replace(
        grant,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token or grant.refresh_token,
        scope=answer.scope or grant.scope,
        obtained_at=time,
        expires_at=expiry(answer.expires_in, time),
    )
    return fresh, account_name(response)


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


class _Metadata(msgspec.Struct):
    """Metadata of an authorization server (RFC 8414 §2)."""

    issuer: str = ""
    revocation_endpoint: str = ""


async def revoked(grant: Grant, client: ClientRegistration, addresses: Addresses) -> None:
    """Revokes refresh and access token at the issuer (RFC 7009). Raises `LoginFailed`."""
    endpoint = await _revocation_endpoint(grant, addresses)
    for token, hint in ((grant.refresh_token, "refresh_token"), (grant.access_token, "access_token")):
        if not token:
            continue
        form, headers = {"token": token, "token_type_hint": hint}, {"accept": "application/json"}
        _identify(grant, client, form, headers)
        request = httpx2.Request("POST", endpoint, data=form, headers=headers)
        response = await addresses.send(request, "revocation endpoint")
        if response.status_code not in GIVEN and _refusal(response).error != "unsupported_token_type":
            raise refusal(response, "revoke the login")


async def _revocation_endpoint(grant: Grant, addresses: Addresses) -> str:
    if not grant.issuer:
        raise LoginFailed("its authorization server did not name itself")
    parts = urlsplit(grant.issuer)
    path, base = parts.path.rstrip("/"), f"{parts.scheme}://{parts.netloc}"
    urls = (f"{base}/.well-known/oauth-authorization-server{path}", f"{base}{path}/.well-known/openid-configuration")
    for url in urls:
        response = await addresses.send(httpx2.Request("GET", url, headers={"accept": "application/json"}))
        metadata = _decoded(response, _Metadata) if response.status_code == 200 else _Metadata()
        if is_same_issuer(metadata.issuer, grant.issuer) and metadata.revocation_endpoint:
            return metadata.revocation_endpoint
    raise LoginFailed(f"{origin(grant.issuer)} does not say where logins are revoked (RFC 7009)")


class _Names(msgspec.Struct):
    """Authorization servers that metadata names (RFC 8414 §2, 9728 §2)."""

    issuer: str = ""
    authorization_servers: list[str] = []


class TokenRequests:
    """The requests of one login to `server`.

    `renamed` counts authorization servers that write their issuer unlike the server; its later answers are rewritten.
    """

    def __init__(self, server: str, addresses: Addresses) -> None:
        self._addresses = addresses
        self._exchange = f"{origin(server)} was asked for a way to log in and answered"
        self._lack: str | None = None
        self._is_in_doubt = False
        self._servers: list[str] = []
        self._issuers: dict[str, str] = {}
        self.renamed = 0

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
        if response.status_code not in GIVEN:
            return response
        return self._named(repaired(response)) if purpose == _METADATA else repaired(response)

    def failed(self, reason: str) -> LoginFailed:
        """A failure; final unless a response was missing or a server busy."""
        why = f" ({self._lack})" if self._lack is not None else ""
        return LoginFailed(f"{reason}{why}", is_final=not self._is_in_doubt and self._lack is None)

    def nonsense(self) -> LoginFailed:
        return LoginFailed(f"{self._exchange} with an invalid response", is_final=False)

    def _named(self, response: httpx2.Response) -> httpx2.Response:
        """Metadata with each issuer as that writes itself: the SDK refuses others (RFC 8414 §3.3)."""
        names = _decoded(response, _Names)
        for server in self._servers:
            if names.issuer != server and is_same_issuer(names.issuer, server):
                self._issuers[server] = names.issuer
                self.renamed += 1
        if not names.authorization_servers:
            return response
        self._servers = [self._issuers.get(server, server) for server in names.authorization_servers]
        if self._servers == names.authorization_servers:
            return response
        members = msgspec.json.decode(response.content, type=dict[str, object])
        return _with_members(response, {**members, "authorization_servers": self._servers})

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
