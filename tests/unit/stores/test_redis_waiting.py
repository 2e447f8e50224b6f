"""Writes wait for a server that does not answer: nothing leaves before it has confirmed it."""

from typing import Any, cast

import anyio
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import Change
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.recovery.writes import _Append
from tests.redis_server import RedisServer
from tests.unit.stores.away import FailsafePair, is_away, is_back, written
from tests.unit.stores.event_stores import append, create, events, found, new_row, numbered, replayed, settled
from tests.unit.stores.test_redis_replicas import fall_silent

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]


async def test_a_stream_that_begins_without_the_server_is_its_hub_s_alone_until_it_is_back(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    server.kill()
    await is_away(one)
    row = await create(one, new_row(one), 3)
    await append(one, row, 4, 2)
    assert not one.log.survives(row.id) and one.log.is_held(row.id) and await replayed(one, row) == numbered(1, 5)
    server.start()
    await is_back(one)
    await is_back(two)
    assert await replayed(two, row) == numbered(1, 5) and one.log.survives(row.id)


async def test_a_beginning_that_was_not_answered_is_not_known_until_it_is(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    row, answers = new_row(one, last=2), list[StoreError | None]()
    server.pause()
    one.log.create(row, events(1, 2), answers.append)
    while one.log.is_durable:
        await one.inbox.wait(0.05)
    assert answers == []
    server.go_on()
    await is_back(one)
    assert answers == [None] and await replayed(two, row) == numbered(1, 2)
    await append(one, row, 3, status="completed")
    assert await replayed(two, row) == numbered(1, 3)


async def test_a_stream_is_not_listed_before_its_beginning_is_confirmed(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, _ = mortal_pair
    old = await create(one, new_row(one))
    row = new_row(one, last=2, created=200.0)
    server.pause()
    one.log.create(row, events(1, 2), lambda error: None)
    while one.log.is_durable:
        await one.inbox.wait(0.05)
    alone = await create(one, new_row(one, created=150.0))
    server.go_on()
    while not one.log.is_durable:
        await one.backing.recover(lambda: None)
        await one.inbox.wait(0.05)
    assert [listed.id for listed in await one.log.rows("local", 10)] == [alone.id, old.id]
    assert [listed.id for listed in await one.log.rows("local", 1)] == [alone.id]
    await is_back(one)
    assert [listed.id for listed in await one.log.rows("local", 10)] == [row.id, alone.id, old.id]


async def test_a_write_whose_answer_alone_was_lost_is_not_made_twice(mortal_pair: FailsafePair) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one), 2)
    store: Any = one.backing.store
    answers: list[StoreError | None] = []
    change = Change(101.0, status="completed")
    await settled(lambda done: store.log.append(row.id, row.epoch, events(3, 2), change, done))
    cast(Any, one.log)._writes._appended(
        _Append(row.id, row.epoch, events(3, 2), change, answers.append), StoreFault("unreachable", "no answer")
    )
    await is_back(one)
    assert answers == [None] and await replayed(two, row) == numbered(1, 4)
    assert (await found(one, row)).status == "completed"


async def held_again(store: FailsafeStore, row: StreamInfo) -> None:
    with anyio.fail_after(60):
        while not store.log.is_held(row.id):
            await is_back(store)
            await store.inbox.wait(0.05)


async def test_streams_from_before_a_lease_are_held_again_once_they_are_checked(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, _ = mortal_pair
    row = await create(one, new_row(one))
    await held_again(one, row)  # on a busy machine its lease may have ended meanwhile
    server.pause()
    while one.log.is_held(row.id):
        await one.inbox.wait(0.05)
    server.go_on()
    leases = cast(Any, one.backing.store).links.leases
    with anyio.fail_after(60):
        while not leases.is_held:  # noqa: ASYNC110 - nothing tells
            await anyio.sleep(0.01)
    assert not one.log.is_held(row.id), "a beat gives nothing back"
    await held_again(one, row)
    await append(one, row, 2, status="completed")


@pytest.mark.parametrize("kept", [0, 1])
async def test_a_stream_of_which_the_server_has_lost_more_than_its_owner_remembers_continues_with_its_next_number(
    server: RedisServer, mortal_pair: FailsafePair, kept: int
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one), 2)
    aof = sum(path.stat().st_size for path in (server.folder / "appendonlydir").glob("*.incr.aof"))
    await append(one, row, 3, 3)
    cast(Any, one.log)._streams._recent.take(row.id)  # as after 5 s
    if kept:
        await append(one, row, 6)
    server.kill()
    for path in (server.folder / "appendonlydir").glob("*.incr.aof"):
        with path.open("r+b") as file:
            file.truncate(aof)
    server.start()
    await is_back(one)
    for _ in range(3):
        await one.inbox.has_news()
    assert one.log.survives(row.id), "the server has it: it is nobody's alone"
    await append(one, row, 6 + kept, 2, status="completed")
    stored = await found(two, row)
    assert (stored.first, stored.last, stored.status) == (6, 7 + kept, "completed")
    assert await replayed(two, row) == await replayed(one, row) == numbered(6, 7 + kept)


async def test_an_owner_that_is_back_has_written_though_its_clock_shows_the_time_of_its_last_write(
    mortal_pair: FailsafePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one, updated=2e9 + 1 / 3), 2)
    monkeypatch.setattr("mcp_hub.stores.recovery.writes.wall_time", lambda: row.updated)
    cast(Any, one.backing.store).links.leases.held_from += 1  # as after a gap
    assert not one.log.is_held(row.id)
    while not one.log.is_held(row.id):
        await is_back(one)
        await one.inbox.wait(0.05)

    async def is_orphan(row: StreamInfo) -> bool:  # as it was when the claim was sent
        return True

    monkeypatch.setattr(cast(Any, two.backing.store).leases, "is_orphan", is_orphan)
    assert await two.leases.claim(row, numbered(3, 3), Change(5.0, status="failed")) is None
    assert await two.leases.claim(await found(two, row), numbered(3, 3), Change(5.0, status="failed")) is not None


async def test_writes_that_wait_fail_when_the_hub_stops(server: RedisServer, mortal_pair: FailsafePair) -> None:
    one, _ = mortal_pair
    row = await create(one, new_row(one))
    server.kill()
    answers = written(one, row, 2)
    await is_away(one)
    await one.close()
    assert [type(answer) for answer in answers] == [StoreFault]


async def test_events_wait_for_the_server_and_their_numbers_are_nobodys_before(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    running, ended = await create(one, new_row(one), 2), await create(one, new_row(one))
    server.kill()
    more = written(one, running, 3, 2, message="still here")
    ending = written(one, ended, 2, 2, status="completed")
    await is_away(one, two)
    assert not one.log.is_durable and more == ending == []
    assert (await found(one, running)).last == 2 and await replayed(one, running) == numbered(1, 2)
    assert (await found(one, ended)).status == "working"
    server.start()
    await is_back(one)
    await is_back(two)
    assert more == ending == [None]
    assert await replayed(two, running) == await replayed(one, running) == numbered(1, 4)
    assert await replayed(two, ended) == numbered(1, 3) and (await found(two, ended)).status == "completed"
    assert (await found(two, running)).message == "still here"
    await append(one, running, 5, status="cancelled")
    assert await replayed(two, running) == numbered(1, 5)


async def test_memory_does_not_answer_for_a_stream_that_another_replica_has_claimed(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one), 2)
    store = cast(Any, one.backing.store)
    await fall_silent(store)
    while not (left := await two.leases.orphans()):
        await two.inbox.wait(0.05)
    assert await two.leases.claim(left[0], numbered(3, 3), Change(5.0, status="failed")) is not None
    assert [type(answer) for answer in await answered(one, row)] == [Fenced]
    cast(Any, one.log)._streams.leave_all()  # the server is another
    assert await replayed(one, row) == numbered(1, 3) and (await found(one, row)).status == "failed"


async def answered(store: FailsafeStore, row: StreamInfo) -> list[StoreError | None]:
    """What an append is answered in the end."""
    answers = written(store, row, row.last + 1)
    while not answers:
        await store.inbox.wait(0.01)
    return answers


async def test_a_claim_whose_answer_was_lost_leaves_no_stream_without_a_writer(
    server: RedisServer, mortal_pair: FailsafePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = mortal_pair
    row = await create(two, new_row(two), 2)
    await fall_silent(cast(Any, two.backing.store))
    while not (left := await one.leases.orphans()):
        await one.inbox.wait(0.05)
    store = cast(Any, one.backing.store)
    claim = store.leases.claim

    async def unanswered(*given: Any) -> None:
        assert await claim(*given) is not None
        raise StoreFault("unreachable", "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store.leases, "claim", unanswered)
        assert await one.leases.claim(left[0], numbered(3, 3), Change(5.0, status="working")) is None
    await is_back(one)
    [mine] = await one.leases.orphans()
    assert (mine.id, mine.owner, mine.last) == (row.id, one.log.instance, 3) and await one.leases.is_orphan(mine)
    claimed = await one.leases.claim(mine, numbered(4, 4), Change(6.0, status="failed"))
    assert claimed is not None and claimed.has_ended
    assert await one.leases.orphans() == [] and await replayed(one, row) == numbered(1, 4)


async def test_the_end_of_a_stream_with_a_key_is_not_forgotten_when_the_store_fails_again(
    mortal_pair: FailsafePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = mortal_pair
    row = await create(two, new_row(one, key="k"))  # as the server may have done it for the first one
    writes = cast(Any, one.log)._writes
    writes._created(row, events(1, 1), lambda error: None, StoreFault("unreachable", "no answer"))
    with monkeypatch.context() as patched:
        fails = StoreFault("unreachable", "no answer")
        patched.setattr(writes._store.log, "append", lambda stream, epoch, chunk, change, callback: callback(fails))
        writes.end_unconfirmed()
    await is_back(one)
    while not (await found(two, row)).has_ended:
        await is_back(one)
        await two.inbox.wait(0.05)
