"""The store that replicas share, their locks, accounts, records and long results. Needs the extra `redis`.

Long results: limits of one principal apply, total ones do not.
"""

import hashlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal
from weakref import WeakValueDictionary

import anyio

from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.documents import DocumentLimits, SharedLimit, check_size, document_id, is_document_id, surplus
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.replicas import RedisHistory
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.recovery.shared import failsafe_on_server
from mcp_hub.stores.redis.keys import COUNT, HOLD, LET_GO, PUT, RENEW
from mcp_hub.stores.redis.leases import Leases, StoreLinks
from mcp_hub.stores.redis.link import Command, Reply, Server, script
from mcp_hub.stores.redis.records import pairs
from mcp_hub.stores.redis.store import RedisStore

log = get_logger(__name__)

_DIGITS: Final = 16
"""Digits that no size has."""
_LAST: Final = 1 << 40
"""Bytes beyond which no text reaches."""


_TURN: Final = 0.05
"""Seconds between two tries for the lock of an account."""
_TRIES: Final = 100
"""Attempts to write a record that others write, too."""
_HELD: Final = 7 * 86400
"""Seconds after which something is held no longer in any case."""


class _RedisHoldings:
    """`Holdings` that end with the replica; `kind` separates equal names."""

    def __init__(self, links: StoreLinks, kind: str) -> None:
        self._keys = links.keys
        self._kind = kind
        self._instance = links.instance
        self._leases = links.leases
        self._writer = links.writer

    async def hold(self, name: str) -> bool:
        holder = await self._held_by_another(name, b"")
        if holder and await self._has_gone(holder.decode("ascii", "replace")):
            holder = await self._held_by_another(name, holder)
        return not holder

    async def _has_gone(self, holder: str) -> bool:
        return self._leases.peers.has_left(holder) or await self._leases.has_gone(self._writer, holder)

    async def _held_by_another(self, name: str, gone: bytes) -> bytes:
        [reply] = await self._writer.ask(script(HOLD, [self._key(name)], self._instance, gone, _HELD))
        return bytes(reply)

    def _key(self, name: str) -> str:
        return self._keys.lock(f"{self._kind}\n{name}")

    def release(self, name: str) -> None:
        """If the server fails, the lock stays while this replica lives."""
        self._writer.submit([script(LET_GO, [self._key(name)], self._instance)], lambda _: None)


class _RedisCounts:
    """`SharedCounts` by the server's clock. What runs is forgotten with its replica."""

    def __init__(self, links: StoreLinks) -> None:
        self._keys = links.keys
        self._writer = links.writer
        self._leases = links.leases
        self._instance = links.instance
        self._running: set[str] = set()

    async def take(self, group: str, limits: Sequence[SharedLimit], holder: str) -> float:
        keys = [key for tool, _ in limits for key in self._keys.counts(group, tool)]
        numbers = [value for _, rule in limits for value in (rule.count, int(rule.period * 1000), rule.running)]
        for _ in range(2):
            self._running.add(holder)
            [reply] = await self._ask(holder, script(COUNT, keys, holder, self._instance, *numbers))
            outcome, number = bytes(reply[0]), int(reply[1])
            if outcome == b"taken":
                return 0.0
            self._running.discard(holder)
            if outcome == b"wait":
                return number / 1000
            if not await self._clear(self._keys.counts(group, limits[number - 1][0])[1]):
                break
        return math.inf

    async def _ask(self, holder: str, command: Command) -> list[Reply]:
        try:
            return await self._writer.ask(command)
        except StoreError:
            self._running.discard(holder)
            raise

    async def _clear(self, key: str) -> bool:
        """Removes what has ended without a word; whether there was something."""
        [reply] = await self._writer.ask(("HGETALL", key))
        over = []
        for holder, replica in pairs(reply).items():
            name, instance = holder.decode("utf-8", "replace"), replica.decode("ascii", "replace")
            mine = instance == self._instance
            if (
                name not in self._running
                if mine
                else self._leases.peers.has_left(instance) or self._leases.is_gone(instance)
            ):
                over.append(holder)
        if over:
            await self._writer.ask(("HDEL", key, *over))
        return bool(over)

    def leave(self, group: str, limits: Sequence[SharedLimit], holder: str) -> None:
        self._running.discard(holder)
        keys = [self._keys.counts(group, tool)[1] for tool, rule in limits if rule.running]
        if keys:
            self._writer.submit([("HDEL", key, holder) for key in keys], lambda _: None)


class _RedisRecord:
    """`SharedRecord` on a store's links."""

    def __init__(self, links: StoreLinks, name: str) -> None:
        self._key = links.keys.record(name)
        self._writer = links.writer

    async def read(self) -> bytes | None:
        [text] = await self._writer.ask(("GET", self._key))
        return None if text is None else bytes(text)

    async def stamp(self) -> object:
        [digest] = await self._writer.ask(script(RENEW, [self._key], "", ""))
        return digest

    async def update(self, change: Callable[[bytes | None], bytes | None]) -> None:
        for _ in range(_TRIES):
            before = await self.read()
            text = change(before)
            if text is None:
                return
            digest = hashlib.sha1(before or b"", usedforsecurity=False).hexdigest()
            [stamp] = await self._writer.ask(script(RENEW, [self._key], digest, text), is_vital=True)
            if stamp == digest.encode():
                return
        raise StoreFault("busy", f"the record was changed by others {_TRIES} times")


class _RedisDocuments:
    """`Documents` on a store's links; `now` returns Unix seconds."""

    def __init__(self, links: StoreLinks, limits: DocumentLimits, now: Callable[[], float]) -> None:
        self._keys = links.keys
        self._writer = links.writer
        self._reader = links.reader
        self._quarantine = links.quarantine
        self._limits = limits
        self._now = now

    async def open(self) -> None:
        """The store opens the links."""

    async def put(self, principal: str, body: bytes) -> str:
        limits = self._limits
        check_size(body, limits, limits.principal_bytes)
        id_, keys = document_id(body), self._keys.documents(principal)
        now, lasts = self._now(), int(limits.ttl * 1000)
        documents = await self._stored(principal)
        old = [document for document, (expires, _) in documents.items() if expires <= now]
        remaining = [document for document in documents if document not in old and document != id_]
        sizes = [documents[document][1] for document in remaining]
        old += remaining[: surplus(sizes, limits.principal_bytes - len(body), limits.principal_count - 1)]
        gone: list[Command] = []
        for document in old:
            gone += (("DEL", keys.body(document)), ("ZREM", keys.ends, document), ("HDEL", keys.sizes, document))
        await self._writer.ask(
            *gone,
            ("SET", keys.body(id_), body, "PX", lasts),
            ("ZADD", keys.ends, now + limits.ttl, id_),
            ("HSET", keys.sizes, id_, len(body)),
            ("PEXPIRE", keys.ends, lasts),
            ("PEXPIRE", keys.sizes, lasts),
        )
        return id_

    async def _stored(self, principal: str) -> dict[str, tuple[float, int]]:
        keys = self._keys.documents(principal)
        ends, sizes = await self._reader.ask(("ZRANGE", keys.ends, 0, -1, "WITHSCORES"), ("HGETALL", keys.sizes))
        size = pairs(sizes)
        bad_sizes = {id_: text for id_, text in size.items() if not _is_size(text)}
        bad_ids = [id_ for id_ in ends[::2] if not is_document_id(id_.decode("ascii", "replace"))]
        self._quarantine.fields(keys.sizes, bad_sizes, "not the size of a long result")
        self._quarantine.members(keys.ends, bad_ids, "not the id of a long result")
        sound = {id_: int(text) for id_, text in size.items() if id_ not in bad_sizes}
        in_order = zip(ends[::2], ends[1::2], strict=True)
        return {id_.decode(): (float(end), sound.get(id_, 0)) for id_, end in in_order if id_ not in bad_ids}

    async def read(self, principal: str, id_: str, offset: int, size: int) -> tuple[bytes, int] | None:
        if not is_document_id(id_):
            return None
        keys = self._keys.documents(principal)
        last = min(offset + size, _LAST) - 1
        body = keys.body(id_)
        expires, is_there, length, data = await self._reader.ask(
            ("ZSCORE", keys.ends, id_),
            ("EXISTS", body),
            ("STRLEN", body),
            ("GETRANGE", body, offset, last) if 0 < size else ("GETRANGE", body, 1, 0),
        )
        if expires is None or float(expires) <= self._now() or not is_there:
            return None
        return data, length


def _is_size(text: bytes) -> bool:
    return text.isdigit() and len(text) < _DIGITS


class _RedisRows:
    """`Rows` under a lock of the replica; `clock` returns Unix seconds."""

    def __init__(self, links: StoreLinks, clock: Callable[[], float], *, is_pending: bool) -> None:
        self._keys = links.keys.accounts.pending if is_pending else links.keys.accounts
        self._writer = links.writer
        self._reader = links.reader
        self._holdings = _RedisHoldings(links, "pending" if is_pending else "account")
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._clock = clock

    async def read(self, name: str) -> bytes | None:
        [row] = await self._writer.ask(("HGET", self._keys.rows, name))
        return None if row is None else bytes(row)

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        keys = self._keys
        await self._writer.ask(("INCR", keys.writes))  # whether it can be written

        async def commit(row: bytes) -> None:
            places = [keys.writes, keys.written, keys.uses, keys.rows]
            await self._writer.ask(script(PUT, places, name, self._clock(), row))

        yield commit

    async def used(self, name: str) -> None:
        await self._writer.ask(("ZADD", self._keys.uses, "XX", self._clock(), name))

    async def remove(self, name: str) -> bool:
        keys = self._keys
        sets = (keys.uses, keys.written)
        [removed, *_] = await self._writer.ask(("HDEL", keys.rows, name), *(("ZREM", key, name) for key in sets))
        return bool(removed)

    async def names(self) -> Mapping[str, float]:
        [uses] = await self._reader.ask(("ZRANGE", self._keys.uses, 0, -1, "WITHSCORES"))
        return {
            bytes(name).decode("ascii", "replace"): float(at) for name, at in zip(uses[::2], uses[1::2], strict=True)
        }

    async def written(self, names: Collection[str], since: object) -> tuple[object, Collection[str]]:
        [reply] = await self._reader.ask(("GET", self._keys.writes))
        writes = int(reply or 0)
        if not isinstance(since, int) or writes < since:  # the server has lost some
            return writes, names
        if writes == since:
            return writes, ()
        [changed] = await self._reader.ask(("ZRANGEBYSCORE", self._keys.written, f"({since}", "+inf"))
        return writes, {bytes(name).decode("ascii", "replace") for name in changed}.intersection(names)

    @asynccontextmanager
    async def locked(self, name: str, seconds: float) -> AsyncIterator[None]:
        turn = self._turns.setdefault(name, anyio.Lock())
        due = anyio.current_time() + seconds
        async with turn:
            while not await self._holdings.hold(name):
                if anyio.current_time() >= due:
                    raise StoreError("another replica keeps the lock of an account")
                await anyio.sleep(_TURN)
            try:
                yield
            finally:
                self._holdings.release(name)


class _Reconnect:
    """A server, out of use after a fault until this replica's lease is renewed."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self._beats: int | None = None
        """Number of renewals at the failure; None while the server is in use."""
        self._run = ""

    @property
    def is_fit(self) -> bool:
        return self._beats is None

    @property
    def is_settled(self) -> bool:
        return self.store.log.is_settled

    @property
    def lease(self) -> Leases:
        return self.store.links.leases

    def for_writing(self) -> RedisStore | None:
        return self.store if self.is_fit else None

    def worked(self) -> None:
        """Does nothing: an answer may have left before the server failed."""

    def failed(self, fault: StoreFault) -> None:
        is_news, self._beats = self.is_fit, self.store.links.leases.beats
        self.store.links.leases.server_failed()
        if is_news:
            log.error("store_failed", store=self.store.links.name, fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        if fault.fault != "busy":
            self.failed(fault)

    async def open(self) -> None:
        try:
            await self.store.open()
        except StoreFault as fault:
            self.failed(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        has_beaten = self._beats is not None and self.store.links.leases.beats > self._beats
        is_back = has_beaten and self.store.secret is not None  # else what this hub seals could not be read elsewhere
        if is_back:
            self._beats = None
            log.warning("store_recovered", store=self.store.links.name)
        run, self._run = self._run, self.store.run
        if is_back or (run and run != self._run):
            leave()

    async def close(self) -> None:
        await self.store.close()


class _RedisReplicas:
    """`Replicas` on a Redis store."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.sessions = store.sessions.live
        self.lists = store.sessions.lists

    @property
    def secret(self) -> bytes | None:
        return self._store.secret

    def holdings(self, kind: str) -> _RedisHoldings:
        return _RedisHoldings(self._store.links, kind)

    def accounts(self, clock: Callable[[], float], *, is_pending: bool = False) -> _RedisRows:
        return _RedisRows(self._store.links, clock, is_pending=is_pending)

    def counts(self) -> _RedisCounts:
        return _RedisCounts(self._store.links)

    def record(self, name: str) -> _RedisRecord:
        return _RedisRecord(self._store.links, name)

    def documents(self, limits: DocumentLimits, now: Callable[[], float]) -> _RedisDocuments:
        return _RedisDocuments(self._store.links, limits, now)

    def history(self, now: Callable[[], float]) -> RedisHistory:
        return RedisHistory(self._store.links, now)


def replicated(store: RedisStore, limits: StoreLimits, clock: Clock) -> FailsafeStore:
    """The store of one replica."""
    backing, replicas = _Reconnect(store), _RedisReplicas(store)
    return failsafe_on_server(backing, limits, store.log.instance, clock, replicas=replicas)


def redis_store(
    url: str, prefix: str, lease: float, acknowledge: Literal["local", "replica"], limits: StoreLimits, clock: Clock
) -> FailsafeStore:
    return replicated(RedisStore(Server(url, prefix, lease, acknowledge), limits), limits, clock)
