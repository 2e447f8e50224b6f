"""Lists of a session, and facts for its calls, by its profile and the kind of its client."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, Early, People, Upstream
from mcp_hub.calls.plan import SessionRules, Truncate
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.catalog.catalog import CallerLists, Catalog, caller_lists
from mcp_hub.catalog.discovery import meta_tools
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.routes import AppRequests, Route, Unlisted
from mcp_hub.catalog.token_costs import TokenAccounts
from mcp_hub.catalog.views.exposure import results_of
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.clock import SystemClock
from mcp_hub.ids import new_call_id
from mcp_hub.methods import is_foreign
from mcp_hub.notices import Notices
from mcp_hub.protocol import eras
from mcp_hub.protocol.meta import STREAMS, RequestMeta, declares
from mcp_hub.protocol.rest.servers import TokenAccount
from mcp_hub.sessions.session import Caller, Session, call_of
from mcp_hub.types import OWN, ClientKind, Era, Kind, PartialForm, RawObject

_ARRIVAL: Final = 10.0
"""Seconds that a list waits for the lists of the caller's own connections."""
_RENEWED: Final = 0.1
"""Seconds between looks at the age of all lists of a kind."""
_MOST_RENEWED: Final = 1024
_CUT: Final = frozenset({"tools/call", "resources/read"})  # methods whose results may be cut


class _Facts(msgspec.Struct, frozen=True):
    """Facts for a session's calls. `version` is the lists', `deadline` in seconds.

    At the servers `apart` the caller has connections of its own.
    """

    version: int
    apart: Mapping[str, Upstream]
    rules: ViewRules
    view: CatalogView
    deadline: float | None
    result_tokens: int
    truncate: Truncate | None
    unlisted: Unlisted
    unwrapped: Callable[[RawObject], Route | None]
    early: Early | None
    reads_only: Callable[[Call], bool]
    partials: PartialForm | None
    takes_events: bool
    of_apps: AppRequests | None
    shows_paths: bool


class SessionViews:
    """Lists and facts of sessions, by profile and, from `client_kind`, the kind of client."""

    def __init__(
        self,
        catalog: Catalog,
        upstreams: Mapping[str, Upstream],
        session_rules: SessionRules,
        changes: Notices,
        client_kind: Callable[[Session], ClientKind],
        truncation: Callable[[Callable[[str], bool] | None], Truncate | None],
    ) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._session_rules = session_rules
        self._changes = changes
        self._client_kind = client_kind
        self._truncation = truncation
        self._accounts = TokenAccounts(catalog, upstreams)
        self._renewed: dict[tuple[str | None, Kind, bool], tuple[int, float]] = {}

    def of(self, session: Session) -> CatalogView:
        """Everything that the session's client can list and call."""
        return self.facts(session).view

    def facts(self, session: Session) -> _Facts:
        """Facts for the session's calls. Cached until settings or lists change."""
        offer, epoch = session.offer, self._session_rules.epoch
        cached = offer.facts
        if offer.epoch != epoch:
            offer.renew(epoch)
        elif type(cached) is _Facts and cached.version == self._changes.version:
            return cached
        profile, client_kind = session.caller.profile, self.client_kind(session)
        is_settled = partial(self._catalog.is_settled, client_kind, came=offer.came)
        call, deadline = call_of(session), client_kind.soft_deadline
        apart = {name: upstream for name, upstream in self._upstreams.items() if upstream.apart(call) is not None}
        lists = caller_lists(apart, call)
        rules = self._catalog.rules(profile)
        view = self._catalog.exposed(profile, client_kind, offer.mode, lists)
        unlisted = partial(self._catalog.unlisted, profile, shows_paths=session.caller.shows_paths)
        facts = _Facts(
            version=self._changes.version, apart=apart, rules=rules, view=view, deadline=deadline,
            result_tokens=results_of(rules, client_kind),
            truncate=self._truncation(view.shows_output),
            unlisted=unlisted, unwrapped=partial(meta_tools.unwrapped, view, is_settled, unlisted),
            early=None if deadline is None else Early(deadline, is_task=False),
            reads_only=partial(_is_read_only, view), partials=client_kind.partials,
            takes_events=declares(session.capabilities, session.era, STREAMS),
            of_apps=AppRequests(view, offer.apps, is_settled) if client_kind.shows_apps else None,
            shows_paths=session.caller.shows_paths,
        )  # fmt: skip
        return offer.derive(facts)

    def client_kind(self, session: Session) -> ClientKind:
        return session.offer.kind or self._client_kind(session)

    def page(self, session: Session, kind: Kind, cursor: str | None) -> bytes:
        """The encoded result of a list request. Raises `InvalidParams`."""
        view, offer = self.of(session), session.offer
        is_new = offer.mode is None
        if is_new and kind is Kind.TOOL:
            lists = caller_lists(self.facts(session).apart, call_of(session))
            offer.settle(self._catalog.mode(session.caller.profile, self.client_kind(session), lists))
        page = view.page(kind, session.era, cursor, self._session_rules.page_size)
        if offer.lists is not None and cursor is None:
            offer.lists[kind] = self.digest(session, kind)
        if cursor is None:
            self._renew(session.caller.profile, kind, is_new=is_new)
        return page

    def _renew(self, profile: str | None, kind: Kind, *, is_new: bool) -> None:
        """Not again within `_RENEWED` seconds: each time every server is looked at."""
        version, time_now = self._changes.version, SystemClock.now()
        if len(self._renewed) > _MOST_RENEWED:
            self._renewed.clear()
        seen, at = self._renewed.get((profile, kind, is_new), (-1, 0.0))
        if seen != version or time_now - at >= _RENEWED:
            self._renewed[profile, kind, is_new] = version, time_now
            renew(self._upstreams, self._catalog.rules(profile).servers, kind, is_new=is_new)

    def is_settled(self, session: Session, kind: Kind | None = None) -> bool:
        """Whether a list, of a `kind` a fresh one, may be answered now."""
        is_settled = self._catalog.is_settled(self.client_kind(session), kind, session.offer.came)
        return is_settled and not _arrivals(self.facts(session).apart, session)

    async def settled(self, session: Session, kind: Kind | None = None) -> None:
        """Waits until `is_settled`, not longer than the client."""
        await self._catalog.settled(self.client_kind(session), kind, session.offer.came)
        await self.arrived(session.caller)

    async def arrived(self, caller: Caller) -> None:
        """Waits for lists of the caller's own connections that are under way."""
        with anyio.move_on_after(_ARRIVAL):
            for arrived in _arrivals(self._upstreams, _session_of(caller)):
                await arrived()

    def lists(self, caller: Caller) -> CallerLists:
        """Lists of the caller's own connections."""
        return caller_lists(self._upstreams, call_of(_session_of(caller)))

    def whole(self, caller: Caller) -> CatalogView:
        """Everything that the caller's profile lets through, for programs."""
        return self._catalog.view(caller.profile, self.lists(caller))

    async def settled_for(self, caller: Caller) -> None:
        """Waits for starting servers, and for lists of the caller's own connections."""
        await self._catalog.settled()
        await self.arrived(caller)

    def digest(self, session: Session, kind: Kind) -> int:
        return self.of(session).digest(kind)

    async def token_account(
        self, caller: Caller, client: str, server: str | None = None, heaviest: int | None = None
    ) -> TokenAccount:
        """Tokens of the tools for a kind of client. Raises `ConfigError`."""
        session = Session("", replace(caller, client=client), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
        return await self._accounts.account(caller.profile, client, self.client_kind(session), server, heaviest)


async def uri_settled(catalog: Catalog, profile: str | None, uri: str) -> None:
    """Waits at most `CALL_WAIT` seconds for starting servers."""
    await catalog.settled(
        servers=catalog.starting(profile),
        is_enough=lambda: catalog.view(profile).resources.resolve(uri, may_guess=False) is not None,
    )


def renew(upstreams: Mapping[str, Upstream], servers: Iterable[str], kind: Kind, *, is_new: bool = False) -> None:
    """Refreshes in the background, except skills."""
    if kind is not Kind.SKILL:  # those are waited for
        for server in servers:
            if server in upstreams:
                upstreams[server].refresh(kind, is_new=is_new)


def _arrivals(upstreams: Mapping[str, Upstream], session: Session) -> list[Callable[[], Awaitable[None]]]:
    if not upstreams:
        return []
    call = call_of(session)
    connections = filter(None, (upstream.apart(call) for upstream in upstreams.values()))
    return [connection.arrival for connection in connections if connection.arrival is not None]


def _session_of(caller: Caller) -> Session:
    return Session("", caller, Era.MODERN, eras.LATEST_MODERN)


def routed(
    session: Session, method: str, params: RawObject, to: Route, meta: RequestMeta, facts: _Facts,
    early: Early | None, people: People | None, *, is_notice: bool = False,
) -> Call:  # fmt: skip
    """The call of a request. One of a method unknown to the hub names no entry of a list."""
    is_passed = method not in eras.CALL_METHODS and is_foreign(method)
    return Call(
        new_call_id(), to.server, method, to.params, meta=meta.rest, session=session.id,
        client=session.offer.client, principal=session.caller.principal, era=session.era, version=session.version,
        capabilities=session.capabilities, exported_uri=to.exported_uri,
        exported_name=msgspec.UNSET if is_passed else params.get("name", params.get("uri", msgspec.UNSET)),
        wants_progress=early is not None or meta.token is not None, takes_events=meta.takes_events, path=to.path,
        log_level=session.log_level, result_tokens=facts.result_tokens if method in _CUT and not to.is_whole else 0,
        partials=None if meta.token is None or (facts.takes_events and to.server != OWN) else facts.partials,
        is_program=session.offer.kind is not None, must_read=to.must_read, people=people,
        directory=session.caller.directory, roots_changes=session.offer.roots_changes, shows_paths=facts.shows_paths,
        profile=session.caller.profile, claims=session.caller.claims, is_notice=is_notice,
    )  # fmt: skip


def _is_read_only(view: CatalogView, call: Call) -> bool:
    return (entry := view.find(Kind.TOOL, exported_name(call))) is not None and entry.is_read_only
