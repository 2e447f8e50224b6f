"""Logins of people at an OpenID provider (OpenID Connect Core 1.0, code flow with PKCE), for the dashboard.

    GET  /dashboard/login      leaves for the provider; a sealed cookie holds state, nonce and verifier for ten minutes
    GET  /dashboard/callback   takes the ID token, and begins a session
    POST /dashboard/logout     ends it

Hubs share sessions, by the hash of their cookie. The rules about people apply at each request.
"""

import hashlib
import hmac
import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal, Protocol
from urllib.parse import urlencode, urlsplit

import jwt
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from mcp_hub.errors import HubError, Rejected, StoreError
from mcp_hub.fronts.http.auth import is_own_page
from mcp_hub.fronts.http.authorization.principals import refusal_page
from mcp_hub.fronts.http.oauth.keys import KeyRing, KeySet
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.sessions.session import Caller
from mcp_hub.types import JsonObject

log = get_logger(__name__)

SESSION: Final = "__Host-mcp-hub-session"
_LOGIN: Final = "__Host-mcp-hub-login"
_LOGIN_SECONDS: Final = 600
_SESSION_SECONDS: Final = 8 * 3600
MOST_SESSIONS: Final = 500
EACH_SESSIONS: Final = 10
"""Sessions of all people and of each; the oldest ones go."""
_LOOK: Final = 0.4
_FRESH: Final = 3600.0
"""Seconds for which the provider's metadata is kept."""
_LEEWAY: Final = 60.0
_ALGORITHMS: Final = frozenset(("RS256", "ES256", "PS256", "EdDSA"))
_LARGEST_CLAIMS: Final = 8192
"""Bytes of the claims of a person that are stored."""
_LONGEST_COOKIE: Final = 1024
_SECRET: Final = 32
Role = Literal["read", "full"]
Send = Callable[[str, str, Mapping[str, str] | None, Mapping[str, str]], Awaitable[tuple[int, bytes]]]
"""Sends a request by method, URL, form and headers; status and body. Raises `HubError`."""


class _Record(Protocol):
    """`SharedRecord` of `stores`."""

    async def read(self) -> bytes | None: ...

    async def stamp(self) -> object: ...

    async def update(self, change: Callable[[bytes | None], bytes | None]) -> None: ...


class _Session(msgspec.Struct):
    """`claims`: those that rules name. `ends` in Unix seconds."""

    issuer: str
    subject: str
    claims: dict[str, object]
    ends: float


class _Book(msgspec.Struct):
    key: str
    sessions: dict[str, _Session] = {}


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    """The OpenID provider, and the hub as its client. `public_url` is the hub's. `role`: of a person's principal and
    claims; None for nobody. `claims`: names of those that it asks for.
    """

    issuer: str
    client_id: str
    client_secret: str | None
    scopes: tuple[str, ...]
    public_url: str
    claims: frozenset[str]
    role: Callable[[str, JsonObject], Role | None]

    @property
    def callback(self) -> str:
        return f"{self.public_url.rstrip('/')}/dashboard/callback"


def people_of(
    record: _Record, *, send: Send, ring: KeyRing, clock: Callable[[], float], issuer: str, client_id: str,
    client_secret: str | None, scopes: tuple[str, ...], public_url: str, claims: frozenset[str],
    role: Callable[[str, JsonObject], Role | None],
) -> "PeopleLogins":  # fmt: skip
    """The people of a provider. `role`: of a principal and its claims; `claims`: names of those that it asks for."""
    provider = _Provider(
        issuer=issuer, client_id=client_id, client_secret=client_secret, scopes=scopes, public_url=public_url,
        claims=claims, role=role,
    )  # fmt: skip
    return PeopleLogins(provider, record, send=send, ring=ring, clock=clock)


class PeopleLogins:
    """People who have logged in. `clock` returns Unix seconds."""

    def __init__(
        self, provider: _Provider, record: _Record, *, send: Send, ring: KeyRing, clock: Callable[[], float]
    ) -> None:
        self._provider = provider
        self._record = record
        self._send = send
        self._ring = ring
        self._clock = clock
        self._book = _Book("")
        self._stamp: object = None
        self._looked = float("-inf")
        self._metadata: tuple[float, Mapping[str, str]] = (0.0, {})

    def routes(self) -> Mapping[str, Route]:
        """Routes by path."""
        endpoints = (
            ("/dashboard/login", "GET", self._login),
            ("/dashboard/callback", "GET", self._come_back),
            ("/dashboard/logout", "POST", self._logout),
        )
        return {path: Route(path, self._guarded(answer), methods=[method]) for path, method, answer in endpoints}

    async def find(self, headers: Mapping[bytes, bytes]) -> tuple[Caller, Role] | None:
        """The person of a request, and what it may do. Raises `StoreError`."""
        cookie = _cookie(headers, SESSION)
        if not cookie:
            return None
        await self._look()
        return self.found(headers)

    def found(self, headers: Mapping[bytes, bytes]) -> tuple[Caller, Role] | None:
        """The person and its role by the sessions as they were last read."""
        session = self._book.sessions.get(_hashed(_cookie(headers, SESSION)))
        if session is None or session.ends <= self._clock() or session.issuer != self._provider.issuer:
            return None
        principal = f"{session.issuer}#{session.subject}"
        role = self._provider.role(principal, session.claims)
        return None if role is None else (Caller(principal, is_operator=True), role)

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                await self._look()
                return await answer(request)
            except Rejected as refused:
                log.warning("dashboard_login_refused", reason=str(refused))
                return refusal_page("The login did not work", str(refused), 403)
            except HubError as problem:
                log.warning("dashboard_login_failed", reason=str(problem))
                reason = "The hub cannot reach the provider, or its own store. Its log has the reason."
                return refusal_page("The login did not work", reason, 503)

        return guarded

    # -- the login

    async def _login(self, request: Request) -> Response:
        metadata = await self._discovered()
        state, nonce, verifier = (secrets.token_urlsafe(_SECRET) for _ in range(3))
        content = f"{state}.{nonce}.{verifier}.{int(self._clock()) + _LOGIN_SECONDS}"
        provider = self._provider
        query = urlencode(
            {
                "response_type": "code",
                "client_id": provider.client_id,
                "redirect_uri": provider.callback,
                "scope": " ".join(dict.fromkeys(("openid", *provider.scopes))),
                "state": state,
                "nonce": nonce,
                "code_challenge": _text(hashlib.sha256(verifier.encode()).digest()),
                "code_challenge_method": "S256",
            }
        )
        page = metadata["authorization_endpoint"]
        response = _redirect(page + ("&" if "?" in page else "?") + query, 302)
        _set(response, _LOGIN, f"{content}.{self._seal(content)}", _LOGIN_SECONDS, is_strict=False)
        return response

    async def _come_back(self, request: Request) -> Response:
        cookie = request.cookies.get(_LOGIN, "")
        content, _, seal = cookie.rpartition(".")
        parts = content.split(".")
        if len(parts) != 4 or not hmac.compare_digest(seal.encode(), self._seal(content).encode()):
            raise Rejected("login_unknown", "This browser has not begun a login here. Begin again on the dashboard.")
        state, nonce, verifier, until = parts
        parameters = request.query_params
        if len(parameters) != len(parameters.multi_items()):
            raise Rejected("login_unknown", "The address has a parameter twice.")
        if int(until) <= self._clock() or not hmac.compare_digest(parameters.get("state", "").encode(), state.encode()):
            raise Rejected("login_unknown", "The login has expired, or is not the last one of this browser.")
        if parameters.get("iss", self._provider.issuer) != self._provider.issuer:
            raise Rejected("login_unknown", "The answer is of another provider.")
        if "error" in parameters or "code" not in parameters:
            reason = hide_head(parameters.get("error", "no code"), 100)
            raise Rejected("login_failed", f"The provider did not log you in: {reason}.")
        claims = await self._claims(parameters["code"], verifier, nonce)
        session = await self._begin(claims)
        response = _redirect(f"{urlsplit(self._provider.public_url).path.rstrip('/')}/", 303)
        _set(response, SESSION, session, _SESSION_SECONDS, is_strict=True)
        response.delete_cookie(_LOGIN, path="/", secure=True, httponly=True, samesite="lax")
        return response

    async def _claims(self, code: str, verifier: str, nonce: str) -> JsonObject:
        """The proven claims of an ID token. Raises `Rejected`."""
        provider, metadata = self._provider, await self._discovered()
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": provider.callback,
            "client_id": provider.client_id, "code_verifier": verifier,
        }  # fmt: skip
        if provider.client_secret is not None:
            form["client_secret"] = provider.client_secret
        status, body = await self._send("POST", metadata["token_endpoint"], form, {"accept": "application/json"})
        answer = _object(body)
        token = answer.get("id_token")
        if status != 200 or not isinstance(token, str):
            reason = hide_head(str(answer.get("error", f"HTTP {status}")), 100)
            raise Rejected("login_failed", f"The provider gave no ID token: {reason}.")
        claims = await self._proven(token, self._ring.key_set(metadata["jwks_uri"], _ALGORITHMS))
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise Rejected("login_failed", "The ID token is of another login (nonce).")
        return claims

    async def _proven(self, token: str, keys: KeySet) -> JsonObject:
        provider = self._provider
        try:
            header = jwt.get_unverified_header(token)
            kid, algorithm = header.get("kid"), header.get("alg")
            if algorithm not in _ALGORITHMS or "crit" in header:
                raise Rejected("login_failed", "The ID token has a signature that is not accepted.")
            if not keys.find(kid, algorithm):
                await keys.refresh()
            for key in keys.find(kid, algorithm):
                claims: JsonObject = jwt.decode(
                    token, key, algorithms=[algorithm], audience=provider.client_id, issuer=provider.issuer,
                    leeway=_LEEWAY, options={"require": ["iss", "sub", "aud", "exp", "iat"]},
                )  # fmt: skip
                if (
                    isinstance(claims["aud"], list)
                    and len(claims["aud"]) > 1
                    and claims.get("azp") != provider.client_id
                ):
                    raise Rejected("login_failed", "The ID token is for another client (azp).")
                return claims
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:
            raise Rejected("login_failed", f"The ID token cannot be used: {type(problem).__name__}.") from None
        raise Rejected("login_failed", f"The ID token is not signed by a key of the provider{_because(keys.trouble)}.")

    async def _begin(self, claims: JsonObject) -> str:
        """A new session's cookie. Raises `Rejected` for a person whom no rule lets in."""
        subject, provider = claims["sub"], self._provider
        named = {name: claims[name] for name in sorted(provider.claims) if name in claims}
        principal = f"{provider.issuer}#{subject}"
        if not isinstance(subject, str) or not 0 < len(subject) <= 255 or not subject.isprintable():
            raise Rejected("login_failed", "The ID token does not name its person (sub).")
        if len(msgspec.json.encode(named)) > _LARGEST_CLAIMS:
            raise Rejected("login_failed", f"The claims of the ID token have more than {_LARGEST_CLAIMS} bytes.")
        if provider.role(principal, named) is None:
            log.warning("dashboard_person_refused", principal=principal)
            raise Rejected("login_refused", "You are logged in, but no rule lets you in (hub.http.dashboard.login).")
        cookie, ends = secrets.token_urlsafe(_SECRET), self._clock() + _SESSION_SECONDS
        session = _Session(provider.issuer, subject, named, ends)

        def change(book: _Book) -> None:
            session_keys = [
                key for key, each in book.sessions.items() if (each.issuer, each.subject) == (session.issuer, subject)
            ]
            for key in [
                *session_keys[: max(len(session_keys) + 1 - EACH_SESSIONS, 0)],
                *list(book.sessions)[: -(MOST_SESSIONS - 1)],
            ]:
                book.sessions.pop(key, None)
            book.sessions[_hashed(cookie)] = session

        await self._change(change)
        log.info("dashboard_person_came", principal=principal)
        return cookie

    async def _logout(self, request: Request) -> Response:
        if not is_own_page(dict(request.scope["headers"]), self._provider.public_url):
            raise Rejected("login_unknown", "Another site has sent this.")
        key = _hashed(request.cookies.get(SESSION, ""))
        if key in self._book.sessions:
            await self._change(lambda book: book.sessions.pop(key, None))
        response = Response(status_code=204, headers={"cache-control": "no-store"})
        response.delete_cookie(SESSION, path="/", secure=True, httponly=True, samesite="strict")
        return response

    async def _discovered(self) -> Mapping[str, str]:
        """The provider's endpoints (OpenID Connect Discovery 1.0). Raises `HubError`."""
        until, metadata = self._metadata
        if metadata and self._clock() < until:
            return metadata
        url = f"{self._provider.issuer.rstrip('/')}/.well-known/openid-configuration"
        status, body = await self._send("GET", url, None, {"accept": "application/json"})
        document = _object(body)
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        endpoints = {name: document[name] for name in names if isinstance(document.get(name), str)}
        if status != 200 or len(endpoints) < len(names):
            raise StoreError(f"{url} does not describe an OpenID provider (HTTP {status})")
        if document.get("issuer") != self._provider.issuer:
            raise StoreError(f"{url} is about another issuer than the configuration")
        self._metadata = self._clock() + _FRESH, endpoints
        return endpoints

    # -- the record

    async def _look(self) -> None:
        time = self._clock()
        if self._book.key and abs(time - self._looked) < _LOOK:
            return
        self._looked = time
        if self._book.key and await self._record.stamp() == self._stamp:
            return
        if not self._book.key or not await self._record.read():  # it was removed: all sessions have ended
            new = msgspec.json.encode(_Book(secrets.token_hex(_SECRET)))
            await self._record.update(lambda text: None if text else new)
        await self._read()

    async def _read(self) -> None:
        stamp = await self._record.stamp()
        self._book, self._stamp = _decoded(await self._record.read()), stamp

    async def _change(self, change: Callable[[_Book], object]) -> None:
        def changed(text: bytes | None) -> bytes:
            book, time = _decoded(text), self._clock()
            book.sessions = {key: session for key, session in book.sessions.items() if session.ends > time}
            change(book)
            return msgspec.json.encode(book)

        await self._record.update(changed)
        await self._read()

    def _seal(self, content: str) -> str:
        return _text(hmac.new(bytes.fromhex(self._book.key), content.encode(), hashlib.sha256).digest())


def _decoded(text: bytes | None) -> _Book:
    try:
        book = msgspec.json.decode(text or b"", type=_Book)
        if len(bytes.fromhex(book.key)) >= _SECRET:
            return book
    except (ValueError, RecursionError):
        pass
    raise StoreError("the record of sessions (access/people-… of the state folder, or the store) is damaged. Remove it")


def _object(body: bytes) -> JsonObject:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _because(trouble: str | None) -> str:
    return "" if trouble is None else f"; its keys are not available: {trouble}"


def _redirect(url: str, status: int) -> Response:
    return RedirectResponse(url, status, headers={"cache-control": "no-store", "referrer-policy": "no-referrer"})


def _set(response: Response, name: str, value: str, seconds: int, *, is_strict: bool) -> None:
    site: Literal["strict", "lax"] = "strict" if is_strict else "lax"
    response.set_cookie(name, value, max_age=seconds, path="/", secure=True, httponly=True, samesite=site)


def _cookie(headers: Mapping[bytes, bytes], name: str) -> str:
    text = headers.get(b"cookie", b"").decode("latin-1")
    if name not in text:
        return ""
    try:
        morsel = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return "" if morsel is None or len(morsel.value) > _LONGEST_COOKIE else morsel.value


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
