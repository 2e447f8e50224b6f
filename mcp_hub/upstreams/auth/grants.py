"""Input and result of a login, and its private file. Representations show no secret.

A file is replaced atomically, and renewed under a lock file that is never removed.
"""

import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Literal, Protocol

import anyio
import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.masking import hide_head, learn
from mcp_hub.stores.locks import lock_file, open_plain, take

_SHOWN: Final = 200
_MARGIN: Final = 60.0
"""Seconds before its expiry at which a token is renewed."""
_PART: Final = 0.1
"""A shorter margin for short-lived tokens: this part of the lifetime."""


class LoginFailed(Exception):
    """No token can be obtained; if `is_final`, until a person acts. The message holds no secret."""

    def __init__(self, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ClientRegistration:
    """The hub at an authorization server (`OAuthSettings`). `ca`: a file with additional certificates.

    `alone` logs in a machine in its own way.
    """

    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_auth: Literal["basic", "post"] | None = None
    private_key: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    metadata_url: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int | None = None
    is_machine: bool = False
    ca: str | None = None
    audience: str | None = None
    resource: str | None = None
    alone: "Callable[[], Awaitable[Grant]] | None" = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One login: tokens, client and token endpoint. Times are Unix seconds.

    `token_auth`: how the client authenticates. `client_secret`: from a registration by the hub. Scopes: `scope` was
    granted, `requested` at the login, `missing` noted since. `renew_before`: a margin in seconds of its own.
    """

    access_token: str = field(repr=False)
    token_endpoint: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    token_auth: Literal["none", "basic", "post"] = "none"
    redirect_uris: tuple[str, ...] = ()
    is_registered: bool = False
    issuer: str | None = None
    resource: str | None = None
    refresh_token: str | None = field(default=None, repr=False)
    scope: str | None = None
    requested: str | None = None
    missing: str | None = None
    obtained_at: float = 0.0
    expires_at: float | None = None
    renew_before: float | None = None

    @property
    def renew_at(self) -> float:
        """When to renew the token; infinite without an expiry."""
        if self.expires_at is None:
            return float("inf")
        lifetime = max(self.expires_at - self.obtained_at, 0.0)
        if self.renew_before is not None:
            return self.expires_at - min(self.renew_before, lifetime / 2)
        return self.expires_at - min(_MARGIN, _PART * lifetime)

    def secrets(self) -> Iterator[str]:
        return (text for text in (self.access_token, self.refresh_token, self.client_secret) if text)


def grant_key(url: str, client: ClientRegistration) -> str:
    """A digest of a client's login at a server."""
    who = client.client_id or client.metadata_url or ""
    text = "\0".join((url, who, "machine" if client.is_machine else "person"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def is_same_issuer(issuer: str, expected: str) -> bool:
    """Whether both name one authorization server. A slash at the end makes no difference: libraries put one there, and
    the metadata of both is at one address (RFC 8414 §3.1).
    """
    return issuer.removesuffix("/") == expected.removesuffix("/")


def foreign_text(text: str) -> str:
    """One masked line of at most 200 printable characters."""
    return "".join(char if char.isprintable() else " " for char in hide_head(text.strip(), _SHOWN, "…"))


_LARGEST: Final = 256 << 10
"""The largest file that is read: longer tokens fit no header."""
_ROOM: Final = 64 << 10
"""Bytes reserved on the disk before a token is requested: one that cannot be stored would be lost."""
_TURN: Final = 0.05
"""Seconds between two looks at a lock that somebody else holds."""


class Grants(Protocol):
    """A store of logins. All but `advice` raise `LoginFailed`."""

    def advice(self, server: str) -> str:
        """The step by which a person logs in, as the end of a sentence."""

    async def read(self, key: str) -> Grant | None:
        """The login, None without one."""

    def locked(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]:
        """Locks out other processes; waits `seconds` at most."""

    def renewing(self, key: str) -> AbstractAsyncContextManager[Callable[[Grant], Awaitable[None]]]:
        """Checks that a login can be stored, and yields a function that does; hold `locked`."""


class LoginFiles:
    """Private files under `folder` with a lock beside each. All but `read` raise `LoginFailed`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def read(self, name: str) -> bytes | None:
        """The content; None without a file. Raises `OSError`."""
        try:
            with open(open_plain(self.path(name), os.O_RDONLY), "rb") as file:
                return file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None

    @contextmanager
    def writing(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Reserves disk space and yields a function that stores; hold `locked`."""
        path = self.path(name)
        fresh = self.folder / f".{name}.{secrets.token_hex(8)}.new"
        with _writable(path):
            make_folder(self.folder)
            for leftover in self.folder.glob(f".{name}.*.new"):  # by a process that was killed
                leftover.unlink()
            file = os.fdopen(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b")

        def commit(content: bytes) -> None:
            with _writable(path):
                _write(file, content)
                file.close()  # before it is moved: Windows moves no open file
                fresh.replace(path)

        try:
            with _writable(path):
                _write(file, b" " * _ROOM)
            yield commit
        finally:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                fresh.unlink()

    def remove(self, name: str) -> bool:
        """Removes a file; whether there was one. Hold `locked`."""
        path = self.path(name)
        with _writable(path):
            was_there = path.exists()
            path.unlink(missing_ok=True)
        return was_there

    @asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        """Locks out other processes. Fails after `seconds`."""
        path = self.folder / f"{name}.lock"
        with _writable(path):
            make_folder(self.folder)
            file = lock_file(path)
        try:
            due = anyio.current_time() + seconds
            with _writable(path):
                while not take(file, shared=False):
                    if anyio.current_time() >= due:
                        raise LoginFailed(f"another process keeps the lock {path}", is_final=False)
                    await anyio.sleep(_TURN)
            yield
        finally:
            os.close(file)


class GrantStore:
    """Logins under `folder`, by `grant_key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = LoginFiles(folder)
        self.path = self._files.path
        self.locked = self._files.locked
        self.remove = self._files.remove

    def load(self, key: str) -> Grant | None:
        """The login, None without one. Raises `LoginFailed` for an unreadable file."""
        path = self.path(key)
        try:
            content = self._files.read(key)
            grant = None if content is None else msgspec.json.decode(content, type=Grant)
        except OSError as exc:
            raise LoginFailed(f"the stored login {path} cannot be read: {exc.strerror or exc}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LoginFailed(f"the stored login {path} is damaged") from None
        learn(() if grant is None else grant.secrets())
        return grant

    def advice(self, server: str) -> str:
        return f'run "mcp-hub login {server}"'

    async def read(self, key: str) -> Grant | None:
        return self.load(key)

    @contextmanager
    def writing(self, key: str) -> Iterator[Callable[[Grant], None]]:
        """Reserves disk space and yields a function that stores. Both raise `LoginFailed`; hold `locked`."""
        with self._files.writing(key) as write:

            def commit(grant: Grant) -> None:
                learn(grant.secrets())
                write(msgspec.json.encode(grant))

            yield commit

    @asynccontextmanager
    async def renewing(self, key: str) -> AsyncIterator[Callable[[Grant], Awaitable[None]]]:
        with self.writing(key) as commit:

            async def store(grant: Grant) -> None:
                commit(grant)

            yield store

    def save(self, key: str, grant: Grant) -> None:
        """Stores a login; hold `locked`. Raises `LoginFailed`."""
        with self.writing(key) as commit:
            commit(grant)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise LoginFailed(f"cannot write {path}: {exc.strerror or exc}", is_final=False) from None


def _write(file: BinaryIO, content: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
