"""Streams on a Redis or Valkey server that several hub processes share; its faults come as `StoreFault`."""

from collections.abc import Callable, Collection, Sequence
from itertools import count
from secrets import token_bytes
from typing import Final

import anyio

from mcp_hub import aio
from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores import base
from mcp_hub.stores.base import ENDINGS, Appended, Change, Chunk, Fetched, Message, SessionRow
from mcp_hub.stores.instances import new_instance_id
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.redis import scripts
from mcp_hub.stores.redis.connection import Server, probe, run_of
from mcp_hub.stores.redis.doorbell import Doorbell
from mcp_hub.stores.redis.index import Index
from mcp_hub.stores.redis.keys import RedisKeys, stream_id
from mcp_hub.stores.redis.leases import NOBODY, Holdings, Leases, StoreLinks
from mcp_hub.stores.redis.link import Command, Link, LinkJob, Reply, script
from mcp_hub.stores.redis.mail import Mail
from mcp_hub.stores.redis.pages import Pages
from mcp_hub.stores.redis.quarantine import Quarantine
from mcp_hub.stores.redis.records import changes_of, fields_of, pairs, row_of
from mcp_hub.stores.redis.sessions import RedisSessions
from mcp_hub.types import CallId

log = get_logger(__name__)

_PART: Final = 512 << 10
"""Bytes of a chunk that a script is given; a longer one is sent in parts of that size before."""
_SECRET: Final = 32
"""Bytes of the key with which all replicas seal."""
_STOPPED: Final = 3600
"""Seconds after which nobody waits for a replica any more that is gone."""
_WRITTEN_TO: Final = "somebody else has written to this stream"
_CLOSING: Final = 1.0
"""Seconds that closing may take."""


class RedisStore:
    """An `EventStore` on a server. `open` raises `StoreFault` if the server cannot be used."""

    is_durable = is_shared = True
    _tags = count()

    def __init__(self, server: Server, limits: StoreLimits, clock: Clock) -> None:
        self.instance = new_instance_id()
        self.name = server.name
        self._limits = limits
        self._keys = keys = RedisKeys(server.prefix)
        self._clients = server.client(), server.client(), server.client(waits=True)
        self._writer = Link(self._clients[0], server.name, keys, waits_for_replica=server.waits_for_replica)
        self._reader = Link(self._clients[1], server.name, keys)
        bad = Quarantine(self._writer)
        self.index = Index(keys, self._writer, self._reader, bad)
        self._pages = Pages(keys, self._reader, bad, lambda row: self._doorbell.forget(row.id, row.last))
        self.leases = Leases(keys, self.instance, server.lease, clock)
        self._mail = Mail(keys, self.instance, self._writer, bad)
        self._sessions = RedisSessions(keys, self.instance, self._writer, self._reader, bad, limits.sessions)
        self.news = self._sessions.news
        hears = self._mail.rang, self._mail.rings, self.leases.lost
        self._doorbell = Doorbell(self._clients[2], keys, self.instance, self._sessions, *hears, bad)
        self.secret: bytes | None = None
        self.run = ""
        """Another for each run of a server."""
        self._beats: aio.Background | None = None

    @property
    def is_settled(self) -> bool:
        return self.leases.is_trusted

    @property
    def orphan_interval(self) -> float:
        return self.leases.period

    async def open(self) -> None:
        """Connects. Raises `StoreFault` if that fails; the store keeps trying then."""
        self._writer.start()
        self._reader.start()
        self._doorbell.start()
        try:
            self.leases.began(await probe(self._reader, wall_time))
            await self._greet()
        finally:
            self._beats = aio.Background(self._beat)

    async def _beat(self) -> None:
        while True:
            await anyio.sleep(self.leases.period)
            try:
                await self._greet()
            except StoreError as error:
                self.leases.lost()
                log.debug("lease_not_renewed", store=self.name, reason=str(error))
            except Exception:  # a record that nobody expected ends no replica
                log.exception("lease_not_renewed", store=self.name)

    async def _greet(self) -> None:
        """Says that this replica is alive; learns what all replicas share. Raises `StoreError`."""
        await self.leases.beat(self._writer)
        self.run = await run_of(self._reader)
        self.secret = await self._shared_secret()

    async def _shared_secret(self) -> bytes:
        """The key that all replicas have. Where it is missing or damaged, a replica that has it writes it again."""
        key, fresh = self._keys.secret, self.secret or token_bytes(_SECRET)
        [stored] = await self._reader.ask(("GET", key))
        if stored is not None and len(stored) != _SECRET:
            done = anyio.Event()
            self.index.quarantine.whole(key, f"not a key of {_SECRET} bytes", done.set)
            await done.wait()
            stored = None
        if stored is None:
            _, stored = await self._writer.ask(("SET", key, fresh, "NX"), ("GET", key))
        return self.secret or (stored if stored is not None and len(stored) == _SECRET else fresh)

    async def close(self) -> None:
        if self._beats is not None:
            beats, self._beats = self._beats, None
            await beats.stop()
            with anyio.move_on_after(_CLOSING / 2, shield=True):
                try:
                    await self._release()
                except StoreError as error:
                    log.debug("lease_not_ended", store=self.name, reason=str(error))
        await self._doorbell.stop()
        await self._writer.stop(_CLOSING / 2)
        await self._reader.stop(0.1)
        for client in self._clients:
            await client.aclose()

    async def _release(self) -> None:
        """Leaves the streams that run to others. Raises `StoreError`."""
        [left] = await self._reader.ask(("SMEMBERS", self._keys.running(self.instance)))
        keys = [self._keys.stream(id_).row for id_ in map(stream_id, left) if id_ is not None]
        await self._writer.ask(*(script(scripts.RELEASE, [key], self.instance) for key in keys))
        await self.leases.leave(self._writer)

    def survives(self, stream: CallId) -> bool:
        return True

    @property
    def links(self) -> StoreLinks:
        """The links and the facts that other things on the same server need."""
        bad = self.index.quarantine
        return StoreLinks(self._keys, self._writer, self._reader, bad, self.leases, self.name, self.instance)

    def holdings(self, kind: str) -> Holdings:
        """The things of this kind that one replica has at a time."""
        return Holdings(self._keys, self.instance, self.leases, self._writer, kind)

    # -- the owner

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        try:
            row = base.begin(row, chunk)
            base.joined(chunk)
        except StoreError as error:
            self._refuse(error, done)
            return
        if row.key is None:
            self._create(row, chunk, done)
        else:
            self.index.reserve(row, lambda error: self._create(row, chunk, done) if error is None else done(error))

    def _create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        place = self.index.place(row, wall_time())
        listed: list[Command] = [*self.index.added(row, place)]
        if not row.has_ended:
            listed.append(("SADD", self._keys.running(row.owner), row.id))
        if row.owner != self.instance:
            listed.append(("HSETNX", self._keys.replicas, row.owner, 0))
        written = self._written(scripts.CREATE, row.id, row.epoch, chunk, [*fields_of(row), "place", place])

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                done(replies)
                return
            said, *rest = replies[-1]
            if said != b"done":
                done(StoreError(f"stream {row.id}: exists already"))
                return
            self._ended(row.id, rest[0], place.encode())
            done(None)

        self._writer.submit(LinkJob([*listed, *written], answered, _size(chunk), is_vital=True))

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        try:
            base.joined(chunk)
        except StoreError as error:
            self._refuse(error, done)
            return

        def answered(replies: list[Reply] | StoreError) -> None:
            if isinstance(replies, StoreError):
                done(replies)
                return
            said, *rest = replies[-1]
            if said == b"done":
                self._ended(stream, *rest)
                done(None)
            elif said == b"damaged":
                self._set_stream_aside(stream, lambda: done(base.unknown(stream)))
            else:
                done(_refusal(stream, epoch, chunk, rest) if said == b"fenced" else base.unknown(stream))

        written = self._written(scripts.APPEND, stream, epoch, chunk, changes_of(change))
        self._writer.submit(LinkJob(written, answered, _size(chunk), is_vital=change.status in ENDINGS))

    def _set_stream_aside(self, stream: CallId, done: Callable[[], None]) -> None:
        """Its row and its events: the owner writes anew what it has of them."""
        keys = self._keys.stream(stream)
        self.index.quarantine.whole(keys.events, _WRITTEN_TO)
        self.index.quarantine.whole(keys.row, _WRITTEN_TO, done)

    def _written(
        self, text: str, stream: CallId, epoch: int, chunk: Chunk, changes: Sequence[str | bytes]
    ) -> list[Command]:
        """The commands that append a chunk; the last one is the script."""
        keys, body = self._keys.stream(stream), b"\n".join(chunk.lines)
        tag = f"{self.instance}:{next(self._tags)}"
        parts, part, size = [], "", len(body)
        if size > _PART:
            pieces = [body[at : at + _PART] for at in range(0, size, _PART)]
            parts = [("HSET", keys.parts, f"{tag}:{number}", piece) for number, piece in enumerate(pieces, 1)]
            part, body = f"{tag}:{len(pieces)}", b""
        place = tag, epoch, chunk.first, chunk.last, size, part
        limits = self._limits.stream_events, self._limits.stream_bytes
        return [*parts, script(text, keys, *place, *limits, body, *changes)]

    def _refuse(self, problem: StoreError, done: Appended) -> None:
        """In its turn, as if the server had."""
        self._writer.submit(LinkJob((), lambda _: done(problem)))

    def _ended(self, stream: CallId, expires: bytes, place: bytes) -> None:
        """Lists a stream that has ended, if it has."""
        if expires:
            gone = ("SREM", self._keys.running(self.instance), stream)
            self._writer.submit(LinkJob([gone, self.index.expiring(place, expires)], _ignore))

    async def inbox(self) -> list[Message]:
        return await self._mail.take()

    # -- everybody

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        self._pages.fetch(stream, after, most, done)

    async def find(self, stream: CallId) -> StreamInfo | None:
        """None, too, for a stream whose row is damaged, which is set aside then."""
        key = self._keys.stream(stream).row
        [reply] = await self._reader.ask(("HGETALL", key))
        try:
            return row_of(stream, reply)
        except StoreError as error:
            done = anyio.Event()
            self.index.quarantine.row(key, reply, str(error), done.set)
            await done.wait()
            return None

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        return await self.index.find_key(principal, key)

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        return await self.index.rows(principal, most)

    async def post(self, message: Message) -> bool:
        return await self._mail.post(message)

    async def has_news(self) -> bool:
        return self._mail.has_news()

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        if self._doorbell.follow([(row.id, row.last) for row in followed]):
            self._writer.submit(LinkJob([self._mail.ring(self.instance)], _ignore))
        return self._doorbell.moved(followed)

    async def wait(self, seconds: float) -> None:
        await self._mail.news.wait(seconds)

    # -- what an owner left behind

    async def orphans(self) -> list[StreamInfo]:
        await self.leases.beat(self._writer)
        found: list[StreamInfo] = []
        for instance in self.leases.gone:
            found += await self._left_by(instance)
        return sorted(found, key=lambda row: row.created)

    async def _left_by(self, instance: str) -> list[StreamInfo]:
        """The streams that run and have this owner, which is gone. One that left nothing is forgotten."""
        running = self._keys.running(instance)
        [ids] = await self._reader.ask(("SMEMBERS", running))
        rows = [(id_, await self.find(stream) if (stream := stream_id(id_)) else None) for id_ in ids]
        left = [row for _, row in rows if row is not None and row.owner in (instance, NOBODY) and not row.has_ended]
        others = [id_ for id_, row in rows if row not in left]
        if others:
            await self._writer.ask(("SREM", running, *others))
        if not left:
            # should it only have been stopped, it will look for what others have called it for
            keys = self._keys.called(instance), self._keys.bell(instance)
            await self._writer.ask(*(("EXPIRE", key, _STOPPED) for key in keys))
            await self.leases.forget(self._writer, instance)
        return left

    async def is_orphan(self, row: StreamInfo) -> bool:
        if row.owner == self.instance:
            return False
        if self.leases.is_gone(row.owner) or not self.leases.is_fresh:
            await self.leases.beat(self._writer)
        return self.leases.is_gone(row.owner)

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        chunk = Chunk(row.last + 1, tuple(lines))
        base.joined(chunk)
        if not await self.is_orphan(row):
            return None
        listed = ("SADD", self._keys.running(self.instance), row.id)
        changes = [*changes_of(change), "owner", self.instance]
        written = self._written(scripts.CLAIM, row.id, row.epoch, chunk, changes)
        *_, reply = await self._writer.ask(listed, *written, is_vital=True)
        if reply == [b"damaged"]:
            done = anyio.Event()
            self._set_stream_aside(row.id, done.set)
            await done.wait()
            return None
        fields = pairs(reply)
        claimed = row_of(row.id, reply)
        if claimed is None:
            return None
        await self._writer.ask(("SREM", self._keys.running(row.owner), row.id))
        await self._mail.call(row.owner, row.id)  # should it be alive, it hears that it is no longer the owner
        await self._mail.call(self.instance, row.id)
        self._ended(row.id, fields.get(b"expires", b""), fields.get(b"place", b""))
        return claimed

    async def sweep(self, now: float) -> int:
        total = 0
        while swept := await self.index.sweep(now, self._limits.ended):
            total += swept
        await self._sessions.sweep(now)
        return total

    async def touch(self) -> None:
        """Renews the lease. Raises `StoreError`."""
        await self.leases.beat(self._writer)

    # -- handshake sessions

    async def put_session(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        return await self._sessions.put(session, before)

    async def session(self, id_: str) -> SessionRow | None:
        return await self._sessions.find(id_)

    async def drop_session(self, id_: str) -> None:
        await self._sessions.end(id_)


def _size(chunk: Chunk) -> int:
    return sum(map(len, chunk.lines))


def _ignore(replies: list[Reply] | StoreError) -> None:
    """For commands whose failure leaves a trace that somebody else removes."""
    if isinstance(replies, StoreError):
        log.debug("index_not_changed", reason=str(replies))


def _refusal(stream: CallId, epoch: int, chunk: Chunk, head: Sequence[bytes]) -> StoreError:
    """Why the server has refused an append to a stream with this epoch, last event and status."""
    current, last, status = (part.decode("ascii", "replace") for part in head)
    if status in ENDINGS:
        return Fenced(f"stream {stream}: has ended with event {last}")
    if str(epoch) != current:
        return Fenced(f"stream {stream}: epoch {epoch} is over, it is {current} now")
    return Fenced(f"stream {stream}: event {chunk.first} does not follow {last}")
