"""Hubs on one store that are killed and started again: real processes, SIGKILL, the same ports and state folders."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import httpx2

from mcp_hub.types import JsonObject
from tests.upstreams.launch import free_port

_UP = 240.0
"""Seconds that a hub may take to serve on a busy machine."""
_HUB: JsonObject = {"task_after": "0s", "limits": {"detached_calls": 4096, "running_calls": 4096}}
_JOBS: JsonObject = {
    "local": "mcp_hub.examples.jobs:registry",
    "prefix": "never",
    "per_tool": {"run_job": {"task": "always", "orphan": "finish"}, "count_words": {"history": "off"}},
}


@dataclass(eq=False)
class Life:
    """One process of a hub, from its start to its kill; `died` is when that was, by both clocks.

    A process that is paused for longer than its lease counts as killed: it does not own what it had any more.
    """

    process: subprocess.Popen[bytes]
    died: float | None = None
    died_at: float = 0.0
    is_paused: bool = False
    back: float | None = None
    later: "Life | None" = None
    """When a process that was lost was there again, and its life from then on."""

    @property
    def is_killed(self) -> bool:
        return self.died is not None

    def returned(self) -> "Life":
        """The process is there again."""
        self.back, self.later = time.monotonic(), Life(self.process)
        return self.later

    def loss(self, until: float, bearable: float) -> "Life":
        """The life whose loss an ending at `until` (Unix time) comes from: not one that was over after `bearable`
        seconds, if there was a later one.
        """
        later = self.later
        if self.died is None or self.back is None or later is None or self.back - self.died >= bearable:
            return self
        return later.loss(until, bearable) if later.is_killed and later.died_at <= until else self

    def lose(self) -> None:
        """The process runs on without its server, perhaps for longer than its lease."""
        self.died, self.died_at = time.monotonic(), time.time()
        self.is_paused = True

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.died, self.died_at = time.monotonic(), time.time()
        self.is_paused = number == signal.SIGSTOP
        self.process.send_signal(number)


@dataclass(eq=False)
class Hub:
    """One place in the fleet; `life` is its present process."""

    port: int
    life: Life
    starts: list[float] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Door:
    """Where a request goes; `life` is the process that gets it, None where that is not known."""

    url: str
    life: Life | None = None


class Doors(Protocol):
    """Something to send requests to."""

    @property
    def urls(self) -> Sequence[str]:
        """Each hub's own."""

    def any(self) -> Door: ...


class Fleet:
    """`count` hubs on one state folder, or replicas on one server: then each has a folder of its own.

    `kill` ends one at random and starts it again.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        rng: random.Random,
        store: JsonObject | None = None,
        settings: JsonObject | None = None,
        urls: Sequence[str] = (),
        servers: JsonObject | None = None,
        *,
        has_clocks: bool = False,
    ) -> None:
        """`store` is what the configuration says of the server, `settings` what it says besides of the hub.

        `urls` are where each replica finds the server; `servers` are there besides the jobs. `has_clocks`: `step_clock`
        works.
        """
        self.folder = folder
        self.kills = 0
        self._rng = rng
        self._is_shared = store is None
        self.has_clocks = has_clocks
        hub = _HUB if store is None else {**_HUB, "store": store}
        hub = {**hub, **(settings or {})}
        (folder / "servers.yaml").write_text(json.dumps({"hub": hub, "servers": {"jobs": _JOBS, **(servers or {})}}))
        ports = [free_port() for _ in range(count)]
        self._urls = dict(zip(ports, urls, strict=False))
        self.hubs = [Hub(port, self.started(port)) for port in ports]

    @property
    def urls(self) -> list[str]:
        return [hub.url for hub in self.hubs]

    def any(self) -> Door:
        hub = self.one()
        return Door(hub.url, hub.life)

    def one(self) -> Hub:
        return self._rng.choice(self.hubs)

    async def serving(self, hub: Hub, since: float) -> None:
        """Waits until the hub answers; notes how long that took."""
        async with httpx2.AsyncClient(trust_env=False, timeout=2, verify=False) as http:
            while True:
                try:
                    await http.get(f"{hub.url}/v1/tools")
                    break
                except httpx2.HTTPError:
                    if hub.life.process.poll() is not None or time.monotonic() - since > _UP:
                        raise AssertionError(self._last_words(hub)) from None
                    await anyio.sleep(0.02)
        hub.starts.append(time.monotonic() - since)

    async def kill(self) -> None:
        """SIGKILL for one hub, and a new process in its place."""
        hub = self.one()
        hub.life.kill()
        hub.life.process.wait()
        self.kills += 1
        began = time.monotonic()
        hub.life = self.started(hub.port)
        await self.serving(hub, began)

    def stop(self) -> None:
        for hub in self.hubs:
            hub.life.process.terminate()
        for hub in self.hubs:
            try:
                hub.life.process.wait(10)
            except subprocess.TimeoutExpired:
                hub.life.process.kill()
                hub.life.process.wait()

    def started(self, port: int) -> Life:
        """A new process on this port."""
        config = str(self.folder / "servers.yaml")
        program = "rigs.chaos.stepped" if self.has_clocks else "mcp_hub"
        command = [sys.executable, "-m", program, "serve", "--http", "--port", str(port), "--config", config]
        state = self.folder / ("state" if self._is_shared else f"state-{port}")
        env = {**os.environ, "MCP_HUB_STATE_DIR": str(state), "STORE_URL": self._urls.get(port, "")}
        env["CLOCK_OFF"] = str(self._clock(port))
        with (self.folder / f"hub-{port}.log").open("ab") as log:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return Life(process)

    def step_clock(self, hub: Hub, seconds: float) -> None:
        """Sets the wall clock of the hub's process by so many seconds wrong."""
        path = self._clock(hub.port)
        new = path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(path)

    def _clock(self, port: int) -> Path:
        return self.folder / f"clock-{port}"

    def _last_words(self, hub: Hub) -> str:
        text = (self.folder / f"hub-{hub.port}.log").read_text(errors="replace")
        return f"the hub on port {hub.port} does not serve: {text[-2000:]}"
