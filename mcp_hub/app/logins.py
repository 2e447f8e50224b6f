"""Logins to remote servers; a running hub notices new ones."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from mcp_hub.addresses import is_cleartext
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.logs import get_logger
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore, LoginFailed, grant_key
from mcp_hub.upstreams.supervision.server import OwnedUpstream

if TYPE_CHECKING:
    from mcp_hub.upstreams.auth.access import Access

log = get_logger(__name__)

_LOOK: Final = 1.0
"""Seconds between checks for new logins."""
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
