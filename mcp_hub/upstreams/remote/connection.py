"""One connection to a remote server: Streamable HTTP of either era, or HTTP+SSE."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import anyio
import anyio.abc
import httpx2
from msgspec.structs import replace

from mcp_hub.errors import HttpRefused, StartFailed
from mcp_hub.masking import hide
from mcp_hub.types import Cause, Era
from mcp_hub.upstreams.auth.access import Access, Denial, authorized
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.peer import negotiation
from mcp_hub.upstreams.peer.negotiation import Incompatible, Terms
from mcp_hub.upstreams.peer.peer import Peer, PeerMessages
from mcp_hub.upstreams.peer.server_eras import ANY_ERA, EraWish, ServerEras
from mcp_hub.upstreams.peer.state import CONNECTION_LOST, Observer, not_settled
from mcp_hub.upstreams.remote.session_check import NewSession, SessionCheck
from mcp_hub.wire.http import HttpWire
from mcp_hub.wire.http_client import USER_AGENT, RemoteClient, bad_proxy, renewed, tls, wrong_name
from mcp_hub.wire.remote import AT_ONCE, HttpStreams, RemoteWire
from mcp_hub.wire.responses import DENIED, origin
from mcp_hub.wire.sse import SseWire

_CONNECT: Final = 10.0
_PROBE: Final = 5.0
"""Seconds for the probe: a server that was scaled to zero has to start first."""
_BEGIN: Final = 15.0
"""Seconds to begin a session beside a doubtful one."""
_GOODBYE: Final = 1.0
"""Seconds to close a connection: the hub has to exit within 2 s."""
_STRAGGLERS: Final = 1.0
"""Seconds for other requests to learn that their session is unknown: those can be repeated."""
_IDLE: Final = 3.0
"""Seconds after which an unused connection is closed, before servers do it (from 5 s on)."""
_MOST_IDLE: Final = 32
"""Unused connections kept; each costs the pool a look at every request."""
_SPARE: Final = 8
"""Additional connections, so that notifications never wait for requests."""
_OLD_SERVER: Final = (400, 404, 405)
"""Statuses by which a server of the HTTP+SSE transport answers `initialize`."""


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """The server's address and options. `transport` None: detect.

    `apps`: announce that clients show apps. `ca`: a file with additional certificates. `renew` reads `headers` and
    their secrets again; `look_up` reads the first ones. `begun`: an open session to continue.
    """

    url: str = field(repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["http", "sse"] | None = None
    era: Era | None = None
    line_limit: int = 32 << 20
    apps: bool = True
    ca: str | None = None
    renew: Callable[[], Awaitable[Mapping[str, str] | None]] | None = None
    look_up: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    begun: NewSession | None = None


class HttpConnection:
    """A `Connection` to a remote server. `access` is the hub's login there."""

    pid = None

    def __init__(
        self,
        name: str,
        spec: HttpSpec,
        eras: ServerEras,
        access: Access | None = None,
        wish: EraWish = ANY_ERA,
    ) -> None:
        self.name = name
        self.can_retry = True
        self._spec = spec
        self._eras = eras
        self._wish = wish
        self._access = access
        self._denied: Denial | None = None  # why the login is of no use
        self._http: RemoteClient | None = None
        self._wire: RemoteWire | None = None
        self._check: SessionCheck | None = None

    @property
    def stderr(self) -> Iterable[str]:
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        target = self._http.moved_to if self._http is not None else None
        note = f"it redirects requests to {target!r}: put that into the url, which saves one request for each"
        return () if target is None else (hide(note),)

    @property
    def lost_session(self) -> bool:
        """The server does not know the session: another can begin at once."""
        return isinstance(self._wire, HttpWire) and self._wire.session.is_forgotten

    def successor(self) -> "HttpConnection | None":
        """A connection with the session that replaces a lost one."""
        begun = self._check.successor if self._check is not None else None
        if begun is None:
            return None
        return HttpConnection(
            name=self.name,
            spec=dataclasses.replace(self._spec, begun=begun),
            eras=self._eras,
            access=self._access,
            wish=self._wish,
        )

    async def open(self, tasks: anyio.abc.TaskGroup, observer: Observer | None = None) -> Peer:
        """Settles transport and era. Raises `StartFailed`."""
        if self._spec.look_up is not None and not self._spec.headers:
            self._spec.headers.update(await self._spec.look_up())
        try:
            self._http = _client(self._spec, self._spec.begun)
        except (ImportError, ValueError, httpx2.InvalidURL) as exc:
            raise StartFailed("invalid_proxy", bad_proxy(self._spec.url, exc)) from None
        if self._access is not None:
            try:
                await self._access.prepare()
            except LoginFailed as exc:
                self.can_retry = not exc.is_final
                raise StartFailed("login_failed", f"cannot log in to {origin(self._spec.url)}: {exc}") from None
        http = self._authorized(self._http)
        if self._spec.transport == "sse":
            return await self._over_sse(http, tasks, observer)
        return await self._over_http(http, tasks, observer)

    def _authorized(self, http: RemoteClient) -> HttpStreams:
        if self._access is not None and self._access.is_granted:
            return authorized(http, self._access)
        return http if self._spec.renew is None else renewed(http, self._spec.headers, self._spec.renew)

    async def _over_http(self, http: HttpStreams, tasks: anyio.abc.TaskGroup, observer: Observer | None) -> Peer:
        spec = self._spec
        peer, wire = self._http_peer(http, tasks, observer)
        self._wire = wire
        if spec.begun is not None:
            peer.settle(spec.begun.info)
            return await self._listening(peer, wire)
        terms = replace(await self._eras.terms(self._wish, spec.era), probe=_PROBE)
        try:
            await negotiation.negotiate(peer, terms)
        except StartFailed as exc:
            if peer.ending.closed.is_set():  # the network, not the server: its remembered era stays true
                raise StartFailed(*await self._with_name(peer.ending.cause or CONNECTION_LOST)) from None
            self._forget_era()
            if isinstance(exc, Incompatible):
                raise
            if negotiation.is_initialize_refused(exc) and spec.transport is None and wire.status in _OLD_SERVER:
                wire.close()
                return await self._over_sse(http, tasks, observer, exc)
            raise self._refused(wire.status, exc.cause) from None
        if peer.info.era is Era.HANDSHAKE:
            await wire.drained()  # nothing may reach the server before `notifications/initialized`
            await self._listening(peer, wire)
        return peer

    async def _listening(self, peer: Peer, wire: HttpWire) -> Peer:
        if self._check is not None:
            self._check.settled()
        await wire.listen()
        return peer

    async def _with_name(self, cause: Cause) -> Cause:
        problem = await wrong_name(self._spec.url) if cause.code == "tls_unknown_issuer" else None
        return cause if problem is None else Cause(cause.code, f"{cause.reason}; besides: {problem.rstrip('.')}")

    def _forget_era(self) -> None:
        if not self._wish.is_only:
            self._eras.forget()

    def _http_peer(
        self, http: HttpStreams, tasks: anyio.abc.TaskGroup, observer: Observer | None = None, *, is_spare: bool = False
    ) -> tuple[Peer, HttpWire]:
        info = not_settled(apps=self._spec.apps)
        connect = partial(self._http_wire, http=http, tasks=tasks, is_spare=is_spare)
        peer = Peer(self.name, connect, info, observer, is_remote=True)
        assert isinstance(peer.wire, HttpWire)
        return peer, peer.wire

    async def _begin_beside(self, accept: Callable[[Peer], Awaitable[bool]]) -> NewSession | None:
        begun: NewSession | None = None
        client = _client(self._spec)
        try:
            async with anyio.create_task_group() as tasks:
                peer, wire = self._http_peer(self._authorized(client), tasks, is_spare=True)
                with anyio.move_on_after(_BEGIN), suppress(StartFailed, httpx2.HTTPError):
                    info = await negotiation.negotiate(peer, Terms(Era.HANDSHAKE))
                    await wire.drained()
                    if await accept(peer):
                        begun = NewSession(wire.session.id, info, client.cookies)
                    else:
                        await wire.end()
                wire.close()
                tasks.cancel_scope.cancel()
        finally:
            await _closed(client)
        return begun

    def _http_wire(
        self, messages: PeerMessages, peer: Peer, http: HttpStreams, tasks: anyio.abc.TaskGroup, is_spare: bool
    ) -> HttpWire:
        spec, check = self._spec, SessionCheck(peer, None if is_spare else self._begin_beside)
        if not is_spare:
            self._check = check
        return HttpWire(
            messages,
            http,
            tasks,
            lambda: (peer.info.era, peer.info.version),
            server=self.name,
            url=spec.url,
            limit=spec.line_limit,
            explain=self._explain,
            still_modern=partial(negotiation.is_still_modern, peer, _PROBE) if spec.era is None else None,
            is_lost=check.is_lost,
            session=spec.begun.id if spec.begun is not None and not is_spare else None,
            on_gap=messages.list_changes.miss,
        )

    async def _over_sse(
        self, http: HttpStreams, tasks: anyio.abc.TaskGroup, observer: Observer | None, first: StartFailed | None = None
    ) -> Peer:
        """`first` is the earlier attempt's failure; its code counts."""
        so_far = "" if first is None else f"{first}; as a server of the HTTP+SSE transport: "
        url, limit = self._spec.url, self._spec.line_limit

        def connect(messages: PeerMessages, peer: Peer) -> SseWire:
            return SseWire(messages, http, tasks, server=self.name, url=url, limit=limit, explain=self._explain)

        peer = Peer(self.name, connect, not_settled(apps=self._spec.apps), observer, is_remote=True)
        wire = peer.wire
        assert isinstance(wire, SseWire)
        self._wire = wire
        try:
            await wire.open()
            await negotiation.negotiate(peer, Terms(Era.HANDSHAKE, learn=self._eras.learn))
        except HttpRefused as exc:
            code = str(exc.about_upstream["code"]) if first is None else first.code
            raise self._refused(exc.status, Cause(code, f"{so_far}{exc}")) from None
        except StartFailed as exc:
            kind = Incompatible if isinstance(exc, Incompatible) else StartFailed
            reason = (await self._with_name(exc.cause)).reason
            raise kind(exc.code if first is None else first.code, f"{so_far}{reason}") from None
        await wire.drained()
        return peer

    def _refused(self, status: int | None, cause: Cause) -> StartFailed:
        if status not in DENIED:
            return StartFailed(*cause)
        if self._denied is not None:  # then the denial says whether it does
            return StartFailed(self._denied.code, f"{origin(self._spec.url)} {self._denied.reason} (HTTP {status})")
        self.can_retry = False
        has_credentials = any(name.lower() == "authorization" for name in self._spec.headers)
        login = "" if self._access is None or self._access.is_granted else f'run "mcp-hub login {self.name}", or '
        verb = "does not accept the credentials of" if has_credentials else f"wants credentials: {login}set"
        code = "login_needed" if login and not has_credentials else "not_admitted"
        return StartFailed(code, f'{origin(self._spec.url)} {verb} "bearer" or "headers" (HTTP {status})')

    async def _explain(self, response: httpx2.Response) -> str | None:
        """The login's reason for a 401 or 403."""
        if self._access is None:
            return None
        denial = await self._access.denied(response.status_code, response.headers.get("www-authenticate", ""))
        if denial is None:
            return None
        self.can_retry = denial.can_retry
        self._denied = denial
        if denial.ends and self._wire is not None:
            self._wire.retire(f"{origin(self._spec.url)} {denial.reason} (HTTP {response.status_code})", denial.code)
        return denial.reason

    async def last_words(self, cause: Cause) -> Cause:
        if cause.code == "start_timeout":
            self._forget_era()
        return cause

    async def close(self) -> None:
        wire, http = self._wire, self._http
        with anyio.CancelScope(shield=True):
            if (self.lost_session or self._denied is not None) and wire is not None:
                with anyio.move_on_after(_STRAGGLERS):
                    await wire.settled()
            with anyio.move_on_after(_GOODBYE), suppress(httpx2.HTTPError):
                if isinstance(wire, HttpWire) and wire.can_send:
                    await wire.drained()
                    await wire.end()
            if wire is not None:
                wire.close()
        if http is not None:
            await _closed(http)


async def _closed(http: httpx2.AsyncClient) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE):
        await http.aclose()


def _client(spec: HttpSpec, begun: NewSession | None = None) -> RemoteClient:
    """Without a timeout for responses. Raises `StartFailed`."""
    cookies = begun.cookies if begun is not None else None
    # a compressed stream could be flushed late
    headers = httpx2.Headers({"user-agent": USER_AGENT, "accept-encoding": "identity"})
    headers.update(spec.headers)
    limits = httpx2.Limits(
        max_connections=AT_ONCE + _SPARE, max_keepalive_connections=_MOST_IDLE, keepalive_expiry=_IDLE
    )
    return RemoteClient(
        spec.url, limits=limits, verify=tls(spec.ca), headers=headers, connect=_CONNECT, cookies=cookies
    )
