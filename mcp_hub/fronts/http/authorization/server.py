"""The authorization server: metadata (RFC 8414), authorization with PKCE, tokens, registration, revocation.

    GET  /oauth/authorize   asks for a login; changes nothing, and sends nobody away
    POST /oauth/authorize   a page's form: the login, then the answer to the client

Steps share only the address and a sealed cookie of ten minutes.
Source: specification 2025-11-25, basic/authorization; RFC 6749, 7009, 7591, 7636, 8252, 8707, 9207, 9700.
"""

import hashlib
import json
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mcp_hub.errors import Rejected, StoreError
from mcp_hub.fronts.http.admission import discard, media_type, read_body
from mcp_hub.fronts.http.auth import is_own_page
from mcp_hub.fronts.http.authorization.clients import Fetch, OAuthClient, OAuthClients, source_of, why_no_redirect
from mcp_hub.fronts.http.authorization.grants import AccessGrants
from mcp_hub.fronts.http.authorization.principals import Principals, consent_page, login_page, refusal_page
from mcp_hub.fronts.http.response import ClientGone
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head, shown
from mcp_hub.sessions.session import Caller

log = get_logger(__name__)

METADATA: Final = "/.well-known/oauth-authorization-server"
SCOPE: Final = "mcp"
COOKIE: Final = "__Host-mcp-hub-consent"
_SECONDS: Final = 600
"""The life of a login."""
_LARGEST: Final = 16 << 10
"""Bytes of a form or a registration."""
_LONGEST_QUERY: Final = 8192
_LONGEST_STATE: Final = 2048
_AT_ONCE: Final = 64
"""Requests that are answered at once, since anybody may send one."""
_WRONG_TOKENS: Final = 20
_MINUTE: Final = 60.0
"""Wrong tokens in a minute, after which nobody logs in."""
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_FORM: Final = b"application/x-www-form-urlencoded"
_NO_STORE: Final = {"cache-control": "no-store", "pragma": "no-cache"}
_STATUS: Final = {"invalid_client": 401, "temporarily_unavailable": 503}
"""By the code of a `Rejected`; any other is 400."""
_Endpoint = Callable[[Request], Awaitable[Response]]


class _Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """A request that can be granted. `profile`: that of its resource, if it names one."""

    client: OAuthClient
    redirect: str
    state: str | None
    challenge: str
    profile: str | None


def authorization_routes(
    issuer: str, grants: AccessGrants, principals: Principals, *,
    resources: Collection[str], registers: bool, fetch: Fetch, clock: Callable[[], float],
) -> Mapping[str, Route]:  # fmt: skip
    """Routes by path. `issuer` is the hub's public address, `resources` what else clients call it; `clock` returns Unix
    seconds.
    """
    clients = OAuthClients(grants.sealed, fetch, clock)
    server = _Server(issuer, grants, clients, principals, resources=resources, registers=registers, clock=clock)
    return server.routes()


class _Server:
    def __init__(
        self, issuer: str, grants: AccessGrants, clients: OAuthClients, principals: Principals, *,
        resources: Collection[str], registers: bool, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._issuer = issuer.rstrip("/")
        self._grants = grants
        self._clients = clients
        self._principals = principals
        self._resources = {
            _plain(url) for url in (*resources, self._issuer, f"{self._issuer}/mcp", f"{self._issuer}/sse")
        }
        self._registers = registers
        self._clock = clock
        self._slots = anyio.Semaphore(_AT_ONCE)
        self._wrong: deque[float] = deque(maxlen=_WRONG_TOKENS)

    def routes(self) -> Mapping[str, Route]:
        endpoints: list[tuple[str, list[str], _Endpoint]] = [
            ("/oauth/authorize", ["GET", "POST"], self._authorize),
            ("/oauth/token", ["POST"], self._token),
            ("/oauth/revoke", ["POST"], self._revoke),
        ]
        if self._registers:
            endpoints.append(("/oauth/register", ["POST"], self._register))
        routes = {path: Route(path, self._guarded(answer), methods=methods) for path, methods, answer in endpoints}
        body, path = self._metadata(), METADATA + urlsplit(self._issuer).path

        async def metadata(request: Request) -> Response:
            return Response(body, headers={"cache-control": "max-age=300"}, media_type="application/json")

        return {**routes, **{each: Route(each, metadata, methods=["GET"]) for each in {METADATA, path}}}

    def _metadata(self) -> bytes:
        paths = {"authorization": "authorize", "token": "token", "revocation": "revoke"}
        if self._registers:
            paths["registration"] = "register"
        return json.dumps(
            {
                "issuer": self._issuer,
                **{f"{name}_endpoint": f"{self._issuer}/oauth/{path}" for name, path in paths.items()},
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True,
                "scopes_supported": [SCOPE],
                "protected_resources": [f"{self._issuer}/mcp"],
            }
        ).encode()

    def _guarded(self, answer: _Endpoint) -> _Endpoint:
        async def guarded(request: Request) -> Response:
            is_page = request.url.path.endswith("/authorize")
            try:
                self._slots.acquire_nowait()
            except anyio.WouldBlock:
                return _failed(Rejected("temporarily_unavailable", "the hub is busy", status=503), is_page=is_page)
            try:
                await self._grants.look()
                return await answer(request)
            except Rejected as refused:
                return _failed(refused, is_page=is_page)
            except StoreError as problem:
                log.warning("grants_unusable", reason=str(problem))
                reason = "the hub cannot use its grants now. Its log has the reason."
                return _failed(Rejected("temporarily_unavailable", reason, status=503), is_page=is_page)
            except ClientGone:
                return Response(status_code=400)
            finally:
                self._slots.release()

        return guarded

    # -- authorization

    async def _authorize(self, request: Request) -> Response:
        query = request.scope["query_string"].decode("latin-1")
        if len(query) > _LONGEST_QUERY:
            raise Rejected("invalid_request", "the address is too long")
        parameters = _fields(query, "the address")
        client = self._clients.registered(parameters.get("client_id", ""))
        if client is not None:
            self._redirect_of(client, parameters)
        asker = urlsplit(parameters["client_id"]).hostname or "" if client is None else client.name
        if request.method == "GET" or request.method == "HEAD":
            return login_page(self._action(query), asker)
        form = await self._form(request)
        if form.get("step") == "login":
            return await self._logged_in(form, query, parameters, asker)
        mark, cookie = self._mark_of(request)
        if not mark or not _is_same(form.get("proof", ""), self._proof(cookie, query)):
            reason = "Your login has ended, or this page was not the last one. Log in again."
            return login_page(self._action(query), asker, reason, status=403)
        return await self._answered(form, mark, await self._grantable(parameters))

    async def _logged_in(
        self, form: Mapping[str, str], query: str, parameters: Mapping[str, str], asker: str
    ) -> Response:
        time = self._clock()
        if len(self._wrong) == _WRONG_TOKENS and 0 <= time - self._wrong[0] < _MINUTE:
            reason = "There were too many wrong tokens. Wait a minute."
            return login_page(self._action(query), asker, reason, status=429)
        person = self._principals.log_in(form.get("token", "").strip())
        if person is None:
            self._wrong.append(time)
            log.warning("consent_login_refused")
            return login_page(self._action(query), asker, "The hub does not have this token.", status=403)
        pending = await self._grantable(parameters)
        choices = person.choices if pending.profile is None else (pending.profile,)
        if not set(choices) <= set(person.choices):
            raise Rejected("invalid_target", "the address of the hub names a profile that is not for you")
        cookie = self._sealed_cookie(person.mark)
        source = source_of(pending.redirect)
        response = consent_page(
            self._action(query), pending.client, pending.redirect, source, person.principal, choices,
            self._proof(cookie, query),
        )  # fmt: skip
        response.set_cookie(COOKIE, cookie, max_age=_SECONDS, path="/", secure=True, httponly=True, samesite="strict")
        return response

    async def _answered(self, form: Mapping[str, str], mark: str, pending: _Authorization) -> Response:
        profile = form.get("profile", "") if pending.profile is None else pending.profile
        person = self._principals.of_mark(mark)
        if form.get("step") != "allow":
            answer = {"error": "access_denied", "error_description": "the person refused"}
        elif person is None or profile not in person.choices or ("profile" not in form and pending.profile is None):
            raise Rejected("access_denied", "this profile is not for you", status=403)
        else:
            caller = Caller(person.principal, profile or None)
            code = await self._grants.consent(caller, person.mark, pending.client, pending.redirect, pending.challenge)
            answer = {"code": code}
            log.info("client_allowed", principal=person.principal, client=pending.client.name, profile=profile or None)
        if pending.state is not None:
            answer["state"] = pending.state
        url = _with_query(pending.redirect, {**answer, "iss": self._issuer})
        response = RedirectResponse(url, 303, headers={**_NO_STORE, "referrer-policy": "no-referrer"})
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
        return response

    async def _grantable(self, parameters: Mapping[str, str]) -> _Authorization:
        """Raises `Rejected` for the person: a wrong request sends nobody on."""
        client = await self._clients.find(parameters.get("client_id", ""))
        redirect = self._redirect_of(client, parameters)
        if parameters.get("response_type") != "code":
            raise Rejected("unsupported_response_type", "response_type has to be code")
        if parameters.get("response_mode", "query") != "query" or {"request", "request_uri"} & parameters.keys():
            raise Rejected("invalid_request", "the hub has response_mode=query, and no request objects")
        challenge = parameters.get("code_challenge", "")
        if parameters.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
            raise Rejected("invalid_request", "a client has to use PKCE with code_challenge_method=S256")
        state = parameters.get("state")
        if state is not None and len(state) > _LONGEST_STATE:
            raise Rejected("invalid_request", "state is too long")
        return _Authorization(
            client=client, redirect=redirect, state=state, challenge=challenge,
            profile=self._profile_of(parameters),
        )  # fmt: skip

    def _redirect_of(self, client: OAuthClient, parameters: Mapping[str, str]) -> str:
        redirect = parameters.get("redirect_uri")
        if redirect is None and len(client.redirects) == 1:
            redirect = client.redirects[0]
        if redirect is None or why_no_redirect(redirect) is not None or not client.allows(redirect):
            raise Rejected("invalid_redirect_uri", "redirect_uri is missing, or is not one of the client's")
        return redirect

    def _profile_of(self, parameters: Mapping[str, str]) -> str | None:
        """The resource has to be this hub (RFC 8707). Raises `Rejected`."""
        resource = _plain(parameters.get("resource", f"{self._issuer}/mcp"))
        endpoint, slash, profile = resource.partition("/mcp/p/")
        if resource not in self._resources and not (slash and profile and f"{endpoint}/mcp" in self._resources):
            raise Rejected("invalid_target", f"resource is not this hub, which is {self._issuer}/mcp")
        return profile or None

    # -- the login between the steps

    def _sealed_cookie(self, mark: str) -> str:
        content = f"{mark}.{int(self._clock()) + _SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{content}.{self._grants.sealed('cookie', content)}"

    def _mark_of(self, request: Request) -> tuple[str, str]:
        """The mark of the person who has logged in, or "", and the cookie."""
        cookie = request.cookies.get(COOKIE, "")
        content, _, seal = cookie.rpartition(".")
        parts = content.split(".")
        is_sealed = _is_same(seal, self._grants.sealed("cookie", content))
        if len(parts) != 3 or not is_sealed or self._clock() >= int(parts[1]):
            return "", cookie
        return parts[0], cookie

    def _proof(self, cookie: str, query: str) -> str:
        """The proof of the page that was shown for this login and this request."""
        return self._grants.sealed("form", cookie, query)

    def _action(self, query: str) -> str:
        return f"{urlsplit(self._issuer).path}/oauth/authorize?{query}"

    async def _form(self, request: Request) -> dict[str, str]:
        if not is_own_page(dict(request.scope["headers"]), self._issuer):
            raise Rejected("access_denied", "another site has sent this form", status=403)
        return await _posted(request)

    # -- tokens

    async def _token(self, request: Request) -> Response:
        form = await _posted(request)
        client = self._client_of(form)
        if "resource" in form:
            self._profile_of(form)
        grant_type = form.get("grant_type")
        if grant_type == "authorization_code":
            verifier = form.get("code_verifier", "")
            if not _VERIFIER.fullmatch(verifier):
                raise Rejected("invalid_grant", "code_verifier is missing or malformed")
            tokens = await self._grants.redeem(form.get("code", ""), client, verifier, form.get("redirect_uri"))
        elif grant_type == "refresh_token":
            tokens = await self._grants.refresh(form.get("refresh_token", ""), client)
        else:
            raise Rejected("unsupported_grant_type", "the hub has authorization_code and refresh_token")
        if self._principals.find(hashlib.sha256(tokens.access.encode()).digest()) is None:
            # the client would try for ever with tokens that nobody takes
            await self._grants.revoke(tokens.access, client)
            raise Rejected("invalid_grant", "the person's own token, or the profile, is gone. Log in again.")
        return _json(tokens.answer(SCOPE))

    def _client_of(self, form: Mapping[str, str]) -> str:
        self._clients.registered(form.get("client_id", ""))
        return form["client_id"]

    async def _revoke(self, request: Request) -> Response:
        form = await _posted(request)
        client = self._client_of(form)
        if "token" not in form:
            raise Rejected("invalid_request", "token is missing")
        await self._grants.revoke(form["token"], client)
        return Response(headers=_NO_STORE)

    async def _register(self, request: Request) -> Response:
        if media_type(dict(request.scope["headers"])) != b"application/json":
            raise Rejected("invalid_client_metadata", "Content-Type has to be application/json", status=415)
        client = self._clients.register(await _body(request))
        answer = {
            "client_id": client.id,
            "client_id_issued_at": int(self._clock()),
            "client_name": client.name,
            "redirect_uris": list(client.redirects),
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": SCOPE,
        }
        return _json(answer, 201)


def _failed(error: Rejected, *, is_page: bool) -> Response:
    status = error.members.get("status")
    if not isinstance(status, int):
        status = _STATUS.get(error.code, 400)
    reason = shown(hide_head(str(error), 300))
    if is_page:
        title = "This cannot be allowed"
        return refusal_page(title, f"The request cannot be used: {reason.rstrip('.')} ({error.code}).", status)
    return _json({"error": error.code, "error_description": reason}, status)


def _json(content: Mapping[str, object], status: int = 200) -> Response:
    return Response(json.dumps(content), status, headers=_NO_STORE, media_type="application/json")


async def _posted(request: Request) -> dict[str, str]:
    """The fields of a form, each once. Raises `Rejected`."""
    if media_type(dict(request.scope["headers"])) != _FORM:
        raise Rejected("invalid_request", f"Content-Type has to be {_FORM.decode()}", status=415)
    return _fields((await _body(request)).decode("utf-8", "replace"), "the form")


async def _body(request: Request) -> bytes:
    body = await read_body(request.receive, _LARGEST)
    if body is None:
        await discard(request.receive)
        raise Rejected("invalid_request", f"the body has more than {_LARGEST} bytes", status=413)
    return body


def _fields(text: str, source: str) -> dict[str, str]:
    """Raises `Rejected` for a name that comes twice, which is ambiguous (RFC 6749 §3.1)."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        raise Rejected("invalid_request", f"{source} cannot be read") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Rejected("invalid_request", f"{source} names a parameter twice")
    return fields


def _is_same(text: str, expected: str) -> bool:
    """In a time that says nothing about `expected`."""
    return secrets.compare_digest(text.encode("utf-8", "replace"), expected.encode())


def _with_query(url: str, more: Mapping[str, str]) -> str:
    return url + ("" if url.endswith(("?", "&")) else "&" if "?" in url else "?") + urlencode(more)


def _plain(url: str) -> str:
    """An address without what does not matter: capital letters of scheme and host, a slash at the end."""
    try:
        parts = urlsplit(url.rstrip("/"))
    except ValueError:
        return ""
    return urlunsplit(parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()))
