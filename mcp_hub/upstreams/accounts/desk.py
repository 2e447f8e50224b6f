"""The desk where people log in to their own accounts: links out, browsers in, codes confirmed.

Pending logins lie encrypted in rows, one for each principal: another replica, or the hub after a restart, continues.
Requests to authorization servers are bounded in number and time.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import anyio
import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.errors import Rejected, StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide, learn
from mcp_hub.stores.documents import Rows
from mcp_hub.upstreams.accounts import pending as steps
from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.pending import Pending, PendingLogin, Stage
from mcp_hub.upstreams.accounts.rows import Seal
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, grant_key
from mcp_hub.upstreams.auth.login import begin_in_web, end_in_web

log = get_logger(__name__)

_LOCK: Final = 5.0
"""Seconds to wait while another request changes the pending logins of one principal."""
_SECONDS: Final = 30.0
"""Seconds for all requests of one step to an authorization server."""
_AT_ONCE: Final = 16
"""Steps that ask authorization servers at once; more are refused."""
_REUSED: Final = 86400.0
"""Seconds for which a registration as a client serves further logins."""
_SWEEP: Final = 3600.0
"""Seconds between two looks for old rows."""
_LONGEST: Final = 16 << 10
"""Characters of a value."""

_T = TypeVar("_T")


class _Row(msgspec.Struct):
    """A row in the place of another is refused by the name inside."""

    name: str
    pending: Pending = ()
    client: Grant | None = None
    since: float = 0.0


class LoginDesk:
    """The pending logins in `rows`. `target` gives the URL and the hub's client of a server with a login, else None.

    `address` gives the hub's public address, None where no browser reaches it. Methods raise `Rejected` for what
    a person or caller did or has to know.
    """

    def __init__(
        self, accounts: Accounts, rows: Rows, seal: Seal, *, address: Callable[[], str | None],
        target: Callable[[str], tuple[str, ClientRegistration] | None], clock: Callable[[], float] = wall_time,
    ) -> None:  # fmt: skip
        self.accounts = accounts
        self._address = address
        self._target = target
        self._rows = rows
        self._cipher, self._pepper = seal.cipher, seal.pepper
        self._clock = clock
        self._asking = anyio.Semaphore(_AT_ONCE)
        self._changed = anyio.Event()
        self._swept = clock()

    @property
    def base(self) -> str | None:
        """The public address, without a slash at its end."""
        return self._address()

    # -- for calls and callers ------------------------------------------------------------------------------------

    @property
    def news(self) -> anyio.Event:
        """Set, once, with this process's next change."""
        return self._changed

    async def offer(self, server: str, principal: str, fields: tuple[str, ...] = ()) -> tuple[PendingLogin, str]:
        """A link, and its pending login."""
        if self.base is None:
            reason = "the hub has no address that a browser could open: set hub.http.public_url"
            raise Rejected("login_unavailable", reason)
        generation = await _known(self.accounts.generation(server, principal))

        await self._sweep()
        request = PendingLogin(server=server, principal=principal, fields=fields, generation=generation)
        row = self._row_of(principal)

        def change(pending: Pending) -> tuple[Pending, PendingLogin]:
            return steps.offered(pending, row, request, self._clock())

        entry = await self._change(row, change)
        return entry, f"{self._place(server)}?t={entry.secret}"

    async def pending(self, server: str, principal: str) -> Pending:
        """The principal's pending logins at the server; none that began before its account was removed."""
        every = steps.current((await self._read(self._row_of(principal))).pending, self._clock())
        generation = await _known(self.accounts.generation(server, principal)) if every else 0
        return tuple(entry for entry in every if entry.server == server and entry.generation == generation)

    async def confirm(self, server: str, principal: str, code: str) -> PendingLogin:
        """Makes the login with this code the principal's account."""

        def change(pending: Pending) -> tuple[Pending, PendingLogin | Rejected]:
            return steps.confirmed(steps.current(pending, self._clock()), server, code)

        outcome = await self._change(self._row_of(principal), change)
        if isinstance(outcome, Rejected):
            log.warning("login_code_wrong", audit=("login", principal), upstream=server, reason=outcome.code)
            raise outcome
        if not await self._keep(outcome):
            raise Rejected(
                "login_unknown", f'the account at "{server}" was removed since the login began. Begin again.'
            )
        log.info("account_confirmed", audit=("login", principal), upstream=server)
        self._wake()
        return outcome

    async def withdraw(self, server: str, principal: str) -> None:
        """Ends the principal's pending logins at the server."""
        await self._change(self._row_of(principal), lambda pending: (steps.revoked(pending, server), None))

    def ended(self, server: str, principal: str) -> None:
        """The account was removed or replaced: waiting calls look again."""
        self._wake()

    # -- for browsers ---------------------------------------------------------------------------------------------

    async def look(self, server: str, ticket: str) -> PendingLogin:
        """The login of a link, unchanged."""
        entry = steps.by_ticket(await self._of(ticket), server, ticket)
        await self._check(entry)
        return entry

    async def click(self, server: str, ticket: str) -> tuple[PendingLogin, str, str]:
        """Uses the link up: the login, this browser's cookie, and the authorization server's page; "": a form."""

        def take(pending: Pending) -> tuple[Pending, tuple[PendingLogin, str]]:
            entry = steps.by_ticket(steps.current(pending, self._clock()), server, ticket)
            fresh, cookie = steps.begun(entry, self._clock())
            return steps.replaced(pending, entry, fresh), (fresh, cookie)

        await self._check(steps.by_ticket(await self._of(ticket), server, ticket))
        entry, cookie = await self._change(_row(ticket), take)
        learn([cookie])
        if entry.fields:
            return entry, cookie, ""
        url, client = self._login(server)
        prior = await self._prior(entry, url, client)
        begin = partial(begin_in_web, url, client, prior, self._redirect(server), entry.state)
        page, login = await self._asked(entry, begin)
        if login.grant.is_registered and (prior is None or prior.client_id != login.grant.client_id):
            await self._remember(url, server, login.grant)
        await self._advance(entry, msgspec.structs.replace(entry, login=login, target=grant_key(url, client)))
        return entry, cookie, page

    async def came_back(self, server: str, cookie: str, returned: Mapping[str, str]) -> PendingLogin:
        """Ends a login by what the browser brought from the authorization server; it awaits its code then."""
        state = returned.get("state", "")
        stages: tuple[Stage, ...] = ("begun", "proven")
        entry = steps.by_browser(await self._of(state), server, cookie, state, stages)
        await self._check(entry)
        if entry.stage == "proven":  # the page is loaded again
            return entry
        if (login := entry.login) is None:
            raise Rejected("login_unknown", "This login was ended by another request. Look at its page.")
        url, client = self._login(server, entry.target)
        await self._advance(entry, spent := msgspec.structs.replace(entry, login=None))
        end = partial(end_in_web, login, url, client, returned, self._clock())
        grant, label = await self._asked(spent, end)
        return await self._prove(spent, msgspec.structs.replace(spent, grant=grant, label=label or ""))

    async def submit(self, server: str, cookie: str, proof: str, values: Mapping[str, str]) -> PendingLogin:
        """Takes the values of a form; they await their code then."""
        entry = steps.by_browser(await self._of(proof), server, cookie, proof, ("begun",))
        await self._check(entry)
        named_values = {name: values.get(name, "") for name in entry.fields}
        for name, value in named_values.items():
            if not 0 < len(value) <= _LONGEST or not value.isprintable():
                problem = "is empty" if not value else "is too long, or has characters that cannot be printed"
                raise Rejected("value_unfit", f"{name} {problem}.")
            for problem in filter(None, (unfit(server, name, value) for unfit in self.accounts.unfit)):
                raise Rejected("value_unfit", f"{name} cannot be sent: {problem}.")
        learn(named_values.values())
        return await self._prove(entry, msgspec.structs.replace(entry, values=named_values))

    async def cancel(self, server: str, cookie: str, proof: str) -> None:
        """Throws away the login of this browser."""
        entry = steps.by_browser(await self._of(proof), server, cookie, proof, ("begun", "proven"))
        await self._drop(entry)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _place(self, server: str, path: str = "login") -> str:
        return f"{self.base}/{path}/{quote(server, safe='')}"

    def _redirect(self, server: str) -> str:
        """An address for each server: the answer of one is not taken for another's."""
        return self._place(server, "login-callback")

    def _login(self, server: str, target: str | None = None) -> tuple[str, ClientRegistration]:
        """URL and client of the login; one that began for another URL or client (`target`) is refused."""
        login = self._target(server)
        if login is not None and target not in (None, grant_key(*login)):
            raise Rejected("login_unknown", f'The entry of server "{server}" has changed since the login began.')
        if login is None or self.base is None:
            raise Rejected("login_unavailable", f'The hub has no login to server "{server}" now.')
        return login

    async def _check(self, entry: PendingLogin) -> None:
        if await _known(self.accounts.generation(entry.server, entry.principal)) != entry.generation:
            raise Rejected("link_expired", "The account was removed after this login began. Begin it again.")

    async def _asked(self, entry: PendingLogin, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks the authorization server; without an answer the login is over."""
        try:
            return await self._answer(ask)
        except TimeoutError:
            reason = f"the authorization server took longer than {_SECONDS:g} s"
        except LoginFailed as problem:
            reason = hide(str(problem))
        log.warning("login_failed", audit=("login", entry.principal), upstream=entry.server, reason=reason)
        await self._drop(entry)
        raise Rejected("login_failed", f"{reason[:1].upper()}{reason[1:]}.")

    async def _answer(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        try:
            self._asking.acquire_nowait()
        except anyio.WouldBlock:
            raise LoginFailed("too many people log in at this moment") from None
        try:
            with anyio.fail_after(_SECONDS):
                return await ask()
        finally:
            self._asking.release()

    async def _prior(self, entry: PendingLogin, url: str, client: ClientRegistration) -> Grant | None:
        """The login to replace, for its client and missing rights; else the hub's client."""
        account = await _known(self.accounts.read(entry.server, entry.principal))
        if account is not None and account.grant is not None and account.target == grant_key(url, client):
            return account.grant
        row = await self._read(self._client_row(url, entry.server))
        return row.client if self._clock() - row.since < _REUSED else None

    async def _remember(self, url: str, server: str, grant: Grant) -> None:
        """Keeps the hub's registration, which belongs to nobody: it has no tokens and no rights."""
        name = self._client_row(url, server)
        async with self._rows.locked(name, _LOCK):
            await self._write(_Row(name, client=replace(grant, missing=None), since=self._clock()))

    def _row_of(self, principal: str) -> str:
        return steps.row_name(principal, self._pepper)

    def _client_row(self, url: str, server: str) -> str:
        return self._row_of(f"client\0{url}\0{self._redirect(server)}")

    async def _prove(self, entry: PendingLogin, filled: PendingLogin) -> PendingLogin:
        """Lets the login await its code, unless it was ended meanwhile."""

        def change(pending: Pending) -> tuple[Pending, PendingLogin | None]:
            pending, time = steps.current(pending, self._clock()), self._clock()
            return steps.proven(pending, entry, filled, time) if entry in pending else (pending, None)

        proven_entry = await self._change(self._row_of(entry.principal), change)
        if proven_entry is None:
            raise Rejected("login_unknown", "This login was ended while it ran, and is thrown away.")
        return proven_entry

    async def _advance(self, entry: PendingLogin, to: PendingLogin) -> None:
        """Puts `to` in the place of a login that no other request has changed."""

        def change(pending: Pending) -> tuple[Pending, bool]:
            return steps.replaced(pending, entry, to), entry in pending

        if not await self._change(self._row_of(entry.principal), change):
            raise Rejected("login_unknown", "This login was ended or continued by another request.")

    async def _drop(self, entry: PendingLogin) -> None:
        def change(pending: Pending) -> tuple[Pending, None]:
            return tuple(each for each in pending if each.state != entry.state), None

        await self._change(self._row_of(entry.principal), change)

    async def _keep(self, entry: PendingLogin) -> bool:
        if entry.grant is not None:
            target = grant_key(*self._login(entry.server, entry.target))
            return await _known(
                self.accounts.keep(
                    entry.server,
                    entry.principal,
                    entry.grant,
                    target=target,
                    generation=entry.generation,
                    label=entry.label,
                )
            )
        await self._check(entry)
        for name, value in entry.values.items():
            await _known(self.accounts.put_value(entry.server, entry.principal, name, value))
        return True

    # -- rows -----------------------------------------------------------------------------------------------------

    async def _of(self, ticket: str) -> Pending:
        return steps.current((await self._read(_row(ticket))).pending, self._clock())

    async def _read(self, name: str) -> _Row:
        """The row; an empty one in place of a damaged, foreign or missing one."""
        row = await self._rows.read(name)
        if row is None:
            return _Row(name)
        try:
            decoded = msgspec.json.decode(self._cipher.decrypt(row), type=_Row)
        except Exception:  # of the cipher, whose errors are its own, or of the decoder
            log.warning("pending_logins_unreadable")
            return _Row(name)
        return decoded if decoded.name == name else _Row(name)

    async def _write(self, row: _Row) -> None:
        async with self._rows.writing(row.name) as write:
            await write(self._cipher.encrypt(msgspec.json.encode(row)))

    async def _change(self, name: str, change: Callable[[Pending], tuple[Pending, _T]]) -> _T:
        async with self._rows.locked(name, _LOCK):
            before = (await self._read(name)).pending
            pending, outcome = change(before)
            if pending != before:
                await (self._write(_Row(name, pending)) if pending else self._rows.remove(name))
        self._wake()
        return outcome

    async def _sweep(self) -> None:
        """Removes rows of which nothing is pending any more, once an hour."""
        if (time := self._clock()) - self._swept < _SWEEP:
            return
        self._swept = time
        await _without_old(self._rows, time)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def _without_old(rows: Rows, time: float) -> None:
    for name, used in (await rows.names()).items():
        if time - used > _REUSED:
            async with rows.locked(name, _LOCK):
                await rows.remove(name)


def _row(ticket: str) -> str:
    """The row of a ticket, without a look at the store for anything else."""
    name = steps.row_of(ticket)
    if name is None:
        raise Rejected("link_expired", "This link is not complete.")
    return name


async def _known(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except LoginFailed as problem:
        raise StoreError(str(problem)) from None
