"""Several replicas: sessions that they have in memory, a page whose server is lost, keys of one command in one slot."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, Chunk, EventPage, Message, SessionRow, StoreLimits
from mcp_hub.stores.documents import DocumentLimits
from mcp_hub.stores.redis.link import Server
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import _RedisDocuments, redis_store
from tests.redis_cluster import RedisCluster
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.event_stores import append, create, found, line, new_row, numbered, opened, replayed
from tests.unit.stores.redis_stores import Pair
from tests.upstreams.child import until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROW: Final = SessionRow("se_1", "local", b"{}", 9e9)


class Heard:
    """What a store tells of the sessions that its replica knows."""

    def __init__(self, store: RedisStore, *known: str) -> None:
        self.sessions: list[tuple[str, SessionRow | None]] = []
        self._bell = anyio.Event()
        for id_ in known:
            store.sessions.live.join(id_, partial(self._changed, id_))

    def _changed(self, id_: str, row: SessionRow | None) -> None:
        self.sessions.append((id_, row))
        self._bell.set()

    async def next(self) -> tuple[str, SessionRow | None]:
        while not self.sessions:
            self._bell = anyio.Event()
            await self._bell.wait()
        return self.sessions.pop(0)


async def test_others_are_told_of_changes_and_the_end_of_sessions_that_they_know(pair: Pair) -> None:
    one, two = pair
    own, other = Heard(one, "se_1", "se_2"), Heard(two, "se_1")
    for id_ in ("se_1", "se_2"):
        await one.sessions.put(replace(ROW, id=id_))
        changed = replace(ROW, id=id_, body=b"[]")
        assert await one.sessions.put(changed, replace(ROW, id=id_)) == changed
    assert await other.next() == ("se_1", replace(ROW, body=b"[]"))
    await one.sessions.drop("se_1")
    assert await other.next() == ("se_1", None)
    assert (own.sessions, other.sessions) == ([], [])


async def test_a_session_that_was_changed_elsewhere_or_ended_is_not_overwritten(pair: Pair) -> None:
    one, two = pair
    await one.sessions.put(ROW)
    newer, mine = replace(ROW, body=b"[1]"), replace(ROW, body=b"[2]")
    assert await two.sessions.put(newer, ROW) == newer
    assert await one.sessions.put(mine, ROW) == newer == await one.sessions.find("se_1")
    assert await one.sessions.put(mine, newer) == mine == await two.sessions.find("se_1")
    await two.sessions.drop("se_1")
    assert await one.sessions.put(newer, mine) is None is await one.sessions.find("se_1")
    assert await one.sessions.put(newer) is None


async def test_replicas_tell_each_other_of_changed_lists_once(pair: Pair) -> None:
    one, two = (store.sessions.lists for store in pair)
    at_one, at_two = (anyio.create_memory_object_stream[str](9) for _ in pair)
    with one.following("git", at_one[0].send_nowait), two.following("git", at_two[0].send_nowait):
        one.changed("ci", "of a server that nobody follows")
        one.changed("git", "1")
        assert await at_two[1].receive() == "1"
        two.changed("git", "1")
        two.changed("git", "2")
        assert await at_one[1].receive() == "2"
        assert at_two[1].statistics().current_buffer_used == 0
    for stream in (*at_one, *at_two):
        stream.close()


async def test_a_replica_that_was_cut_off_hears_of_all_that_was_changed_meanwhile(pair: Pair) -> None:
    one, two = pair
    ids = [f"se_{number}" for number in range(1500)]
    other = Heard(two, *ids)
    await two._doorbell.stop()
    for id_ in ids:
        await one.sessions.put(replace(ROW, id=id_))
        await one.sessions.drop(id_)
    two._doorbell.start()
    assert [await other.next() for _ in ids] == [(id_, None) for id_ in ids]


class LaterClock(SystemClock):
    """A clock that can be put forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_events_that_only_the_lost_server_has_are_not_said_to_be_gone(tmp_path: Path) -> None:
    clock = LaterClock()
    with RedisServer(tmp_path) as server:
        async with opened(redis_store(server.url, "test:", 5.0, "local", StoreLimits(), clock)) as store:
            row = await create(store, new_row(store), 3)
            clock.ahead = 60  # what was confirmed lately stays in memory, too
            await append(store, row, 4)
            pages: list[EventPage | StoreError | None] = []
            appended: list[StoreError | None] = []
            server.kill()
            store.log.append(row.id, row.epoch, Chunk(5, (line(5),)), Change(2.0), appended.append)
            for after in (0, 3):
                store.log.fetch(row.id, after, 100, pages.append)
            await until(lambda: len(pages) == 2)
            assert appended == [], "it waits for the server"
            assert isinstance(pages[0], StoreError), pages[0]
            assert isinstance(pages[1], EventPage) and list(pages[1].lines) == numbered(4, 4)
            row = await found(store, row)
            assert (row.first, row.last) == (1, 4)
            server.start()


EVERYWHERE = ("SCRIPT LOAD", "TIME", "INFO", "WAIT")


class Routed:
    """Sends each command to the server of its first key; waits for no news."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._clients = {server.port: Redis(port=server.port, protocol=2) for server in cluster.servers}
        self._queued: list[tuple[Any, ...]] = []
        self.places: set[int] = set()

    def pipeline(self, *, transaction: bool) -> "Routed":
        assert not transaction and not self._queued
        return self

    def execute_command(self, *command: Any) -> Any:
        if command[0] == "XREAD":
            return anyio.sleep(0.01)
        self._queued.append(command)
        return None

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        queued, self._queued = self._queued, []
        return [await self._sent(command) for command in queued]

    async def _sent(self, command: Sequence[Any]) -> Any:
        ports = list(self._clients)
        if command[0] not in EVERYWHERE:
            ports = [self._cluster.port_of(str(command[3 if command[0] == "EVALSHA" else 1]))]
            self.places.update(ports)
        try:
            return [await self._ask(port, command) for port in ports][-1]
        except Exception as error:  # as a pipeline that does not raise
            return error

    async def _ask(self, port: int, command: Sequence[Any]) -> Any:
        return await self._clients[port].execute_command(*command)  # type: ignore[no-untyped-call]  # so in redis-py

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()


class Routing(Server, frozen=True):
    """Names no server: its clients know the cluster."""

    cluster: Any = None

    def client(self, *, waits: bool = False) -> Any:
        return Routed(self.cluster)


@pytest.mark.slow
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_every_command_of_the_store_is_about_one_slot(tmp_path: Path) -> None:
    limits = StoreLimits(stream_events=20, ended=2, sessions=3)
    with RedisCluster(tmp_path) as cluster:
        server = Routing("redis://127.0.0.1", lease=1, cluster=cluster)
        async with opened(store := RedisStore(server, limits)):
            for number in range(6):
                row = await create(store, new_row(store, key=f"key {number}"), 2)
                await append(store, row, 3, 3)
                assert await store.log.find_key(row.principal, f"key {number}") is not None
                assert await store.inbox.post(Message(row.id, "input", b"{}")) and await store.inbox.take()
                if number % 2:
                    await append(store, row, 6, 30)
                    await append(store, row, 36, status="completed", frees_key=True)
                assert (await store.log.find(row.id)) is not None and await replayed(store, row)
                await store.sessions.put(SessionRow(f"se_{number}", "p", b"{}", 1e12))
                assert await store.sessions.find(f"se_{number}") is not None
            wide = await create(store, new_row(store), 1)
            await append(store, wide, 2, size=2 << 20)
            assert len(await replayed(store, wide)) == 2
            assert await store.log.rows(None, 10) and await store.log.rows(row.principal, 10)
            documents = _RedisDocuments(store.links, DocumentLimits(), SystemClock().now)
            for number in range(3):
                assert await documents.put("a{b}", b"x" * (number + 1))
            await store.sessions.drop("se_5")
            await store.sweep(1e12)
            assert await store.leases.orphans() == []
            assert len(store._clients[0].places) == len(cluster.servers)  # type: ignore[attr-defined]
