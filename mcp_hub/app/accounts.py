"""Accounts of principals: their store, and servers' entries with the values of one."""

import dataclasses
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from msgspec import UNSET
from msgspec.structs import replace
from starlette.routing import Route

from mcp_hub.app.logins import client_of
from mcp_hub.app.upstream_factory import UpstreamFactory, supervisor_rules
from mcp_hub.clock import wall_time
from mcp_hub.config.schema.fields import problems_of
from mcp_hub.config.schema.servers import AccountLookup, Lookup, ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import AccountNeeded, Rejected, StoreUnavailable, UpstreamUnavailable
from mcp_hub.fronts.http.login_pages import login_pages
from mcp_hub.fronts.rest.accounts import account_handlers
from mcp_hub.fronts.rest.exchange import Handlers
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.notices import Notices
from mcp_hub.protocol.rest.servers import AccountAnswer, AccountInfo
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.stores.base import EventStore
from mcp_hub.types import Snapshot
from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.desk import LoginDesk
from mcp_hub.upstreams.accounts.rows import Account, RowFiles, Seal
from mcp_hub.upstreams.accounts.waiting import waits
from mcp_hub.upstreams.auth.access import Access
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, grant_key, is_same_issuer
from mcp_hub.upstreams.auth.token_exchange import SubjectTokens, exchanged, in_memory
from mcp_hub.upstreams.auth.token_requests import revoked
from mcp_hub.upstreams.supervision.principals import PerPrincipal
from mcp_hub.upstreams.supervision.server import OwnedUpstream
from mcp_hub.upstreams.supervision.side_connections import member_rules

log = get_logger(__name__)

_T = TypeVar("_T")
_LONGEST: Final = 512
"""Characters of a principal that a process gets."""


def open_accounts(settings: Callable[[], Settings], env: Mapping[str, str], store: EventStore | None) -> Accounts:
    """The accounts, in the shared store if there is one. `hub.accounts.key` is needed."""
    replicas = None if store is None else store.replicas
    rows = RowFiles(state_dir(env) / "oauth" / "accounts") if replicas is None else replicas.accounts(wall_time)
    return Accounts(rows, Seal(settings().hub.accounts.keys()), revoke=partial(_revoked, settings))


async def _revoked(settings: Callable[[], Settings], account: Account) -> str:
    """Revokes a login as the client that it was given to, by the present settings; another's secret stays here."""
    if account.grant is None:
        return ""
    server = settings().servers.get(account.server)
    login = None if server is None else login_target(server)
    if login is not None and grant_key(*login) != account.target:
        login = None
    client = ClientRegistration() if login is None else login[1]
    url = account.grant.resource or account.grant.issuer or "" if login is None else login[0]
    try:
        await revoked(account.grant, client, Addresses(url, client.ca))
    except LoginFailed as problem:
        log.warning("account_not_revoked", upstream=account.server, reason=str(problem))
        return hide(str(problem))
    return ""


class AccountRecords:
    """The stored accounts for operators and callers, without secrets. Methods raise `StoreUnavailable`."""

    def __init__(self, accounts: Accounts, settings: Callable[[], Settings]) -> None:
        self._accounts = accounts
        self._settings = settings

    async def listed(self, principal: str | None) -> list[AccountInfo]:
        pairs = await _answered(self._accounts.listed())
        return [self._info(account, used) for account, used in pairs if principal in (None, account.principal)]

    async def remove(self, server: str, principal: str) -> AccountAnswer:
        if account_fields(self._settings, server) is None and not await self._is_there(server, principal):
            return AccountAnswer(server, principal, was=False)
        was_there, problem = await _answered(self._accounts.remove(server, principal))
        return AccountAnswer(server, principal, was=was_there, problem=problem)

    async def _is_there(self, server: str, principal: str) -> bool:
        try:
            return await self._accounts.read(server, principal) is not None
        except LoginFailed:
            return True

    async def put_value(self, server: str, principal: str, name: str, value: str) -> None:
        if problem := value_problem(self._settings, server, name, value):
            raise Rejected("value_unfit", f"{name} cannot be sent: {problem}.")
        await _answered(self._accounts.put_value(server, principal, name, value))

    def _info(self, account: Account, used: float) -> AccountInfo:
        hub = self._settings().hub
        is_gone = hub.http.oauth is None and account.principal not in {token.principal for token in hub.tokens}
        return AccountInfo(
            server=account.server,
            principal=account.principal,
            since=timestamp(account.since),
            used=timestamp(used),
            account=account.label or UNSET,
            values=sorted(account.values),
            gone=is_gone,
        )


def account_fields(settings: Callable[[], Settings], name: str) -> tuple[str, ...] | None:
    """The names of an account's values at a server; None for one without own accounts."""
    server = settings().servers.get(name)
    return None if server is None or server.account != "own" else tuple(server.account_values)


async def _answered(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except LoginFailed as problem:
        raise StoreUnavailable(f"The accounts cannot be read or written: {problem}") from None


def fronts_of(
    accounts: Accounts,
    settings: Callable[[], Settings],
    store: EventStore,
    url: str | None,
    tell: Callable[[str, bytes], None],
) -> tuple[Handlers, Callable[[Iterable[str]], Mapping[str, Route]], Callable[[str, str, float], None]]:
    """REST, pages of servers by path, and a function that keeps callers' tokens to exchange.

    `url`: where this machine reaches the hub; None: by no browser. `tell` sends a message to a session.
    """

    def address() -> str | None:
        public = settings().hub.http.public_url or url
        return None if url is None or public is None else public.rstrip("/").removesuffix("/mcp") or None

    def note(principal: str, token: str, until: float) -> None:
        if any(map(is_exchanged, settings().servers.values())):
            accounts.subjects.note(principal, token, until)

    def target(name: str) -> tuple[str, ClientRegistration] | None:
        server = settings().servers.get(name)
        return None if server is None or is_exchanged(server) else login_target(server)

    replicas, seal = store.replicas, Seal(settings().hub.accounts.keys())
    folder = state_dir(os.environ) / "oauth" / "pending"
    rows = RowFiles(folder) if replicas is None else replicas.accounts(wall_time, is_pending=True)
    accounts.unfit.append(partial(value_problem, settings))
    desk = LoginDesk(accounts, rows, seal, address=address, target=target)
    accounts.needed.append(waits(desk, tell))
    accounts.ended.append(desk.ended)
    handlers = account_handlers(desk, partial(account_fields, settings), AccountRecords(accounts, settings))
    return handlers, login_pages(desk), note


def login_target(server: ServerSettings) -> tuple[str, ClientRegistration] | None:
    """URL and client of each principal's login; None where accounts are values alone."""
    client = client_of(server)
    return None if server.url is None or client is None or server.account_values else (server.url, client)


def with_accounts(
    factory: UpstreamFactory, settings: Callable[[], Settings], store: EventStore, listed: Callable[[Snapshot], object]
) -> UpstreamFactory:
    """The factory, also for servers with `account: own`; `listed` gets their lists for all accounts."""
    accounts = open_accounts(settings, factory.env, store)
    return replace(factory, accounts=accounts, of_principals=partial(_principals_upstream, accounts, listed))


def _principals_upstream(
    accounts: Accounts, listed: Callable[[Snapshot], object], factory: UpstreamFactory, settings: Settings, name: str
) -> OwnedUpstream:
    server = settings.servers[name]
    rules, eras = supervisor_rules(settings, name), factory.eras(server)

    def make(principal: str, account: Account | None, changes: Notices) -> OwnedUpstream:
        entry = personal(name, server, principal, account)
        starts = factory.starts.of_principal(principal)
        own_factory = replace(factory, changes=changes, starts=starts, sandboxes={}, clients=None)
        if entry.url is None:
            connect = own_factory.by_pipe(name, own_factory.specs(settings, name, entry, None), None, eras)
            factory.sandboxes.update(own_factory.sandboxes)
        else:
            access = access_of(name, server, principal, accounts)
            connect = own_factory.remote(name, settings, entry, entry.url, eras, access)
        return own_factory.connected(name, entry, connect, member_rules(rules), eras)

    return PerPrincipal(
        name=name, make=make, check=check_of(name, server), accounts=accounts, rules=rules,
        limit=settings.hub.accounts.connections, clock=factory.clock, changes=factory.changes, listed=listed,
    )  # fmt: skip


def access_of(name: str, server: ServerSettings, principal: str, accounts: Accounts) -> Access | None:
    """The principal's login; None without logins."""
    if (target := login_target(server)) is None:
        return None
    url, client = target
    if is_exchanged(server):
        alone = partial(_exchanged, url, client, accounts.subjects, principal)
        return Access(name, url, dataclasses.replace(client, is_machine=True, alone=alone), in_memory())
    return Access(name, *target, accounts.grants(name, principal))


async def _exchanged(url: str, client: ClientRegistration, subjects: SubjectTokens, principal: str) -> Grant:
    return await exchanged(client, Addresses(url, client.ca), subjects.find(principal), wall_time())


def is_exchanged(server: ServerSettings) -> bool:
    """Whether the callers' own tokens are exchanged, so that nobody logs in."""
    return server.oauth is not None and server.oauth.grant == "token_exchange"


def check_of(name: str, server: ServerSettings) -> Callable[[str, Account | None], None]:
    """A function that raises `AccountNeeded` for an account that is not enough for the server."""
    values, login = server.account_values, login_target(server)
    target = None if login is None else grant_key(*login)

    def check(principal: str, account: Account | None) -> None:
        missing = [value for value in values if account is None or value not in account.values]
        if missing:
            raise AccountNeeded(name, principal, missing)
        if login is None or is_exchanged(server):
            return
        is_there = account is not None and account.grant is not None and account.target == target
        issuer = login[1].issuer
        if not is_there or account is None or (issuer and not is_same_issuer(account.issuer or "", issuer)):
            raise AccountNeeded(name, principal)

    return check


def personal(name: str, server: ServerSettings, principal: str, account: Account | None) -> ServerSettings:
    """The entry with an account's values. Raises `UpstreamUnavailable` for one that cannot be passed."""
    values: dict[Lookup, str] = {}
    for lookup in _lookups(server):
        if lookup.name is None:
            values[lookup] = _passed(name, principal)
        elif account is not None:
            values[lookup] = account.values[lookup.name]
    filled = server.filled(values) if values else server
    if values and (problem := _problem(filled)):
        text = f'server "{name}" was not called: a value of your account cannot be sent: {problem}. Set it again.'
        raise UpstreamUnavailable(text, data={"upstream": {"server": name, "code": "account_needed"}})
    return filled


def value_problem(settings: Callable[[], Settings], name: str, field: str, value: str) -> str:
    """Why a value cannot be sent to the server, or ""."""
    if (server := settings().servers.get(name)) is None:
        return ""
    return _problem(server.filled({lookup: value if lookup.name == field else "x" for lookup in _lookups(server)}))


def _lookups(server: ServerSettings) -> set[AccountLookup]:
    return {part for parts in server.command_texts.values() for part in parts if isinstance(part, AccountLookup)}


def _problem(filled: ServerSettings) -> str:
    if filled.url is None:
        return ""
    headers = {header: text.get_secret_value() for header, text in filled.headers.items()}
    bearer = None if filled.bearer is None else filled.bearer.get_secret_value()
    return "; ".join(flaw.message for flaw in problems_of(filled.url, headers, bearer))


def _passed(name: str, principal: str) -> str:
    if principal.startswith("-") or not principal.isprintable() or not 0 < len(principal) <= _LONGEST:
        text = f'server "{name}" was not called: your principal begins with "-", is too long or cannot be printed.'
        raise UpstreamUnavailable(text, data={"upstream": {"server": name, "code": "account_needed"}})
    return principal
