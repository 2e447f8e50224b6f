"""The server of the streams is killed, paused and started again: writes wait for it, and nothing confirmed is lost."""

from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
import structlog

from mcp_hub.calls.plan import CallRules, StreamLimits
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import SystemClock
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import Change, Message, SessionRow, StoreLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.redis import store as redis_module
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import redis_store
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.away import FailsafePair, is_away, is_back, new_store, written
from tests.unit.stores.event_stores import append, create, events, found, new_row, numbered, opened, replayed
from tests.unit.stores.test_redis_replicas import fall_silent

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]


async def test_what_is_unknown_may_be_on_its_way_when_the_server_is_back(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    server.kill()
    await is_away(*mortal_pair)
    row = await create(one, new_row(one))
    server.start()
    await is_back(two)
    with pytest.raises(StoreFault):
        await two.log.find(row.id)
    with pytest.raises(StoreFault):
        await two.sessions.find("se_1")
    await is_back(one)
    assert (await found(two, row)).id == row.id
    while not two.backing.is_settled:
        await two.inbox.wait(0.05)
    assert await two.log.find(new_row(two).id) is None and await two.sessions.find("se_1") is None


async def test_a_stream_whose_beginning_was_not_answered_is_ended_and_its_key_is_free(
    mortal_pair: FailsafePair,
) -> None:
    one, two = mortal_pair
    row = await create(two, new_row(one, key="k"))  # as the server may have done it for the first one
    answers: list[StoreError | None] = []
    cast(Any, one.log)._writes._created(
        row, events(1, 1), answers.append, StoreFault("unreachable", "it did not answer")
    )
    assert [type(answer) for answer in answers] == [StoreFault]
    await is_back(one)
    while not (ended := await found(two, row)).has_ended:
        await two.inbox.wait(0.05)
    begin, ending = await replayed(two, row)
    data = msgspec.json.decode(ending)["data"]
    assert begin == numbered(1, 1)[0] and (data["code"], data["retryable"]) == ("store_unavailable", True)
    assert "outcome" not in data, "the call was not sent"
    assert (ended.status, ended.last, ended.ttl) == ("failed", 2, row.ttl), "who joined it meanwhile reads its end"
    await create(two, new_row(two, key="k"))


async def test_an_append_that_is_under_way_while_its_stream_leaves_is_not_lost(mortal_pair: FailsafePair) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one))
    answers: list[StoreError | None] = []
    one.log.append(row.id, 1, events(2, 1), Change(5.0), answers.append)
    cast(Any, one.log)._streams.leave_all()  # the server is another
    while not answers:
        await is_back(one)
        await one.inbox.wait(0.05)
    assert answers == [None] and (await found(one, row)).last == 2
    one.backing.failed(StoreFault("unreachable", "it does not answer"))
    waiting = written(one, row, 3)
    assert waiting == []
    await is_back(one)
    assert waiting == [None]
    await append(one, row, 4, status="completed")
    assert await replayed(two, row) == numbered(1, 4)


async def test_an_ended_tail_returns_though_nothing_runs_here_any_more(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one))
    server.kill()
    ending = written(one, row, 2, status="completed")
    await is_away(one)
    server.start()
    while not ending:
        await one.leases.orphans()
        await one.inbox.wait(0.05)
    await is_back(two)
    assert ending == [None] and await replayed(two, row) == numbered(1, 2)


async def test_what_only_the_store_can_know_fails_while_it_is_away(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, _ = mortal_pair
    own = await create(one, new_row(one))
    server.kill()
    for ask in (
        one.log.find_key("local", "k"),
        one.log.rows("local", 10),
        one.sessions.find("se_1"),
        one.log.find(new_row(one).id),
    ):
        with pytest.raises(StoreFault):
            await ask
    with pytest.raises(StoreFault):
        await create(one, new_row(one, key="k"))
    assert await found(one, own) == own
    assert await one.leases.orphans() == [] and not await one.leases.is_orphan(new_row(one, owner="in_other"))
    assert await one.leases.claim(new_row(one, owner="in_other"), [], Change(5.0)) is None
    assert await one.inbox.post(Message(own.id, "input", b"1")) and await one.inbox.take() == [
        Message(own.id, "input", b"1")
    ]


async def test_a_session_that_began_meanwhile_is_known_everywhere_afterwards(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    server.kill()
    session = SessionRow("se_1", "local", b"{}", 4e9)
    await one.sessions.put(session)
    assert await one.sessions.find("se_1") == session
    server.start()
    await is_back(one)
    await is_back(two)
    assert await two.sessions.find("se_1") == session


async def test_a_stream_is_not_acknowledged_before_other_replicas_can_find_it(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, _ = mortal_pair
    streams = StreamPort(StreamTable(one, SystemClock(), StreamLimits()), lambda server, tool: CallRules())
    server.kill()
    await is_away(one)
    row = await create(one, new_row(one), 1)
    told: list[bool] = []
    StreamHandle(streams, Stream(row, one.log)).on_stored(lambda: told.append(one.log.survives(row.id)))
    await append(one, row, 2)
    assert told == []
    server.start()
    while not told:
        await is_back(one)
        await one.inbox.wait(0.05)
    assert told == [True]


async def test_a_paused_server_is_given_up_and_its_late_answers_do_no_harm(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one))
    server.pause()
    try:
        waiting = written(one, row, 2, 3)
        while one.log.is_durable:
            await one.inbox.wait(0.05)
        assert waiting == []
    finally:
        server.go_on()
    await is_back(one)
    assert waiting == [None]
    await append(one, row, 5, status="completed")
    await is_back(two)
    assert await replayed(two, row) == numbered(1, 5)


async def test_a_tail_of_a_stream_that_was_claimed_meanwhile_is_refused(
    server: RedisServer, mortal_pair: FailsafePair
) -> None:
    one, two = mortal_pair
    row = await create(one, new_row(one))
    store = one.backing.store
    server.kill()
    waiting = written(one, row, 2)
    await is_away(one)
    await fall_silent(store)  # type: ignore[arg-type]  # it is the store on the server
    server.start()
    await is_back(two)
    while not (left := await two.leases.orphans()):
        await two.inbox.wait(0.05)
    assert [found.id for found in left] == [row.id]
    assert await two.leases.claim(left[0], numbered(2, 2), Change(5.0, status="failed")) is not None
    await store.touch()  # type: ignore[union-attr]
    await is_back(one)
    assert [type(answer) for answer in waiting] == [Fenced]
    with pytest.raises(Fenced):
        await append(one, row, 3)
    assert await replayed(one, row) == numbered(1, 2)


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_what_a_server_loses_by_its_restart_is_written_again(
    server: RedisServer, mortal_pair: FailsafePair, *, is_noticed: bool
) -> None:
    one, two = mortal_pair
    old = await create(one, new_row(one, ttl=60.0), 2)
    grown, ended, new = old, await create(one, new_row(one), 1), await create(one, new_row(one, key="k"), 1)
    aof = sum(path.stat().st_size for path in (server.folder / "appendonlydir").glob("*.incr.aof"))
    await append(one, grown, 3, 2)
    await append(one, ended, 2, status="completed")
    lost = await create(one, new_row(one), 3)
    server.kill()
    for path in (server.folder / "appendonlydir").glob("*.incr.aof"):  # as if the disk had been slow
        with path.open("r+b") as file:
            file.truncate(aof)
    if is_noticed:
        written(one, grown, 5)
        await is_away(one)
    server.start()
    await is_back(one)
    await append(one, grown, 6 if is_noticed else 5, status="completed")
    while (found := await two.log.find(ended.id)) is None or not found.has_ended or await two.log.find(lost.id) is None:
        await one.inbox.has_news()
        await one.inbox.wait(0.05)
    for row, last in ((grown, 6 if is_noticed else 5), (ended, 2), (new, 1), (lost, 3)):
        assert await replayed(two, row) == numbered(1, last)
    assert await two.log.find_key("local", "k") == new


async def test_a_hub_starts_without_its_server_and_finds_it_later(server: RedisServer) -> None:
    server.kill()
    async with opened(store := new_store(server)):
        row = await create(store, new_row(store), 2)
        assert not store.log.is_durable
        server.start()
        await is_back(store)
        async with opened(other := new_store(server)):
            assert await replayed(other, row) == numbered(1, 2)


async def test_a_server_without_memory_counts_as_away(server: RedisServer, mortal_pair: FailsafePair) -> None:
    one, _ = mortal_pair
    row = await create(one, new_row(one))
    reader = one.backing.store.links.reader  # type: ignore[union-attr]
    await reader.ask(("CONFIG", "SET", "maxmemory", "1"))
    waiting = written(one, row, 2)
    while one.log.is_durable:
        await one.inbox.wait(0.05)
    await reader.ask(("CONFIG", "SET", "maxmemory", "0"))
    await is_back(one)
    assert waiting == [None]
    await append(one, row, 3, status="completed")
    assert await replayed(one, row) == numbered(1, 3)


async def test_settings_that_lose_streams_are_warned_of_and_the_password_is_not_shown(tmp_path: Path) -> None:
    if binary() is None:
        pytest.skip(NO_SERVER)
    options = ("--appendonly", "no", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    server = RedisServer(tmp_path, *options, "--requirepass", "very-secret-word")
    server.start()
    url = server.url.replace("//", "//:very-secret-word@")
    try:
        with structlog.testing.capture_logs() as logs:
            async with opened(store := redis_store(url, "test:", 1.0, "local", StoreLimits(), SystemClock())):
                assert store.log.is_durable
            async with opened(store := redis_store(server.url, "test:", 1.0, "local", StoreLimits(), SystemClock())):
                assert not store.log.is_durable
    finally:
        server.kill()
    assert [log["event"] for log in logs[:2]] == ["store_may_evict", "store_not_persistent"]
    assert any(log["event"] == "store_failed" for log in logs)
    assert "very-secret-word" not in str(logs)


async def test_a_replica_of_the_server_is_waited_for_where_that_is_asked(server: RedisServer) -> None:
    with structlog.testing.capture_logs() as logs:
        async with opened(store := redis_store(server.url, "test:", 1.0, "replica", StoreLimits(), SystemClock())):
            row = await create(store, new_row(store))
            await append(store, row, 2)
            assert [log["event"] for log in logs].count("store_not_replicated") == 1
            await append(store, row, 3, status="completed")
    assert [log["event"] for log in logs].count("store_not_replicated") == 2


async def test_server_is_not_used_before_the_key_of_all_replicas_is_known(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is confirmed can be asked about at once, and the question's state is sealed with that key."""
    find, looks = RedisStore._shared_secret, list[RedisStore]()

    async def failing(store: RedisStore) -> bytes:
        looks.append(store)
        raise StoreFault("unreachable", "it did not answer")

    monkeypatch.setattr(RedisStore, "_shared_secret", failing)
    async with opened(store := new_store(server)):
        assert store.replicas is not None
        while len(looks) < 6 or cast(Any, store.backing).store.links.leases.beats < 5:
            await store.inbox.has_news()
            assert not store.log.is_durable
            await store.inbox.wait(0.05)
        assert not store.log.is_durable and store.replicas.secret is None
        monkeypatch.setattr(RedisStore, "_shared_secret", find)
        await is_back(store)
        assert len(store.replicas.secret or b"") == 32


async def test_key_of_all_replicas_is_written_again_at_once_to_a_server_that_has_lost_it(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that starts meanwhile would make another one."""
    monkeypatch.setattr(redis_module, "_GREET", 1 << 30)
    async with opened(store := new_store(server)):
        assert store.replicas is not None and store.replicas.secret is not None
        with server.client as client:
            client.delete("test:{secret}")
        server.kill()
        server.start()
        with anyio.fail_after(30), server.client as client:
            while client.get("test:{secret}") is None:
                await store.inbox.wait(0.05)
            assert client.get("test:{secret}") == store.replicas.secret
