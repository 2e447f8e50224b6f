"""The owner's side of one feed: writes occurrences once, before the server's cursor behind them counts."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakSet

import anyio
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.calls.feeds.reading import RUNNING, FeedReader, Topic, end_line, line_of, mark_line, read_line
from mcp_hub.calls.reading.stored import done_with, fetched
from mcp_hub.calls.reading.stream import Committed, Stream
from mcp_hub.clock import wall_time
from mcp_hub.errors import DeadlineExceeded, Fenced, InvalidParams, KeyTaken, RpcError, StoreError, UnknownStream
from mcp_hub.ids import new_call_id
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.notifications import FEED
from mcp_hub.protocol.shape.occurrences import occurrence_of
from mcp_hub.stores.base import Change, Chunk, StreamLog
from mcp_hub.types import RawObject, Status

log = get_logger(__name__)

_MOST_IDS: Final = 4096
"""Ids of occurrences that are remembered."""
_LONGEST_CURSOR: Final = 16 << 10
"""Characters of a server's cursor, which each write repeats; a longer one is not kept."""
_NAMING: Final = ("eventId", "timestamp")
"""Members that say in the log which occurrence was dropped."""
_AT_ONCE: Final = 1024
"""Lines of one append."""
_SEGMENTS: Final = 7
"""Parts of `keep` after which a durable stream is ended and the next one begun, so that the first can expire."""
_BEGIN: Final = 30.0
"""Seconds for a server to accept a subscription."""
_MOST_UNWRITTEN: Final = 60.0
"""Seconds until a use of the feed is written."""


class _Continuation(msgspec.Struct, frozen=True):
    """The state from which another hub continues: `cursor` is the server's, `used` in Unix seconds."""

    server: str
    name: str
    arguments: str
    account: str
    modes: tuple[str, ...]
    cursor: str | None
    used: float


def continuation_of(row: StreamInfo) -> tuple[Topic, tuple[str, ...], str | None, float] | None:
    """Topic, modes, the server's cursor, and last use; None: unreadable."""
    read = read_as(msgspec.Raw(row.continuation or b""), _Continuation)
    if read is None:
        return None
    topic = Topic(read.server, read.name, read.arguments.encode(), read.account)
    return topic, read.modes, read.cursor, read.used


class ServerFeed:
    """One subscription. `keep` returns the seconds that occurrences are readable.

    `cursor` is the server's, behind all that is stored. It `has_stood` once the server has accepted. `used` is in Unix
    seconds.
    """

    def __init__(self, topic: Topic, modes: Sequence[str], stream_log: StreamLog, keep: Callable[[], float]) -> None:
        self.topic = topic
        self.modes = tuple(modes)
        self.stream: Stream | None = None
        self.cursor: str | None = None
        self.used = wall_time()
        self.readers: WeakSet[FeedReader] = WeakSet()
        self.scope = anyio.CancelScope()
        self._log = stream_log
        self._keep = keep
        self._state = _State()

    # -- earlier hubs ------------------------------------------------------------------------------

    async def resume(self, row: StreamInfo, cursor: str | None, stream: Stream | None = None) -> None:
        """Continues behind this row, in its `stream` if that runs and is this hub's. Raises `StoreError`."""
        self.cursor, self.stream = cursor, stream
        if stream is not None and (continuation := continuation_of(row)) is not None:
            stream.own()
            self.used = continuation[3]
            self._state.accepted.set()
        if cursor is None:
            self._state.has_missed = True
        await self._recall(row, row.first - 1)

    async def _recall(self, row: StreamInfo, after: int) -> None:
        """Remembers the ids of the lines behind this one. Raises `StoreError`."""
        after = max(after, row.last - _MOST_IDS)
        with suppress(UnknownStream):
            while after < row.last and (lines := await fetched(self._log, row.id, after, row.last - after)):
                for line in lines:
                    self._remember(read_line(line)[1])
                after += len(lines)
        self._state.last = row.last

    def _remember(self, occurrence: RawObject | None) -> None:
        if occurrence is not None:
            ids = self._state.ids
            ids[bytes(occurrence["eventId"])] = None
            if len(ids) > _MOST_IDS:
                ids.popitem(last=False)

    # -- the subscription -------------------------------------------------------------------------------------------

    @property
    def has_stood(self) -> bool:
        return self._state.accepted.is_set() and self._state.failure is None

    async def stands(self) -> None:
        """Waits until the server accepts. Raises the `RpcError` with which it refused, `DeadlineExceeded`, and
        `KeyTaken` if another hub has subscribed.
        """
        with anyio.move_on_after(_BEGIN) as patience:
            await self._state.accepted.wait()
        if patience.cancelled_caught:
            raise DeadlineExceeded(f'server "{self.topic.server}" did not accept the subscription in {_BEGIN:g} s.')
        if self._state.failure is not None:
            raise self._state.failure

    def fail(self, error: RpcError | KeyTaken) -> None:
        """The server has refused the subscription, or another hub has it, whose durable stream is read from then on."""
        self._state.failure = error
        self._state.accepted.set()
        if isinstance(error, KeyTaken) and self.stream is not None:
            self.stream.fail(Fenced(str(error)))

    def miss(self) -> None:
        """Begins with what happens from now on, which may not follow the last occurrences."""
        self.cursor = None
        self._state.has_missed = True

    def join(self, reader: FeedReader) -> None:
        """Wakes a reader with news; it hears of what is the matter with the server at present."""
        self.use()
        self.readers.add(reader)
        reader.tell(self._state.problem)

    def tell(self, problem: RpcError | None) -> None:
        self._state.problem = problem
        for reader in list(self.readers):
            reader.tell(problem)

    def use(self) -> None:
        self.used = wall_time()

    @property
    def is_read(self) -> bool:
        return any(reader.is_open for reader in self.readers)

    # -- writing ----------------------------------------------------------------------------------------------------

    async def take(self, occurrences: Sequence[RawObject], cursor: str | None, truncated: bool) -> None:
        """Stores occurrences and the server's cursor behind them. Raises `StoreError`."""
        if cursor is not None and len(cursor) > _LONGEST_CURSOR:
            log.warning("cursor_too_long", upstream=self.topic.server, characters=len(cursor))
            cursor = None
        async with self._state.turn:
            if self.stream is not None and self.stream.row.last > self._state.last:  # by a write without an answer
                await self._recall(self.stream.row, self._state.last)
            wall, ids = wall_time(), OrderedDict[bytes, RawObject]()
            is_gap = truncated or self._state.has_missed
            lines = [mark_line(wall, gap=True)] if is_gap and self.stream is not None else []
            for params in occurrences:
                occurrence = occurrence_of(params)
                if occurrence is None:
                    self._drop(params)
                    lines.append(mark_line(wall, gap=True))
                elif (id_ := bytes(occurrence["eventId"])) not in self._state.ids and id_ not in ids:
                    ids[id_] = occurrence
                    lines.append(line_of(wall, occurrence))
            await self._write(lines, cursor, wall, is_gap=is_gap)
            self.cursor, self._state.has_missed = cursor, False
            for occurrence in ids.values():
                self._remember(occurrence)
            self._state.accepted.set()

    def _drop(self, params: RawObject) -> None:
        id_, time = (hide_head(bytes(params.get(key, b"")).decode(errors="replace"), 100) for key in _NAMING)
        log.warning(
            "event_dropped", upstream=self.topic.server, id=id_, time=time, bytes=sum(map(len, params.values())),
            reason="it has to have an eventId of 1 to 512 characters, a timestamp of ISO 8601, an object as data, and "
            "at most 256 KiB",
        )  # fmt: skip

    async def _write(self, lines: list[bytes], cursor: str | None, wall: float, *, is_gap: bool) -> None:
        stream = self.stream
        if stream is not None and wall - stream.row.created > self._keep() / _SEGMENTS:
            await self._append([], "completed", self.cursor, wall)
            self.stream = stream = None
        if stream is None:
            await self._create(mark_line(wall, gap=is_gap), self.cursor if lines else cursor, wall)
        is_old = self.used - self._state.written_use > _MOST_UNWRITTEN
        for start in range(0, len(lines), _AT_ONCE):
            part = lines[start : start + _AT_ONCE]
            is_last = start + _AT_ONCE >= len(lines)
            await self._append(part, "working", cursor if is_last else self.cursor, wall)
        if not lines and stream is not None and (cursor != self.cursor or is_old):
            await self._append([], "working", cursor, wall)

    async def _create(self, line: bytes, cursor: str | None, wall: float) -> None:
        row = StreamInfo(
            id=new_call_id(), principal=self.topic.key, owner=self._log.instance, server=self.topic.server,
            method=FEED, name=self.topic.name, created=wall, updated=wall, last=1, ttl=self._keep(), key=RUNNING,
            continuation=self._continuation(cursor),
        )  # fmt: skip
        error: StoreError | None = await done_with(partial(self._log.create, row, Chunk(1, (line,))))
        if error is not None:
            raise error
        self.stream, self._state.last = Stream(row, self._log), row.last
        self._state.written_use = self.used
        for reader in list(self.readers):
            reader.wake()

    async def _append(self, lines: Sequence[bytes], status: Status, cursor: str | None, wall: float) -> None:
        stream = self.stream
        assert stream is not None
        if stream.is_lost:  # a reader has seen it: the row has another hub's epoch and last event
            fenced = Fenced(f"stream {stream.row.id}: another hub has claimed it")
            stream.fail(fenced)
            raise fenced
        row, continuation = stream.row, self._continuation(cursor)
        has_ended = status == "completed"
        change = Change(
            wall, status, continuation=continuation, ttl=self._keep() if has_ended else None, frees_key=has_ended
        )
        chunk = Chunk(row.last + 1, tuple(lines))
        error: StoreError | None = await done_with(partial(self._log.append, row.id, row.epoch, chunk, change))
        if error is not None:
            if isinstance(error, Fenced):
                stream.fail(error)
            raise error
        self._state.written_use = self.used
        self._state.last = last = row.last + len(lines)
        changed = msgspec.structs.replace(row, last=last, updated=wall, status=status, continuation=continuation)
        stream.committed(changed, [Committed(line) for line in lines])

    def _continuation(self, cursor: str | None) -> bytes:
        topic = self.topic
        return msgspec.json.encode(
            _Continuation(
                server=topic.server,
                name=topic.name,
                arguments=topic.arguments.decode(),
                account=topic.account,
                modes=self.modes,
                cursor=cursor,
                used=self.used,
            )  # fmt: skip
        )

    async def touch(self) -> None:
        """Writes the feed's use now and then. Raises `StoreError`."""
        if self.stream is not None and self.used - self._state.written_use > _MOST_UNWRITTEN:
            async with self._state.turn:
                await self._append([], "working", self.cursor, wall_time())

    async def end(self, error: RpcError | None = None) -> None:
        """Ends the durable stream; with an error, also the subscriptions of its readers. Raises `StoreError`."""
        if error is not None:
            for reader in list(self.readers):
                reader.end(error)
        async with self._state.turn:
            if self.stream is not None and not self.stream.row.has_ended:
                wall = wall_time()
                await self._append([] if error is None else [end_line(wall, error)], "completed", self.cursor, wall)
            self.stream = None


class _State:
    """`accepted` is set with the first answer, `failure` if it was a refusal; `problem`: why nothing is delivered now;
    `ids`: of the last lines up to `last`.
    """

    def __init__(self) -> None:
        self.accepted = anyio.Event()
        self.failure: RpcError | KeyTaken | None = None
        self.has_missed = False
        self.problem: RpcError | None = None
        self.ids = OrderedDict[bytes, None]()
        self.turn = anyio.Lock()
        self.last = 0
        self.written_use = 0.0


def broke(feed: ServerFeed, problem: RpcError | None) -> None:
    """The subscription has ended, and is to be begun again."""
    if problem is not None:
        log.warning("feed_broken", upstream=feed.topic.server, reason=hide_head(problem.message, 200))
        feed.tell(problem)
    if feed.cursor is None or (problem is not None and problem.code == InvalidParams.code):  # it takes no cursor
        feed.miss()
