"""All feeds of this hub: begun by readers, continued after another hub's end."""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from mcp_hub.call import LOCAL_PRINCIPAL, Call, Heard, StreamInfo, Upstream
from mcp_hub.calls.feeds.feed import ServerFeed, broke, continuation_of
from mcp_hub.calls.feeds.reading import RUNNING, FeedReader, Topic
from mcp_hub.calls.feeds.sources import SOURCES, Ask, Source, first_of
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import wall_time
from mcp_hub.errors import (
    Busy,
    Fenced,
    InvalidParams,
    KeyTaken,
    RpcError,
    StoreError,
    UnknownStream,
    UpstreamUnavailable,
    method_not_found,
)
from mcp_hub.ids import new_call_id
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.rpc_errors import METHOD_NOT_FOUND
from mcp_hub.protocol.shape.occurrences import FORBIDDEN, NOT_FOUND, UNSUPPORTED, exhausted, of_server
from mcp_hub.stores.base import Message
from mcp_hub.types import MODERN, CallId, RawJson, RawObject

log = get_logger(__name__)

LINGER: Final = 600.0
LONG_LINGER: Final = 3600.0
"""Seconds without a reader after which a feed ends; the second for servers that cannot replay."""
_LOOK: Final = 5.0  # seconds between looks for unused feeds
_CONFIRMED: Final = 1.0
"""Seconds for the store's answer to a write."""
_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds between attempts to subscribe again; doubled from the first up to the second."""
_RECENT: Final = 60.0
"""Seconds since its last line for which a feed continues from its cursor, though its new reader begins now."""
MOST_FEEDS: Final = 1024
MOST_OF_PRINCIPAL: Final = 256
"""Feeds of this hub, and of one principal."""
_MOST_SEGMENTS: Final = 1024
"""Durable streams of one feed that are looked through for the next one."""
_OVER: Final = frozenset({NOT_FOUND, FORBIDDEN, UNSUPPORTED, METHOD_NOT_FOUND})
"""Codes with which a server ends a subscription."""


class _Pace(NamedTuple):
    keep: Callable[[], float]
    lingers: tuple[float, float]
    look: float

    def linger(self, cursor: str | None) -> float:
        return self.lingers[cursor is None]


class _Topics:
    """Turns to begin or end a feed, by its key, and readers of feeds that run at other hubs."""

    def __init__(self) -> None:
        self.turns: dict[str, anyio.Lock] = {}
        self.far = WeakKeyDictionary[FeedReader, tuple[Topic, tuple[str, ...]]]()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        turn = self.turns.setdefault(key, anyio.Lock())
        try:
            async with turn:
                yield
        finally:
            if not (turn.locked() or turn.statistics().tasks_waiting):
                self.turns.pop(key, None)


class Feeds:
    """The table. `keep` returns the seconds that occurrences are readable; `upstreams` is live.

    `sources` are functions by mode of delivery, the best first; `leaving` those that end a subscription at its server.
    An unused feed ends after the first `linger` in seconds, one of a server that cannot replay after the second; `look`
    is between looks for them.
    """

    def __init__(
        self, table: StreamTable, upstreams: Mapping[str, Upstream], keep: Callable[[], float],
        sources: Mapping[str, Source] = SOURCES, linger: tuple[float, float] = (LINGER, LONG_LINGER),
        look: float = _LOOK,
    ) -> None:  # fmt: skip
        self.sources = dict(sources)
        self.leaving: dict[str, Callable[[Ask, Topic], Coroutine[object, None, None]]] = {}
        self._table = table
        self._upstreams = upstreams
        self._pace = _Pace(keep, linger, look)
        self._feeds: dict[str, ServerFeed] = {}
        self._uses: dict[str, dict[str, float]] = {}
        self._topics = _Topics()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._runs = anyio.Event()
        table.inbox.hearers.append(self._hear)

    async def run(self) -> None:
        """Runs feeds until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            self._runs.set()
            while True:
                await anyio.sleep(self._pace.look)
                with suppress(StoreError):
                    await self._look()

    # -- readers ----------------------------------------------------------------------------------------------------

    async def open(
        self, topic: Topic, modes: Collection[str], after: str | None, principal: str, max_age: float | None = None
    ) -> FeedReader:
        """A reader behind the cursor `after`; None: from now on. The feed begins, unless some hub runs it.

        `max_age` in seconds bounds what is read again. Raises the server's `RpcError`, `Busy`, `StoreError`.
        """
        self._count(principal, topic.key)
        await self._runs.wait()
        floor = None if max_age is None or after is None else wall_time() - max_age
        reader = FeedReader(topic, partial(self._segment, topic.key), partial(self._next, topic.key), floor)
        try:
            try:
                await self._join(topic, modes, reader, is_new=after is None)
            except KeyTaken:  # another hub has begun it meanwhile
                await self._join(topic, modes, reader, is_new=after is None)
            await reader.begin(after)
        except BaseException:
            reader.close()
            raise
        return reader

    async def _join(self, topic: Topic, modes: Collection[str], reader: FeedReader, *, is_new: bool) -> None:
        async with self._topics.turn(topic.key):
            feed = await self._running(topic, modes, is_new=is_new)
        if feed is None:
            self._topics.far[reader] = (topic, tuple(modes))
        else:
            feed.join(reader)
            await feed.stands()

    def _count(self, principal: str, key: str) -> None:
        """Raises `RpcError` for a principal with too many feeds."""
        wall = wall_time()
        uses = {used: at for used, at in self._uses.get(principal, {}).items() if wall - at < LINGER}
        if key not in uses and len(uses) >= MOST_OF_PRINCIPAL:
            raise exhausted("subscriptions", MOST_OF_PRINCIPAL)
        self._uses[principal] = {**uses, key: wall}

    async def _running(self, topic: Topic, modes: Collection[str], *, is_new: bool) -> ServerFeed | None:
        """The feed, begun if needed; None if it runs at another hub. Raises `StoreError`, `Busy`."""
        if (feed := self._feeds.get(topic.key)) is not None:
            if feed.stream is None or not feed.stream.is_lost:
                return feed
            self._let_go(feed)
        row, stream = await self._table.store.log.find_key(topic.key, RUNNING), None
        if row is not None and not row.has_ended:
            stream = await self._table.open(topic.key, row.id)  # takes it over if its hub is gone
            if not ((row := stream.row).has_ended or self._is_own(row)):
                return None
        if len(self._feeds) >= MOST_FEEDS:
            raise Busy.at(f"{MOST_FEEDS} subscriptions to events are open", "feeds", MOST_FEEDS)
        feed = ServerFeed(topic, tuple(modes), self._table.store.log, self._pace.keep)
        if row is None:
            rows = await self._table.store.log.rows(topic.key, 1)
            row = rows[0] if rows else None
        continuation = None if row is None else continuation_of(row)
        if row is not None and continuation is not None:
            is_stale = is_new and row.has_ended and wall_time() - row.updated > _RECENT
            await feed.resume(row, None if is_stale else continuation[2], None if row.has_ended else stream)
        self._start(feed)
        return feed

    def _is_own(self, row: StreamInfo) -> bool:
        return not row.has_ended and row.owner == self._table.store.log.instance

    def _start(self, feed: ServerFeed) -> None:
        assert self._tasks is not None
        self._feeds[feed.topic.key] = feed
        for reader in [reader for reader, (topic, _) in self._topics.far.items() if topic.key == feed.topic.key]:
            del self._topics.far[reader]
            feed.join(reader)
        self._tasks.start_soon(self._serve, feed, name=f"events of {feed.topic.server}")

    async def adopt(self, row: StreamInfo) -> None:
        """Continues a durable stream of a hub that is gone, which this hub has claimed; ends it if it is unused.

        Raises `StoreError` for one that cannot be continued.
        """
        if continuation_of(row) is None:
            raise StoreError(f"feed {row.id}: its continuation cannot be read")
        await self._runs.wait()
        assert self._tasks is not None
        self._tasks.start_soon(self._adopted, row, name=f"events of {row.server}")  # once the takeover is over

    async def _adopted(self, row: StreamInfo) -> None:
        async with self._topics.turn(row.principal):
            try:
                stream = await self._table.open(row.principal, row.id)
                before = self._feeds.get(row.principal)
                if before and self._is_own(stream.row) and (stream.is_lost or before.stream is not stream):
                    self._let_go(before)
                    stream, before = await self._table.open(row.principal, row.id), None
                continuation = continuation_of(stream.row)
                if before or continuation is None or not self._is_own(stream.row):  # a reader was here first, or a hub
                    return
                topic, modes, cursor, used = continuation
                feed = ServerFeed(topic, modes, self._table.store.log, self._pace.keep)
                await feed.resume(stream.row, cursor, stream)
                if wall_time() - used > self._pace.linger(cursor):
                    await feed.end()
                    return
            except (StoreError, UnknownStream) as problem:
                log.warning("feed_not_adopted", upstream=row.server, reason=str(problem))
                return
            self._start(feed)
        log.info("feed_adopted", upstream=row.server)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    async def _serve(self, feed: ServerFeed) -> None:
        modes = [mode for mode in self.sources if mode in feed.modes]
        sources = [self.sources[mode] for mode in modes if mode == modes[0] or mode in SOURCES]
        with feed.scope:
            if not sources:
                feed.fail(method_not_found(f'server "{feed.topic.server}" delivers these events in no way that fits.'))
            else:
                await self._subscribe(feed, first_of(sources))
        self._leave(feed)

    def _leave(self, feed: ServerFeed) -> None:
        if self._feeds.get(feed.topic.key) is feed:
            del self._feeds[feed.topic.key]
            self._topics.far.update({reader: (feed.topic, feed.modes) for reader in feed.readers if reader.is_open})

    def _let_go(self, feed: ServerFeed) -> None:
        """Ends one that has not heard that another hub had its durable stream meanwhile, and may have written more."""
        feed.fail(KeyTaken("another hub had this subscription"))
        feed.scope.cancel()
        self._leave(feed)

    def _hear(self, message: Message) -> bool:
        if message.kind != "lost" or (tasks := self._tasks) is None:
            return False
        feeds = [feed for feed in self._feeds.values() if feed.stream and feed.stream.row.id == message.stream]
        for feed in feeds:
            tasks.start_soon(self._lost, feed, message.stream)
        return bool(feeds)

    async def _lost(self, feed: ServerFeed, id_: CallId) -> None:
        """Lets its readers follow the new owner, unless this hub has it again by now."""
        with suppress(StoreError):
            row = await self._table.store.log.find(id_)
            if (row is None or not self._is_own(row)) and self._feeds.get(feed.topic.key) is feed:
                self._let_go(feed)

    async def _subscribe(self, feed: ServerFeed, source: Source) -> None:
        pause = _PAUSE
        while True:
            since = anyio.current_time()
            try:
                verdict = await source(_ask(self._upstreams, feed.topic), feed.topic, feed.cursor, feed.take, feed.tell)
                problem = None
            except (Fenced, KeyTaken):
                log.info("feed_elsewhere", upstream=feed.topic.server)
                feed.fail(KeyTaken("another hub has this subscription"))
                return
            except StoreError as error:
                verdict, problem = None, RpcError(error.public)
            except RpcError as error:
                verdict, problem = None, of_server(error)
            except Exception:  # a message that nobody expected ends neither the hub nor its readers' wait
                log.exception("feed_crashed", upstream=feed.topic.server)
                verdict, problem = None, RpcError("Internal error of the hub. Its log has the details.")
            if problem is not None and not feed.has_stood:
                if problem.code == InvalidParams.code and feed.cursor is not None:  # perhaps it is about the cursor
                    feed.miss()
                    continue
                await self._refused(feed, problem)
                return
            if problem is not None and problem.code in _OVER:
                verdict = problem
            if verdict is not None:
                await self._finish(feed, verdict)
                return
            pause = _PAUSE if anyio.current_time() - since > _LONGEST_PAUSE else pause
            broke(feed, problem)
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _refused(self, feed: ServerFeed, problem: RpcError) -> None:
        """The server has not accepted the subscription; who read the feed at another hub before hears of it, too."""
        feed.fail(problem)
        feed.tell(problem)
        if problem.code in _OVER:
            await feed.end(problem)

    async def _finish(self, feed: ServerFeed, verdict: RpcError) -> None:
        log.info("feed_ended", upstream=feed.topic.server, reason=hide_head(verdict.message, 200))
        with suppress(StoreError):
            await feed.end(verdict)

    # -- unused feeds -----------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._rejoin()
        wall = wall_time()
        self._uses = {who: uses for who, uses in self._uses.items() if wall - max(uses.values()) < LINGER}
        for feed in list(self._feeds.values()):
            stream = feed.stream
            if feed.is_read or (stream is not None and self._table.inbox.take_touch(stream.row.id)):
                feed.use()
            if wall - feed.used > self._pace.linger(feed.cursor):
                await self._end(feed)
            else:
                await feed.touch()

    async def _rejoin(self) -> None:
        """Begins feeds that somebody reads here again after their hubs have ended them, or were killed meanwhile."""
        for reader, (topic, modes) in list(self._topics.far.items()):
            if not reader.is_open:
                self._topics.far.pop(reader, None)
            elif reader.is_stranded and topic.key not in self._feeds:
                with suppress(KeyTaken, Busy):
                    async with self._topics.turn(topic.key):
                        await self._running(topic, modes, is_new=False)

    async def _end(self, feed: ServerFeed) -> None:
        async with self._topics.turn(feed.topic.key):
            if feed.is_read or self._feeds.get(feed.topic.key) is not feed:
                return
            feed.scope.cancel()
            del self._feeds[feed.topic.key]
            await feed.end()
        mode = next((mode for mode in self.sources if mode in feed.modes), "")
        if mode in self.leaving and self._tasks is not None:
            self._tasks.start_soon(self.leaving[mode], _ask(self._upstreams, feed.topic), feed.topic)
        log.info("feed_unused", upstream=feed.topic.server)

    # -- durable streams --------------------------------------------------------------------------------------------

    def _written(self, key: str) -> Stream | None:
        """The stream that this hub writes, unless claimed by another."""
        feed = self._feeds.get(key)
        stream = None if feed is None else feed.stream
        if stream is None or stream.failed is not None or stream.is_lost:
            return None
        return stream if self._table.store.log.is_held(stream.row.id) else None

    async def _segment(self, key: str, id_: CallId, after: int) -> Stream | None:
        """The stream, to be read behind line `after`. Raises `StoreError`."""
        stream = self._written(key)
        if stream is not None and stream.row.id == id_:
            with anyio.move_on_after(_CONFIRMED):
                while stream.row.last < after:  # noqa: ASYNC110 - another hub has read what the store has just taken
                    await anyio.sleep(_CONFIRMED / 100)
            if after <= stream.row.last:
                return stream
        try:
            return await self._table.open(key, id_)
        except UnknownStream:
            return None

    async def _next(self, key: str, row: StreamInfo | None) -> Stream | None:
        """Raises `StoreError`."""
        if row is None and (stream := self._written(key)) is not None:
            return stream
        rows = await self._table.store.log.rows(key, 1 if row is None else _MOST_SEGMENTS)
        if not (later := [each for each in rows if row is None or (each.created, each.id) > (row.created, row.id)]):
            return None
        following = later[0] if row is None else min(later, key=lambda each: (each.created, each.id))
        return await self._segment(key, following.id, 0)


def _ask(upstreams: Mapping[str, Upstream], topic: Topic) -> Ask:
    async def ask(method: str, params: RawObject, heard: Heard | None) -> RawJson:
        upstream = upstreams.get(topic.server)
        if upstream is None:
            raise UpstreamUnavailable(f'server "{topic.server}" is not configured any more.')
        call = Call(
            id=new_call_id(), upstream=topic.server, method=method, params=params, meta={}, session=topic.key,
            principal=topic.account or LOCAL_PRINCIPAL, era=MODERN, capabilities={},
        )  # fmt: skip
        return await upstream.ask(call, heard)

    return ask
