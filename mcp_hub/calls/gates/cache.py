"""Kept results of tools that only read, by server, tool, arguments and account.

A result is kept if it is complete, not an error, and nobody was asked. It lasts for the time in the tool's settings,
until the server restarts, its lists change, or a login to it changes. At most 10,000; the least recently used goes
first. `_meta` of a call is ignored.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, Upstream
from mcp_hub.calls.gates.steps import Gates
from mcp_hub.calls.metering import is_tool_error
from mcp_hub.calls.reading.stored import own_name
from mcp_hub.clock import Clock
from mcp_hub.errors import InvalidParams
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import Era, Snapshot

log = get_logger(__name__)

CACHE: Final = "dev.mcp-hub/cache"
"""In `_meta` of a call: the highest age of a result in seconds, 0 for a new one. Of a result: `cached` and `age`."""
_MOST: Final = 10_000
"""Kept results."""
_SHARE: Final = 8
"""A result that takes more than this part of the room is not kept."""
_EACH: Final = 400
"""Bytes of a kept result beside its text."""
_ARGUMENTS: Final = 64 << 10
"""Bytes of arguments; results for longer ones are not kept."""
_SERVERS: Final = 4096
"""Servers, or accounts at them, that are watched."""


class _Run(msgspec.Struct, eq=False):
    """One state of a server for one account: results of another one do not count."""

    upstream: Upstream
    snapshot: Snapshot | None
    lists: Snapshot | None
    restarts: int
    pid: int | None


class _Kept(msgspec.Struct, frozen=True):
    head: bytes
    tail: bytes
    era: Era
    at: float
    run: _Run


class ResultCache:
    """The kept results of one hub, `room` bytes at most; makes the step of a tool (`StepMaker`).

    `lifetime` is by server and tool, in seconds; 0: nothing is kept. `reads_only`: whether the tool only reads. Callers
    with a connection of their own, such as one of their account, have results of their own.
    """

    def __init__(
        self,
        lifetime: Callable[[str, str], float],
        upstreams: Mapping[str, Upstream],
        reads_only: Callable[[Call], bool],
        clock: Clock,
        gates: Gates,
        room: int,
    ) -> None:
        self._lifetime = lifetime
        self._upstreams = upstreams
        self._reads_only = reads_only
        self._clock = clock
        self._gates = gates
        self._entries: OrderedDict[bytes, _Kept] = OrderedDict()
        self._runs: dict[tuple[str, str], _Run] = {}
        self._warned: set[tuple[str, str]] = set()
        self.room = room
        self.size = 0

    def resize(self, room: int) -> None:
        """Takes `room` bytes from now on."""
        self.room = room
        self._fit()

    def _fit(self) -> None:
        while self.size > self.room or len(self._entries) > _MOST:
            self._remove(next(iter(self._entries)))

    def __len__(self) -> int:
        return len(self._entries)

    def __call__(self, server: str, tool: str, profile: str | None) -> "_CacheStep | None":
        seconds = self._lifetime(server, tool)
        return _CacheStep(self, seconds) if seconds else None

    def drop(self, server: str, account: str | None = None) -> None:
        """Forgets all results, or those of the connection with this topic."""
        for key in [key for key in self._runs if key[0] == server and account in (None, key[1])]:
            self._forget(self._runs.pop(key))

    def _forget(self, run: _Run) -> None:
        for key in [key for key, entry in self._entries.items() if entry.run is run]:
            self._remove(key)

    def run(self, call: Call) -> _Run | None:
        """The server's state for the call's account; None if unknown or without an open connection: another hub may
        have removed the account.
        """
        upstream = self._upstreams.get(call.upstream)
        if upstream is None:
            return None
        apart = upstream.apart(call)
        if apart is not None and not apart.is_open:
            return None
        account = "" if apart is None else apart.topic
        status, snapshot = upstream.status(), upstream.snapshot()
        lists = None if apart is None else apart.lists
        key = call.upstream, account
        run = self._runs.get(key)
        if run is None or not _is_same(run, upstream, snapshot, lists, status.restarts, status.pid):
            if run is not None:
                self._forget(run)
            elif len(self._runs) >= _SERVERS:
                self._forget(self._runs.pop(next(iter(self._runs))))
            run = self._runs[key] = _Run(upstream, snapshot, lists, restarts=status.restarts, pid=status.pid)
        run.pid = status.pid or run.pid  # one that rests has not been started anew
        return run

    def may_keep(self, call: Call) -> bool:
        """Whether the tool only reads; warns once if not."""
        if self._reads_only(call):
            return True
        tool = call.upstream, own_name(call)
        if tool not in self._warned and len(self._warned) < _SERVERS:
            self._warned.add(tool)
            log.warning("cache_unused", upstream=call.upstream, tool=tool[1], reason="the tool does not only read")
        return False

    def find(self, key: bytes, run: _Run, oldest: float) -> Completed | None:
        """The kept result, if it is of this run and not from before `oldest`."""
        entry = self._entries.get(key)
        if entry is None or entry.run is not run or entry.at < oldest:
            return None
        self._entries.move_to_end(key)
        age = b"%d" % max(self._clock.now() - entry.at, 0)
        return Completed(entry.head + age + entry.tail, entry.era)

    def keep(self, key: bytes, run: _Run, completed: Completed) -> None:
        """Keeps a result that fits, if its server is still the same."""
        parts = _split(completed)
        if parts is None or sum(map(len, parts)) + _EACH > self.room // _SHARE:
            return
        self._remove(key)
        self._entries[key] = _Kept(*parts, era=completed.era, at=self._clock.now(), run=run)
        self.size += _size(self._entries[key])
        self._fit()

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= _size(entry)

    @property
    def now(self) -> float:
        return self._clock.now()

    def note(self, call: Call) -> None:
        """Tells the audit that a kept result answers the call."""
        self._gates.note(call, "cache", "cached", "")


class _CacheStep:
    """The step of one tool; results are kept for so many seconds."""

    __slots__ = ("_cache", "_seconds")

    def __init__(self, cache: ResultCache, seconds: float) -> None:
        self._cache = cache
        self._seconds = seconds

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        cache, oldest = self._cache, self._oldest(call)
        if CACHE in call.meta:
            call = msgspec.structs.replace(call, meta={key: call.meta[key] for key in call.meta if key != CACHE})
        is_retry = call.input_responses is not None or call.request_state is not None
        run = None if is_retry or not cache.may_keep(call) else cache.run(call)
        key = None if run is None else _key(call, run)
        if run is None or key is None:
            return await handler(call, channel)
        entry = cache.find(key, run, oldest)
        if entry is not None:
            cache.note(call)
            return entry
        completed = await handler(call, channel)
        if not channel.questions.count and _is_complete(completed) and cache.run(call) is run:
            cache.keep(key, run, completed)
        return completed

    def _oldest(self, call: Call) -> float:
        """The time before which no result counts. Raises `InvalidParams`."""
        seconds, raw = self._seconds, call.meta.get(CACHE)
        if raw is not None:
            try:
                seconds = min(seconds, msgspec.json.decode(raw, type=float))
            except (msgspec.DecodeError, RecursionError):
                raise InvalidParams(f"params._meta[{CACHE!r}] must be a number: the highest age in seconds") from None
            if seconds <= 0:
                return float("inf")
        return self._cache.now - seconds


def _is_same(
    run: _Run, upstream: Upstream, snapshot: Snapshot | None, lists: Snapshot | None, restarts: int, pid: int | None
) -> bool:
    if run.upstream is not upstream or run.restarts != restarts:
        return False
    if pid is not None and run.pid is not None and pid != run.pid:
        return False
    return _are_same(run.snapshot, snapshot) and _are_same(run.lists, lists)


def _are_same(before: Snapshot | None, after: Snapshot | None) -> bool:
    return before is after or before == after


def _is_complete(completed: Completed) -> bool:
    if is_tool_error(completed.result):
        return False
    members = raw_object(completed.result)
    return members is not None and bytes(members.get("resultType", b'"complete"')) == b'"complete"'


def _key(call: Call, run: _Run) -> bytes | None:
    """The hash under which a result is kept; None if the arguments are too long or can be read in two ways."""
    raw = bytes(call.params.get("arguments", b"{}"))
    if len(raw) > _ARGUMENTS:
        return None
    try:
        arguments = json.loads(raw, object_pairs_hook=_members, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    parts = (call.upstream, own_name(call), id(run), call.server_era.value, arguments)
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _members(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands there twice: a server may take the first or the last one")
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _split(completed: Completed) -> tuple[bytes, bytes] | None:
    """The result with its mark, in front of its age and behind it."""
    members = raw_object(completed.result)
    meta = None if members is None else raw_object(members.pop("_meta", msgspec.UNSET))
    if members is None or meta is None:
        return None
    meta.pop(CACHE, None)
    mark = b'"_meta":{"%b":{"cached":true,"age":' % CACHE.encode()
    more = b"".join(b",%b:%b" % (msgspec.json.encode(name), bytes(value)) for name, value in meta.items())
    texts = b"".join(b",%b:%b" % (msgspec.json.encode(name), bytes(value)) for name, value in members.items())
    return b"{" + mark, b"}%b}%b}" % (more, texts)


def _size(entry: _Kept) -> int:
    return len(entry.head) + len(entry.tail) + _EACH
