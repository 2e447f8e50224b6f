"""The login to one remote server while the hub runs: a token per request, renewed in time.

Processes share a login. A renewal holds its lock: two uses of one refresh token could end the login.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
import httpx2
import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, Grants, LoginFailed, grant_key
from mcp_hub.upstreams.auth.login import log_in_alone
from mcp_hub.upstreams.auth.token_requests import challenge_of, refreshed

log = get_logger(__name__)

_LOCK: Final = 15.0
"""Seconds to wait while another process renews the login."""
_PAUSE: Final = 10.0
"""Seconds between two tries after a temporary failure."""
_GRACE: Final = 1.0
"""Seconds for a renewal that nobody waits for: the hub has to exit within 2 s."""
_MOST_WANTED: Final = 64
"""Missing scopes that are stored, the newest."""
_LONGEST_WANTED: Final = 4096
"""Characters of all missing scopes: they are part of a URL, of which servers accept 8 KiB."""


class Denial(msgspec.Struct, frozen=True):
    """Why a server refused. `ends`: every request would fail; `can_retry`: another start may work."""

    code: str
    reason: str
    ends: bool = False
    can_retry: bool = False


class Access:
    """The login of `client` at `url`; messages call it `server`."""

    def __init__(
        self,
        server: str,
        url: str,
        client: ClientRegistration,
        store: Grants,
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._server = server
        self._url = url
        self._client = client
        self._store = store
        self._clock = clock
        self._stored: Grant | str | None = None  # or why it cannot be read
        self._renewing = anyio.Lock()
        self._not_before = 0.0
        self._trouble: LoginFailed | None = None
        self.was_refused = False
        """Whether the server has asked for a login, or for more rights, since the hub uses it."""

    # -- what connections ask -------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        return grant_key(self._url, self._client)

    @property
    def is_granted(self) -> bool:
        return self._grant is not None

    @property
    def _grant(self) -> Grant | None:
        return self._stored if isinstance(self._stored, Grant) else None

    async def prepare(self) -> None:
        """Loads the login, or logs in a machine client. Raises `LoginFailed`."""
        self._not_before = 0.0
        await self.reread()
        if self._client.is_machine and self._grant is None:
            await self._renew(None)
            if self._grant is None and self._trouble is not None:
                raise self._trouble
        await self.token()

    async def token(self) -> str | None:
        """The token to send, renewed if it expires soon; None without a login."""
        grant = self._grant
        if grant is not None and self._clock() >= max(grant.renew_at, self._not_before):
            await self._renew(grant.access_token)
        return self._grant.access_token if self._grant is not None else None

    async def newer(self, than: str | None) -> str | None:
        """A stored token other than `than`."""
        await self.reread()
        token = self._grant.access_token if self._grant is not None else None
        return token if token != than else None

    async def replacement(self, refused: str | None) -> str | None:
        """A token after the refused one, or None."""
        if (stored := await self.newer(refused)) is not None:
            return stored
        if self._clock() >= self._not_before:
            await self._renew(refused)
        return await self.newer(refused)

    async def denied(self, status: int, header: str) -> Denial | None:
        """The reason of a 401 or 403 with this `WWW-Authenticate`; None if unknown."""
        challenge = challenge_of(header)
        lacks_scope = status == 403 and challenge.get("error") == "insufficient_scope"
        self.was_refused = self.was_refused or status != 403 or lacks_scope
        if status == 403:
            return await self._lacks(challenge.get("scope", "")) if lacks_scope else None
        trouble = self._trouble
        can_retry = trouble is not None and not trouble.is_final
        if self._client.is_machine:
            why = f": {trouble}" if trouble is not None else ""
            reason = f'does not accept the login of "oauth"{why}'
            return Denial("login_failed", reason, ends=self._grant is not None, can_retry=can_retry)
        if self._grant is None:
            why = f"{trouble}: " if trouble is not None else ""
            return Denial("login_needed", f"{why}requires a login: {self._advice}")
        if can_retry:
            return Denial("login_failed", f"the login has ended, and {trouble}", ends=True, can_retry=True)
        why = f", and {trouble}" if trouble is not None else ""
        return Denial("login_needed", f"no longer accepts the login{why}: {self._advice}", ends=True)

    @property
    def _advice(self) -> str:
        return self._store.advice(self._server)

    async def reread(self) -> bool:
        """Loads the login; whether it has changed. A damaged file counts as none."""
        trouble = None
        try:
            stored: Grant | str | None = await self._store.read(self.key)
        except LoginFailed as exc:
            stored, trouble = str(exc), exc
        if stored == self._stored:
            return False
        self._stored, self._trouble = stored, trouble
        if trouble is not None:
            log.warning("login_unreadable", upstream=self._server, reason=stored)
        return True

    # -- scopes ---------------------------------------------------------------------------------------------------

    async def _lacks(self, scope: str) -> Denial:
        named = f" (scope {scope!r})" if scope else ""
        if self._client.is_machine:
            return Denial(
                "rights_missing", f'requires more rights than the login of "oauth" has{named}: set its "scopes"'
            )
        if self._grant is None:
            return Denial("login_needed", f"requires a login{named}: {self._advice}")
        if scope and set(scope.split()) <= set((self._grant.requested or "").split()):
            reason = f"refuses rights that the login asked for{named}: this account may not have them"
            return Denial("rights_missing", reason)
        try:
            async with self._store.locked(self.key, _LOCK):
                await self.reread()
                if self._grant is not None and (missing := _both(self._grant.missing, scope)) != self._grant.missing:
                    async with self._store.renewing(self.key) as commit:
                        await commit(replace(self._grant, missing=missing))
                    await self.reread()
        except LoginFailed as exc:
            log.warning("login_unwritable", upstream=self._server, reason=str(exc))
        return Denial("rights_missing", f"requires more rights than the login has{named}: {self._advice}")

    # -- renewing -------------------------------------------------------------------------------------------------

    async def _renew(self, stale: str | None) -> None:
        """Continues briefly after a cancellation: the old refresh token may be spent."""
        scope = anyio.CancelScope(shield=True)
        finished = anyio.Event()

        async def work() -> None:
            with scope:
                await self._renew_alone(stale)
            finished.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            try:
                await finished.wait()
            except anyio.get_cancelled_exc_class():
                scope.deadline = anyio.current_time() + _GRACE
                raise

    async def _renew_alone(self, stale: str | None) -> None:
        async with self._renewing:
            if self._is_done(stale) or self._clock() < self._not_before:
                return  # another task has tried already
            try:
                async with self._store.locked(self.key, _LOCK):
                    await self.reread()
                    if not self._is_done(stale):
                        await self._obtain()
            except LoginFailed as exc:
                self._trouble = exc
                self._not_before = self._clock() + _PAUSE
                log.warning("login_not_renewed", upstream=self._server, reason=str(exc))

    def _is_done(self, stale: str | None) -> bool:
        grant = self._grant
        if grant is not None and grant.access_token != stale and self._clock() < grant.renew_at:
            return True
        return not self._client.is_machine and (grant is None or grant.refresh_token is None)

    async def _obtain(self) -> None:
        """Stores the next token before its use. Raises `LoginFailed`."""
        old = self._grant
        async with self._store.renewing(self.key) as commit:
            try:
                if self._client.is_machine:
                    fresh = await log_in_alone(self._url, self._client)
                else:
                    assert old is not None
                    fresh = await refreshed(old, self._client, Addresses(self._url, self._client.ca), self._clock())
            except LoginFailed as exc:
                if exc.is_final and old is not None:  # nobody has to try that again
                    await commit(replace(old, refresh_token=None))
                    await self.reread()
                raise
            await commit(fresh)
        await self.reread()
        log.info("login_renewed", upstream=self._server)


def authorized(http: httpx2.AsyncClient, access: Access) -> "_AuthorizedClient":
    """An HTTP client that sends the token, and repeats a refused request once with another."""
    return _AuthorizedClient(http, access)


class _AuthorizedClient:
    def __init__(self, http: httpx2.AsyncClient, access: Access) -> None:
        self._http = http
        self._access = access

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        is_goodbye = method == "DELETE"  # for which nothing is renewed: it must not take long
        token = await self._access.newer(None) if is_goodbye else await self._access.token()
        replacement = None
        async with self._http.stream(method, url, content=content, headers=_with(headers, token)) as response:
            if response.status_code == 401 and not is_goodbye:
                replacement = await self._access.replacement(token)
            elif response.status_code == 403:
                replacement = await self._access.newer(token)
            if replacement is None:
                yield response
                return
        async with self._http.stream(method, url, content=content, headers=_with(headers, replacement)) as response:
            yield response


def _both(old: str | None, new: str) -> str | None:
    scopes = [scope for scope in dict.fromkeys(f"{old or ''} {new}".split()) if len(scope) <= _LONGEST_WANTED]
    scopes = scopes[-_MOST_WANTED:]
    while len(" ".join(scopes)) > _LONGEST_WANTED:
        del scopes[0]
    return " ".join(scopes) or None


def _with(headers: Mapping[str, str] | Mapping[bytes, bytes] | None, token: str | None) -> httpx2.Headers:
    sent = httpx2.Headers(headers)
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    return sent
