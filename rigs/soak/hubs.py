"""The hub of a soak, its servers, who kills them, and what the kernel and the probe say of the hub."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Self

from rigs.client import JudgingClient
from rigs.report import sandboxed
from rigs.soak.clients import answers
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.upstreams import family
from tests.upstreams.child import ENDS, Child, until
from tests.upstreams.launch import argv, free_port, patient
from tests.upstreams.messages import modern

SAFE = "good"
KILLED = ("h", "m", "q", "w")
"""`h` and `q` are of the handshake era, `m` of the modern one, `w` is a remote one of both. Only `q` and `m` are asked
to ask: who asks over a shared pipe is given one session at a time."""
_START = 240.0
_AGE = 1.5
"""Seconds that a server is spared: one that is killed before it is ready is started ever later, as it should be."""
_MOST_OWED = 4


@dataclass(frozen=True)
class Sample:
    """The hub at rest, after `calls`: memory in kB, and counts."""

    calls: int
    rss: int
    descriptors: int
    threads: int
    tasks: int
    children: int
    zombies: int


class SoakHub:
    """One hub over HTTP or stdio, with a probe in its process; its state is in `folder`."""

    remote: subprocess.Popen[bytes]
    process: Child

    def __init__(self, folder: Path, front: str, *, traces: bool = False, dials: bool = False) -> None:
        """`dials`: each local server has a child that connects all the time."""
        self.folder = folder
        self.front = front
        self.url = ""
        self.pipe: JudgingClient | None = None
        self._traces = traces
        self._dials = dials
        self._remote_port = free_port()
        self._probe = folder / "probe"

    async def __aenter__(self) -> Self:
        """Serves when it returns."""
        self._start_remote()
        (self.folder / "servers.yaml").write_text(json.dumps(self._config()))
        command = [sys.executable, str(Path(__file__).with_name("hub_process.py")), str(self._probe), "serve"]
        command += ["--config", str(self.folder / "servers.yaml")]
        env = {"MCP_HUB_STATE_DIR": str(self.folder / "state"), "PYTHONPATH": str(Path(__file__).parents[2])}
        env |= {"SOAK_TRACES": "1"} if self._traces else {}
        if self.front == "stdio":
            self.pipe = JudgingClient([*command, "--client", "mcp-hub"], env, answers())
            self.process = await self.pipe.__aenter__()
            await self.pipe.initialize()
        else:
            hub = Hub([*command, "--http", "--port", "0"], env)
            self.process = await hub.__aenter__()
            self.url = (await hub.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp", _START)).group()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.process.__aexit__(*error)
        self.remote.kill()
        self.remote.communicate()

    async def stop(self) -> int | None:
        """Ends it as clients do: by SIGTERM, or by closing its input. Its exit code."""
        await self.process.stop(ENDS)
        return self.process.returncode

    def _config(self) -> dict[str, object]:
        eras = {SAFE: "both", "h": "handshake", "m": "modern", "q": "handshake"}
        commands = {name: argv(name=name, era=era) for name, era in eras.items()}
        dialing = [family.__file__, "--dial"] if self._dials else []
        servers: dict[str, object] = {
            name: {"command": c[0], "args": [*dialing, *(c if dialing else c[1:])]} for name, c in commands.items()
        }
        servers["w"] = {
            "url": f"http://127.0.0.1:{self._remote_port}/mcp",
            "restart": {"intensity": 1_000_000, "period": "5s"},
        }
        # it is killed all the time on purpose; calls that hang would show as lost ones, not be ended by the hub
        defaults = {"restart": {"intensity": 1_000_000, "period": "5s"}}
        unknown = {"expose": "full", "max_result_tokens": 0}
        hub = {
            "clients": {"unknown": unknown},
            "prefix": "always",
            "http": {"session_rate": 0},
            "limits": {"detached_calls": 1000},
        }
        return sandboxed(patient({"hub": hub, "defaults": defaults, "servers": servers}), self.folder / "data")

    def _start_remote(self) -> None:
        quiet = subprocess.DEVNULL
        command = argv(name="w", http=self._remote_port)
        self.remote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)

    def kill_remote(self) -> None:
        """SIGKILL for the remote server, and a new process in its place."""
        self.remote.kill()
        self.remote.communicate()
        self._start_remote()

    async def answers(self, name: str) -> bool:
        """Whether calls to this server have a result now, over HTTP in both eras."""
        tool, arguments = f"{name}_echo", {"text": "up"}
        if self.pipe is not None:
            return (await self.pipe.call(tool, arguments, seconds=_START)).ending == "result"
        async with RestClient(self.url) as rest:
            if (await rest.call(tool, arguments, accept="application/json")).status_code != 200:
                return False
        async with HttpClient(self.url, seconds=_START) as client:
            params = modern({"name": tool, "arguments": arguments})
            return "result" in (await client.request("tools/call", params)).last

    def child_named(self, name: str) -> int | None:
        """The process of this server, if there is one."""
        for pid in _children(self.process.pid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"--name" in words and words[words.index(b"--name") + 1] == name.encode():
                    return pid
        return None

    def sample(self, calls: int) -> Sample:
        pid = self.process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        numbers = {key: int(value) for key, value in re.findall(r"(VmRSS|Threads):\s+(\d+)", status)}
        states = [_state(child) for child in _children(pid)]
        tasks = json.loads(self._probe.read_text())["tasks"] if self._probe.exists() else 0
        return Sample(
            calls,
            numbers["VmRSS"],
            len(os.listdir(f"/proc/{pid}/fd")),
            numbers["Threads"],
            tasks,
            len(states) - states.count("Z"),
            states.count("Z"),
        )

    @property
    def trace(self) -> Path:
        """The last snapshot, if there are any."""
        return Path(f"{self._probe}.trace")

    async def types(self) -> dict[str, int]:
        """How many objects of each type the hub holds, garbage aside."""
        told = self._ask()
        await until(told.exists)
        found: dict[str, int] = json.loads(told.read_text())
        return found

    def _ask(self) -> Path:
        """Where the probe writes its answer."""
        told = Path(f"{self._probe}.types")
        told.unlink(missing_ok=True)
        Path(f"{self._probe}.ask").touch()
        return told


class Killer:
    """Kills servers as often as it is told to, whenever one of them runs."""

    def __init__(self, hub: SoakHub, rng: Random) -> None:
        self.kills = 0
        self._hub = hub
        self._rng = rng
        self._owed = 0
        self._born: dict[str, tuple[int, float]] = {}
        self._told = asyncio.Event()

    async def owe(self) -> None:
        """One more kill; waits while too many are due."""
        self._owed += 1
        self._told.set()
        await until(lambda: self._owed <= _MOST_OWED, _START)

    async def run(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            while self._owed:
                if self._killed(self._rng.choice(KILLED)):
                    self.kills += 1
                    self._owed -= 1
                await asyncio.sleep(self._rng.uniform(0, 0.2))

    @property
    def is_idle(self) -> bool:
        return not self._owed

    def _killed(self, name: str) -> bool:
        pid = self._hub.remote.pid if name == "w" else self._hub.child_named(name)
        if pid is None or not self._is_grown(name, pid):
            return False
        if name == "w":
            self._hub.kill_remote()
        else:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return True

    def _is_grown(self, name: str, pid: int) -> bool:
        known, since = self._born.get(name, (0, 0.0))
        if known != pid:
            self._born[name] = (pid, time.monotonic())
            return False
        return time.monotonic() - since > _AGE


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
