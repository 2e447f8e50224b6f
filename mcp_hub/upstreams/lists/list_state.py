"""The current lists of one server, read again when they change."""

import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import loop_clock
from mcp_hub.clock import wall_time
from mcp_hub.errors import StartFailed
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.types import CacheHint, Kind, Snapshot
from mcp_hub.upstreams.lists.list_reader import CachedList, Listed, ListFile, ListLimits, list_kinds, prepared
from mcp_hub.upstreams.lists.list_union import settled
from mcp_hub.upstreams.peer.peer import Peer

log = get_logger(__name__)

_SETTLE: Final = 0.1
"""Seconds to collect `list_changed` notifications before listing again."""
_FREE: Final = 5
"""Changes in a row without a longer pause: a server may add tools one by one."""
_LONGEST: Final = 5.0
_QUIET: Final = 10.0
"""Seconds without a change after which everything is forgiven."""
_HOUR: Final = 3600.0
"""The greatest age of a list, and how often an unsteady one is taken over."""
_NEWCOMER: Final = 10
"""At a client's first listing, lists are read again at this fraction of the age."""
_LEAST_TTL: Final = 10.0
"""Seconds; a shorter TTL of a server counts as this."""
_UNSTEADY: Final = 3
"""Different readings in a row after which a list is unsteady."""
_DOUBT: Final = 5.0
_MOST_DOUBT: Final = 300.0
"""Seconds between readings for a doubt; doubled while they show nothing new."""

Doubt = Literal["entry", "stream"]
"""Reasons to read at once: the server does not know an entry, or its stream of announcements broke."""
Verdict = Literal["same", "news", "held"]


class _Pacer:
    """The pauses after one server's announcements."""

    def __init__(self) -> None:
        self._last = -_QUIET
        self._streak = 0

    def pause(self, now: float) -> float:
        """Seconds between an announcement at `now` and the reading."""
        self._streak = self._streak + 1 if now - self._last < _QUIET else 0
        pause = min(_SETTLE * 2.0 ** max(0, self._streak - _FREE), _LONGEST)
        self._last = now + pause
        return pause


class _Age(msgspec.Struct):
    tried: float
    taken: float
    factor: int = 1
    streak: int = 0
    content: str = ""


class _ListAges:
    """The ages of one server's lists."""

    def __init__(self) -> None:
        self._ages: dict[Kind, _Age] = {}
        self._doubts: dict[Doubt, tuple[float, float]] = {}  # when, and seconds until the next

    @property
    def unsteady(self) -> list[Kind]:
        return [kind for kind, age in self._ages.items() if age.streak > _UNSTEADY]

    def taken(self, kind: Kind, now: float) -> None:
        age = self._ages.get(kind)
        streak = 0 if age is None else age.streak
        self._ages[kind] = _Age(now, now, streak=streak)

    def take_due(self, kind: Kind, now: float, max_age: float, ttl: float, *, is_new: bool) -> bool:
        """Whether to read when a client lists; notes the attempt.

        `max_age` 0: never. `ttl` 0: the server gives none. `is_new`: the client's first listing.
        """
        age = self._ages.get(kind)
        if age is None or not max_age:
            return False
        aged_limit = min(max_age * age.factor, max(_HOUR, max_age))
        limit = max(ttl, _LEAST_TTL) if ttl else aged_limit / _NEWCOMER if is_new else aged_limit
        if now - age.tried <= limit:
            return False
        age.tried = now
        age.factor = min(2 * age.factor, 1 << 20)  # until it turns out to be another one
        return True

    def take_doubt(self, why: Doubt, now: float) -> bool:
        at, pause = self._doubts.get(why, (now, 0.0))
        if now - at < pause:
            return False
        self._doubts[why] = now, min(max(2 * pause, _DOUBT), _MOST_DOUBT)
        return True

    def judge(self, kind: Kind, content: str, listed: str, now: float, *, is_urgent: bool) -> Verdict:
        """Compares digests of a reading and the current list.

        A list that always differs is "held" for an hour, unless it `is_urgent`.
        """
        age = self._ages.setdefault(kind, _Age(now, now))
        before, age.content = age.content, content
        if content == listed:
            age.streak = 0
            return "same"
        age.streak = age.streak + 1 if content != before else 0
        age.factor = 1
        self._doubts.clear()
        if age.streak > _UNSTEADY and now - age.taken < _HOUR and not is_urgent:
            return "held"
        age.taken = now
        return "news"


_KEEP_PAUSE: Final = 5.0
"""Seconds between two writes of a list that keeps changing."""
_KEEP_LIMIT: Final = 10.0
"""Seconds to wait for a write."""
_LAST: Final = 0.5
"""Seconds for the last write: the hub has to exit soon."""
_REFRESH: Final = 5.0
"""Seconds to wait for a list that a client requests; then the known one counts."""


class _Reads(msgspec.Struct):
    """When each kind was read last (seconds of the loop's clock), and locks for readers.

    `is_heard`: another replica's change, not announced to replicas. `aged` kinds are old, or `doubtful`: the server did
    not know an entry.
    """

    at: dict[Kind, float] = msgspec.field(default_factory=dict)
    refreshing: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    merging: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    is_heard: bool = False
    ages: _ListAges = msgspec.field(default_factory=_ListAges)
    aged: set[Kind] = msgspec.field(default_factory=set)
    doubtful: set[Kind] = msgspec.field(default_factory=set)


class ListState:
    """The lists of one server; those in `file` are offered until it is read.

    Definitions with unchanged content keep their bytes, in any order of members.
    """

    def __init__(
        self, name: str, limits: Callable[[], ListLimits], changes: Notices, file: ListFile | None = None
    ) -> None:
        self.name = name
        self._limits = limits
        self._changes = changes
        self._file = file
        self._is_unwritten = anyio.Event()
        self._reads = _Reads()
        self.last: CachedList | None = None
        self.snapshot: Snapshot | None = None
        self.is_fresh = False  # this hub has read them, not only an earlier one
        self.inherit(file.read() if file is not None else None)

    def inherit(self, last: CachedList | None) -> None:
        """Takes these until others are read."""
        if last is not None:
            self.last, self.snapshot = last, last.snapshot

    def begin_anew(self, last: CachedList | None) -> None:
        """Takes these, of a connection in another era, until others are read."""
        self.is_fresh = False
        self.inherit(last)

    @property
    def fresh(self) -> Snapshot | None:
        """The lists that this hub has read itself; None before."""
        return self.snapshot if self.is_fresh else None

    @property
    def unsteady(self) -> tuple[str, ...]:
        return tuple(
            f"{kind.value}s: the list is another one at each reading; it is taken over once an hour"
            for kind in self._reads.ages.unsteady
        )

    def show(self, peer: Peer, kind: Kind, *, is_new: bool) -> None:
        """Notes that a client lists this kind; an old list is read again."""
        reads, max_age = self._reads, self._limits().max_age
        hint = self.snapshot.hints.get(kind) if self.snapshot is not None else None
        ttl = hint.ttl_ms / 1000 if hint is not None else 0.0
        now = loop_clock()()  # `anyio.current_time` looks for the library of the loop each time
        if kind is not Kind.SKILL and reads.ages.take_due(kind, now, max_age, ttl, is_new=is_new):
            reads.aged.add(kind)
            peer.messages.list_changes.announce(())

    def doubt(self, peer: Peer, kind: Kind) -> None:
        """Reads the list again, with growing pauses: the server did not know an entry."""
        self._doubt("entry", {kind})
        peer.messages.list_changes.announce(())

    def _doubt(self, why: Doubt, kinds: set[Kind]) -> None:
        if self._reads.ages.take_doubt(why, anyio.current_time()):
            self._reads.aged |= kinds
            self._reads.doubtful |= kinds

    async def read(
        self, peer: Peer, kinds: set[Kind], silence: float | None = None, aged: Set[Kind] = frozenset()
    ) -> None:
        """Reads these kinds; a late list keeps its old content. Raises `StartFailed`.

        `aged` lists are replaced only if their content has changed.
        """
        began = anyio.current_time()
        lists = await list_kinds(peer, kinds, self._limits(), silence)
        read = {kind for kind, listed in lists.items() if not listed.is_late}
        async with self._reads.merging:
            same = await self._without_news(lists, aged & read)
            if same != kinds:
                fresh = {kind: listed for kind, listed in lists.items() if kind not in same}
                await self._merge(peer, kinds - same, fresh)
            elif self.last is not None:
                self.inherit(replace(self.last, at=wall_time()))
        self._reads.at.update(dict.fromkeys(read, began))
        for kind in read - aged:
            self._reads.ages.taken(kind, began)

    def refresh(self, peer: Peer, kind: Kind) -> Callable[[], Awaitable[None]] | None:
        """A function that reads again; None if the TTL holds."""
        now, hint = anyio.current_time(), self.snapshot.hints.get(kind, CacheHint()) if self.snapshot else CacheHint()
        age = now - self._reads.at.get(kind, -math.inf)
        if age < hint.ttl_ms / 1000 or not KINDS[kind].is_offered(peer.info.capabilities):
            return None
        return partial(self._refresh, peer, kind, now)

    async def _refresh(self, peer: Peer, kind: Kind, requested_at: float) -> None:
        async with self._reads.refreshing:
            if self._reads.at.get(kind, -math.inf) < requested_at:
                with suppress(StartFailed):
                    await self.read(peer, {kind}, _REFRESH)

    async def _merge(self, peer: Peer, kinds: set[Kind], fresh_lists: dict[Kind, Listed]) -> None:
        if late := {kind for kind, listed in fresh_lists.items() if listed.is_late}:
            peer.messages.list_changes.announce(late)
        lists = await self._settled({kind: tuple(listed.raws) for kind, listed in fresh_lists.items()})
        hints = {kind: listed.hint for kind, listed in fresh_lists.items()}
        warnings = tuple(f"{kind.value}s: {text}" for kind, listed in fresh_lists.items() for text in listed.warnings)
        if (old := self.snapshot) is not None:
            stay = old.lists.keys() & (late | (set(Kind) - kinds))
            lists |= {kind: old.lists[kind] for kind in stay}
            hints |= {kind: old.hints[kind] for kind in stay & old.hints.keys()}
            renewed = tuple(f"{kind.value}s: " for kind in kinds)
            warnings = (*(text for text in old.warnings if not text.startswith(renewed)), *warnings)
        info = peer.info
        fresh = Snapshot(
            server=self.name,
            era=info.era,
            lists=lists,
            hints=hints,
            capabilities=info.capabilities,
            instructions=info.instructions,
            warnings=warnings,
        )
        await prepared(fresh, self._limits())
        if Kind.TOOL in lists:
            peer.tasks.learn(info.capabilities, lists[Kind.TOOL])
        self.inherit(CachedList(fresh if fresh != old else old, info.version, info.server_info, wall_time()))
        is_own = self.is_fresh and not self._reads.is_heard
        self.is_fresh, self._reads.is_heard = True, False
        self._is_unwritten.set()
        if fresh != old:
            self._changes.bump()
            if is_own:
                self._changes.lists.changed(self.name, _digest(fresh))

    async def _without_news(self, fresh_lists: Mapping[Kind, Listed], aged: Set[Kind]) -> set[Kind]:
        """The unchanged kinds. Order and `_meta` do not count."""
        now, same = anyio.current_time(), set[Kind]()
        for kind in aged:
            listed, is_urgent = self.snapshot.lists.get(kind, ()) if self.snapshot else (), kind in self._reads.doubtful
            self._reads.doubtful.discard(kind)
            raws = tuple(fresh_lists[kind].raws)
            if len(raws) < self._limits().long:
                contents = _contents(raws, listed)
            else:
                contents = await anyio.to_thread.run_sync(_contents, raws, listed)
            if self._reads.ages.judge(kind, *contents, now, is_urgent=is_urgent) != "news":
                same.add(kind)
        return same

    async def _settled(self, lists: dict[Kind, tuple[bytes, ...]]) -> dict[Kind, tuple[bytes, ...]]:
        """The lists, with the old bytes of unchanged definitions."""
        before = {} if self.snapshot is None else self.snapshot.lists
        if all(before.get(kind, raws) == raws for kind, raws in lists.items()):
            return lists

        def settle() -> dict[Kind, tuple[bytes, ...]]:
            return {kind: settled(kind, before.get(kind, ()), raws) for kind, raws in lists.items()}

        is_long = sum(map(len, lists.values())) >= self._limits().long
        return await anyio.to_thread.run_sync(settle, abandon_on_cancel=True) if is_long else settle()

    async def follow(self, peer: Peer, patience: float) -> None:
        """Reads lists that the server or a replica announces, each within `patience` seconds, until the connection
        ends.
        """
        with self._changes.lists.following(self.name, partial(self._compare, peer)):
            await self._follow(peer, patience)

    def _compare(self, peer: Peer, digest: str) -> None:
        if self.snapshot is not None and _digest(self.snapshot) != digest:
            self._reads.is_heard = True
            peer.messages.list_changes.announce(Kind)

    async def _follow(self, peer: Peer, patience: float) -> None:
        pacer = _Pacer()
        while not peer.ending.closed.is_set():
            await peer.messages.list_changes.wait()
            if peer.ending.closed.is_set():
                return
            with anyio.move_on_after(pacer.pause(anyio.current_time())):
                await peer.ending.closed.wait()
            kinds = peer.messages.list_changes.take()
            if peer.messages.list_changes.take_missed():
                self._doubt("stream", set(self.snapshot.lists) if self.snapshot is not None else set())
            aged, self._reads.aged = self._reads.aged - kinds, set()
            if not kinds | aged:
                continue
            with anyio.move_on_after(patience) as scope:
                try:
                    await self.read(peer, kinds | aged, aged=aged)
                except StartFailed as exc:
                    log.warning("upstream_list_failed", upstream=self.name, code=exc.code, reason=str(exc))
            if scope.cancelled_caught:
                log.warning("upstream_list_failed", upstream=self.name, reason="no answer")

    async def keep(self) -> None:
        """Writes changed lists to the file until cancelled."""
        if self._file is None:
            return
        try:
            while True:
                await self._is_unwritten.wait()
                await self._write(self._file, _KEEP_LIMIT)
                await anyio.sleep(_KEEP_PAUSE)
        finally:
            if self._is_unwritten.is_set():
                with anyio.CancelScope(shield=True):
                    await self._write(self._file, _LAST)

    async def _write(self, file: ListFile, limit: float) -> None:
        self._is_unwritten = anyio.Event()
        if self.last is not None:
            with anyio.move_on_after(limit):
                await anyio.to_thread.run_sync(file.write, self.last, abandon_on_cancel=True)


def _contents(raws: Sequence[bytes], listed: Sequence[bytes]) -> tuple[str, str]:
    return _content(raws), _content(listed)


def _content(raws: Sequence[bytes]) -> str:
    digests = sorted(hashlib.blake2b(_plain(raw), digest_size=16).digest() for raw in raws)
    return hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()


def _plain(raw: bytes) -> bytes:
    try:
        definition = msgspec.json.decode(raw)
        if isinstance(definition, dict):
            definition.pop("_meta", None)
        return msgspec.json.encode(definition, order="sorted")
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError):
        return raw


def _digest(lists: Snapshot) -> str:
    """A digest of the bytes in order."""
    content = hashlib.blake2b(digest_size=16)
    for kind in Kind:
        for raw in (kind.value.encode(), *lists.lists.get(kind, ())):
            content.update(b"%d:" % len(raw) + raw)
    return content.hexdigest()
