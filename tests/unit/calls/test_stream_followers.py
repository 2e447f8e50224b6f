"""Followers of a stream: each gets what is committed behind its cursor, once, in order, whatever the store does."""

import gc
import random
import weakref
from typing import cast

import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.calls.log import nobody
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading.stream import Committed, Stream
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.errors import Busy, EventsGone, Fenced, InvalidParams, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Failed, Progressed, Started, ToolCall
from mcp_hub.stores.base import Chunk, Replicas, StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId
from tests.unit.calls.durable_hub import (
    DurableHub,
    Follower,
    one_call,
    pair_with_call,
    row_of,
    settle,
    store_of,
)
from tests.unit.calls.shared_store import HubStore, Shared
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.stores.broken_files import HandClock

BIG = 20_000


def row(store: HubStore, **known: object) -> StreamInfo:
    plain: dict[str, object] = {"id": CallId("st_x"), "principal": "p", "owner": "in_gone", "server": "s"}
    plain |= {"method": "tools/call", "name": "n", "created": 1.0, "updated": 1.0}
    return StreamInfo(**{**plain, **known})  # type: ignore[arg-type]


def lines(first: int, count: int) -> tuple[bytes, ...]:
    form = b'{"v":1,"stream":"st_x","seq":%d,"ts":"t","type":"progress","data":{"progress":%d}}'
    return tuple(form % (seq, seq) for seq in range(first, first + count))


def stored(hub: DurableHub, events: int | tuple[bytes, ...], **known: object) -> Stream:
    """A stream of so many events that nobody writes to, or of these lines, as just opened."""
    store = store_of(hub)
    chunk = Chunk(1, events if isinstance(events, tuple) else lines(1, events))
    store.shared.core.log.create(row(store, last=chunk.last, **known), chunk, lambda error: None)
    return Stream(row_of(hub, "st_x"), store)


def spoken(count: int) -> list[ToolCall]:
    return [ToolCall(f"c{number}", "t", b"{}") for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "most"), [(None, None), (0.3, 1), (0.0, 7), (0.3, 5000)])
@virtual
async def test_events_older_than_memory_come_from_the_store_in_pages(delay: float | None, most: int | None) -> None:
    hub = DurableHub(HubStore(delay=None if delay is None else lambda: delay))
    stream = stored(hub, 9000, status="completed")
    for after in (0, 1, 4095, 4096, 8999):
        follower = Follower(hub.streams, stream, after, most)
        await settle(lambda follower=follower: follower.at_end)  # type: ignore[misc]
        assert follower.seqs == list(range(after + 1, 9001))
        follower.reader.close()


@virtual
async def test_a_cursor_at_the_end_is_at_the_end_at_once_and_costs_the_store_nothing() -> None:
    hub = DurableHub()
    follower = Follower(hub.streams, stored(hub, 3, status="completed"), 3)
    assert follower.at_end
    await sleep(1)
    assert follower.turns == 1 and store_of(hub).fetches == 0


@virtual
async def test_places_that_cannot_be_followed_are_refused_each_in_its_way() -> None:
    hub, call = await one_call(DurableHub(HubStore(Shared(StoreLimits(stream_events=100))), StreamLimits(followers=2)))
    for event in spoken(300):
        call.says(event)
        await sleep(0.02)
    stream = await hub.streams.open("p", call.id)
    with pytest.raises(InvalidParams, match=r"cursor 302 is beyond the stream's last event, 301"):
        hub.streams.follow(stream, lambda: None, 302)
    with pytest.raises(EventsGone) as gone:
        hub.streams.follow(stream, lambda: None, 0)
    earliest = gone.value.earliest
    assert 190 < earliest <= 302 - 80
    readers = [hub.streams.follow(stream, lambda: None, after) for after in (earliest - 1, 301)]
    with pytest.raises(Busy, match="2 followers"):
        hub.streams.follow(stream, lambda: None, 301)
    readers[0].close()
    readers[0].close()
    hub.streams.follow(stream, lambda: None, 301)


@virtual
async def test_a_page_that_sees_a_commit_before_its_owner_confuses_nobody() -> None:
    """The store's reading thread may be ahead of the confirmation."""
    hub, call = await one_call()
    store = store_of(hub)
    early = await hub.follow(call.id)
    call.says(*spoken(3))
    await sleep(1)
    assert early.seqs == [1, 2, 3, 4]
    kept, store.holds_back = store.holds_back, True
    call.says(*spoken(3))  # committed, not confirmed
    await sleep(1)
    held, store._held = store._held, []
    store.holds_back = kept
    late = Follower(hub.streams, await hub.streams.open("p", call.id), 0)  # its page has all seven
    await sleep(1)
    assert late.seqs == early.seqs == [1, 2, 3, 4, 5, 6, 7]
    for answer in held:
        answer()
    call.ends()
    await sleep(1)
    assert late.seqs == early.seqs == [1, 2, 3, 4, 5, 6, 7, 8]
    assert late.lines == early.lines == store.shared.lines(call.id)


@virtual
async def test_news_that_are_older_than_what_is_known_or_not_the_next_are_not_mixed_up() -> None:
    hub = DurableHub(HubStore(delay=lambda: 1.0))
    store = store_of(hub)
    stream = stored(hub, 20)
    entries = list(map(Committed, lines(1, 20)))
    stream.row = row(store, last=3)
    follower = Follower(hub.streams, stream, 3)
    stream.committed(row(store, last=5), entries[3:5])
    stream.committed(row(store, last=10), entries[8:10])
    stream.committed(row(store, last=7))
    assert stream.row.last == 10
    stream.committed(row(store, epoch=2, last=20, status="failed"))
    stream.committed(row(store, last=20))
    assert stream.row.has_ended and stream.recent(3, 9) == [] and stream.recent(8, 9) == entries[8:10]
    await settle(lambda: follower.at_end)
    assert follower.seqs == list(range(4, 21))


@virtual
@pytest.mark.slow
async def test_of_sixteen_followers_a_slow_one_is_bounded_and_the_others_get_every_event() -> None:
    shared = Shared(StoreLimits(stream_events=1_000_000))
    hub, call = await one_call(DurableHub(HubStore(shared)))
    others = [await hub.follow(call.id) for _ in range(15)]
    slow = await hub.follow(call.id)
    slow.is_slow = True
    held = []
    for _ in range(BIG // 500):
        call.says(*spoken(500))
        await sleep(0.05)
        tail = slow.reader.stream._tail
        assert tail is not None
        held.append(len(tail) + len(slow.reader._page or ()))
    assert max(held) <= 8192 + 4096 and held[-1] == held[-10], "what it has not read costs no more and no more"
    call.ends()
    await settle(lambda: all(other.at_end for other in others))
    assert all(other.lines == others[0].lines for other in others)
    assert others[0].lines == shared.lines(call.id)
    slow.wakes_up()
    await settle(lambda: slow.at_end)
    assert slow.lines == others[0].lines


@virtual
async def test_all_followers_at_another_hub_are_served_by_one_read() -> None:
    shared = Shared()
    owner, call = await one_call(DurableHub(HubStore(shared)))
    other = DurableHub(HubStore(shared, delay=lambda: 0.001)).runs()
    followers = [await other.follow(call.id) for _ in range(16)]
    store = store_of(other)
    before = store.fetches
    for number in range(20):
        call.says(*spoken(3))
        await settle(lambda: {len(follower.lines) for follower in followers} == {1 + 3 * (number + 1)})  # noqa: B023
    assert store.fetches - before == 20
    late = await other.follow(call.id)
    await settle(lambda: len(late.lines) == 61)
    assert store.fetches - before == 20, "from memory"
    late.reader.close()
    call.ends()
    await settle(lambda: all(follower.at_end for follower in followers))
    assert all(follower.lines == shared.lines(call.id) for follower in followers)
    tail = followers[0].reader.stream._tail
    assert tail is not None and len(tail) == 62
    await other.dies()


@virtual
async def test_a_follower_learns_that_the_store_failed_or_lost_the_stream() -> None:
    hub = DurableHub()
    store = store_of(hub)
    stream = stored(hub, 10, status="completed")
    store.broken = StoreError("disk on fire")
    broken = Follower(hub.streams, stream, 0)
    assert broken.reader.failed is store.broken
    store.broken = None
    missing = Follower(hub.streams, Stream(row(store, last=12, status="completed"), store), 10)
    assert "event 11 cannot be read" in str(missing.reader.failed)
    store.shared.core.streams._streams[stream.row.id].chunks.pop(0)
    store.shared.core.streams._streams[stream.row.id].chunks.append(Chunk(6, lines(6, 5)))
    store.shared.core.streams._streams[stream.row.id].row = row(store, first=6, last=10, status="completed")
    gone = Follower(hub.streams, stream, 2)
    assert isinstance(gone.reader.failed, EventsGone) and gone.reader.failed.earliest == 6
    store.shared.core.streams.drop(stream.row.id)
    unknown = Follower(hub.streams, stream, 2)
    assert isinstance(unknown.reader.failed, UnknownStream)
    await sleep(10)
    assert max(each.turns for each in (broken, missing, gone, unknown)) <= 2, "nobody asks again and again"


@pytest.mark.parametrize(("is_broken", "is_settled"), [(True, True), (False, False), (False, True)])
@virtual
async def test_readers_of_a_lost_stream_come_back_if_the_store_cannot_say_who_has_it(
    is_broken: bool, is_settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, which has its old row, answers while the server of replicas is away."""
    hub = DurableHub()
    stream, store = stored(hub, 3), store_of(hub)
    follower = Follower(hub.streams, stream, 3)
    store.broken = StoreError("away") if is_broken else None
    monkeypatch.setattr(type(store), "is_settled", is_settled)
    stream.fenced(error := Fenced("another hub has claimed it"))
    await sleep(1)
    is_sure = is_settled and not is_broken
    assert stream.failed is (error if is_sure else None)
    assert isinstance(follower.reader.failed, StoreError)
    assert (follower.reader.failed is error) == is_sure


@pytest.mark.parametrize("delay", [None, 0.1])
@virtual
async def test_events_that_this_version_cannot_read_say_nothing_and_break_nobody(delay: float | None) -> None:
    strange = [
        b'{"v":1,"stream":"st_x","seq":2,"ts":"t","type":"teleport","data":{}}',
        b'{"v":1,"stream":"st_x","seq":3,"ts":"t","type":"log","data":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"v":2}',
        b"\xff",
    ]
    hub = DurableHub(HubStore(delay=None if delay is None else lambda: delay))
    reader = stored(hub, (*lines(1, 1), *strange, *lines(6, 1))).reader(lambda: None, 0)
    await sleep(1)
    assert reader.take() == [Progressed(1), Started(), Started(), Started(), Started(), Progressed(6)]
    assert reader.cursor == 6 and Committed(b"").read == Started()


@pytest.mark.parametrize(("status", "kind"), [("completed", Failed), ("failed", Failed), ("cancelled", Cancelled)])
@virtual
async def test_an_ending_that_this_version_cannot_read_is_an_ending_all_the_same(status: str, kind: type) -> None:
    hub = DurableHub()
    last = b'{"v":1,"stream":"st_x","seq":2,"ts":"t","type":"apotheosis","data":{}}'
    follower = Follower(hub.streams, stored(hub, (*lines(1, 1), last), status=status), 0, 1)
    await settle(lambda: follower.at_end)
    assert follower.lines[-1] == last
    assert follower.events[0] == Progressed(1) and type(follower.events[1]) is kind


class Client:
    """Loses its connection, and the last of what was sent over it, again and again."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.follower: Follower | None = None

    def is_cut_off(self, lost: int) -> None:
        if self.follower is not None:
            self.follower.reader.close()
            arrived = self.follower.lines
            self.lines += arrived[: max(len(arrived) - lost, 0)]
            self.follower = None

    async def resumes(self, hub: DurableHub, id_: str, most: int | None) -> None:
        self.follower = await hub.follow(id_, len(self.lines), most=most)


@pytest.mark.slow
@virtual
async def test_a_thousand_resumes_at_random_places_of_a_store_that_answers_late_lose_nothing() -> None:
    chance = random.Random(7)
    shared = Shared(StoreLimits(stream_events=100_000))
    hub = DurableHub(HubStore(shared, delay=lambda: chance.uniform(0, 0.3)))
    call = hub.call()
    clients = [Client() for _ in range(16)]
    await sleep(1)
    for number in range(1000):
        if number < 900:
            call.says(*spoken(chance.randint(0, 8)), Progressed(number))
        if number == 900:
            call.ends()
        client = chance.choice(clients)
        client.is_cut_off(chance.choice([0, 0, 1, 50]))
        await client.resumes(hub, call.id, chance.choice([None, 1, 10, 1000]))
        await sleep(chance.uniform(0, 0.02))
    for client in clients:
        client.is_cut_off(3)
        await client.resumes(hub, call.id, None)
        assert client.follower is not None
        await settle(lambda follower=client.follower: follower.at_end)  # type: ignore[misc]
        client.is_cut_off(0)
        assert client.lines == shared.lines(call.id)
    assert len(clients[0].lines) > 4000


@pytest.mark.slow
@virtual
async def test_nothing_of_a_stream_stays_when_all_are_done_with_it() -> None:
    shared = Shared()
    owner, other = DurableHub(HubStore(shared)).runs(), DurableHub(HubStore(shared)).runs()
    call = owner.call()
    await sleep(1)
    followers = [await owner.follow(call.id), await other.follow(call.id)]
    call.ends()
    await settle(lambda: all(follower.at_end for follower in followers))
    assert await owner.streams.open("p", call.id) is followers[0].reader.stream
    streams = [weakref.ref(follower.reader.stream) for follower in followers]
    for follower in followers:
        follower.reader.close()
    id_ = call.id
    del call, follower
    followers.clear()
    owner.calls.clear()
    gc.collect()
    await sleep(1)
    gc.collect()
    for hub in (owner, other):
        assert not hub.streams._owned and not hub.streams._foreign._streams and not hub.streams._detached
    assert [stream() for stream in streams] == [None, None] and shared.row(id_) is not None


@virtual
async def test_news_that_come_while_a_hub_asks_for_news_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last event of a stream nothing more is heard."""
    pair, call = await pair_with_call()
    follower, store = await pair.two.follow(call.id), store_of(pair.two)
    rung: list[CallId] = []
    is_new = [True]

    async def has_news() -> bool:
        await sleep(0.01)  # as when something returns to the store
        if is_new and row_of(pair.two, call.id).has_ended:
            rung.append(call.id)
        return bool(rung) and bool(is_new) and is_new.pop()

    monkeypatch.setattr(store, "has_news", has_news)
    monkeypatch.setattr(store, "moved", lambda rows: list(rung))
    call.ends()
    await settle(lambda: follower.at_end)


@virtual
async def test_what_nobody_follows_is_written_later_and_what_another_hubs_client_follows_soon() -> None:
    pair, call = await pair_with_call()
    for is_followed in (False, True):
        if is_followed:
            await pair.two.follow(call.id)
            await sleep(1)
        last = row_of(pair.one, call.id).last
        call.says(Progressed(1 + is_followed))
        await sleep(0.03)
        assert (row_of(pair.one, call.id).last > last) is is_followed
        await sleep(0.1)
        assert row_of(pair.one, call.id).last > last
    call.ends()


def test_readers_at_a_hub_that_has_just_started_wait_for_the_store_as_long_as_others() -> None:
    store, clock = MemoryStore(), HandClock()
    store.replicas = cast(Replicas, object())  # so it is one that can be away, which this one is
    table = StreamTable(store, clock, StreamLimits())
    foreign = StreamInfo("st_x", "p", "in_other", "s", "tools/call", "n", 1.0, 1.0, last=1)  # type: ignore[arg-type]
    reader = table.follow(table._shared(foreign), nobody, 1)
    for seconds in (0, 59):
        table._end_waits(clock.now() + seconds)
        assert reader.failed is None
    table._end_waits(clock.now() + 60)
    assert isinstance(reader.failed, StoreError)
