"""Reads a server's lists, page after page, within bounds, and keeps the last ones on disk. Definitions stay unparsed.

One file per server, replaced atomically, in a folder that hubs may share.
"""

import hashlib
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import BYTES, NO_LINK
from mcp_hub.errors import RpcError, StartFailed, UpstreamLost
from mcp_hub.files import may_be_full, note_count
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import METHOD_NOT_FOUND
from mcp_hub.stores.locks import open_plain
from mcp_hub.types import CacheHint, Era, JsonObject, Kind, RawJson, Snapshot, plural
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.wire.base import Pending

_FORMAT: Final = 2
_MOST_BYTES: Final = 8 << 20
"""The largest file, about ten thousand tools. Longer lists are not stored."""
_MOST_FILES: Final = 256
"""The most files in a folder; the one unused longest is removed first."""
_OURS: Final = re.compile(r"[0-9a-f]{32}\.json(\.[0-9a-f]{16})?")
"""Names of lists, and of lists that are being written."""


class CachedList(msgspec.Struct, frozen=True):
    """A server's lists and identity; `at` (Unix seconds) is when they were read."""

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
        if not may_be_full(self.folder, self.most_files):
            return
        with os.scandir(self.folder) as entries:
            files = [entry for entry in entries if _OURS.fullmatch(entry.name) and entry.name != self.path.name]
        note_count(self.folder, self.most_files, len(files))
        if len(files) < self.most_files:
            return
        by_age: list[tuple[float, str]] = []
        for entry in files:
            with suppress(FileNotFoundError):  # another hub was quicker
                by_age.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        for _, path in sorted(by_age)[: max(0, len(by_age) + 1 - self.most_files)]:
            with suppress(FileNotFoundError):
                os.unlink(path)


log = get_logger(__name__)

_UNANNOUNCED: Final = 3.0
"""Seconds that a server has to list tools which it does not announce."""
_NULL: Final = msgspec.Raw(b"null")


class ListLimits(msgspec.Struct, frozen=True):
    """Bounds per kind: `pages` and `entries`; the rest is left out with a warning.

    `prepare` receives lists of at least `long` entries in a worker thread. Lists older than `max_age` seconds are read
    again when a client lists them; 0: never.
    """

    pages: int = 100
    entries: int = 10_000
    prepare: Callable[[Snapshot], None] | None = None
    long: int = 250
    max_age: float = 300.0


class Listed(msgspec.Struct):
    """The entries of one kind that were read."""

    raws: list[bytes] = msgspec.field(default_factory=list)
    hint: CacheHint = CacheHint()
    warnings: list[str] = msgspec.field(default_factory=list)
    is_late: bool = False
    """Whether the rest is worth asking for again: the server was silent."""


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """An empty object."""


class _Late(msgspec.Struct):
    silence: float
    _deadline: float | None = None

    def deadline(self, kind: Kind, listed: Listed) -> float:
        if kind is Kind.TOOL:
            return anyio.current_time() + self.silence if listed.raws else math.inf
        if self._deadline is None:
            self._deadline = anyio.current_time() + self.silence
        return self._deadline


async def prepared(snapshot: Snapshot, limits: ListLimits) -> None:
    if limits.prepare is not None and sum(map(len, snapshot.lists.values())) >= limits.long:
        await anyio.to_thread.run_sync(limits.prepare, snapshot, abandon_on_cancel=True)


async def list_kinds(peer: Peer, kinds: set[Kind], limits: ListLimits, silence: float | None) -> dict[Kind, Listed]:
    """Reads the announced lists.

    Raises `StartFailed` if announced tools cannot be listed; other kinds stay empty with a warning. `silence` (seconds)
    limits each further page of tools, and all other kinds together; a list that misses it `is_late`. With `silence`,
    pages read before an error are kept.
    """
    capabilities = peer.info.capabilities
    announced = [kind for kind in Kind if kind in kinds and KINDS[kind].is_offered(capabilities)]
    if not announced and kinds == set(Kind):
        return await _unannounced(peer, limits, silence)
    try:
        firsts = {kind: peer.send(KINDS[kind].list_method) for kind in announced}
    except UpstreamLost as exc:  # it went between the handshake and now
        raise _gone(exc) from None
    lists: dict[Kind, Listed] = {}
    late = _Late(math.inf if silence is None else silence)
    for kind, pending in firsts.items():
        listed = lists[kind] = Listed()
        try:
            await _follow(peer, kind, pending, listed, limits, late)
        except RpcError as exc:
            _failed(peer, kind, exc, listed, is_enough=silence is not None and bool(listed.raws))
        _complete(peer, kind, listed, limits)
    return lists


async def _unannounced(peer: Peer, limits: ListLimits, silence: float | None) -> dict[Kind, Listed]:
    """The tools of a server that announces no lists, if it answers in time."""
    listed, late = Listed(), _Late(math.inf if silence is None else silence)
    try:
        with anyio.move_on_after(_UNANNOUNCED if silence is None else min(silence, _UNANNOUNCED)):
            await _follow(peer, Kind.TOOL, peer.send(KINDS[Kind.TOOL].list_method), listed, limits, late)
    except RpcError as exc:
        if isinstance(exc, UpstreamLost) and peer.ending.closed.is_set():
            raise _gone(exc) from None
    if not listed.raws:
        return {}
    listed.warnings.append("the server does not announce tools in its capabilities, and lists some")
    peer.settle(replace(peer.info, capabilities={**peer.info.capabilities, KINDS[Kind.TOOL].capability: {}}))
    _complete(peer, Kind.TOOL, listed, limits)
    return {Kind.TOOL: listed}


def _complete(peer: Peer, kind: Kind, listed: Listed, limits: ListLimits) -> None:
    if len(listed.raws) > limits.entries:
        del listed.raws[limits.entries :]
        listed.warnings.append(f"more than {plural(limits.entries, 'entry')}; the rest is left out")
    if kind is Kind.TOOL and peer.mirrors is not None:
        listed.raws, refused = peer.mirrors.learn(listed.raws)
        listed.warnings += refused
    for warning in listed.warnings:
        log.warning("upstream_list", upstream=peer.name, kind=kind.value, problem=warning)


def _failed(peer: Peer, kind: Kind, exc: RpcError, listed: Listed, *, is_enough: bool) -> None:
    if isinstance(exc, UpstreamLost) and peer.ending.closed.is_set():
        raise _gone(exc) from None
    reason = f"{KINDS[kind].list_method} failed: {exc}"
    if is_enough:
        listed.warnings.append(hide(f"{reason}; stopped after {plural(len(listed.raws), 'entry')}"))
    elif kind is Kind.TOOL:
        raise StartFailed("list_failed", reason) from None
    elif exc.code != METHOD_NOT_FOUND:
        listed.warnings.append(hide(reason))


def _gone(exc: UpstreamLost) -> StartFailed:
    return StartFailed(str(exc.about_upstream.get("code", "connection_lost")), str(exc))


async def _follow(peer: Peer, kind: Kind, pending: Pending, listed: Listed, limits: ListLimits, late: _Late) -> None:
    spec = KINDS[kind]
    seen: set[bytes] = set()
    while (raw := await _page(peer, kind, pending, listed, late)) is not None:
        if (cursor := _take_page(raw, spec.result_key, listed)) is None or len(listed.raws) > limits.entries:
            return
        if bytes(cursor) in seen:
            listed.warnings.append(f"the same cursor came twice; stopped after {plural(len(listed.raws), 'entry')}")
            return
        seen.add(bytes(cursor))
        if len(seen) >= limits.pages:
            listed.warnings.append(f"more than {plural(limits.pages, 'page')}; the rest is left out")
            return
        pending = peer.send(spec.list_method, {"cursor": cursor})


async def _page(peer: Peer, kind: Kind, pending: Pending, listed: Listed, late: _Late) -> RawJson | None:
    with anyio.CancelScope(deadline=late.deadline(kind, listed)):
        return await peer.answer(pending)
    listed.is_late = True
    listed.warnings.append(f"{KINDS[kind].list_method}: no answer within {late.silence:g} s; it is asked for again")
    return None


def _take_page(raw: RawJson, key: str, listed: Listed) -> msgspec.Raw | None:
    """Returns the next cursor, None at the end.

    An empty string and a number are cursors. A list that is null, missing or `{}` (Lua) is empty.
    """
    try:
        page = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        entries = msgspec.json.decode(page.get(key, _NULL), type=list[msgspec.Raw] | _Nothing | None)
        hint = CacheHint(_ttl(page.get("ttlMs")), bytes(page.get("cacheScope", b"")) == b'"public"')
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(f"the list cannot be read: {exc}") from None
    if not isinstance(entries, list):
        form = "missing" if key not in page else "null" if entries is None else "{}"
        listed.warnings.append(f'"{key}" is {form} in the answer, and counts as empty')
        entries = []
    if listed.raws:
        hint = CacheHint(min(hint.ttl_ms, listed.hint.ttl_ms), hint.public and listed.hint.public)
    listed.hint = hint
    listed.raws += [bytes(entry) for entry in entries]
    cursor = page.get("nextCursor", _NULL)
    if cursor == _NULL:
        return None
    if read_as(cursor, str) is None and read_as(cursor, float) is None:
        problem = "the cursor of the next page is neither a text nor a number"
        listed.warnings.append(f"{problem}; stopped after {plural(len(listed.raws), 'entry')}")
        return None
    return cursor


def _ttl(raw: msgspec.Raw | None) -> int:
    """Milliseconds; 0 for anything but a natural number."""
    text = bytes(raw) if raw is not None else b"0"
    return min(int(text), 1 << 53) if text.isdigit() and len(text) < 19 else 0
