"""Long results in files or in memory.

Hubs share the folder of the files; other files there are removed. A name has the principal's hash and the id, the head
the length, the modification time the expiry.
"""

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import BYTES, NO_LINK
from mcp_hub.errors import StoreError
from mcp_hub.globs import late
from mcp_hub.logs import get_logger
from mcp_hub.stores.documents import DocumentLimits, Documents, check_size, document_id, is_document_id, surplus
from mcp_hub.stores.locks import open_plain, remove

log = get_logger(__name__)

_HEAD: Final = late(rb"mcp-hub result 1 ([0-9a-f]{16})\n")
_HEAD_SIZE: Final = 34
_NAME: Final = late(r"([0-9a-f]{32})-r[a-z2-7]{12}")
_FRESH: Final = late(r"\.[0-9a-f]{32}\.new")
_WRITING: Final = 600.0
"""Seconds after which a file that is being written is taken to be left behind."""
_READERS: Final = 4
_READ_FLAGS: Final = os.O_RDONLY | NO_LINK
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | BYTES


class _MemoryDocuments:
    """`Documents` of one process; `now` is any clock in seconds."""

    def __init__(self, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._documents: OrderedDict[tuple[str, str], tuple[float, bytes]] = OrderedDict()  # with the time of its end

    async def open(self) -> None:
        pass

    async def put(self, principal: str, body: bytes) -> str:
        limits = self._limits
        check_size(body, limits, limits.memory_bytes)
        id_ = document_id(body)
        self._documents.pop((principal, id_), None)
        self._expire()
        owned = [key for key in self._documents if key[0] == principal]
        self._make_room(owned, limits.principal_bytes - len(body), limits.principal_count - 1)
        self._make_room(list(self._documents), limits.memory_bytes - len(body), limits.total_count - 1)
        self._documents[principal, id_] = self._now() + limits.ttl, body
        return id_

    async def read(self, principal: str, id_: str, offset: int, size: int) -> tuple[bytes, int] | None:
        self._expire()
        document = self._documents.get((principal, id_))
        return None if document is None else (document[1][offset : offset + size], len(document[1]))

    def _expire(self) -> None:
        now = self._now()
        while self._documents and next(iter(self._documents.values()))[0] <= now:
            self._documents.popitem(last=False)

    def _make_room(self, keys: list[tuple[str, str]], max_bytes: int, max_count: int) -> None:
        for key in keys[: surplus([len(self._documents[key][1]) for key in keys], max_bytes, max_count)]:
            del self._documents[key]


class _File(NamedTuple):
    """A document's file; `size` excludes the head."""

    expires: float
    size: int
    owner: str
    path: str


class _FileDocuments:
    """`Documents` in `folder`; `now` returns Unix seconds. Work runs in threads, one put at a time."""

    def __init__(self, folder: Path, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._folder = folder
        self._limits = limits
        self._now = now
        self._writers = anyio.CapacityLimiter(1)
        self._readers = anyio.CapacityLimiter(_READERS)

    async def open(self) -> None:
        try:
            await anyio.to_thread.run_sync(self._open, limiter=self._writers)
        except OSError as error:
            log.warning("documents_unusable", folder=str(self._folder), reason=str(error))

    async def put(self, principal: str, body: bytes) -> str:
        check_size(body, self._limits, self._limits.total_bytes)
        try:
            return await anyio.to_thread.run_sync(partial(self._put, principal, body), limiter=self._writers)
        except OSError as error:
            raise StoreError(f"a document cannot be kept in {self._folder}: {error.strerror or error}") from error

    async def read(self, principal: str, id_: str, offset: int, size: int) -> tuple[bytes, int] | None:
        if not is_document_id(id_):
            return None
        read = partial(self._read, self._path(principal, id_), offset, size)
        return await anyio.to_thread.run_sync(read, limiter=self._readers)

    def _path(self, principal: str, id_: str) -> str:
        return str(self._folder / f"{_owner(principal)}-{id_}")

    # -- in a thread

    def _open(self) -> None:
        make_folder(self._folder)
        for file in list(self._files()):
            if not _is_sound(file.path):
                remove(file.path)
        self._make_room("", 0, 0)

    def _put(self, principal: str, body: bytes) -> str:
        id_ = document_id(body)
        path = self._path(principal, id_)
        expires = self._now() + self._limits.ttl
        if _is_sound(path):
            os.utime(path, (expires, expires))
            return id_
        make_folder(self._folder)
        self._make_room(_owner(principal), len(body), 1)
        fresh = str(self._folder / f".{os.urandom(16).hex()}.new")
        try:
            _write(fresh, body, expires)
            os.replace(fresh, path)
        except BaseException:
            remove(fresh)
            raise
        return id_

    def _read(self, path: str, offset: int, size: int) -> tuple[bytes, int] | None:
        try:
            file = open_plain(path, _READ_FLAGS)
        except OSError:
            return None
        try:
            length = _length(file)
            if length is not None and os.fstat(file).st_mtime > self._now():
                os.lseek(file, _HEAD_SIZE + min(offset, length), os.SEEK_SET)
                return _bytes(file, min(size, length)), length
        except OSError as error:
            log.warning("document_unread", path=path, reason=str(error))
            return None
        finally:
            os.close(file)
        if length is None:
            remove(path)
        return None

    def _make_room(self, owner: str, size: int, count: int) -> None:
        limits = self._limits
        files = sorted(self._files())
        owned = [file for file in files if file.owner == owner]
        gone = _surplus(owned, limits.principal_bytes - size, limits.principal_count - count)
        remaining = [file for file in files if file not in gone]
        for file in gone | _surplus(remaining, limits.total_bytes - size, limits.total_count - count):
            remove(file.path)

    def _files(self) -> Iterator[_File]:
        """Unexpired documents; removes all else in the folder."""
        now = self._now()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(OSError):  # another process has removed it
                    seen = entry.stat(follow_symlinks=False)
                    named = _NAME.fullmatch(entry.name)
                    is_whole = named is not None and stat.S_ISREG(seen.st_mode) and seen.st_size >= _HEAD_SIZE
                    if named is not None and is_whole and seen.st_mtime > now:
                        yield _File(seen.st_mtime, seen.st_size - _HEAD_SIZE, named[1], entry.path)
                    elif not (_FRESH.fullmatch(entry.name) and seen.st_mtime > now - _WRITING):
                        remove(entry.path)


def _surplus(files: list[_File], max_bytes: int, max_count: int) -> set[_File]:
    return set(files[: surplus([file.size for file in files], max_bytes, max_count)])


def _owner(principal: str) -> str:
    return hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _write(path: str, body: bytes, expires: float) -> None:
    with os.fdopen(os.open(path, _WRITE_FLAGS, 0o600), "wb") as file:
        file.write(b"mcp-hub result 1 %016x\n" % len(body))
        file.write(body)
    os.utime(path, (expires, expires))


def _is_sound(path: str) -> bool:
    try:
        file = open_plain(path, _READ_FLAGS)
    except OSError:
        return False
    try:
        return _length(file) is not None
    finally:
        os.close(file)


def _length(file: int) -> int | None:
    seen = os.fstat(file)
    head = _HEAD.fullmatch(_bytes(file, _HEAD_SIZE)) if stat.S_ISREG(seen.st_mode) else None
    if head is None or seen.st_size != _HEAD_SIZE + (length := int(head[1], 16)):
        return None
    return length


def _bytes(file: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


DOCUMENTS: Final = "results"
"""The folder of long results in the store's."""


def file_documents(folder: Path, limits: DocumentLimits, time: Callable[[], float]) -> Documents:
    return _FileDocuments(folder / DOCUMENTS, limits, time)


def memory_documents(folder: Path, limits: DocumentLimits, time: Callable[[], float]) -> Documents:
    return _MemoryDocuments(limits, time)
