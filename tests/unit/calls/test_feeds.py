"""Feeds over a store in memory and a server that does as a test says."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Call, Heard
from mcp_hub.calls.feeds import sources, table
from mcp_hub.calls.feeds.reading import FeedReader, Topic, cursor_in, cursor_of, read_line, topic
from mcp_hub.calls.feeds.sources import pause_of, polled, streamed
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Busy, InvalidParams, RpcError
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.shape.occurrences import MOST_BYTES, event_params, occurrence_of, of_server
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId, Era, RawJson, RawObject
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from tests.unit.fakes import IdleUpstream
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

TOPIC = Topic("git", "push", b"{}")
DEADLINE = 120


def members(**values: Any) -> RawObject:
    read = raw_object(json.dumps(values).encode())
    assert read is not None
    return read


def event(id_: str, **data: Any) -> dict[str, Any]:
    return {"eventId": id_, "name": "push", "timestamp": "2026-11-30T10:00:00Z", "data": data}


class Server(IdleUpstream):
    """Answers polls with `pages`, one after the other, then with nothing new."""

    def __init__(self, *pages: dict[str, Any], error: RpcError | None = None) -> None:
        super().__init__("git")
        self.pages = list(pages)
        self.error = error
        self.failures = 0
        self.cursors: list[str | None] = []
        self._cursor: str | None = "0"

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        if self.error is not None:
            self.failures += 1
            raise self.error
        self.cursors.append(msgspec.json.decode(call.params["cursor"], type=str | None))
        page = self.pages.pop(0) if self.pages else {"events": [], "cursor": self._cursor}
        self._cursor = page["cursor"]
        return json.dumps({"nextPollMs": 0, **page, "hasMore": bool(self.pages)}).encode()


@asynccontextmanager
async def running(server: IdleUpstream, store: EventStore | None = None, **more: Any) -> AsyncIterator[Feeds]:
    streams = StreamTable(store or MemoryStore(), SystemClock(), StreamLimits())
    feeds = Feeds(streams, {"git": server}, lambda: 1000.0, **more)
    with anyio.fail_after(DEADLINE), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "FLOOR", 0.01)  # seconds between polls
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feeds.run)
            yield feeds
            tasks.cancel_scope.cancel()


async def read(reader: FeedReader, count: int) -> list[str]:
    """The ids of so many occurrences, and `gap` for each gap."""
    ids: list[str] = []
    while len(ids) < count:
        occurrences, is_truncated = await reader.read(100)
        ids += ["gap"] * is_truncated + [msgspec.json.decode(occurrence["eventId"]) for occurrence, _ in occurrences]
        if len(ids) < count:
            await reader.wait()
    return ids


async def test_equal_ids_come_once_and_a_gap_of_the_server_is_passed_on() -> None:
    server = Server(
        {"events": [], "cursor": "0"},
        {"events": [event("a"), event("b"), event("a")], "cursor": "1"},
        {"events": [event("b"), event("c")], "cursor": "2", "truncated": True},
    )
    async with running(server) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 4) == ["a", "b", "gap", "c"]
        again = await feeds.open(TOPIC, ["poll"], reader.cursor, "p")
        assert await again.read(100) == ([], False)
        assert server.cursors[:3] == [None, "0", "1"]


async def test_occurrences_that_cannot_be_used_leave_a_gap() -> None:
    bad: list[Any] = [
        event("long", text="x" * MOST_BYTES),
        {**event("list"), "data": []},
        {**event("time"), "timestamp": "yesterday"},
        {**event("month"), "timestamp": "2026-13-01T00:00:00Z"},
        {**event("day"), "timestamp": "2026-02-30T00:00:00Z"},
        {**event("hour"), "timestamp": "2026-11-30T25:00:00Z"},
        {**event("zone"), "timestamp": "2026-11-30T10:00:00+25:00"},
        {**event("digits"), "timestamp": "２０２６-11-30T10:00:00Z"},
        {**event(""), "data": {}},
        {**event("x"), "eventId": 7},
    ]
    for each in bad:
        server = Server({"events": [], "cursor": "0"}, {"events": [event("a"), each, event("b")], "cursor": "1"})
        async with running(server) as feeds:
            reader = await feeds.open(TOPIC, ["poll"], None, "p")
            assert await read(reader, 3) == ["a", "gap", "b"]


async def test_a_refusal_of_the_server_reaches_each_reader_and_leaves_nothing() -> None:
    server = Server(error=RpcError("no", code=-32602))
    async with running(server) as feeds:
        for _ in range(2):
            with pytest.raises(RpcError, match="no"):
                await feeds.open(TOPIC, ["poll"], None, "p")
        server.error = None
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await reader.read(1) == ([], False)


async def test_subscriptions_of_one_principal_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_OF_PRINCIPAL", 2)
    async with running(Server()) as feeds:
        for number in (1, 2, 1):
            await feeds.open(topic("git", "push", b'{"n":%d}' % number), ["poll"], None, "p")
        with pytest.raises(RpcError) as refused:
            await feeds.open(topic("git", "push", b'{"n":3}'), ["poll"], None, "p")
        assert (refused.value.code, refused.value.data) == (-32025, {"limit": "subscriptions", "max": 2})
        await feeds.open(topic("git", "push", b'{"n":3}'), ["poll"], None, "other")


async def test_an_unused_feed_ends_and_continues_from_its_cursor() -> None:
    server = Server({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "1"})
    async with running(server, linger=(0.0, 0.0), look=0.01) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        reader.close()
        await until(lambda: TOPIC.key not in feeds._feeds)
        server.pages = [{"events": [event("a"), event("b")], "cursor": "2"}]
        again = await feeds.open(TOPIC, ["poll"], reader.cursor, "p")
        assert await read(again, 1) == ["b"]
        assert server.cursors[-1] in ("1", "2") and "1" in server.cursors


async def test_a_reader_of_an_older_durable_stream_is_led_into_the_next_one() -> None:
    server = Server({"events": [], "cursor": "0"}, {"events": [event("a")], "cursor": "1"})
    async with running(server) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        assert await read(reader, 1) == ["a"]
        first, feeds._pace = reader.cursor, feeds._pace._replace(keep=lambda: 1000.0)
        feed = feeds._feeds[TOPIC.key]
        feed._keep = lambda: 0.0  # the durable stream is too old at once
        await feed.take([members(**event("b"))], "2", False)
        feed._keep = lambda: 1000.0
        await feed.take([members(**event("c"))], "3", False)
        assert await read(reader, 2) == ["b", "c"]
        old, new = cursor_in(first), cursor_in(reader.cursor)
        assert old is not None and new is not None and old[0] != new[0]
        again = await feeds.open(TOPIC, ["poll"], first, "p")
        assert await read(again, 2) == ["b", "c"]


async def test_older_lines_are_left_out_with_a_gap() -> None:
    server = Server({"events": [], "cursor": "0"}, {"events": [event("a"), event("b")], "cursor": "1"})
    async with running(server) as feeds:
        reader = await feeds.open(TOPIC, ["poll"], None, "p")
        start = reader.cursor
        assert await read(reader, 2) == ["a", "b"]
        late = await feeds.open(TOPIC, ["poll"], start, "p", max_age=0.0)
        assert await late.read(100) == ([], True)
        every = await feeds.open(TOPIC, ["poll"], start, "p", max_age=1000.0)
        assert await read(every, 2) == ["a", "b"]


async def test_a_flood_of_a_stream_ends_it() -> None:
    taken = 0

    async def ask(method: str, params: RawObject, heard: Heard | None) -> RawJson:
        assert heard is not None
        heard("notifications/events/active", members(cursor="0"))
        for number in itertools.count():
            heard("notifications/events/event", members(**event(str(number)), cursor=str(number)))
            if number > 10_000:
                break
        await anyio.sleep_forever()
        raise AssertionError

    async def take(occurrences: Any, cursor: str | None, truncated: bool) -> None:
        nonlocal taken
        taken += len(occurrences)

    with anyio.fail_after(DEADLINE), pytest.raises(Busy):
        await streamed(ask, TOPIC, None, take, lambda problem: None)
    assert 0 < taken < 10_000


async def test_a_stream_is_stored_in_order_and_ends_with_the_word_of_the_server() -> None:
    batches: list[tuple[list[str], str | None, bool]] = []

    async def ask(method: str, params: RawObject, heard: Heard | None) -> RawJson:
        assert heard is not None
        heard("notifications/events/active", members(cursor="5", truncated=True))
        heard("notifications/events/event", members(**event("a"), cursor="6"))
        heard("notifications/events/heartbeat", members(cursor="7"))
        heard("notifications/events/event", members(**event("b"), cursor="8"))
        heard("notifications/events/terminated", members(error={"code": -32012, "message": "no"}))
        return b"{}"

    async def take(occurrences: Any, cursor: str | None, truncated: bool) -> None:
        batches.append(([msgspec.json.decode(each["eventId"]) for each in occurrences], cursor, truncated))

    verdict = await streamed(ask, TOPIC, "1", take, lambda problem: None)
    assert batches == [([], "5", True), (["a"], "6", False), ([], "7", False), (["b"], "8", False)]
    assert verdict is not None and verdict.code == -32024


async def test_an_answer_that_cannot_be_read_is_an_error() -> None:
    async def ask(method: str, params: RawObject, heard: Heard | None) -> RawJson:
        return b'{"events": 7}'

    async def take(occurrences: Any, cursor: str | None, truncated: bool) -> None:
        raise AssertionError

    with pytest.raises(RpcError, match="cannot be read"):
        await polled(ask, TOPIC, None, take, lambda problem: None)


async def test_null_in_an_answer_counts_as_absent() -> None:
    server = Server({"cursor": "0", "events": None, "truncated": None}, {"events": [event("a")], "cursor": "1"})
    async with running(server) as feeds:
        assert await read(await feeds.open(TOPIC, ["poll"], None, "p"), 1) == ["a"]


@pytest.mark.parametrize(
    ("milliseconds", "seconds"), [(None, 5), (0, 1), (-1, 1), (2500, 2.5), (1e12, 300), (float("nan"), 5)]
)
def test_a_server_decides_within_bounds_when_it_is_polled(milliseconds: float | None, seconds: float) -> None:
    assert pause_of(milliseconds) == seconds


def test_topics_are_equal_by_content_of_their_arguments() -> None:
    first, second = topic("git", "push", b'{"a": 1, "b": [1, 2]}'), topic("git", "push", b'{"b":[1,2],"a":1}')
    assert first == second and first.key == second.key
    keys = {
        of.key
        for of in (
            first,
            topic("git", "push", b'{"a":1,"b":[2,1]}'),
            topic("git", "pull", b'{"a":1,"b":[1,2]}'),
            topic("hub", "push", b'{"a":1,"b":[1,2]}'),
            topic("git", "push", b'{"a":1,"b":[1,2]}', "alice"),
        )
    }
    assert len(keys) == 5


@pytest.mark.parametrize("arguments", [b"[]", b"7", b"{", b'{"a":' + b'"x"' * 20_000 + b"}"])
def test_arguments_that_are_no_object_or_too_long_are_refused(arguments: bytes) -> None:
    with pytest.raises(InvalidParams):
        topic("git", "push", arguments)


def test_cursors_are_read_as_they_are_written() -> None:
    stream = CallId("st_" + "0" * 26)
    assert cursor_in(cursor_of(stream, 17)) == (stream, 17)
    for text in ("", "17", "st_.1", f"{stream}", f"{stream}.", f"{stream}.-1", f"{stream}.1.1", f"x{stream}.1"):
        assert cursor_in(text) is None


def test_a_line_that_cannot_be_read_is_a_gap() -> None:
    assert read_line(b"{") == (0.0, None, True)


def test_an_occurrence_stays_on_one_line() -> None:
    pretty = json.dumps({**event("a", text="x\ny"), "_meta": {"k": 1}}, indent=2).encode()
    params = raw_object(pretty)
    assert params is not None
    occurrence = occurrence_of(params)
    assert occurrence is not None
    text = msgspec.json.encode(occurrence)
    assert b"\n" not in text and json.loads(text)["data"] == {"text": "x\ny"}


def test_equal_ids_have_equal_bytes() -> None:
    spellings = (b'"caf\xc3\xa9"', b'"caf\\u00e9"', b'"\\u0063af\\u00E9"')
    ids = {
        bytes(occurrence["eventId"])
        for id_ in spellings
        if (occurrence := occurrence_of({**members(**event("a")), "eventId": msgspec.Raw(id_)})) is not None
    }
    assert ids == {spellings[0]}


@pytest.mark.parametrize(
    ("time", "spelled"),
    [
        ("2026-11-30 10:00:00.5z", "2026-11-30T10:00:00.5Z"),
        ("2026-11-30t10:00:00+0130", "2026-11-30T10:00:00+01:30"),
        ("2026-11-30T10:00-08:00", "2026-11-30T10:00:00-08:00"),
        ("2026-11-30T10:00:00", "2026-11-30T10:00:00Z"),
        ("2026-11-30", "2026-11-30T00:00:00+00:00"),
        ("20261130T100000,5+01", "2026-11-30T09:00:00.500000+00:00"),
    ],
)
def test_time_of_an_occurrence_is_spelled_as_strict_clients_read_it(time: str, spelled: str) -> None:
    params = raw_object(json.dumps({**event("a"), "timestamp": time}).encode())
    assert params is not None
    occurrence = occurrence_of(params)
    assert occurrence is not None and json.loads(bytes(occurrence["timestamp"])) == spelled


@pytest.mark.parametrize("code", [-32011, -32012, -32013, -32014, -32015])
def test_codes_of_drafts_are_translated(code: int) -> None:
    error = of_server(RpcError("x", code=code, raw=b'{"code":%d,"message":"x","data":{"kind":"event"}}' % code))
    assert error.code == code - 12
    assert json.loads(bytes(error.encoded())) == {"code": code - 12, "message": "x", "data": {"kind": "event"}}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": 7},
        {"name": "x", "arguments": []},
        {"name": "x", "cursor": 1},
        {"name": "x", "maxAgeMs": "1"},
        {"name": "x", "maxEvents": 1.5},
    ],
)
def test_params_that_are_not_of_the_extension_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        event_params(members(**params), "events/poll")


def test_null_is_absent() -> None:
    params = event_params(members(name="x", arguments=None, cursor=None, maxAgeMs=None, ttlMs=None), "events/subscribe")
    assert (params.cursor, params.max_age, bytes(params.arguments), params.ttlMs) == (None, None, b"{}", None)


class _Answering:
    """The part of a connection that a request about events needs; it answers when a test says so."""

    def __init__(self) -> None:
        self.ids = itertools.count(7)
        self.answered = anyio.Event()

    def send(self, method: str, params: RawObject) -> SimpleNamespace:
        return SimpleNamespace(id=next(self.ids))

    async def answer(self, pending: SimpleNamespace) -> RawJson:
        await self.answered.wait()
        return b"{}"


async def test_a_message_of_no_subscription_is_dropped() -> None:
    subscriptions, peer, heard = ServerSubscriptions("git", Notices()), _Answering(), list[RawObject]()
    call = Call(CallId("c"), "git", "events/stream", {}, {}, "s", "p", Era.MODERN, {})

    def says(id_: object) -> None:
        meta = {"io.modelcontextprotocol/subscriptionId": id_}
        subscriptions.on_notice("notifications/events/event", members(**event("a"), _meta=meta))

    says(7)  # before
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            hears: Heard = lambda method, params: heard.append(params)  # noqa: E731
            tasks.start_soon(subscriptions.ask, peer, call, hears)  # type: ignore[arg-type]  # enough of a peer
            await anyio.wait_all_tasks_blocked()
            assert subscriptions.are_asked
            strangers: list[object] = [8, "x", None, [7], {}]
            for id_ in strangers:
                says(id_)
            subscriptions.on_notice("notifications/events/event", members(**event("a")))
            assert heard == []
            says(7)
            peer.answered.set()
    says(7)  # afterwards
    assert len(heard) == 1 and not subscriptions.are_asked
