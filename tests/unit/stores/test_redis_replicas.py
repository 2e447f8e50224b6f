"""Several replicas on one server, as several stores in this process: each has connections and a lease of its own."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from redis.crc import key_slot

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.ids import new_call_id
from mcp_hub.stores.base import Change, EventStore, Message, StoreLimits
from mcp_hub.stores.redis import link, scripts
from mcp_hub.stores.redis.keys import RedisKeys, quarantined
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import _RedisReplicas
from mcp_hub.types import CallId
from tests.redis_server import shared_server
from tests.unit.stores.event_stores import (
    append,
    create,
    events,
    found,
    line,
    new_row,
    numbered,
    opened,
    replayed,
    settled,
)
from tests.unit.stores.redis_stores import Pair, new_redis

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def told(store: EventStore) -> None:
    """Returns when the store has news."""
    while not await store.inbox.has_news():
        await store.inbox.wait(5)


async def moved(store: RedisStore, *rows: StreamInfo) -> set[CallId]:
    """Those of the streams that have new events, once one has. The bell also rings for less."""
    while not (found := store.inbox.moved(rows)):
        await store.inbox.wait(5)
        await store.inbox.has_news()
    return set(found)


async def fall_silent(store: RedisStore) -> None:
    """From here on the store does not renew its lease, as in a process that is stopped."""
    assert store._beats is not None
    await store._beats.stop()


async def is_gone(store: RedisStore, other: RedisStore) -> None:
    """Returns when the store takes the other one to be gone."""
    while not await store.leases.is_orphan(new_row(store, owner=other.log.instance)):
        await store.inbox.wait(0.05)


async def test_replicas_have_one_key_to_seal_with(pair: Pair) -> None:
    one, two = pair
    assert one.secret is not None and one.secret == two.secret and len(one.secret) == 32


async def test_of_many_who_want_a_key_at_once_one_gets_it(pair: Pair) -> None:
    outcomes: list[StoreError | None] = []

    async def ask(store: RedisStore) -> None:
        row = new_row(store, key="k", last=1)
        try:
            outcomes.append(await settled(lambda done: store.log.create(row, events(1, 1), done)))
        except KeyTaken as error:
            outcomes.append(error)

    async with anyio.create_task_group() as tasks:
        for store in pair * 10:
            tasks.start_soon(ask, store)
    assert len(outcomes) == 20 and outcomes.count(None) == 1


async def test_a_key_whose_stream_was_never_made_is_free_after_a_while(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    await settled(lambda done: one._index.reserve(new_row(one, key="k"), done))
    with pytest.raises(KeyTaken):
        await create(two, new_row(two, key="k"))
    monkeypatch.setattr("mcp_hub.stores.redis.index._PENDING_MS", 0)
    row = await create(two, new_row(two, key="k"))
    assert await one.log.find_key("local", "k") == row


async def test_a_follower_is_told_of_new_events_and_of_no_others(pair: Pair) -> None:
    one, two = pair
    row, other = await create(one, new_row(one)), await create(one, new_row(one))
    assert not two.inbox.moved([row])
    await append(one, row, 2)
    assert await moved(two, row) == {row.id}
    row = await found(two, row)
    assert not two.inbox.moved([row])
    await append(one, other, 2)
    await append(one, row, 3)
    assert await moved(two, row, await found(two, other)) == {row.id}
    await append(one, other, 3)
    await told(two)


async def test_a_silent_owner_is_fenced_and_hears_of_it(pair: Pair) -> None:
    one, two = pair
    row = await create(one, new_row(one), 1)
    quiet = await create(one, new_row(one), 1)
    assert await two.leases.claim(row, numbered(2, 2), Change(5.0)) is None, "its owner lives"
    await fall_silent(one)
    await is_gone(two, one)
    assert {left.id for left in await two.leases.orphans()} == {row.id, quiet.id}
    claimed = await two.leases.claim(row, numbered(2, 2), Change(5.0))
    assert claimed is not None and (claimed.owner, claimed.epoch) == (two.log.instance, 2)
    assert await two.leases.claim(quiet, numbered(2, 2), Change(5.0, status="failed")) is not None
    with pytest.raises(Fenced, match="epoch 1"):
        await append(one, row, 2)
    await append(two, claimed, 3)
    assert await replayed(one, row) == numbered(1, 3)
    await told(one)
    lost = {message.stream for message in await one.inbox.take() if message.kind == "lost"}
    assert lost == {row.id, quiet.id}
    assert await two.leases.orphans() == await two.leases.orphans() == []
    assert one.log.instance not in two.links.leases.gone, "nothing is left of it to look for"


async def test_a_claim_by_many_succeeds_once(tmp_path: Path) -> None:
    async with (
        opened(one := new_redis(tmp_path)),
        opened(two := new_redis(tmp_path)),
        opened(gone := new_redis(tmp_path)),
    ):
        rows = [await create(gone, new_row(gone)) for _ in range(10)]
        await fall_silent(gone)
        await is_gone(one, gone)
        await is_gone(two, gone)
        won: list[str] = []

        async def claim(store: RedisStore, row: Any) -> None:
            if await store.leases.claim(row, numbered(2, 2), Change(5.0, status="failed")) is not None:
                won.append(row.id)

        async with anyio.create_task_group() as tasks:
            for row in rows:
                for store in (one, two, one, two):
                    tasks.start_soon(claim, store, row)
        assert sorted(won) == sorted(row.id for row in rows)
        for row in rows:
            assert await replayed(one, row) == numbered(1, 2)


async def test_a_thing_is_held_by_one_replica_until_it_lets_go_or_is_gone(pair: Pair) -> None:
    one, two = (_RedisReplicas(store).holdings("git") for store in pair)
    assert await one.hold("se_1") and await one.hold("se_1")
    assert (
        not await two.hold("se_1")
        and await two.hold("se_2")
        and await _RedisReplicas(pair[1]).holdings("ci").hold("se_1")
    )
    two.release("se_1")
    assert not await two.hold("se_1"), "it was not its own"
    one.release("se_1")
    while not await two.hold("se_1"):
        await anyio.lowlevel.checkpoint()
    await fall_silent(pair[1])
    await is_gone(*pair)
    assert await one.hold("se_1")


def test_what_a_script_touches_is_in_one_slot_of_a_cluster() -> None:
    keys = RedisKeys("deployment:")
    stream, other = keys.stream(new_call_id()), keys.stream(new_call_id())
    documents = keys.documents("a{b}")
    together: list[tuple[str, ...]] = [stream, (keys.sessions, keys.session_ends)]
    together += [(keys.running("in_1"), keys.called("in_1"), keys.bell("in_1"))]
    together += [(documents.ends, documents.sizes, documents.body("r1"))]
    assert [len({key_slot(key.encode()) for key in group}) for group in together] == [1, 1, 1, 1]
    assert key_slot(stream.row.encode()) != key_slot(other.row.encode())


async def test_a_replica_that_leaves_is_gone_at_once(tmp_path: Path) -> None:
    """The next beat of the other one would be in 7 s."""
    async with opened(one := new_redis(tmp_path, lease=30)):
        async with opened(two := new_redis(tmp_path, lease=30)):
            row = await create(two, new_row(two))
            await one.touch()
            assert await one.leases.orphans() == [] and not await one.leases.is_orphan(row)
        with anyio.fail_after(5):
            while not (left := await one.leases.orphans()):
                await told(one)
        assert [found.id for found in left] == [row.id] and await one.leases.is_orphan(await found(one, row))


async def test_after_a_lost_connection_everybody_is_observed_anew(pair: Pair) -> None:
    one, two = pair
    await fall_silent(one)
    await is_gone(two, one)
    two.links.leases.server_failed()
    await two.touch()
    assert not two.links.leases.is_gone(one.log.instance)
    until = anyio.current_time() + 1.25 * two.links.leases.seconds
    await is_gone(two, one)
    assert anyio.current_time() >= until - 0.05


async def test_a_step_of_the_server_s_clock_is_not_seen(pair: Pair) -> None:
    """The server's time is not read by a beat, so that there is none to step."""
    one, _ = pair
    server: Any = shared_server().client
    with server.monitor() as monitor:
        await one.touch()
        seen: list[str] = []
        while not seen or "INFO" not in seen[-1]:
            seen.append(monitor.next_command()["command"])
    server.close()
    assert not [command for command in seen if command.startswith("TIME")]


async def test_a_long_event_is_sent_in_parts_and_comes_back_whole(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        row = await create(store, new_row(store), 1, 1_200_000)
        await append(store, row, 2, 3)
        await append(store, row, 5, 2, size=700_000)
        lines = [line(1, 1_200_000), *numbered(2, 4), *numbered(5, 6, 700_000)]
        assert await replayed(store, row) == lines
        parts = store.links.keys.stream(row.id).parts
        [sizes] = await store.links.reader.ask(("HVALS", parts))
        assert len(sizes) == 6 and max(map(len, sizes)) <= 512 << 10


async def test_parts_go_with_the_events_that_are_let_go(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path, StoreLimits(stream_bytes=2_000_000))):
        row = await create(store, new_row(store), 1, 1_500_000)
        await append(store, row, 2, 1, size=1_500_000)
        assert await replayed(store, row) == [line(2, 1_500_000)]
        [count] = await store.links.reader.ask(("HLEN", store.links.keys.stream(row.id).parts))
        assert count == 3


async def test_a_stream_that_begins_anew_behind_a_gap_keeps_no_parts_of_before(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        for size, left in ((0, 0), (700_000, 2)):
            row = await create(store, new_row(store), 2, 700_000)
            chunk, change = events(6, 1, size), Change(101.0, first=6)
            await settled(partial(store.log.append, row.id, row.epoch, chunk, change))
            assert await replayed(store, row) == [line(6, size)]
            [count] = await store.links.reader.ask(("HLEN", store.links.keys.stream(row.id).parts))
            assert count == left


async def test_a_script_that_the_server_has_forgotten_is_sent_again(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        row = await create(store, new_row(store))
        await store.links.writer.ask(("SCRIPT", "FLUSH"))
        await append(store, row, 2)
        assert await replayed(store, row) == numbered(1, 2)


@pytest.mark.slow
async def test_a_process_that_was_stopped_takes_the_answer_that_has_come_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would take the server to be away, and continue in memory with streams that another replica has by now."""
    monkeypatch.setattr(link, "ANSWER", 0.5)
    client = link.Server(shared_server().url).client()
    asking = link.Link(client, "x")
    asking.start()
    assert await asking.ask(("PING",)) == [True]
    for _ in range(2):
        before = asking.commands
        with anyio.fail_after(240):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asking.ask, ("BLPOP", "nothing", 0.01))
                while asking.commands == before:
                    await anyio.lowlevel.checkpoint()
                await anyio.sleep(0.005)  # it is sent
                time.sleep(0.8)  # noqa: ASYNC251 - as if all of the process was stopped
    await asking.stop(1)
    await client.aclose()


async def test_an_append_that_is_sent_twice_is_done_once(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        row = await create(store, new_row(store))
        command = store.log.written(scripts.APPEND, row.id, 1, events(2, 2), ["updated", "5.0", "status", "completed"])
        first, second = await store.links.writer.ask(*command), await store.links.writer.ask(*command)
        assert first == second and first[-1][0] == b"done"
        assert await replayed(store, row) == numbered(1, 3)


async def test_ended_streams_expire_by_themselves(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        row = await create(store, new_row(store, ttl=60.0), 1, 600_000)
        keys = store.links.keys.stream(row.id)
        await store.inbox.post(Message(row.id, "input", b"1"))
        assert {ttl for (ttl,) in [await store.links.reader.ask(("PTTL", key)) for key in keys]} == {-1}
        await append(store, row, 2, status="completed")
        left = [ttl for (ttl,) in [await store.links.reader.ask(("PTTL", key)) for key in keys]]
        assert all(50_000 < ttl <= 60_000 for ttl in left[:3]) and left[3] == -2


@pytest.mark.parametrize(
    ("field", "value"),
    [("status", "lost"), ("last", "-3"), ("epoch", "x"), ("first", "99"), ("principal", None), ("last", str(1 << 60))],
)
async def test_a_damaged_record_is_set_aside_and_other_streams_are_as_before(
    tmp_path: Path, field: str, value: str | None
) -> None:
    async with opened(store := new_redis(tmp_path)):
        row, other = await create(store, new_row(store)), await create(store, new_row(store))
        key = store.links.keys.stream(row.id).row
        await store.links.writer.ask(("HDEL", key, field) if value is None else ("HSET", key, field, value))
        assert await store.log.find(row.id) is None
        assert await settled(lambda done: store.log.fetch(row.id, 0, 9, done)) is None
        [kept] = await store.links.reader.ask(("HGETALL", quarantined(key)))
        assert kept.get(field.encode()) == (None if value is None else value.encode())
        assert await found(store, other) == other


async def test_a_key_of_another_program_is_set_aside_and_its_stream_is_gone(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        row, other = await create(store, new_row(store)), await create(store, new_row(store))
        key = store.links.keys.stream(row.id).row
        await store.links.writer.ask(("DEL", key), ("SET", key, "x"))
        with pytest.raises(Fenced, match="no longer kept"):
            await append(store, row, 2)
        assert await store.log.find(row.id) is None and await found(store, other) == other
        assert await store.links.reader.ask(("GET", quarantined(key))) == [b"x"]


@pytest.mark.parametrize("text", [scripts.BEAT, scripts.CLAIM, scripts.CREATE, scripts.APPEND, scripts.RELEASE])
def test_who_owns_a_stream_does_not_depend_on_the_server_s_clock(text: str) -> None:
    assert "'TIME'" not in text and "'TIME'" in scripts.RESERVE, "which only keys are reserved by"
