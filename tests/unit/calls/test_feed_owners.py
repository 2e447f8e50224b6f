"""Feeds whose durable stream another hub has claimed."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.aio import Bell
from mcp_hub.call import Call, Heard, StreamInfo
from mcp_hub.calls.feeds import sources, table
from mcp_hub.calls.feeds.feed import continuation_of
from mcp_hub.calls.feeds.reading import FeedReader, cursor_of, line_of, read_line
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.calls.reading.stored import done_with, fetched
from mcp_hub.calls.reading.stream import Stream, StreamReader
from mcp_hub.clock import wall_time
from mcp_hub.errors import Fenced, InvalidParams, RpcError, StoreError, UpstreamUnavailable
from mcp_hub.stores.base import Change, Chunk, Message
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import RawJson
from tests.unit.calls.test_feeds import TOPIC, Server, event, members, read, running
from tests.unit.fakes import IdleUpstream
from tests.unit.stores.event_stores import GONE, SoleStore, opened
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio


class _Pushing(IdleUpstream):
    """Streams one occurrence behind the cursor for each `ring`; notes the cursors that it is asked for."""

    def __init__(self) -> None:
        super().__init__("git")
        self.bell = Bell()
        self.cursors = list[str | None]()

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        assert heard is not None
        self.cursors.append(msgspec.json.decode(call.params["cursor"], type=str | None))
        last = int(self.cursors[-1] or 0)
        heard("notifications/events/active", members(cursor=str(last), truncated=False))
        for number in itertools.count(last + 1):
            await self.bell.wait()
            heard("notifications/events/event", members(**event(f"e{number}"), cursor=str(number)))
        raise AssertionError


async def test_readers_of_a_feed_that_another_hub_has_taken_wait_for_its_new_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, store = _Pushing(), MemoryStore()
    opened, made = list[int](), Stream.reader

    def reader_of(stream: Stream, *args: Any, **more: Any) -> StreamReader:
        opened.append(1)
        assert len(opened) < 50, "it is opened again and again"
        return made(stream, *args, **more)

    monkeypatch.setattr(Stream, "reader", reader_of)
    async with running(server, store) as feeds:
        reader = await feeds.open(TOPIC, ["push"], None, "p")
        server.bell.ring()
        assert await read(reader, 1) == ["e1"]
        monkeypatch.setattr(store.log, "append", lambda *args: args[-1](Fenced("another hub has it")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, reader, 1)
            await anyio.wait_all_tasks_blocked()
            server.bell.ring()
            while feeds._feeds:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            assert reader.is_open and reader.cursor
            tasks.cancel_scope.cancel()


async def test_first_write_has_the_cursor_of_the_server_for_a_hub_that_is_killed_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, store = _Pushing(), MemoryStore()
    monkeypatch.setattr(store.log, "append", lambda *args: None)  # nothing is written any more
    async with running(server, store) as feeds, anyio.create_task_group() as tasks:
        tasks.start_soon(feeds.open, TOPIC, ["push"], None, "p")
        while not (rows := await store.log.rows(TOPIC.key, 1)):
            await anyio.lowlevel.checkpoint()
        continuation = continuation_of(rows[0])
        assert continuation is not None and continuation[2] == "0"
        tasks.cancel_scope.cancel()


def _claimed(store: MemoryStore, owner: str) -> StreamInfo:
    """Another hub has claimed the feed's stream, and written `e1`; then `owner` has claimed it."""
    (row,) = store.streams.rows()
    entry = store.streams._streams[row.id]
    entry.row = replace(row, owner=GONE, epoch=row.epoch + 1)
    continuation = (row.continuation or b"").replace(b'"cursor":"0"', b'"cursor":"1"')
    assert continuation != row.continuation
    chunk = Chunk(row.last + 1, (line_of(0.0, members(**event("e1"))),))
    assert store.streams.append(row.id, row.epoch + 1, chunk, Change(wall_time(), continuation=continuation)) is None
    if owner != GONE:
        entry.row = replace(entry.row, owner=owner, epoch=row.epoch + 2)
    return entry.row


async def _ids(store: MemoryStore, row: StreamInfo) -> list[str]:
    occurrences = [read_line(line)[1] for line in await fetched(store.log, row.id, 0)]
    return [msgspec.json.decode(occurrence["eventId"]) for occurrence in occurrences if occurrence is not None]


@asynccontextmanager
async def _resumed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[_Pushing, MemoryStore, Feeds, FeedReader]]:
    """A feed with the cursor 0 that continues an earlier stream of its hub, so that readers share its `Stream`."""
    server, store = _Pushing(), MemoryStore()
    monkeypatch.setattr(store.leases, "is_orphan", _never)
    async with running(_Pushing(), store) as feeds:
        await feeds.open(TOPIC, ["push"], None, "p")
    async with running(server, store) as feeds:
        yield server, store, feeds, await feeds.open(TOPIC, ["push"], None, "p")


async def _never(row: StreamInfo) -> bool:
    return False


async def test_owner_that_hears_late_of_another_hub_writes_nothing_with_what_a_reader_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with _resumed(monkeypatch) as (server, store, feeds, _):
        row = _claimed(store, GONE)
        await feeds._table.open(TOPIC.key, row.id)
        server.bell.ring()  # its server says e1, too
        await anyio.wait_all_tasks_blocked()
        assert await _ids(store, row) == ["e1"] and not feeds._feeds
        reader = await feeds.open(TOPIC, ["push"], cursor_of(row.id, row.last - 1), "p")
        assert await read(reader, 1) == ["e1"] and not feeds._feeds, "it is read, and written at the other hub"


async def test_reader_finds_out_that_another_hub_has_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _resumed(monkeypatch) as (_, store, feeds, before):
        row = _claimed(store, GONE)
        await feeds._table.open(TOPIC.key, row.id)
        reader = await feeds.open(TOPIC, ["push"], before.cursor, "p")
        assert await read(reader, 1) == await read(before, 1) == ["e1"] and not feeds._feeds


@pytest.mark.parametrize("is_lost", [True, False], ids=["another hub has it", "this one has it again"])
async def test_owner_that_is_told_of_another_hub_lets_its_readers_follow_that_one_at_once(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _resumed(monkeypatch) as (server, store, feeds, reader):
        await anyio.wait_all_tasks_blocked()
        (row,) = store.streams.rows()
        if is_lost:
            _claimed(store, GONE)
        assert feeds._table._take(Message(row.id, "lost", b""))
        await anyio.wait_all_tasks_blocked()
        if not is_lost:
            server.bell.ring()
        assert await read(reader, 1) == ["e1"] and (TOPIC.key in feeds._feeds) is not is_lost


@pytest.mark.parametrize("has_feed", [True, False])
async def test_stream_that_comes_back_is_continued_behind_what_its_owner_between_wrote(
    has_feed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _resumed(monkeypatch) as (server, store, feeds, reader):
        if not has_feed:
            reader.close()
            feeds._let_go(feeds._feeds[TOPIC.key])
        row = _claimed(store, store.log.instance)
        await feeds.adopt(row)
        await anyio.wait_all_tasks_blocked()
        assert server.cursors == ["0", "1"]
        server.bell.ring()
        await anyio.wait_all_tasks_blocked()
        assert await _ids(store, row) == ["e1", "e2"]
        if has_feed:
            assert await read(reader, 2) == ["e1", "e2"]


def _unanswered(append: Callable[..., None], *arguments: Any) -> None:
    """Writes, and says that nobody knows."""
    *written, answer = arguments
    append(*written, lambda _: answer(StoreError()))


async def test_occurrence_of_a_write_without_an_answer_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_PAUSE", 0.01)
    async with _resumed(monkeypatch) as (server, store, feeds, reader):
        (row,) = store.streams.rows()
        await anyio.wait_all_tasks_blocked()
        with monkeypatch.context() as patch:
            patch.setattr(store.log, "append", partial(_unanswered, store.log.append))
            server.bell.ring()
            await until(lambda: len(server.cursors) > 1)
        await feeds._table.open(TOPIC.key, row.id)  # a reader sees what has been written
        await anyio.wait_all_tasks_blocked()
        server.bell.ring()
        await anyio.wait_all_tasks_blocked()
        server.bell.ring()
        assert await read(reader, 2) == ["e1", "e2"] and server.cursors == ["0", "0"]


async def test_stream_that_another_hub_has_claimed_meanwhile_is_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _resumed(monkeypatch) as (server, store, feeds, _):
        (before,) = store.streams.rows()
        feeds._let_go(feeds._feeds[TOPIC.key])
        _claimed(store, GONE)
        await feeds.adopt(before)
        await anyio.wait_all_tasks_blocked()
        assert not feeds._feeds and server.cursors == ["0"]


@pytest.mark.parametrize("is_held", [False, True], ids=["it slept beyond its lease", "its last write is not confirmed"])
async def test_cursor_of_another_hub_holds_at_an_owner_that_knows_less(
    is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, store = Server({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "1"}), MemoryStore()
    async with running(server, store) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        (row,) = await store.log.rows(TOPIC.key, 1)
        monkeypatch.setattr(store.log, "is_held", lambda stream: is_held)
        line = line_of(0.0, members(**event("b")))
        written = partial(store.log.append, row.id, row.epoch, Chunk(row.last + 1, (line,)), Change(0.0))
        assert await done_with(written) is None
        again = await feeds.open(TOPIC, ["poll"], cursor_of(row.id, row.last + 1), "p")
        assert await again.read(1) == ([], False)
        if not is_held:
            before = await feeds.open(TOPIC, ["poll"], reader.cursor, "p")
            assert await read(before, 1) == ["b"]


async def test_readers_of_a_feed_that_fails_unexpectedly_hear_of_it_and_get_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "1"})
    monkeypatch.setattr(table, "_PAUSE", 0.01)
    async with running(server) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        server.pages = [{"cursor": 7}, {"events": [event("b")], "cursor": "2"}]
        problems = list[str]()
        monkeypatch.setattr(reader, "tell", lambda problem: problems.append(problem.message if problem else ""))
        monkeypatch.setattr(sources, "_page", _failing(sources._page))
        assert await read(reader, 1) == ["b"]
        assert problems[0].startswith("Internal error")
        assert problems[-1] == ""


def _failing(read_page: Callable[[RawJson], object]) -> Callable[[RawJson], object]:
    """Fails in a way that nobody expects for a page with the cursor 7."""

    def page(result: RawJson) -> object:
        return 1 / 0 if b'"cursor": 7' in bytes(result) else read_page(result)

    return page


class _Sparing(IdleUpstream):
    """Streams one occurrence, with a cursor only at the beginning, and ends; notes the cursors that it is asked for."""

    def __init__(self) -> None:
        super().__init__("git")
        self.cursors = list[str | None]()

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        assert heard is not None
        self.cursors.append(msgspec.json.decode(call.params["cursor"], type=str | None))
        number = len(self.cursors)
        heard("notifications/events/active", members(truncated=False, cursor="first"))
        heard("notifications/events/event", members(**event(f"e{number}")))
        heard("notifications/events/heartbeat", members())
        return msgspec.Raw(b'{"resultType":"complete"}')


async def test_message_without_a_cursor_takes_none_away(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Sparing()
    monkeypatch.setattr(table, "_PAUSE", 0.01)
    async with running(server) as feeds:
        reader = await feeds.open(TOPIC, ["push"], None, "p")
        assert await read(reader, 3) == ["e1", "e2", "e3"], "no gap: what follows the cursor can be had"
        assert server.cursors[:3] == [None, "first", "first"]


async def test_reader_hears_once_that_a_server_does_not_deliver_also_one_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, problem = Server({"events": [], "cursor": "0"}), UpstreamUnavailable("it is down")
    monkeypatch.setattr(table, "_PAUSE", 0.01)
    monkeypatch.setattr(table, "_LONGEST_PAUSE", 0.01)
    async with running(server) as feeds:
        first = await feeds.open(TOPIC, ["poll"], None, "p")
        heard = list[RpcError | None]()
        monkeypatch.setattr(first, "wake", lambda: heard.append(first.problem))
        server.error = problem
        await until(lambda: bool(heard))
        later = await feeds.open(TOPIC, ["poll"], None, "p")
        assert later.problem is not None and later.problem.message == problem.message
        await until(lambda: server.failures > 3)
        assert len(heard) == 1
        server.error = None
        await until(lambda: later.problem is None)
        assert heard[1:] == [None]


@pytest.mark.parametrize("length", [16 << 10, (16 << 10) + 1])
async def test_cursor_that_each_write_would_repeat_is_bounded(length: int) -> None:
    cursor, store = "c" * length, MemoryStore()
    server = Server({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": cursor})
    async with running(server, store) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        (row,) = await store.log.rows(TOPIC.key, 1)
        assert (cursor.encode() in (row.continuation or b"")) is (length == 16 << 10)
        await until(lambda: cursor in server.cursors)
        assert not reader.has_more, "it continues as long as nothing fails"


async def test_reader_of_another_hub_outlives_that_the_owner_ends_the_subscription(tmp_path: Path) -> None:
    server = Server({"events": [], "cursor": "0"})
    async with (
        opened(one := SoleStore(tmp_path)),
        opened(two := SoleStore(tmp_path)),
        running(server, one, look=0.05) as owner,
        running(server, two, look=0.05) as other,
        anyio.create_task_group() as tasks,
    ):
        for feeds in (owner, other):
            tasks.start_soon(feeds._table.run)
        near = await owner.open(TOPIC, ["poll"], None, "p")
        far = await other.open(TOPIC, ["poll"], None, "p")
        assert not other._feeds
        server.pages = [{"events": [event("a")], "cursor": "1"}]
        assert await read(far, 1) == ["a"]
        near.close()
        await owner._end(owner._feeds[TOPIC.key])  # as a hub that has not heard of the other's readers
        await until(lambda: TOPIC.key in other._feeds)
        server.pages = [{"events": [event("b")], "cursor": "2"}]
        assert await read(far, 1) == ["b"]
        assert other._feeds[TOPIC.key].is_read
        tasks.cancel_scope.cancel()


async def test_server_that_refuses_its_own_cursor_is_subscribed_from_now_on() -> None:
    class Forgetful(Server):
        has_forgotten = False

        async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
            if self.has_forgotten and bytes(call.params["cursor"]) == b'"old"':
                raise InvalidParams("no such cursor")
            return await super().ask(call, heard)

    server = Forgetful({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "old"})
    async with running(server, linger=(0.0, 0.0), look=0.01) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        reader.close()
        await until(lambda: TOPIC.key not in feeds._feeds)
        server.has_forgotten = True
        server.pages = [{"events": [], "cursor": "new"}, {"events": [event("b")], "cursor": "1"}]
        again = await feeds.open(TOPIC, ["poll"], reader.cursor, "p")
        assert await read(again, 2) == ["gap", "b"]


async def test_principals_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(Server(), look=0.01) as feeds:
        for principal in ("p", "q"):
            await feeds.open(TOPIC, ["poll"], None, principal)
        assert feeds._uses.keys() == {"p", "q"}
        monkeypatch.setattr(table, "LINGER", 0.0)
        await until(lambda: not feeds._uses)


@pytest.mark.parametrize("code", [-32026, -32014, -32601])
async def test_server_that_refuses_a_way_that_it_has_declared_is_asked_in_the_next_one(code: int) -> None:
    class Polled(Server):
        async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
            if call.method == "events/stream":
                raise RpcError("not over this transport", code=code)
            return await super().ask(call, heard)

    server = Polled({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "1"})
    async with running(server) as feeds:
        assert await read(await feeds.open(TOPIC, ["push", "poll"], None, "p"), 1) == ["a"]
