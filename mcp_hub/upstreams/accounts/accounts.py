"""All accounts of a hub by server and principal; logins that are waited for; what ends with an account.

Nothing is read before it is needed, and nothing is held in memory for an account that is not in use.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel
from mcp_hub.clock import wall_time
from mcp_hub.errors import AccountNeeded, StoreError
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.masking import learn
from mcp_hub.stores.documents import Rows
from mcp_hub.upstreams.accounts.rows import Account, Seal, row_name
from mcp_hub.upstreams.auth.grants import Grant, Grants, LoginFailed
from mcp_hub.upstreams.auth.token_exchange import SubjectTokens

log = get_logger(__name__)

_LOCK: Final = 15.0
"""Seconds to wait while another hub renews the login."""
_LOOK: Final = 0.4
"""Seconds between two looks for what other hubs have written."""
_TRIES: Final = (0.1, 0.5, 2.0, 5.0)
"""Pauses in seconds before a renewed login is stored again: its old refresh token may be spent."""
_TOMBSTONE: Final = 86400.0
"""Seconds that the row of a removed account stays: no login lasts as long."""

_T = TypeVar("_T")

Needed = Callable[[AccountNeeded, Call, CallChannel], Awaitable[Completed | None]]
"""Returns None when the account is there, and the call may be tried again, or the result of the call. Raises the error,
or another `RpcError`.
"""


Revoke = Callable[[Account], Awaitable[str]]
"""Revokes a login at its server; the reason why it could not, or ""."""


async def _not_revoked(account: Account) -> str:
    return ""


class Accounts:
    """The accounts in `rows`. All that reads or writes raises `LoginFailed`.

    `needed` take calls of principals without an account. `revoke` is asked for removed logins. `ended` are called,
    without waiting, with server and principal when an account was removed or replaced, here or by another hub; `begun`,
    when one was stored. `unfit` say why a value cannot be sent, by server and name, or "".
    """

    def __init__(
        self, rows: Rows, seal: Seal, clock: Callable[[], float] = wall_time, revoke: Revoke = _not_revoked
    ) -> None:
        self.needed: list[Needed] = []
        self.subjects = SubjectTokens(clock)
        self.unfit: list[Callable[[str, str, str], str]] = []
        self._revoke = revoke
        self.ended: list[Callable[[str, str], None]] = []
        self.begun: list[Callable[[str, str], None]] = []
        self._rows = rows
        self._seal = seal
        self._clock = clock
        self._watched: dict[tuple[str, str], _Watched] = {}

    async def read(self, server: str, principal: str) -> Account | None:
        """The account, None without one."""
        account = await self._row(server, principal)
        return account if account is not None and account.is_there else None

    async def generation(self, server: str, principal: str) -> int:
        """The number that a login which begins now passes to `keep`."""
        account = await self._row(server, principal, is_checked=False)
        return 0 if account is None else account.generation

    async def keep(
        self, server: str, principal: str, grant: Grant, *, target: str, generation: int, label: str = ""
    ) -> bool:
        """Stores a login; False if the account was removed since the login began, which is thrown away then.

        `target` is the `grant_key` of the server and the hub's client.
        """

        def change(before: Account) -> Account | None:
            if before.generation != generation:
                return None
            return replace(before, grant=grant, target=target, issuer=grant.issuer, label=label, since=self._clock())

        is_kept = await self._changed(server, principal, change)
        if is_kept:
            log.info("account_stored", audit=("login", principal), upstream=server)
        return is_kept

    async def put_value(self, server: str, principal: str, name: str, value: str) -> None:
        """Stores the value for `${account:NAME}`."""

        def change(before: Account) -> Account:
            return replace(before, values={**before.values, name: value}, since=before.since or self._clock())

        await self._changed(server, principal, change)

    async def remove(self, server: str, principal: str) -> tuple[bool, str]:
        """Removes an account, and revokes its login. All that uses it ends first; logins that run are thrown away.

        Whether there was one, and why it could not be revoked.
        """
        self._end(server, principal)
        name = row_name(server, principal)
        async with self._locked(name):
            before = await self._row(server, principal, is_checked=False)
            generation = max(int(self._clock() * 1000), 0 if before is None else before.generation + 1)
            removed = Account(server=server, principal=principal, generation=generation)
            await self._write(name, removed)
            self._note(removed)
        self._end(server, principal)  # what has begun in between
        if before is None or not before.is_there:
            return False, ""
        log.info("account_removed", audit=("login", principal), upstream=server)
        return True, await self._revoke(before) if before.grant is not None else ""

    async def listed(self) -> list[tuple[Account, float]]:
        """All accounts with the time of their last use, by server and principal; those of a lost key are left out."""
        accounts: list[tuple[Account, float]] = []
        unreadable = 0
        for name, used in (await _stored(self._rows.names())).items():
            row = await _stored(self._rows.read(name))
            try:
                account = None if row is None else self._seal.opened(row)
            except LoginFailed:
                unreadable += 1
                continue
            if account is not None and account.is_there and row_name(account.server, account.principal) == name:
                accounts.append((account, used))
        if unreadable:
            log.warning("accounts_unreadable", count=unreadable)
        return sorted(accounts, key=lambda pair: (pair[0].server, pair[0].principal))

    async def sweep(self, idle: float) -> int:
        """Removes accounts that were not used for `idle` seconds, and encrypts rows of an old key again; how many
        were removed. Takes its time.
        """
        removed, in_use = 0, {row_name(*key) for key in self._watched}
        for name, used in (await _stored(self._rows.names())).items():
            await anyio.lowlevel.checkpoint()
            row, age = await _stored(self._rows.read(name)), self._clock() - used
            try:
                account = None if row is None else self._seal.opened(row)
            except LoginFailed:
                account = None
            if row is None:
                continue
            is_over = age > idle if account is None or account.is_there else age > _TOMBSTONE
            if is_over and account is not None and account.is_there:
                if name in in_use:  # over a connection that is open for long, also at hubs that look later
                    await _stored(self._rows.used(name))
                    continue
                await self.remove(account.server, account.principal)
                log.info("account_idle", upstream=account.server, seconds=int(age))
                removed += 1
            elif is_over:
                async with self._locked(name):
                    await _stored(self._rows.remove(name))
            elif account is not None and self._seal.is_old(row):
                async with self._locked(name):
                    if await _stored(self._rows.read(name)) == row:
                        await self._write(name, account)
        return removed

    # -- waiting and watching -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self, server: str, principal: str) -> AsyncIterator["_Watched"]:
        """Follows an account, also when another hub changes it."""
        key = server, principal
        watched = self._watched.setdefault(key, _Watched())
        watched.users += 1
        try:
            if watched.seen is None:
                watched.seen = _seen(await self._row(server, principal, is_checked=False))
            yield watched
        finally:
            watched.users -= 1
            if not watched.users:
                self._watched.pop(key, None)

    async def arrival(self, server: str, principal: str, is_enough: Callable[[Account], bool]) -> Account:
        """Waits for an account that `is_enough`, here or at another hub."""
        async with self.watched(server, principal) as watched:
            while True:
                changed = watched.changed
                account = await self.read(server, principal)
                if account is not None and is_enough(account):
                    return account
                await changed.wait()

    async def follow(self, idle: float, pause: float = 3600.0) -> None:
        """Sees what other hubs write, and removes idle accounts each `pause` seconds, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep, idle, pause)
            last: object = None
            while True:
                await anyio.sleep(_LOOK)
                if not self._watched:
                    continue
                try:
                    if (stamp := await self._rows.stamp()) == last:
                        continue
                    last = stamp
                    for server, principal in list(self._watched):
                        await self._look(server, principal)
                except (StoreError, LoginFailed) as problem:
                    log.warning("accounts_unread", reason=str(problem))

    async def _sweep(self, idle: float, pause: float) -> None:
        while True:
            await anyio.sleep(pause)
            try:
                await self.sweep(idle)
            except LoginFailed as problem:
                log.warning("accounts_unread", reason=str(problem))

    async def _look(self, server: str, principal: str) -> None:
        seen = _seen(await self._row(server, principal, is_checked=False))
        watched = self._watched.get((server, principal))
        if watched is None or watched.seen == seen:
            return
        before, watched.seen = watched.seen, seen
        if before is not None:
            self._end(server, principal)
        watched.wake()

    def _note(self, account: Account) -> None:
        """Remembers what this hub has written: it ends nothing at the next look."""
        if (watched := self._watched.get((account.server, account.principal))) is not None:
            watched.seen = _seen(account)

    def _end(self, server: str, principal: str) -> None:
        if (watched := self._watched.get((server, principal))) is not None:
            watched.wake()
        for end in self.ended:
            end(server, principal)

    # -- rows -----------------------------------------------------------------------------------------------------

    def grants(self, server: str, principal: str) -> Grants:
        """The store of this account's login, for `Access`."""
        return _OneGrant(self, server, principal)

    async def _row(self, server: str, principal: str, *, is_checked: bool = True) -> Account | None:
        row = await _stored(self._rows.read(row_name(server, principal)))
        if row is None:
            return None
        try:
            account = self._seal.opened(row)
        except LoginFailed:
            if is_checked:
                raise
            return None
        if (account.server, account.principal) != (server, principal):
            log.error("account_of_another", upstream=server)
            if is_checked:
                raise LoginFailed("a stored account is another's: somebody has changed the store")
            return None
        learn(account.secrets())
        return account

    async def _changed(self, server: str, principal: str, change: Callable[[Account], Account | None]) -> bool:
        name = row_name(server, principal)
        async with self._locked(name):
            before = await self._row(server, principal, is_checked=False) or Account(server=server, principal=principal)
            after = change(before)
            if after is None:
                return False
            await self._write(name, after)
            self._note(after)
        if before.is_there:
            self._end(server, principal)
        if (watched := self._watched.get((server, principal))) is not None:
            watched.wake()
        for begin in self.begun:
            begin(server, principal)
        return True

    async def _write(self, name: str, account: Account) -> None:
        learn(account.secrets())
        try:
            async with self._rows.writing(name) as write:
                await write(self._seal.closed(account))
        except StoreError as problem:
            raise LoginFailed(problem.public, is_final=False) from None

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        try:
            async with self._rows.locked(name, _LOCK):
                yield
        except StoreError as problem:
            raise LoginFailed(problem.public, is_final=False) from None

    async def used(self, server: str, principal: str) -> None:
        """Notes that an account is in use."""
        await _stored(self._rows.used(row_name(server, principal)))


_Seen = tuple[int, float, int]
"""Generation, time of the login, and a hash of the values: a renewed token changes none of them."""


def _seen(account: Account | None) -> _Seen:
    if account is None:
        return 0, 0.0, hash(frozenset[object]())
    return account.generation, account.since, hash(frozenset(account.values.items()))


class _Watched:
    """`changed` is set once, with the account's next change. `seen` is what was last read or written."""

    def __init__(self) -> None:
        self.users = 0
        self.seen: _Seen | None = None
        self.changed = anyio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class _OneGrant:
    """`Grants` with one login; `key` is its `target`."""

    def __init__(self, accounts: Accounts, server: str, principal: str) -> None:
        self._accounts = accounts
        self._server = server
        self._principal = principal
        self._name = row_name(server, principal)

    def advice(self, server: str) -> str:
        return "log in with your own account"

    async def read(self, key: str) -> Grant | None:
        account = await self._accounts.read(self._server, self._principal)
        if account is None or account.grant is None or account.target != key:
            return None
        if account.grant.issuer != account.issuer:
            raise LoginFailed("a stored account is of another issuer")
        return account.grant

    @asynccontextmanager
    async def locked(self, key: str, seconds: float) -> AsyncIterator[None]:
        async with self._accounts._locked(self._name):
            yield

    @asynccontextmanager
    async def renewing(self, key: str) -> AsyncIterator[Callable[[Grant], Awaitable[None]]]:
        accounts, account = self._accounts, await self._accounts.read(self._server, self._principal)
        if account is None:
            raise LoginFailed("the account was removed")
        try:
            async with accounts._rows.writing(self._name) as write:

                async def store(grant: Grant) -> None:
                    learn(grant.secrets())
                    row = accounts._seal.closed(replace(account, grant=grant, target=key, issuer=grant.issuer))
                    for pause in _TRIES:
                        try:
                            return await write(row)
                        except StoreError as problem:
                            log.warning("account_not_stored", upstream=self._server, reason=str(problem))
                            await anyio.sleep(pause)
                    await write(row)

                yield store
        except StoreError as problem:
            raise LoginFailed(problem.public, is_final=False) from None


async def _stored(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except StoreError as problem:
        raise LoginFailed(problem.public, is_final=False) from None
