"""The last lists of servers on disk: one file per server, replaced atomically, in a folder that hubs may share."""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import BYTES, NO_LINK
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import open_plain
from mcp_hub.types import Era, JsonObject, Kind, Snapshot

log = get_logger(__name__)

_FORMAT: Final = 2
_MOST_BYTES: Final = 8 << 20
"""The largest file, about ten thousand tools. Longer lists are not stored."""
_MOST_FILES: Final = 256
"""The most files in a folder; the one unused longest is removed first."""
_OURS: Final = re.compile(r"[0-9a-f]{32}\.json(\.[0-9a-f]{16})?")
"""Names of lists, and of lists that are being written."""


class CachedList(msgspec.Struct, frozen=True):
    """A server's lists and identity. `at` is when they were read, in Unix seconds."""

    snapshot: Snapshot
    version: str
    server_info: JsonObject
    at: float

    @property
    def era(self) -> Era:
        return self.snapshot.era


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """`cached` comes without the lists, which stay raw JSON."""

    format: int
    key: str
    cached: CachedList
    lists: dict[Kind, tuple[msgspec.Raw, ...]]


def list_key(*identity: str | None | Sequence[str]) -> str:
    """Identifies a configuration entry by a digest, without its secrets."""
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


class ListFile(msgspec.Struct, frozen=True):
    """The file of one server. `most_bytes` bounds the file, `most_files` its folder."""

    folder: Path
    server: str
    key: str
    most_bytes: int = _MOST_BYTES
    most_files: int = _MOST_FILES

    @property
    def path(self) -> Path:
        return self.folder / f"{self.key}.json"

    def read(self) -> CachedList | None:
        """The last lists written; None without a usable file."""
        try:
            data = self._bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            log.warning("last_list_unread", upstream=self.server, path=str(self.path), reason=exc.strerror or str(exc))
            return None
        try:
            document = msgspec.json.decode(data, type=_Document)
            snapshot = document.cached.snapshot
            if (document.format, document.key, snapshot.server) != (_FORMAT, self.key, self.server):
                raise ValueError("it was not written for this server by this version of the hub")
            lists = {kind: tuple(map(bytes, raws)) for kind, raws in document.lists.items()}
            return replace(document.cached, snapshot=replace(snapshot, lists=lists))
        except (ValueError, RecursionError) as exc:  # msgspec's errors are of the former
            log.warning("last_list_unread", upstream=self.server, path=str(self.path), reason=str(exc))
            return None

    def _bytes(self) -> bytes:
        opened = open_plain(self.path, os.O_RDONLY | NO_LINK)
        with open(opened, "rb") as file:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("it is not a plain file")
            if status.st_size > self.most_bytes:
                raise OSError(f"longer than {self.most_bytes} bytes")
            with suppress(OSError):
                os.utime(opened if os.utime in os.supports_fd else self.path)
            return file.read(self.most_bytes)

    def write(self, last: CachedList) -> None:
        """Replaces the file. Blocks; failures are logged only."""
        try:
            data = self._encoded(last)
            if len(data) > self.most_bytes:
                self.path.unlink(missing_ok=True)
                details = {"bytes": len(data), "limit": self.most_bytes, "path": str(self.path)}
                log.warning("last_list_too_long", upstream=self.server, **details)
                return
            self._replace(data)
            self._make_room()
        except (OSError, ValueError, RecursionError) as exc:
            log.warning("last_list_unwritten", upstream=self.server, path=str(self.path), reason=str(exc))

    def _encoded(self, last: CachedList) -> bytes:
        lists = {kind: tuple(map(msgspec.Raw, raws)) for kind, raws in last.snapshot.lists.items()}
        without_lists = replace(last, snapshot=replace(last.snapshot, lists={}))
        return msgspec.json.encode(_Document(_FORMAT, self.key, without_lists, lists))

    def _replace(self, data: bytes) -> None:
        make_folder(self.folder)
        fresh = self.folder / f"{self.path.name}.{secrets.token_hex(8)}"
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BYTES, 0o600)
        try:
            with open(opened, "wb") as file:
                file.write(data)
            fresh.replace(self.path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    def _make_room(self) -> None:
        """Removes the files unused longest, aborted writes included."""
        files: list[tuple[float, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if _OURS.fullmatch(entry.name) and entry.name != self.path.name:
                    with suppress(FileNotFoundError):  # another hub was quicker
                        files.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        for _, path in sorted(files)[: max(0, len(files) + 1 - self.most_files)]:
            with suppress(FileNotFoundError):
                os.unlink(path)
