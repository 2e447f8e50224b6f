"""The history on a shared server: each replica sees the calls of all, bounded, and says what is missing."""

from pathlib import Path

import pytest

from mcp_hub.clock import wall_time
from mcp_hub.events import Completed
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history import replicas
from mcp_hub.stores.history.base import HistoryLimits, LostCalls
from mcp_hub.stores.history.reading import CallFilter, newest, texts_of
from mcp_hub.stores.history.replicas import RedisHistory
from mcp_hub.stores.redis.leases import Leases, StoreLinks
from mcp_hub.stores.redis.link import Command, Link, Reply
from tests.unit.calls.past import arguments_in, end, keep, new_journal, past_call
from tests.unit.stores.event_stores import opened
from tests.unit.stores.redis_stores import new_redis

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def become_gone(monkeypatch: pytest.MonkeyPatch, replica: StoreLinks, watching: StoreLinks) -> None:
    """Ends a replica's lease as another one sees it. It stays so: on a slow machine its next beat would come."""
    await watching.leases.beat(watching.writer)
    monkeypatch.setattr(Leases, "is_gone", lambda _, name: name == replica.instance)


async def test_calls_of_each_replica_are_seen_at_every_one_in_their_order(tmp_path: Path) -> None:
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        stores = [RedisHistory(store.links, wall_time) for store in (first, second)]
        journals = [new_journal(store, hub=store._instance) for store in stores]
        for n in range(40):
            await keep(journals[n % 3 % 2], *(past_call(arguments={"n": m}) for m in (2 * n, 2 * n + 1)))
        for store in stores:
            assert await arguments_in(store) == [f'{{"n":{n}}}' for n in range(80)]
            assert {key.hub for key in await store.index()} == {first.log.instance, second.log.instance}
            calls = await newest(store, CallFilter(lambda group: True), 80)
            middle = next(call for call in calls if call.number == 7)
            [texts] = await texts_of(store, [middle])
            assert texts[1] == '{"content":[]}'
        assert await stores[0].losses() == []
        assert await stores[1].clear(LostCalls("cleared", 1.0)) == 80
        await keep(journals[0], past_call(arguments={"n": 99}))  # whose batch was open
        assert await arguments_in(stores[1]) == ['{"n":99}']
        assert [loss.kind for loss in await stores[0].losses()] == ["cleared"]


async def test_bounds_hold_on_the_server_and_a_gone_replica_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_PRUNE", 0.0)
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        gone, store = RedisHistory(first.links, wall_time), RedisHistory(second.links, lambda: wall_time() + 60)
        limits = HistoryLimits(calls=160)  # ten calls in a batch
        await keep(new_journal(gone, hub=first.log.instance), past_call(arguments={"n": -1}))
        journal = new_journal(store, limits=limits, hub=second.log.instance)
        for start in range(0, 300, 10):
            await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 10)))
        kept = await arguments_in(store)
        assert kept[-1] == '{"n":299}' and 160 <= len(kept) <= 180
        small = new_journal(store, limits=HistoryLimits(size=1), hub=second.log.instance)
        small._batches._count = 1000
        await keep(small, past_call(arguments={}))
        assert await arguments_in(store) == ["{}"], "the newest calls stay, however large"
        await become_gone(monkeypatch, first.links, second.links)
        assert [(loss.kind, loss.hub) for loss in await store.losses()] == [("killed", first.log.instance)]


async def test_running_call_of_a_gone_replica_is_there_until_it_has_ended_at_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        gone, store = RedisHistory(first.links, wall_time), RedisHistory(second.links, lambda: wall_time() + 60)
        journals = [new_journal(each, hub=each._instance) for each in (gone, store)]
        records = [past_call(arguments={"n": n}, is_running=True) for n in range(2)]
        for record in records:
            journals[0].lasts(record)
        await journals[0].flush()
        assert await arguments_in(gone) == await arguments_in(store) == []
        await become_gone(monkeypatch, first.links, second.links)
        assert await arguments_in(store) == ['{"n":0}', '{"n":1}']
        journals[1].lasts(records[1])
        await journals[1].flush()
        assert await arguments_in(store) == ['{"n":0}']
        records[1].log.append(Completed(b'{"content":[]}'))
        await keep(journals[1], records[1])
        assert await arguments_in(store) == ['{"n":0}', '{"n":1}']
        assert await store.clear(LostCalls("cleared", 1.0)) == 2


async def test_replica_that_is_killed_in_a_write_leaves_no_call_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stops, nor a call that another replica does not know."""
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        late = RedisHistory(second.links, lambda: wall_time() + 60)
        for steps in range(5):
            store = RedisHistory(first.links, wall_time)
            journal = new_journal(store, hub=first.log.instance)
            journal._batches._count = 1000 * steps
            journal.lasts(record := past_call(arguments={"n": steps}, is_running=True))
            await journal.flush()
            record.log.append(Completed(b'{"content":[]}'))
            end(journal, [record])
            with monkeypatch.context() as context:
                context.setattr(store, "_writer", StoppedLink(first.links.writer, steps))
                await journal.flush()
        await become_gone(monkeypatch, first.links, second.links)
        assert sorted(await arguments_in(late)) == [f'{{"n":{steps}}}' for steps in range(5)]


class StoppedLink:
    """Sends so many requests, then none."""

    def __init__(self, link: Link, requests: int) -> None:
        self._link = link
        self._requests = requests

    async def ask(self, *commands: Command) -> list[Reply]:
        self._requests -= 1
        if self._requests < 0:
            raise StoreFault("unusable", "it was killed")
        return await self._link.ask(*commands)


async def test_damaged_records_are_left_out(tmp_path: Path) -> None:
    async with opened(one := new_redis(tmp_path)):
        store, keys = RedisHistory(one.links, wall_time), one.links.keys.history
        await keep(new_journal(store, hub=one.log.instance), past_call(arguments={"n": 1}))
        field = f"{one.log.instance} 0"
        await one.links.writer.ask(
            ("HSET", keys.batches, "x", b"y"), ("HSET", keys.batches, "in_x 7", b"\x95\x01\x01\x01\x01\x90"),
            ("LPUSH", keys.losses, b"{"), ("HSET", keys.runs, b"\xff", b"?"),
            ("HDEL", keys.texts, f"{field} 0"),
        )  # fmt: skip
        assert await arguments_in(store) == [""]
        await one.links.writer.ask(("HSET", keys.heads, field, b"\xc1"))
        assert await arguments_in(store) == []
