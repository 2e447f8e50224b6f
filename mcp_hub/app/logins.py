"""Logins to remote servers, and of clients to the hub; a running hub notices changes."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from mcp_hub.addresses import is_cleartext
from mcp_hub.app.limits import claims_named
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.schema.issuers import IssuerSettings, ResourceServerSettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import StartFailed, StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.keyed_files import file_record
from mcp_hub.types import JsonObject, UpstreamState
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore, LoginFailed, grant_key
from mcp_hub.upstreams.supervision.server import OwnedUpstream

if TYPE_CHECKING:
    from starlette.routing import Route

    from mcp_hub.calls.gates.conditions import Test
    from mcp_hub.fronts.dashboard.people import PeopleLogins, Role
    from mcp_hub.fronts.http.authorization.grants import AccessGrants
    from mcp_hub.fronts.http.authorization.principals import Principals
    from mcp_hub.fronts.http.oauth.keys import KeyRing
    from mcp_hub.fronts.http.oauth.tokens import Issuer, Resource, TokenVerifier
    from mcp_hub.sessions.session import Caller
    from mcp_hub.stores.base import EventStore
    from mcp_hub.stores.documents import SharedRecord
    from mcp_hub.upstreams.auth.access import Access

log = get_logger(__name__)

_LOOK: Final = 0.5
"""Seconds between checks for new logins."""
_RECORDS: Final = 0.4
"""Seconds between checks for ended grants."""
_SHORT: Final = ". The login cannot be renewed: log in again when it expires"
_LOGGED_IN: Final = "there is a new login to it"
_LOGGED_OUT: Final = "its login was removed"
_WAITING: Final = frozenset({UpstreamState.FAILED, UpstreamState.BACKING_OFF})


def grant_store(state: Path) -> GrantStore:
    return GrantStore(state / "oauth")


def client_of(server: ServerSettings) -> ClientRegistration | None:
    """The hub's identity for a login; None for local servers, remote http://, or own credentials."""
    has_own = any(name.lower() == "authorization" for name in server.sent_headers())
    if server.url is None or has_own or is_cleartext(server.url):
        return None
    oauth = server.oauth
    if oauth is None:
        return ClientRegistration(ca=server.tls.ca)
    return ClientRegistration(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret.get_secret_value() if oauth.client_secret is not None else None,
        token_auth=oauth.token_auth,
        private_key=oauth.private_key.get_secret_value() if oauth.private_key is not None else None,
        algorithm=oauth.algorithm,
        metadata_url=oauth.client_metadata_url,
        issuer=oauth.issuer,
        scopes=tuple(oauth.scopes),
        redirect_port=oauth.redirect_port,
        is_machine=oauth.grant == "client_credentials",
        ca=server.tls.ca,
        audience=oauth.audience,
        resource=oauth.resource,
    )


def login_of(server: ServerSettings) -> tuple[str, ClientRegistration] | None:
    """The server's URL and the hub's identity; None without a login of the hub."""
    client = client_of(server)
    return None if server.url is None or client is None or server.account == "own" else (server.url, client)


def why_no_login(settings: ServerSettings) -> str:
    """The reason, as the end of a sentence."""
    if settings.url is None:
        return "is not remote: it does not have a url to log in to"
    if is_cleartext(settings.url):
        return "has an http:// url, where others could read the token. Use https://"
    if settings.account == "own":
        return "has an account for each caller, who logs in when it is needed (mcp-hub account list shows them)"
    return "already has credentials in bearer or headers. Remove them to log in"


def outcome(server: str, grant: Grant, client: ClientRegistration) -> str:
    """A sentence about a successful login."""
    rights = f" with scope {grant.scope}" if grant.scope else ""
    renewed = "" if grant.refresh_token or client.is_machine or grant.expires_at is None else _SHORT
    return f"Logged in to {server}{rights}{renewed}."


class Logins:
    """A hub's logins by server; the latest counts."""

    def __init__(self, store: GrantStore) -> None:
        self.store = store
        self._access_of: dict[str, Access] = {}

    def access(self, name: str, server: ServerSettings) -> "Access | None":
        """The login for the server's connections, if allowed."""
        from mcp_hub.upstreams.auth.access import Access  # an HTTP client, which most hubs do without

        if (login := login_of(server)) is None:
            self._access_of.pop(name, None)
            return None
        self._access_of[name] = Access(name, *login, self.store)
        return self._access_of[name]

    def is_asked_for(self, name: str, server: ServerSettings) -> bool:
        """Whether the server takes a login: configured, made, or requested by it. Blocks."""
        login, access = login_of(server), self._access_of.get(name)
        if login is None:
            return False
        if server.oauth is not None or (access is not None and access.was_refused):
            return True
        try:
            return self.store.load(grant_key(*login)) is not None
        except LoginFailed:  # it cannot be read: a new one may help
            return True

    async def follow(self, upstreams: Mapping[str, OwnedUpstream], renew: Callable[[str, str], None]) -> None:
        """Restarts servers whose login appears or vanishes; `renew` replaces ready ones, and raises `KeyError` if not
        configured.
        """
        last = 0
        while True:
            await anyio.sleep(_LOOK)
            if not self._access_of:
                continue
            try:
                changed = self.store.folder.stat().st_mtime_ns
            except OSError:
                continue
            if changed != last:
                last = changed
                await self._look(upstreams, renew)

    async def _look(self, upstreams: Mapping[str, OwnedUpstream], renew: Callable[[str, str], None]) -> None:
        for name, access in list(self._access_of.items()):
            upstream = upstreams.get(name)
            was_granted = access.is_granted
            if upstream is None or upstream.lifecycle.peers is None or not await access.reread():
                continue
            state = upstream.status().state
            if access.is_granted and state in _WAITING:
                log.info("upstream_login_changed", audit="login", upstream=name, logged_in=True)
                upstream.lifecycle.restart()
            elif access.is_granted is not was_granted and state is UpstreamState.READY:
                log.info("upstream_login_changed", audit="login", upstream=name, logged_in=access.is_granted)
                with suppress(KeyError):  # it is about to be gone, and so is its login
                    renew(name, _LOGGED_IN if access.is_granted else _LOGGED_OUT)


_DOCUMENT: Final = 16 << 10
"""Bytes of the document of a client."""


async def fetch_document(url: str) -> bytes:
    """The document of a client, from a public address, without redirects. Raises `StoreError`."""
    import httpx2

    from mcp_hub.upstreams.auth.addresses import Addresses

    try:
        request = httpx2.Request("GET", url, headers={"accept": "application/json"})
        response = await Addresses(url, is_public=True).send(request, "client document")
    except (LoginFailed, httpx2.InvalidURL) as problem:
        raise StartFailed("login_failed", str(problem)) from None
    if response.status_code != 200 or len(response.content) > _DOCUMENT:
        raise StartFailed("login_failed", f"HTTP {response.status_code}, {len(response.content)} bytes")
    return response.content


def open_grants(settings: Settings, state: Path, store: "EventStore") -> "AccessGrants":
    """The grants of the hub's public address, not read yet."""
    from mcp_hub.fronts.http.authorization.grants import AccessGrants, hashed

    http = settings.hub.http
    assert http.public_url is not None and http.authorization is not None, "the settings refuse it"
    idle, name = http.authorization.idle, f"grants-{hashed(http.public_url.rstrip('/'))[:16]}"
    return AccessGrants(_record(state, store, name), wall_time, idle)


def _record(state: Path, store: "EventStore", name: str) -> "SharedRecord":
    replicas = store.replicas
    return file_record(state / "access", name) if replicas is None else replicas.record(name)


def _role_by(
    allow_if: Sequence["Test"], full_if: Sequence["Test"] | None
) -> "Callable[[str, JsonObject], Role | None]":
    """The role of a person on the dashboard, by conditions about its principal and claims."""

    def role(principal: str, claims: JsonObject) -> "Role | None":
        facts = {"principal": lambda: principal, "claims": lambda: claims}
        if not any(test(facts) for test in allow_if):
            return None
        return "full" if full_if is None or any(test(facts) for test in full_if) else "read"

    return role


async def _send_to_provider(
    method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """The answer of an OpenID provider. Raises `StartFailed`."""
    import httpx2

    from mcp_hub.upstreams.auth.addresses import Addresses

    try:
        response = await Addresses(url).send(httpx2.Request(method, url, data=form, headers=headers), "provider")
    except (LoginFailed, httpx2.InvalidURL) as problem:
        raise StartFailed("login_failed", str(problem)) from None
    return response.status_code, response.content


class ClientAccess:
    """Clients that people let in, and people of an OpenID provider, for changing settings; `state` is the state
    folder.
    """

    def __init__(self, state: Path, store: "EventStore") -> None:
        self._state = state
        self._store = store
        self.people: PeopleLogins | None = None
        self._people_for: object = None
        self._grants: AccessGrants | None = None
        self._opened_for: object = None
        self._is_wanted = anyio.Event()

    def for_settings(
        self,
        settings: Settings,
        tokens: Mapping[str, "Caller"],
        resource: "Resource",
        issuers: "TokenVerifier | None",
    ) -> "tuple[Principals, Mapping[str, Route]]":
        """The check of grants' tokens, and the routes that give them."""
        from mcp_hub.fronts.http.authorization.principals import Principals
        from mcp_hub.fronts.http.authorization.server import authorization_routes

        http = settings.hub.http
        assert http.public_url is not None and http.authorization is not None, "the settings refuse it"
        if self._grants is None or self._opened_for != (http.public_url, http.authorization):
            self._grants = open_grants(settings, self._state, self._store)
            self._opened_for = http.public_url, http.authorization
            self._is_wanted.set()
        principals = Principals(
            self._grants, tokens, settings.profiles, challenge=resource.challenge, issuers=issuers
        )  # fmt: skip
        routes = authorization_routes(
            http.public_url, self._grants, principals, resources=(resource.url,),
            registers=http.authorization.registration, fetch=fetch_document, clock=wall_time,
        )  # fmt: skip
        return principals, routes

    def people_routes(self, settings: Settings) -> "Mapping[str, Route]":
        """The routes of logins on the dashboard."""
        http = settings.hub.http
        login = http.dashboard.login
        if login is None or http.public_url is None:
            self.people = self._people_for = None
            return {}
        from mcp_hub.calls.gates.conditions import compiled
        from mcp_hub.fronts.dashboard.people import people_of
        from mcp_hub.fronts.http.oauth.keys import KeyRing

        if self.people is None or self._people_for != (login, http.public_url):
            secret, rules = login.client_secret, (*login.allow_if, *(login.full_if or ()))
            full_if = None if login.full_if is None else [compiled(rule.patterns) for rule in login.full_if]
            name = f"people-{hashlib.sha256(http.public_url.encode()).hexdigest()[:16]}"
            self.people = people_of(
                _record(self._state, self._store, name), send=_send_to_provider, ring=KeyRing(SystemClock()),
                clock=wall_time, issuer=login.issuer, client_id=login.client_id, scopes=tuple(login.scopes),
                client_secret=None if secret is None else secret.get_secret_value(), public_url=http.public_url,
                claims=frozenset(name for rule in rules for name in rule.claims or ()),
                role=_role_by([compiled(rule.patterns) for rule in login.allow_if], full_if),
            )  # fmt: skip
            self._people_for = login, http.public_url
        return self.people.routes()

    async def run(self, ended: Callable[[], None]) -> None:
        """Follows the record, and calls `ended` when a grant has ended, until cancelled."""
        problem: str | None = None
        await self._is_wanted.wait()
        while True:
            try:
                if self._grants is not None and await self._grants.look(at_once=True):
                    ended()
                problem = None
            except StoreError as failed:
                if problem is None:
                    log.warning("grants_unreadable", reason=str(failed))
                problem = str(failed)
            await anyio.sleep(_RECORDS)


def verifier_of(
    settings: Settings, oauth: ResourceServerSettings, profile: str | None, ring: "KeyRing", *,
    note: Callable[[str, str, float], None] | None,
) -> "TokenVerifier":  # fmt: skip
    """The check of issuers' tokens. `note` takes a principal, an accepted token and its end in Unix seconds."""
    from mcp_hub.fronts.http.oauth.tokens import TokenVerifier

    return TokenVerifier(
        resource_of(settings),
        _issuers(oauth, ring),
        leeway=oauth.leeway,
        clock=wall_time,
        profiles=settings.profiles,
        profile=profile,
        claim_names=claims_named(settings),
        note=note,
    )


def resource_of(settings: Settings) -> "Resource":
    """The hub as a protected resource of its issuers, one of which it may be."""
    from mcp_hub.fronts.http.oauth.tokens import Resource

    http, oauth = settings.hub.http, settings.hub.http.oauth
    public_url = (http.public_url or "").rstrip("/")
    issuers = [public_url] if http.authorization is not None else []
    if oauth is None:
        return Resource(f"{public_url}/mcp", tuple(issuers))
    return Resource(oauth.resource, (*issuers, *(issuer.issuer for issuer in oauth.issuers)), tuple(oauth.scopes))


def _issuers(oauth: ResourceServerSettings, ring: "KeyRing") -> "list[Issuer]":
    from mcp_hub.fronts.http.oauth.keys import Keys, shared_key
    from mcp_hub.fronts.http.oauth.tokens import Issuer

    def keys(issuer: IssuerSettings) -> Keys:
        if issuer.shared_key is not None:
            return shared_key(issuer.shared_key.get_secret_value().encode(), issuer.accepted_algorithms())
        source = Path(issuer.jwks_file) if issuer.jwks_file else issuer.jwks_url or ""
        return ring.key_set(source, frozenset(issuer.accepted_algorithms()))

    return [
        Issuer(
            name=issuer.issuer,
            keys=keys(issuer),
            algorithms=frozenset(issuer.accepted_algorithms()),
            audience=tuple(issuer.audience or [oauth.resource]),
            scopes=frozenset(issuer.scopes),
            principal_claim=issuer.principal_claim,
            profile_claim=issuer.profile_claim,
            scope_profiles=issuer.scope_profiles,
            profile=issuer.profile,
        )
        for issuer in oauth.issuers
    ]
