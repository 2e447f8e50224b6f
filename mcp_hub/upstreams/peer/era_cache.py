"""Facts about servers on disk: their era, so that the next start does not probe, and whether they ask their callers."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import open_plain
from mcp_hub.types import Era

log = get_logger(__name__)

_ASKS: Final = " asks"
_MOST: Final = 500
"""Verdicts kept; the oldest goes first."""


def server_key(command: str, args: Sequence[str]) -> str:
    """Names a server by its command, not by its name in the configuration."""
    return hashlib.sha256("\0".join((command, *args)).encode("utf-8", "replace")).hexdigest()[:24]


def url_key(url: str) -> str:
    """Names a remote server; the URL itself may hold a secret."""
    return server_key("url", (url,))


class EraCache:
    """A small private JSON file by `server_key`; `path` None: no file. Never raises for a file that cannot be used."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, str] | None = None

    def get(self, key: str) -> Era | None:
        value = self._load().get(key)
        return Era(value) if value in set(Era) else None

    def put(self, key: str, era: Era) -> None:
        self._put(key, era.value)

    def is_interactive(self, key: str) -> bool:
        return key + _ASKS in self._load()

    def put_interactive(self, key: str) -> None:
        self._put(key + _ASKS, "true")

    def _put(self, key: str, value: str) -> None:
        known = self._load()
        if known.get(key) == value:
            return
        known.pop(key, None)
        known[key] = value
        while len(known) > _MOST:
            del known[next(iter(known))]
        self._save(known)

    def forget(self, key: str) -> None:
        """Removes an era that no longer leads to a session."""
        known = self._load()
        if known.pop(key, None) is not None:
            self._save(known)

    def _load(self) -> dict[str, str]:
        if self._known is None:
            self._known = {}
            try:
                loaded = json.loads(self._read(self._path)) if self._path else {}
                self._known = {k: v for k, v in loaded.items() if isinstance(v, str)}
            except (OSError, ValueError, AttributeError):
                log.debug("era_memory_unread", path=str(self._path))
        return self._known

    @staticmethod
    def _read(path: Path) -> bytes:
        with open(open_plain(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def _save(self, known: dict[str, str]) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.unlink(missing_ok=True)  # of a hub that was killed, with the mode that it had
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(known))
            fresh.replace(self._path)
        except OSError as exc:
            log.debug("era_memory_unwritten", path=str(self._path), reason=str(exc))
