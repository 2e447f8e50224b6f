"""Facts about servers on disk: eras, those with events, and whether they ask callers."""

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import open_plain
from mcp_hub.types import HANDSHAKE, MODERN, Era

log = get_logger(__name__)

_ASKS: Final = " asks"
_EVENTS: Final = " events"
_ERAS: Final = " eras"
_NEEDED: Final = " needed"
_SOFTWARE: Final = " software"
_DOUBTED: Final = " doubted"
_MOST: Final = 2000
"""Facts kept; the oldest goes first."""


def server_key(command: str, args: Sequence[str]) -> str:
    """A digest of the command."""
    return hashlib.sha256("\0".join((command, *args)).encode("utf-8", "replace")).hexdigest()[:24]


def url_key(url: str) -> str:
    return server_key("url", (url,))


class KnownEras(msgspec.Struct, frozen=True):
    """The eras that a server is known to speak or refuse."""

    speaks: frozenset[Era] = frozenset()
    refuses: frozenset[Era] = frozenset()

    @property
    def are_both(self) -> bool:
        return len(self.speaks) == len(Era)

    def may(self, era: Era) -> bool:
        """Whether to try this era: it is spoken, or was not refused by a modern server."""
        return era in self.speaks or (era is HANDSHAKE and MODERN in self.speaks and era not in self.refuses)

    def with_era(self, era: Era, *, speaks: bool) -> "KnownEras":
        """A copy with one more fact."""
        eras = frozenset((era,))
        if speaks:
            return KnownEras(self.speaks | eras, self.refuses - eras)
        return KnownEras(self.speaks - eras, self.refuses | eras)

    def __str__(self) -> str:
        return " ".join(f"{'+' if era in self.speaks else '-'}{era.value}" for era in Era if era in self._named)

    @property
    def _named(self) -> frozenset[Era]:
        return self.speaks | self.refuses


@lru_cache(256)
def _read(text: str) -> KnownEras:
    words, eras = text.split(), KnownEras()
    for era in Era:
        for mark, speaks in (("+", True), ("-", False)):
            if mark + era.value in words:
                eras = eras.with_era(era, speaks=speaks)
    return eras


class EraCache:
    """A private JSON file shared by hubs; `path` None: no file. Never raises for an unusable file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._facts: dict[str, str] | None = None
        self.called: dict[str, Era] = {}
        """The era of this hub's last call, by key."""

    def eras_of(self, key: str) -> KnownEras:
        return _read(self._load().get(key + _ERAS, ""))

    def learn(self, key: str, era: Era, *, speaks: bool) -> None:
        self._put(key + _ERAS, str(self.eras_of(key).with_era(era, speaks=speaks)))

    def forget(self, key: str) -> None:
        if key + _ERAS in self._load():
            self._put(key + _ERAS, None)

    def see(self, key: str, software: str) -> None:
        """Notes name and version; a change casts doubt on the eras."""
        before = self._load().get(key + _SOFTWARE)
        self._put(key + _SOFTWARE, software)
        if before not in (None, software):
            self._put(key + _DOUBTED, "true")

    def take_doubt(self, key: str) -> bool:
        """Whether to negotiate anew; true once."""
        is_doubted = key + _DOUBTED in self._load()
        self._put(key + _DOUBTED, None)
        return is_doubted

    def needed(self, key: str) -> Era | None:
        """The era of the last call, of any hub."""
        return self.called.get(key) or _era(self._load().get(key + _NEEDED))

    def need(self, key: str, era: Era) -> None:
        self.called[key] = era

    def keep_needed(self, key: str) -> None:
        if (era := self.called.get(key)) is not None:
            self._put(key + _NEEDED, era.value)

    def is_interactive(self, key: str) -> bool:
        return key + _ASKS in self._load()

    def put_interactive(self, key: str) -> None:
        self._put(key + _ASKS, "true")

    def events_in(self, key: str) -> frozenset[Era]:
        """The eras in which events were seen."""
        words = self._load().get(key + _EVENTS, "").split()
        return frozenset(era for era in Era if era.value in words)

    def note_events(self, key: str, era: Era, *, has_some: bool) -> None:
        """Notes whether the server has events in this era."""
        noted = self.events_in(key) - {era} | ({era} if has_some else set())
        self._put(key + _EVENTS, " ".join(each.value for each in Era if each in noted) or None)

    def _put(self, key: str, value: str | None) -> None:
        if self._load().get(key) == value:
            return
        facts = self._facts = {**self._load(), **self._on_disk()}
        facts.pop(key, None)
        if value is not None:
            facts[key] = value
        while len(facts) > _MOST:
            del facts[next(iter(facts))]
        self._save(facts)

    def _load(self) -> dict[str, str]:
        if self._facts is None:
            self._facts = self._on_disk()
        return self._facts

    def _on_disk(self) -> dict[str, str]:
        try:
            loaded = json.loads(_content(self._path)) if self._path else {}
            return {k: v for k, v in loaded.items() if isinstance(v, str)}
        except (OSError, ValueError, AttributeError):
            log.debug("era_memory_unread", path=str(self._path))
            return {}

    def _save(self, facts: dict[str, str]) -> None:
        if self._path is None:
            return
        try:
            make_folder(self._path.parent)
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.unlink(missing_ok=True)  # of a hub that was killed, with the mode that it had
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(facts))
            fresh.replace(self._path)
        except OSError as exc:
            log.debug("era_memory_unwritten", path=str(self._path), reason=str(exc))


def _content(path: Path) -> bytes:
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read()


def _era(value: str | None) -> Era | None:
    return Era(value) if value in set(Era) else None
