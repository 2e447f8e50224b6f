"""A cluster of real servers for tests: they share the hash slots, and there are no copies."""

import time
from pathlib import Path
from typing import Self

from redis.crc import key_slot

from tests.redis_server import RedisServer
from tests.upstreams.launch import free_port

_SLOTS = 16384
_PATIENCE = 120.0


class RedisCluster:
    """Servers that know each other once the block is entered."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self._buses = [free_port() for _ in range(count)]  # by default 10,000 above, where there may be no port
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port")
        self.servers = [RedisServer(folder / str(bus), *options, str(bus)) for bus in self._buses]

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            self._join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.stop()

    def port_of(self, key: str) -> int:
        """The port of the server that has the slot of this key."""
        return self.servers[key_slot(key.encode()) // self._share].port

    @property
    def _share(self) -> int:
        return -(-_SLOTS // len(self.servers))

    def _join(self) -> None:
        share = self._share
        for number, server in enumerate(self.servers):
            with server.client as client:
                last = min((number + 1) * share, _SLOTS) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self._buses[0])
        until = time.monotonic() + _PATIENCE
        while not all(self._is_whole(server) for server in self.servers):
            assert time.monotonic() < until, "the cluster does not come together"
            time.sleep(0.02)

    def _is_whole(self, server: RedisServer) -> bool:
        with server.client as client:
            info = str(client.execute_command("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and f"cluster_known_nodes:{len(self.servers)}" in info
