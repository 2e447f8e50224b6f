"""One account as an encrypted row, its login for those who use it, and rows in private files.

Server and principal stand inside the row and are checked, so that a row in the place of another is refused.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec.structs import replace

from mcp_hub.attach.folder import make_folder
from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import learn
from mcp_hub.stores.documents import Rows
from mcp_hub.upstreams.auth.grants import Grant, Grants, LoginFailed, LoginFiles

log = get_logger(__name__)

_LOCKS: Final = 4096
"""Lock files, which are never removed: rows share them."""
_TRIES: Final = (0.1, 0.5, 2.0, 5.0)
"""Pauses in seconds before a renewed login is stored again: its old refresh token may be spent."""
_TICK: Final = 0.1
"""Seconds within which two changes may have the same time, by far."""
_AT_ONCE: Final = 256
"""Files that are looked at on the event loop; more are in a thread."""


class Account(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The account of `principal` at `server`: a login, or values for `${account:NAME}`; neither: it was removed.

    `target` is what the login is for (`grant_key`), `issuer` who gave it. `label` is the account's name at the server,
    if it says one. A login that began at another `generation` is thrown away. `since` is in Unix seconds.
    """

    server: str
    principal: str
    target: str = ""
    issuer: str | None = None
    label: str = ""
    generation: int = 0
    since: float = 0.0
    grant: Grant | None = None
    values: dict[str, str] = {}

    @property
    def is_there(self) -> bool:
        return self.grant is not None or bool(self.values)

    def secrets(self) -> list[str]:
        return [*(() if self.grant is None else self.grant.secrets()), *self.values.values()]

    def __repr__(self) -> str:
        return f"Account(server={self.server!r}, principal={self.principal!r})"


def row_name(server: str, principal: str) -> str:
    """The name of a row: a digest, which says neither."""
    text = msgspec.json.encode(["account", server, principal])
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class Seal:
    """Encrypts rows with the first of `keys` and reads those of each. Raises `ValueError` for an unfit key."""

    def __init__(self, keys: Sequence[str]) -> None:
        fernets = [Fernet(key) for key in keys]
        self._first, self._oldest = fernets[0], keys[-1]
        self._all = MultiFernet(fernets)

    def closed(self, account: Account) -> bytes:
        return self._all.encrypt(msgspec.json.encode(account))

    def opened(self, row: bytes) -> Account:
        """Raises `LoginFailed` for a damaged row, and for another key."""
        try:
            return msgspec.json.decode(self._all.decrypt(row), type=Account)
        except InvalidToken:
            raise LoginFailed("a stored account is damaged, or of a key that hub.accounts.key does not have") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LoginFailed("a stored account is damaged") from None

    @property
    def pepper(self) -> bytes:
        """For digests that nobody without a key can guess: of the oldest key, which all replicas have longest."""
        return hashlib.sha256(b"pepper\0" + self._oldest.encode()).digest()

    @property
    def cipher(self) -> MultiFernet:
        """Encrypts other rows of the hub."""
        return self._all

    def is_old(self, row: bytes) -> bool:
        """Whether another key than the first has encrypted it."""
        try:
            self._first.decrypt(row)
        except InvalidToken:
            return True
        return False


def one_grant(
    rows: Rows, seal: Seal, name: str, *, read: Callable[[], Awaitable[Account | None]],
    lock: Callable[[str], AbstractAsyncContextManager[None]],
) -> Grants:  # fmt: skip
    """The login in row `name`, by `read`."""
    return _OneGrant(rows, seal, name, read=read, lock=lock)


class _OneGrant:
    """`Grants` with one login; `key` is its `target`."""

    def __init__(
        self, rows: Rows, seal: Seal, name: str, *, read: Callable[[], Awaitable[Account | None]],
        lock: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:  # fmt: skip
        self._rows = rows
        self._seal = seal
        self._name = name
        self._read = read
        self._lock = lock

    def advice(self, server: str) -> str:
        return "log in with your own account"

    async def read(self, key: str) -> Grant | None:
        account = await self._read()
        if account is None or account.grant is None or account.target != key:
            return None
        if account.grant.issuer != account.issuer:
            raise LoginFailed("a stored account is of another issuer")
        return account.grant

    def locked(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]:
        return self._lock(self._name)

    @asynccontextmanager
    async def renewing(self, key: str) -> AsyncIterator[Callable[[Grant], Awaitable[None]]]:
        account = await self._read()
        if account is None:
            raise LoginFailed("the account was removed")
        try:
            async with self._rows.writing(self._name) as write:

                async def store(grant: Grant) -> None:
                    learn(grant.secrets())
                    row = self._seal.closed(replace(account, grant=grant, target=key, issuer=grant.issuer))
                    for pause in _TRIES:
                        try:
                            return await write(row)
                        except StoreError as problem:
                            log.warning("account_not_stored", upstream=account.server, reason=str(problem))
                            await anyio.sleep(pause)
                    await write(row)

                yield store
        except StoreError as problem:
            raise LoginFailed(problem.public, is_final=False) from None


class RowFiles:
    """`Rows` in `folder`; the time of a file is that of its last use."""

    def __init__(self, folder: Path) -> None:
        self._files = LoginFiles(folder)

    async def read(self, name: str) -> bytes | None:
        with _faults():
            return self._files.read(name)

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        with ExitStack() as stack:
            with _faults():
                write = stack.enter_context(self._files.writing(name))

            async def commit(row: bytes) -> None:
                with _faults():
                    write(row)

            yield commit  # not inside what translates faults: a refused login is not the store's

    async def used(self, name: str) -> None:
        with _faults():
            os.utime(self._files.path(name))

    async def remove(self, name: str) -> bool:
        with _faults():
            return self._files.remove(name)

    async def names(self) -> Mapping[str, float]:
        with _faults():
            return await anyio.to_thread.run_sync(_listed, self._files.folder)

    async def written(self, names: Collection[str], since: object) -> tuple[object, Collection[str]]:
        with _faults():
            stamp = _FolderStamp.of(self._files.folder)
            before = since if isinstance(since, _FolderStamp) else None
            if before is not None and before.settled is not None and before.settled == stamp.settled:
                return before, ()
            many = len(names) > _AT_ONCE
            look = partial(stamp.look, self._files, names)
            files = await anyio.to_thread.run_sync(look) if many else look()
            if before is None:
                return stamp, names
            return stamp, {name for name in names if files.get(name) != before.files.get(name)}

    @asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with _faults():
                make_folder(self._files.folder)
                await stack.enter_async_context(self._files.locked(f"lock-{int(name, 16) % _LOCKS}", seconds))
            yield


class _FolderStamp(msgspec.Struct):
    """The files of rows by name, and when the folder changed; None: so recently that it may change within the same
    tick of the system's clock, or it is not there.
    """

    settled: int | None
    files: dict[str, tuple[int, int]] = {}

    @classmethod
    def of(cls, folder: Path) -> "_FolderStamp":
        try:
            changed = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return cls(None)
        return cls(None if abs(wall_time() - changed / 1e9) < _TICK else changed)

    def look(self, rows: LoginFiles, names: Collection[str]) -> Mapping[str, tuple[int, int]]:
        for name in names:
            with suppress(FileNotFoundError):
                status = rows.path(name).stat()
                self.files[name] = status.st_ino, status.st_mtime_ns
        return self.files


def _listed(folder: Path) -> dict[str, float]:
    try:
        with os.scandir(folder) as entries:
            rows = [entry for entry in entries if entry.name.endswith(".json") and not entry.name.startswith(".")]
            return {entry.name.removesuffix(".json"): entry.stat().st_mtime for entry in rows}
    except FileNotFoundError:
        return {}


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise StoreError(f"the accounts cannot be read or written: {problem.strerror or problem}") from None
    except LoginFailed as problem:
        raise StoreError(str(problem)) from None
