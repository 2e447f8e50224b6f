"""Streams on a server that hubs share."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import count
from secrets import token_bytes
from typing import Final

import anyio
from redis.asyncio import Redis
from redis.exceptions import RedisError

from mcp_hub import aio
from mcp_hub.call import StreamInfo
from mcp_hub.clock import boot_time, wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores import base
from mcp_hub.stores.base import Change, Chunk, Message, StoreLimits
from mcp_hub.stores.locks import new_instance_id
from mcp_hub.stores.redis import scripts
from mcp_hub.stores.redis.index import Index
from mcp_hub.stores.redis.keys import RedisKeys, stream_id
from mcp_hub.stores.redis.leases import LEFT, NOBODY, Leases, StoreLinks
from mcp_hub.stores.redis.link import WRONG_TYPE, Link, Reply, Server, probe, script
from mcp_hub.stores.redis.log import RedisLog
from mcp_hub.stores.redis.mail import LEAVING, Mail
from mcp_hub.stores.redis.records import Quarantine, changes_of, pairs, row_of
from mcp_hub.stores.redis.sessions import RedisSessions, is_plausible
from mcp_hub.types import CallId

log = get_logger(__name__)

_BLOCK: Final = 5000
"""Milliseconds of one command."""
_ANSWER: Final = 5.0
"""Seconds in which it has to return after that."""
_PAUSE: Final = 0.5
"""Seconds until it is tried again after an error."""


class _Doorbell:
    """Calls `rings` at the bell, `moved` for each followed stream with new events, `on_error` after errors."""

    def __init__(
        self,
        client: Redis,
        keys: RedisKeys,
        instance: str,
        sessions: RedisSessions,
        rings: Callable[[bytes], None],
        moved: Callable[[CallId], None],
        on_error: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._client = client
        self._places = {keys.bell(instance): "0", keys.session_changes: "0-0"}
        self._keys = keys
        self._sessions = sessions
        self._rings = rings
        self._moved = moved
        self._on_error = on_error
        self._quarantine = quarantine
        self._followed: dict[str, tuple[CallId, int]] = {}
        self._task: aio.Background | None = None

    def start(self) -> None:
        self._task = aio.Background(self._run)

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            await task.stop()

    def follow(self, streams: Collection[tuple[CallId, int]]) -> bool:
        """Follows exactly these streams, each after its event number; whether any is new."""
        before, self._followed = self._followed, {}
        for id_, last in streams:
            key = self._keys.stream(id_).events
            self._followed[key] = id_, max(last, before[key][1] if key in before else 0)
        return not self._followed.keys() <= before.keys()

    def moved(self, rows: Sequence[StreamInfo]) -> set[CallId]:
        last = dict(self._followed.values())
        return {row.id for row in rows if last.get(row.id, 0) > row.last}

    async def _run(self) -> None:
        while True:
            try:
                await self._wait()
            except Exception as error:  # whatever is in a record: who waits for no news hears of none
                await self._failed(error)
                self._rings(b"")
                await anyio.sleep(_PAUSE)

    async def _failed(self, error: Exception) -> None:
        if not isinstance(error, RedisError | OSError):
            log.error("doorbell_failed", exc_info=error)
        elif str(error).startswith(WRONG_TYPE):
            with suppress(StoreError):  # it is tried again
                await self._quarantine.check([*self._places, *self._followed])
        else:
            log.debug("doorbell_failed", reason=str(error))
            self._on_error()

    def forget(self, stream: CallId, last: int) -> None:
        key = self._keys.stream(stream).events
        if key in self._followed:
            self._followed[key] = stream, last

    async def _wait(self) -> None:
        """Raises `RedisError`, `OSError`."""
        followed = self._followed
        places = {**self._places, **{key: f"{last}-0" for key, (_, last) in followed.items()}}
        command = ("XREAD", "COUNT", 1, "BLOCK", _BLOCK, "STREAMS", *places.keys(), *places.values())
        with anyio.fail_after(_BLOCK / 1000 + _ANSWER):
            reply = await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # so in redis-py
        changes = self._keys.session_changes
        for key, entries in reply.items() if isinstance(reply, dict) else reply or ():
            if (name := key.decode()) != changes:
                self._heard(name, entries, followed)
                continue
            with anyio.fail_after(_ANSWER):
                self._places[changes] = await self._sessions.apply_changes(self._client, self._places[changes])

    def _heard(
        self, name: str, entries: list[tuple[bytes, dict[bytes, bytes]]], followed: dict[str, tuple[CallId, int]]
    ) -> None:
        last = entries[-1][0].decode()
        if name in self._places:
            if is_plausible(entries[-1][0]):
                self._places[name] = last
            else:
                self._quarantine.whole(name, f"an entry has the time of another age: {hide_head(last, 40)!r}")
            self._rings(entries[-1][1].get(b"n", b""))
        elif name in followed:
            id_, _ = followed[name]
            if name in self._followed:
                self._followed[name] = id_, int(last.partition("-")[0])
            self._moved(id_)


_SECRET: Final = 32
"""Bytes of the key with which all replicas seal."""
_STOPPED: Final = 3600
"""Seconds after which nobody waits for a replica any more that is gone."""
_GREET: Final = 16
"""Beats between looks at that key."""
_CLOSING: Final = 1.0
"""Seconds that closing may take."""


class _RedisInbox:
    def __init__(self, mail: Mail, doorbell: _Doorbell, writer: Link, instance: str) -> None:
        self._mail = mail
        self._doorbell = doorbell
        self._writer = writer
        self._instance = instance

    async def take(self) -> list[Message]:
        return await self._mail.take()

    async def post(self, message: Message) -> bool:
        return await self._mail.post(message)

    async def has_news(self) -> bool:
        return self._mail.has_news()

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        if self._doorbell.follow([(row.id, row.last) for row in followed]):
            self._writer.submit([self._mail.ring(self._instance)], _ignore)
        return self._doorbell.moved(followed)

    async def wait(self, seconds: float, longest: float = 0.0) -> None:
        await self._mail.news.wait(max(seconds, longest))


class _RedisLeases:
    """`interval` is 0: beats show orphans without a command, and a bell says when."""

    interval = 0.0

    def __init__(self, links: StoreLinks, log: RedisLog, mail: Mail) -> None:
        self._instance = links.instance
        self._keys = links.keys
        self._writer = links.writer
        self._reader = links.reader
        self._lease = links.leases
        self._log = log
        self._mail = mail
        self._error: StoreError | None = None
        """The last beat failed with it."""
        self._gone: Collection[str] = ()

    async def beat(self) -> str:
        """Renews the lease; the id of the server's run. Raises `StoreError`."""
        began = self._lease.held_from
        try:
            run = await self._lease.beat(self._writer)
        except StoreError as error:
            self._error = error
            self._lease.server_failed()
            raise
        is_back, self._error = self._error is not None or self._lease.held_from != began, None
        before, self._gone = self._gone, self._lease.gone
        if is_back or any(name not in before for name in self._gone):
            self._mail.rings()
        return run

    async def wait(self) -> None:
        await self._mail.departures.wait(self._lease.pause)

    async def orphans(self) -> list[StreamInfo]:
        if self._error is not None:
            raise self._error
        rows: list[StreamInfo] = []
        for instance in self._lease.gone:
            rows += await self._left_by(instance)
        return sorted(rows, key=lambda row: row.created)

    async def leave(self) -> None:
        """Gives up all streams, and tells the other replicas. Raises `StoreError`."""
        [ids] = await self._reader.ask(("SMEMBERS", self._keys.running(self._instance)))
        keys = [self._keys.stream(id_).row for id_ in map(stream_id, ids) if id_ is not None]
        released = [script(scripts.RELEASE, [key], self._instance) for key in keys]
        rings = [self._mail.ring(peer, LEAVING) for peer in self._lease.peers.names] if keys else []
        await self._writer.ask(*released, ("HSET", self._keys.replicas, self._instance, LEFT), *rings)

    async def _left_by(self, instance: str) -> list[StreamInfo]:
        running = self._keys.running(instance)
        [ids] = await self._reader.ask(("SMEMBERS", running))
        rows = [(id_, await self._log.find(stream) if (stream := stream_id(id_)) else None) for id_ in ids]
        owned = [row for _, row in rows if row is not None and row.owner in (instance, NOBODY) and not row.has_ended]
        stale = [id_ for id_, row in rows if row not in owned]
        if stale:
            await self._writer.ask(("SREM", running, *stale))
        if not self._lease.is_gone(instance):
            return [row for row in owned if row.owner == NOBODY]
        if not owned:
            # should it only have been stopped, it will look for what others have called it for
            keys = self._keys.called(instance), self._keys.bell(instance)
            await self._writer.ask(*(("EXPIRE", key, _STOPPED) for key in keys))
            await self._lease.forget(self._writer, instance)
        return owned

    async def is_orphan(self, row: StreamInfo) -> bool:
        if row.owner == self._instance:
            return False
        return await self._lease.has_gone(self._writer, row.owner)

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        chunk = Chunk(row.last + 1, tuple(lines))
        base.joined(chunk)
        if not await self.is_orphan(row):
            return None
        listed = ("SADD", self._keys.running(self._instance), row.id)
        changes = [*changes_of(change), "owner", self._instance]
        written = self._log.written(scripts.CLAIM, row.id, f"{row.epoch} {row.updated!r}", chunk, changes)
        *_, reply = await self._writer.ask(listed, *written, is_vital=True)
        if reply == [b"damaged"]:
            moved = anyio.Event()
            self._log.set_aside(row.id, moved.set)
            await moved.wait()
            return None
        fields = pairs(reply)
        claimed = row_of(row.id, reply)
        if claimed is None:
            return None
        await self._writer.ask(("SREM", self._keys.running(row.owner), row.id))
        await self._mail.call(row.owner, row.id)  # should it be alive, it hears that it is no longer the owner
        await self._mail.call(self._instance, row.id)
        self._log.list_ended(row.id, fields.get(b"expires", b""), fields.get(b"place", b""))
        return claimed


class RedisStore:
    """An `EventStore` on a server; fails with `StoreFault`. `boottime` is the clock of its lease."""

    replicas = None

    def __init__(self, server: Server, limits: StoreLimits, boottime: Callable[[], float] = boot_time) -> None:
        instance, keys = new_instance_id(), RedisKeys(server.prefix)
        self._clients = server.client(), server.client(), server.client(waits=True)
        writer = Link(self._clients[0], server.name, keys, waits_for_replica=server.waits_for_replica)
        reader, bad = Link(self._clients[1], server.name, keys), Quarantine(writer)
        lease = Leases(keys, instance, server.lease, boottime)
        self.links = StoreLinks(
            keys=keys, writer=writer, reader=reader, quarantine=bad, leases=lease, name=server.name, instance=instance
        )
        self._index = Index(keys, writer, reader, bad, most_ended=limits.ended)
        mail = Mail(keys, instance, writer, bad)
        self.sessions = RedisSessions(
            keys=keys, instance=instance, writer=writer, reader=reader, quarantine=bad, limit=limits.sessions
        )
        self._doorbell = _Doorbell(
            client=self._clients[2], keys=keys, instance=instance, sessions=self.sessions, rings=mail.rang,
            moved=mail.rings, on_error=lease.server_failed, quarantine=bad,
        )  # fmt: skip
        self.log = RedisLog(self.links, self._index, lambda row: self._doorbell.forget(row.id, row.last), limits)
        self.inbox = _RedisInbox(mail, self._doorbell, writer, instance)
        self.leases = _RedisLeases(self.links, self.log, mail)
        self.secret: bytes | None = None
        self.run = ""
        """Another for each run of a server."""
        self._beats: aio.Background | None = None

    async def open(self) -> None:
        """Keeps trying after it has raised `StoreFault`."""
        self.links.writer.start()
        self.links.reader.start()
        self._doorbell.start()
        try:
            self.links.leases.began(await probe(self.links.reader, wall_time))
            await self._greet()
        finally:
            self._beats = aio.Background(self._beat)

    async def _beat(self) -> None:
        for number in count(1):
            await self.leases.wait()
            try:
                await self._greet(with_secret=number % _GREET == 0)
            except StoreError as error:
                log.debug("lease_not_renewed", store=self.links.name, reason=str(error))
            except Exception:  # a record that nobody expected ends no replica
                log.exception("lease_not_renewed", store=self.links.name)
                await anyio.sleep(_PAUSE)

    async def _greet(self, *, with_secret: bool = True) -> None:
        before, self.run = self.run, await self.leases.beat()
        if with_secret or self.secret is None or self.run != before:  # another server may have lost it
            self.secret = await self._shared_secret()

    async def _shared_secret(self) -> bytes:
        key, fresh = self.links.keys.secret, self.secret or token_bytes(_SECRET)
        [stored] = await self.links.reader.ask(("GET", key))
        if stored is not None and len(stored) != _SECRET:
            moved = anyio.Event()
            self.links.quarantine.whole(key, f"not a key of {_SECRET} bytes", moved.set)
            await moved.wait()
            stored = None
        if stored is None:
            _, stored = await self.links.writer.ask(("SET", key, fresh, "NX"), ("GET", key))
        return self.secret or (stored if stored is not None and len(stored) == _SECRET else fresh)

    async def close(self) -> None:
        if self._beats is not None:
            beats, self._beats = self._beats, None
            await beats.stop()
            with anyio.move_on_after(_CLOSING / 2, shield=True):
                try:
                    await self.leases.leave()
                except StoreError as error:
                    log.debug("lease_not_ended", store=self.links.name, reason=str(error))
        await self._doorbell.stop()
        await self.links.writer.stop(_CLOSING / 2)
        await self.links.reader.stop(0.1)
        for client in self._clients:
            await client.aclose()

    async def sweep(self, now: float) -> int:
        total = 0
        while swept := await self._index.sweep(now):
            total += swept
        await self.sessions.sweep(now)
        return total

    async def touch(self) -> None:
        await self.leases.beat()


def _ignore(replies: list[Reply] | StoreError) -> None:
    """A lost ring is harmless."""
    if isinstance(replies, StoreError):
        log.debug("bell_not_rung", reason=str(replies))
