"""Small private files shared by hubs, one for each key; a writer holds the `.lock` file beside it.

Secret keys, records, and epochs of executors, which keep growing across restarts.
"""

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio.to_thread
import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.documents import SharedRecord
from mcp_hub.stores.locks import lock_file, open_plain, remove, take

log = get_logger(__name__)

_T = TypeVar("_T")

_LARGEST: Final = 64 << 20
"""Bytes of a file that is read; the hub writes far smaller ones."""
_PATIENCE: Final = 2.0
"""Seconds to wait for a lock, which others hold for milliseconds."""
_STEP: Final = 0.01


class KeyedFiles:
    """The files in `folder`. Calls block, up to 2 s for another writer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def stamp(self, key: str) -> tuple[int, int, int] | None:
        """Differs between contents; None for a missing file. Raises `OSError`."""
        try:
            status = self.path(key).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def read(self, key: str) -> bytes | None:
        """The content; None for a missing file. Raises `OSError`."""
        try:
            with open(open_plain(self.path(key), os.O_RDONLY), "rb") as file:
                text = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        if len(text) > _LARGEST:
            raise OSError(f"{self.path(key)} is larger than {_LARGEST} bytes")
        return text

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> None:
        """Replaces the content by `change(content)` under the lock; None keeps it.

        Raises `OSError` and errors of `change`, and keeps the file then.
        """
        make_folder(self._folder)
        lock = lock_file(self.path(key).with_suffix(".lock"))
        try:
            self._wait_for(lock, key)
            text = change(self.read(key))
            if text is not None:
                self._replace(key, text)
        finally:
            os.close(lock)

    def _wait_for(self, lock: int, key: str) -> None:
        for _ in range(int(_PATIENCE / _STEP)):
            if take(lock, shared=False):
                return
            time.sleep(_STEP)
        raise OSError(f"{self.path(key)} is locked by another process for more than {_PATIENCE:g} s")

    def _replace(self, key: str, text: bytes) -> None:
        fresh = self.path(key).with_suffix(f".{os.getpid()}")
        try:
            fresh.unlink(missing_ok=True)  # of a hub that was killed
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "wb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())  # a name for an empty file would be a record that cannot be read
            fresh.replace(self.path(key))
        except OSError:
            remove(fresh)
            raise


_SIZE: Final = 32
"""Bytes of a key."""
_KEPT: Final = re.compile(rb'"([0-9a-f]{%d})"' % (2 * _SIZE))


def stored_key(files: KeyedFiles, name: str) -> bytes:
    """The key, created at first use; a temporary one if it cannot be stored."""
    try:
        files.update(name, _new_key)
        stored = _KEPT.fullmatch(files.read(name) or b"")
    except OSError as problem:
        log.warning("key_not_kept", file=str(files.path(name)), reason=str(problem))
        stored = None
    return bytes.fromhex(stored[1].decode()) if stored is not None else secrets.token_bytes(_SIZE)


def _new_key(text: bytes | None) -> bytes | None:
    return None if _KEPT.fullmatch(text or b"") else b'"%s"' % secrets.token_hex(_SIZE).encode()


def file_record(folder: Path, key: str) -> SharedRecord:
    """A record in a private file."""
    return _FileRecord(KeyedFiles(folder), key)


class _FileRecord:
    def __init__(self, files: KeyedFiles, key: str) -> None:
        self._files = files
        self._key = key

    async def read(self) -> bytes | None:
        return await self._done(lambda: self._files.read(self._key))

    async def stamp(self) -> object:
        return await self._done(lambda: self._files.stamp(self._key))

    async def update(self, change: Callable[[bytes | None], bytes | None]) -> None:
        await self._done(lambda: self._files.update(self._key, change))

    async def _done(self, work: Callable[[], _T]) -> _T:
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as problem:
            raise StoreError(f"store {self._files.path(self._key)}: {problem.strerror or problem}") from None


_MOST: Final = 4096
"""Stored executors; a new one starts above the highest epoch of all removed ones."""
_HIGHEST: Final = 1 << 53
"""Above all that the clock gives, which other programs still count exactly."""
_FILE: Final = "epochs"


class _Record(msgspec.Struct):
    floor: int = 0
    epochs: dict[str, int] = {}


def next_epoch(files: KeyedFiles, principal: str, executor_id: str, before: int, *, limit: int = _MOST) -> int:
    """The epoch of an executor's next registration, above `before`; by the clock if the file fails."""
    name = hashlib.blake2b(msgspec.json.encode([principal, executor_id]), digest_size=16).hexdigest()
    epoch = 0

    def change(text: bytes | None) -> bytes:
        nonlocal epoch
        record = _read(text)
        epoch = max(record.epochs.pop(name, record.floor), before) + 1
        record.epochs[name] = epoch
        while len(record.epochs) > limit:
            record.floor = max(record.floor, record.epochs.pop(next(iter(record.epochs))))
        return msgspec.json.encode(record)

    try:
        files.update(_FILE, change)
    except OSError as problem:
        log.warning("epoch_not_kept", file=str(files.path(_FILE)), reason=str(problem))
        epoch = max(before, _now()) + 1
    return epoch


def _read(text: bytes | None) -> _Record:
    """A damaged file counts as lost; the clock is above its epochs."""
    try:
        record = _Record() if text is None else msgspec.json.decode(text, type=_Record)
    except (ValueError, RecursionError):  # msgspec's errors are of the former
        record = _Record(-1)
    is_sound = all(0 <= epoch < _HIGHEST for epoch in (record.floor, *record.epochs.values()))
    if not is_sound:
        log.warning("epochs_damaged", reason="not a record of epochs; the next ones follow the clock")
    return record if is_sound else _Record(_now())


def _now() -> int:
    return int(wall_time() * 1000)
