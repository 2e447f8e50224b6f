"""The sides of the comparison: how each is started, driven and stopped, or why it cannot be."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import measure, peers
from bench.ledger import RelayFailed
from bench.load import Client, PipeClient
from bench.load_http import HttpClient
from bench.load_sse import SseClient
from rigs.clients.install import NotInstalled

HERE = Path(__file__).parent
# direct is the client at the upstream's own pipe: what a call costs without any relay
# before is another installation of the hub, whose command BENCH_BEFORE names, or that `--against` makes
OURS = ("direct", "limit", "hub", "before", "sdk", "fastmcp")
RELAYS = (*OURS, *peers.PEERS)
# those that take so long that they get less to do
SLOW = ("sdk", "fastmcp", *peers.PEERS)
# a client that joins the background hub: measured with it, and only where that is what is compared
ATTACHED = "attached"
SANDBOXED = "sandboxed"
# the hub with one store or the other, where that is what is compared
STORES = ("sqlite", "memory")
# the hub with more or less of its history of calls, where that is what is compared
HISTORIES: dict[str, object] = {
    "history off": "off",
    "arguments none": {"arguments": "none"},
    "arguments full": {"arguments": "full"},
}
# the hub with a limit, an audit or kept results, where that is what is compared: keys of `hub`, and of each server
GATES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "no gates": ({}, {}),
    "rate": ({}, {"rate": "10000/s"}),
    "concurrency": ({}, {"concurrency": 1000}),
    "audit hash": ({"audit": {"path": "audit.jsonl"}}, {}),
    "audit full": ({"audit": {"path": "audit.jsonl", "arguments": "full"}}, {}),
}
HUBS = ("hub", "before", ATTACHED, SANDBOXED, *STORES, *HISTORIES, *GATES)
# the hub's state folder inside a side's own, and its configuration
STATE, CONFIG = "state", "servers.json"
# seconds: until a relay listens, until its list is complete, until it has stopped at each stage of asking
START_LIMIT = 40.0
LIST_LIMIT = 15.0
STOP_LIMIT = 4.0


class Unavailable(Exception):
    """A side cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Setup:
    """What is put behind a relay and in front of it; `tools` and `delay` are per upstream."""

    front: str
    upstreams: int = 1
    tools: int = 5
    delay: float = 0.0
    stamps: str = ""
    is_lazy: bool = False
    """Whether the hub starts an upstream on first use only."""

    def argv(self) -> list[str]:
        """The command of one upstream."""
        # -S -E: no site-packages, so that ten upstreams start without holding up the relay
        script = str(HERE / "echo_server.py")
        options = [f"--tools={self.tools}", f"--delay={self.delay}", f"--stamps={self.stamps}"]
        return [sys.executable, "-S", "-E", script, *options]

    def servers(self) -> dict[str, dict[str, object]]:
        """The upstreams e0, e1, … as `mcpServers`."""
        head, *args = self.argv()
        more = {"start": "lazy"} if self.is_lazy else {}
        return {f"e{number}": {"command": head, "args": args, **more} for number in range(self.upstreams)}


@dataclass
class Side:
    """One running relay."""

    name: str
    setup: Setup
    process: subprocess.Popen[bytes]
    port: int
    stderr: Path
    pid: int = 0
    idle_rss: float = 0.0
    broken: bool = False
    names: dict[str, str] = field(default_factory=dict)
    processes: list[measure.OwnProcesses] = field(default_factory=list)
    """What counts: the relay with its helpers, and the background hub of one that attached."""
    _clients: dict[bool, Client] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The hub's state folder."""
        return self.stderr.parent / STATE

    def client(self, modern: bool = False) -> Client:
        """The client of one era, started on first use (stdio: the handshake era only)."""
        if modern not in self._clients:
            client = self._new_client(modern)
            client.start()
            self._clients[modern] = client
        return self._clients[modern]

    def _new_client(self, modern: bool) -> Client:
        if not self.port:
            return PipeClient(self.process)
        if self.name in peers.PEERS and peers.PEERS[self.name].is_sse:
            if modern:
                raise RelayFailed("it has no modern era")
            return SseClient(self.port)
        return HttpClient(self.port, modern)

    def cpu_seconds(self) -> float:
        """User and system time of all its processes so far."""
        return sum(own.cpu_seconds() for own in self.processes)

    def rss_mb(self) -> float:
        """Resident memory of all its processes, in MB."""
        return sum(own.rss_mb() for own in self.processes)

    def tool(self, name: str, number: int = 0) -> str:
        """The exported name of one upstream's tool (a lone upstream may have no prefix)."""
        return self.names[f"e{number}_{name}"]

    def learn(self) -> None:
        """Finds the process to measure and the exported names, and notes the idle memory."""
        until = time.monotonic() + LIST_LIMIT
        while missing := self._missing(self.client().list_tools().names):
            if time.monotonic() > until:
                raise RelayFailed(f"no tool of {', '.join(missing[:3])} among {len(self.names)} listed")
            time.sleep(0.05)
        self.pid = self.process.pid if self.name in peers.PEERS else measure.python_process(self.process.pid)
        self.idle_rss = measure.rss_mb(self.pid)
        roots = [self.pid, background_hub(self.stderr.parent)] if self.name == ATTACHED else [self.pid]
        self.processes = [measure.OwnProcesses(pid) for pid in roots]

    def _missing(self, listed: list[str]) -> list[str]:
        """Notes the names; returns the upstreams of which none is there yet."""
        for name in listed:
            prefixed = self.setup.upstreams > 1 or name.startswith("e0_")
            plain = name.replace("__", "_", 1)  # some separate server and tool by two
            self.names[plain if prefixed else f"e0_{name}"] = name
        return [server for server in self.setup.servers() if f"{server}_echo" not in self.names]

    def reason(self) -> str:
        """The last words of the process on its standard error."""
        lines = self.stderr.read_text(errors="replace").split("\n")
        last = [line.strip() for line in lines if line.strip()][-1:]
        ended = self.process.poll()
        return (f"exit {ended}; " if ended is not None else "") + (last[0][:200] if last else "no stderr")

    def stop(self) -> None:
        """End of input, then SIGTERM, then SIGKILL, to this one process; the background hub is asked to stop."""
        if self.name == ATTACHED:
            line = [hub_command(), "stop", "--config", str(self.stderr.parent / CONFIG)]
            subprocess.run(line, env=environment(self.stderr.parent, ATTACHED), capture_output=True, check=False)
        for client in self._clients.values():
            client.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        for sign in (0 if self.port == 0 else signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if sign:
                self.process.send_signal(sign)
            try:
                self.process.wait(STOP_LIMIT)
                return
            except subprocess.TimeoutExpired:
                continue


def command(relay: str, setup: Setup, config: Path, port: int) -> list[str]:
    """The argument list of a relay. Raises Unavailable."""
    if relay == "direct":
        if setup.upstreams > 1:
            raise Unavailable("direct access is one upstream's own pipe")
        return setup.argv()
    if relay in HUBS:
        http = ["--http", "--port", str(port)] if port else []
        program = earlier_hub() if relay == "before" else hub_command()
        attach = ["--attach", "always"] if relay == ATTACHED else []
        return [program, "serve", *http, *attach, "--config", str(config)]
    if relay in peers.PEERS:
        return peer_command(relay, setup, config, port)
    http = ["--http", str(port)] if port else []
    python = fastmcp_python() if relay == "fastmcp" else sys.executable
    script = {"limit": "limit.py", "sdk": "sdk_proxy.py", "fastmcp": "fastmcp_proxy.py"}[relay]
    return [python, str(HERE / script), "--config", str(config), *http]


def peer_command(relay: str, setup: Setup, config: Path, port: int) -> list[str]:
    """Of a relay that has upstreams over stdio and is asked over HTTP. Raises Unavailable."""
    if not port:
        raise Unavailable("it is asked over HTTP only")
    if setup.upstreams > 1 and not peers.PEERS[relay].has_many:
        raise Unavailable("it has one upstream")
    try:
        return peers.command(relay, setup.argv(), port, config)
    except NotInstalled as problem:
        raise Unavailable(str(problem)) from problem


def hub_command() -> str:
    beside = Path(sys.executable).with_name("mcp-hub")
    found = str(beside) if beside.exists() else shutil.which("mcp-hub")
    if not found:
        raise Unavailable("the command mcp-hub is not installed")
    return found


def earlier_hub() -> str:
    """The command that BENCH_BEFORE names, to compare two versions of the hub in one run."""
    found = shutil.which(os.environ.get("BENCH_BEFORE", ""))
    if not found:
        raise Unavailable("neither --against nor BENCH_BEFORE names another version")
    return found


@cache
def fastmcp_python() -> str:
    """BENCH_FASTMCP_PYTHON, else this interpreter, if it can import fastmcp."""
    python = os.environ.get("BENCH_FASTMCP_PYTHON") or sys.executable
    found = "import importlib.util as u, sys; sys.exit(not u.find_spec('fastmcp'))"
    try:
        probe = subprocess.run([python, "-c", found], check=False)
    except OSError as error:
        raise Unavailable(f"BENCH_FASTMCP_PYTHON: {error}") from error
    if probe.returncode:
        raise Unavailable("fastmcp is not installed (BENCH_FASTMCP_PYTHON names a Python that has it)")
    return python


def write_config(folder: Path, setup: Setup, hub: dict[str, object], relay: str = "hub") -> Path:
    """One file for every side; only the hub reads the parts `hub` and `defaults`."""
    config = folder / CONFIG
    defaults = {"defaults": {"sandbox": "on"}} if relay == SANDBOXED else {}
    more, of_servers = GATES.get(relay, ({}, {}))
    servers = {name: {**server, **of_servers} for name, server in setup.servers().items()}
    config.write_text(json.dumps({"hub": {**hub, **more}, **defaults, "mcpServers": servers}))
    return config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(relay: str, setup: Setup, folder: Path, hub: dict[str, object]) -> Side:
    """Starts a relay with state folders of its own, or with what an earlier one left there. Raises Unavailable."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if relay in STORES:
        hub = hub | {"store": {"type": relay}}
    if relay in HISTORIES:
        hub = hub | {"history": HISTORIES[relay]}
    port = free_port() if setup.front == "http" and relay != "direct" else 0
    argv = command(relay, setup, write_config(folder, setup, hub, relay), port)
    stderr = folder / "stderr"
    with stderr.open("wb") as errors:
        wire = subprocess.DEVNULL if port else subprocess.PIPE
        process = subprocess.Popen(
            argv, bufsize=0, stdin=wire, stdout=wire, stderr=errors, cwd=folder, env=environment(folder, relay)
        )
    return Side(relay, setup, process, port, stderr)


def environment(folder: Path, relay: str) -> dict[str, str]:
    """Ours, with folders of the side's own; nobody joins a background hub but who is to."""
    homes = {name: str(folder / name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    attach = "always" if relay == ATTACHED else "never"
    own = {"MCP_HUB_STATE_DIR": str(folder / STATE), "XDG_RUNTIME_DIR": str(folder), "MCP_HUB_ATTACH": attach}
    return os.environ | homes | own | peers.environment(relay)


def background_hub(folder: Path) -> int:
    """The pid of the hub that a side of this folder attached to. Raises RelayFailed."""
    found = [json.loads(file.read_text())["pid"] for file in folder.glob("mcp-hub/*/hub.json")]
    if len(found) != 1:
        raise RelayFailed(f"{len(found)} background hubs")
    return int(found[0])


def await_port(side: Side) -> None:
    """Waits until the relay listens."""
    until = time.monotonic() + START_LIMIT
    while time.monotonic() < until:
        if side.process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", side.port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RelayFailed("does not listen")


@contextmanager
def started(relay: str, setup: Setup, hub: dict[str, object]) -> Iterator[Side]:
    """One relay, spawned and nothing more; stopped at the end. Raises Unavailable."""
    with TemporaryDirectory(prefix="bench-") as folder:
        side = spawn(relay, setup, Path(folder) / relay, hub)
        try:
            yield side
        finally:
            side.stop()


@contextmanager
def launched(
    relays: Sequence[str], setup: Setup, hub: dict[str, object], unavailable: dict[str, str]
) -> Iterator[list[Side]]:
    """All sides at once, each initialised and listed; the reasons of the others go into `unavailable`."""
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        spawned, ready = [], []
        for relay in relays:
            try:
                side = spawn(relay, setup, Path(folder) / relay, hub)
            except (Unavailable, OSError) as error:
                unavailable[relay] = str(error)
                continue
            stack.callback(side.stop)
            spawned.append(side)
        for side in spawned:
            try:
                if side.port:
                    await_port(side)
                side.learn()
                ready.append(side)
            except (RelayFailed, OSError) as error:
                unavailable[side.name] = f"{error} ({side.reason()})"
        yield ready
