"""Replicas on one Redis or Valkey server behind a balancer, each a process whose CPU is measured."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import measure
from bench.relays import STOP_LIMIT, Setup, Side, await_port, spawn
from tests.redis_server import RedisServer
from tests.upstreams.launch import entry

_COMMANDS = re.compile(r"cmdstat_(?!info|client|hello|monitor)")
"""Not those of this measurement."""


class Asking(Setup):
    """The upstream of every measurement, e0, and one that asks its client questions, e1."""

    def servers(self) -> dict[str, dict[str, object]]:
        return {**super().servers(), "e1": entry(era="handshake")}


@dataclass(frozen=True)
class Totals:
    """Seconds of CPU of each process; commands that the server ran, in scripts, too; bytes that it read and wrote."""

    hubs: list[float]
    server: float
    balancer: float
    commands: Counter[str]
    read: int
    written: int

    def since(self, before: "Totals") -> "Totals":
        return Totals(
            [new - old for new, old in zip(self.hubs, before.hubs, strict=True)],
            self.server - before.server,
            self.balancer - before.balancer,
            self.commands - before.commands,
            self.read - before.read,
            self.written - before.written,
        )


@dataclass
class Site:
    """Who runs; `port` is the balancer's."""

    server: RedisServer
    sides: list[Side]
    balancer: subprocess.Popen[bytes]
    port: int

    def totals(self) -> Totals:
        with self.server.client as client:
            stats: dict[str, Any] = client.info("commandstats")
            network: dict[str, Any] = client.info("stats")
        return Totals(
            [measure.cpu_seconds(side.pid) for side in self.sides],
            measure.cpu_seconds(self.server.pid),
            measure.cpu_seconds(self.balancer.pid),
            Counter({name: int(stat["calls"]) for name, stat in stats.items() if _COMMANDS.match(name)}),
            int(network["total_net_input_bytes"]),
            int(network["total_net_output_bytes"]),
        )


@contextmanager
def site(count: int, hub: dict[str, object], setup: Setup | None = None, lease: float | None = None) -> Iterator[Site]:
    """So many replicas, which have listed their servers. Raises `NotInstalled`, `RelayFailed`."""
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name, ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(RedisServer(folder / "server"))
        store = {"url": server.url} if lease is None else {"url": server.url, "lease": lease}
        sides = []
        for number in range(count):
            side = spawn("hub", setup or Asking("http", upstreams=2), folder / f"hub-{number}", hub | {"store": store})
            stack.callback(side.stop)
            sides.append(side)
        for side in sides:
            await_port(side)
            side.learn()
        urls = [f"http://127.0.0.1:{side.port}" for side in sides]
        command = [sys.executable, "-m", "rigs.replicas.balancer", *urls]
        balancer = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[1])
        stack.callback(ended, balancer)
        assert balancer.stderr is not None
        yield Site(server, sides, balancer, int(balancer.stderr.readline().rpartition(b":")[2]))


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
