"""All keys of one command, those that its script touches as well, are in one hash slot: a cluster takes them.

A client that sends each command to the server of its first key takes the place of the store's own. Whatever needs
another server is refused by the cluster.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis

from mcp_hub.clock import SystemClock
from mcp_hub.stores.base import Message, SessionRow, StoreLimits
from mcp_hub.stores.documents import DocumentLimits
from mcp_hub.stores.redis.link import Server
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import _RedisDocuments
from tests.redis_cluster import RedisCluster
from tests.redis_server import NO_SERVER, binary
from tests.unit.stores.event_stores import append, create, new_row, opened, replayed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(binary() is None, reason=NO_SERVER),
]

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


async def test_every_command_of_the_store_is_about_one_slot(tmp_path: Path) -> None:
    limits = StoreLimits(stream_events=20, ended=2, sessions=3)
    with RedisCluster(tmp_path) as cluster:
        server = Routing("redis://127.0.0.1", lease=1, cluster=cluster)
        async with opened(store := RedisStore(server, limits, SystemClock())):
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
                assert await documents.put("p", b"x" * (number + 1))
            await store.sessions.drop("se_5")
            await store.sweep(1e12)
            assert await store.leases.orphans() == []
            assert len(store._clients[0].places) == len(cluster.servers)  # type: ignore[attr-defined]
