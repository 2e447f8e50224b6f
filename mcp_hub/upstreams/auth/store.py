"""Logins in files, for hubs and commands that share a state folder: one at a time renews, and nothing is half written.

A file a login, readable by its owner alone, written beside its place and moved there. A lock file of its own (`flock`)
ends with the process that holds it, however that ends; it is never removed, so that nobody holds one that is gone.
Where there is no `flock` (Windows) every lock can be taken.
"""

import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import msgspec

from mcp_hub.masking import learn
from mcp_hub.upstreams.auth.grants import Grant, LoginFailed

if sys.platform != "win32":
    import fcntl

_LARGEST: Final = 256 << 10
"""Bytes of a file that is read: tokens that are longer fit no header."""
_ROOM: Final = 64 << 10
"""Bytes that have to fit on the disk before a token is asked for: one that cannot be kept would be lost."""
_TURN: Final = 0.05
"""Seconds between two looks at a lock that somebody else holds."""

Revision = tuple[int, int, int]
"""Tells one version of a file from another."""


class GrantWriter:
    """A file that is ready to be written; `commit` moves it to its place."""

    def __init__(self, file: BinaryIO, fresh: Path, place: Path) -> None:
        self._file = file
        self._fresh = fresh
        self._place = place

    def commit(self, grant: Grant) -> None:
        """Raises `LoginFailed` if the disk does not take it after all."""
        learn(grant.secrets())
        try:
            _write(self._file, msgspec.json.encode(grant))
            self._file.close()  # before it is moved: elsewhere an open file cannot be
            self._fresh.replace(self._place)
        except OSError as exc:
            raise _unwritable(self._place, exc) from None


class GrantStore:
    """The logins under `folder`, by `grant_key`; it is made when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def load(self, key: str) -> Grant | None:
        """The login, if there is one. Raises `LoginFailed` for a file that cannot be read."""
        path = self.path(key)
        try:
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
            grant = msgspec.json.decode(content, type=Grant)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise LoginFailed(f"the stored login {path} cannot be read: {exc.strerror or exc}") from None
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
            raise LoginFailed(f"the stored login {path} is damaged") from None
        learn(grant.secrets())
        return grant

    def revision(self, key: str) -> Revision | None:
        """Differs after every change; None where there is nothing."""
        try:
            found = self.path(key).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    @contextmanager
    def writing(self, key: str) -> Iterator[GrantWriter]:
        """A place for a login that is yet to come, made sure of before; to be asked for while it is `locked`.

        Raises `LoginFailed` if it cannot be had.
        """
        place = self.path(key)
        fresh = self.folder / f".{key}.{secrets.token_hex(8)}.new"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self.folder.glob(f".{key}.*.new"):  # by a process that was killed
                left.unlink()
            file = os.fdopen(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "r+b")
        except OSError as exc:
            raise _unwritable(place, exc) from None
        try:
            try:
                _write(file, b" " * _ROOM)
            except OSError as exc:
                raise _unwritable(place, exc) from None
            yield GrantWriter(file, fresh, place)
        finally:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                fresh.unlink()

    def save(self, key: str, grant: Grant) -> None:
        """Keeps a login; while it is `locked`. Raises `LoginFailed`."""
        with self.writing(key) as writer:
            writer.commit(grant)

    def remove(self, key: str) -> bool:
        """Whether there was one. Raises `LoginFailed` if it cannot be removed."""
        try:
            self.path(key).unlink()
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise _unwritable(self.path(key), exc) from None
        return True

    @asynccontextmanager
    async def locked(self, key: str, seconds: float) -> AsyncIterator[None]:
        """No other process has it meanwhile. Raises `LoginFailed` if one keeps it for longer than that."""
        path = self.folder / f"{key}.lock"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise _unwritable(path, exc) from None
        try:
            due = anyio.current_time() + seconds
            while not _take(file, path):
                if anyio.current_time() >= due:
                    raise LoginFailed(f"another process keeps the lock {path}", is_final=False)
                await anyio.sleep(_TURN)
            yield
        finally:
            os.close(file)


def _write(file: BinaryIO, content: bytes) -> None:
    """Nothing but this is in the file, and on the disk. Raises `OSError`."""
    file.seek(0)
    file.truncate()
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _take(file: int, path: Path) -> bool:
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as exc:
            raise _unwritable(path, exc) from None
    return True


def _unwritable(place: Path, exc: OSError) -> LoginFailed:
    return LoginFailed(f"cannot write {place}: {exc.strerror or exc}", is_final=False)
