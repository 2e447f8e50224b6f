"""All accounts of a hub by server and principal, needed logins, and the end of an account's uses.

Accounts are in memory only while in use.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
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
from mcp_hub.upstreams.accounts.rows import Account, Seal, one_grant, row_name
from mcp_hub.upstreams.auth.grants import Grant, Grants, LoginFailed
from mcp_hub.upstreams.auth.token_exchange import SubjectTokens

log = get_logger(__name__)

_LOCK: Final = 15.0
"""Seconds to wait while another hub renews the login."""
_LOOK: Final = 0.4
"""Seconds between two looks for what other hubs have written."""
_MOST_WATCHED: Final = 16384
"""Accounts whose changes by other hubs are noticed; one more lets the least recently used one go."""
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
    without waiting, with server and principal after a removal or replacement by any hub; `begun`, after a storing.
    `unfit` say why a value cannot be sent, by server and name, or "".
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
        self._watched: OrderedDict[tuple[str, str], _Watched] = OrderedDict()

    async def read(self, server: str, principal: str) -> Account | None:
        """The account, None without one."""
        account = await self._row(server, principal)
        return account if account is not None and account.is_there else None

    async def generation(self, server: str, principal: str) -> int:
        """The number that a new login passes to `keep`."""
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
        """Removes accounts unused for `idle` seconds, and encrypts old keys' rows again; the number removed. Slow."""
        removed, in_use = 0, {row_name(*key) for key, watched in self._watched.items() if watched.users}
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

    async def followed(self, server: str, principal: str) -> Account | None:
        """The account, None without one. `ended` are called when another hub changes it from now on, or when it is
        one of too many that are followed.
        """
        watched = self._watch(server, principal)
        while True:
            changed = watched.changed
            account = await self._row(server, principal)
            if watched.changed is changed:
                self._take(server, principal, account)
                return account if account is not None and account.is_there else None

    @asynccontextmanager
    async def watched(self, server: str, principal: str) -> AsyncIterator["_Watched"]:
        """Follows an account in use."""
        watched = self._watch(server, principal)
        watched.users += 1
        try:
            if watched.seen is None:
                watched.seen = _seen(await self._row(server, principal, is_checked=False))
            yield watched
        finally:
            watched.users -= 1

    def _watch(self, server: str, principal: str) -> "_Watched":
        key = server, principal
        watched = self._watched.setdefault(key, _Watched())
        self._watched.move_to_end(key)
        if len(self._watched) > _MOST_WATCHED:
            oldest = next((old for old, each in self._watched.items() if not each.users and old != key), None)
            if oldest is not None:
                del self._watched[oldest]
                self._end(*oldest)
        return watched

    async def follow(self, idle: float, pause: float = 3600.0) -> None:
        """Sees other hubs' changes, and removes idle accounts each `pause` seconds, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep, idle, pause)
            stamp: object = None
            while True:
                await anyio.sleep(_LOOK)
                try:
                    stamp = await self._look(stamp)
                except (StoreError, LoginFailed) as problem:
                    log.warning("accounts_unread", reason=str(problem))

    async def _sweep(self, idle: float, pause: float) -> None:
        while True:
            await anyio.sleep(pause)
            try:
                await self.sweep(idle)
            except LoginFailed as problem:
                log.warning("accounts_unread", reason=str(problem))

    async def _look(self, since: object) -> object:
        """Reads the rows that were written after the stamp `since`, and returns that of now."""
        names = {row_name(*key): key for key in self._watched}
        stamp, written = await self._rows.written(names, since) if names else (None, ())
        for server, principal in map(names.__getitem__, written):
            self._take(server, principal, await self._row(server, principal, is_checked=False))
        return stamp

    def _take(self, server: str, principal: str, account: Account | None) -> None:
        """Notes what the store has now, and ends what uses something else."""
        watched, seen = self._watched.get((server, principal)), _seen(account)
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
            watched.wake()

    def _end(self, server: str, principal: str) -> None:
        if (watched := self._watched.get((server, principal))) is not None:
            watched.wake()
        for end in self.ended:
            end(server, principal)

    # -- rows -----------------------------------------------------------------------------------------------------

    def grants(self, server: str, principal: str) -> Grants:
        """The store of this account's login, for `Access`."""
        read = partial(self.read, server, principal)
        return one_grant(self._rows, self._seal, row_name(server, principal), read=read, lock=self._locked)

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
    """`changed` is set once, at the account's next change. `seen`: last read or written."""

    def __init__(self) -> None:
        self.users = 0
        self.seen: _Seen | None = None
        self.changed = anyio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


async def _stored(answer: Awaitable[_T]) -> _T:
    try:
        return await answer
    except StoreError as problem:
        raise LoginFailed(problem.public, is_final=False) from None
