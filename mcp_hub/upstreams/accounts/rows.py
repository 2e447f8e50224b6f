"""One account as an encrypted row, and rows in private files.

Server and principal stand inside the row and are checked, so that a row in the place of another is refused.
"""

import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from mcp_hub.attach.folder import make_folder
from mcp_hub.errors import StoreError
from mcp_hub.upstreams.auth.grants import Grant, LoginFailed, LoginFiles

_LOCKS: Final = 4096
"""Lock files, which are never removed: rows share them."""


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
        """Raises `LoginFailed` for a row of another key, and for a damaged one."""
        try:
            return msgspec.json.decode(self._all.decrypt(row), type=Account)
        except InvalidToken:
            raise LoginFailed("a stored account is damaged, or of a key that hub.accounts.key does not have") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LoginFailed("a stored account is damaged") from None

    @property
    def pepper(self) -> bytes:
        """For digests that nobody without a key can guess. That of the oldest key, which all replicas have longest."""
        return hashlib.sha256(b"pepper\0" + self._oldest.encode()).digest()

    @property
    def cipher(self) -> MultiFernet:
        """Encrypts other rows of the hub by the same keys."""
        return self._all

    def is_old(self, row: bytes) -> bool:
        """Whether another key than the first has encrypted it."""
        try:
            self._first.decrypt(row)
        except InvalidToken:
            return True
        return False


class RowFiles:
    """`Rows` as files in `folder`; the time of a file is that of the row's last use."""

    def __init__(self, folder: Path) -> None:
        self._files = LoginFiles(folder)
        self._writes = 0

    async def read(self, name: str) -> bytes | None:
        with _faults():
            return self._files.read(name)

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        with _faults(), self._files.writing(name) as write:

            async def commit(row: bytes) -> None:
                write(row)
                self._writes += 1

            yield commit

    async def used(self, name: str) -> None:
        with _faults():
            os.utime(self._files.path(name))

    async def remove(self, name: str) -> bool:
        with _faults():
            return self._files.remove(name)

    async def names(self) -> Mapping[str, float]:
        with _faults():
            return await anyio.to_thread.run_sync(_listed, self._files.folder)

    async def stamp(self) -> object:
        with _faults():
            try:
                return self._files.folder.stat().st_mtime_ns, self._writes
            except FileNotFoundError:
                return None

    @asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        with _faults():
            make_folder(self._files.folder)
            async with self._files.locked(f"lock-{int(name, 16) % _LOCKS}", seconds):
                yield


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
