"""One user's world in a folder: a configuration, a state of its own, the clients that join, and every process of it."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import anyio

from rigs.attach.desktop import VARIABLES, on_desktop
from rigs.report import sandboxed
from tests.e2e.answers import hello
from tests.upstreams.child import WAIT, PeerClosed, until
from tests.upstreams.launch import SERVER, argv, events, patient
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

ROOT = Path(__file__).parents[2]
GONE = 60.0
"""Seconds in which every process of a hub that ends has to be gone."""


class Fault(Exception):
    """A promise that was not kept; the message says what was seen."""


def expect(is_so: bool, said: str, seen: object = "") -> None:
    """Raises `Fault` if it is not so."""
    if not is_so:
        raise Fault(f"{said}: {seen}" if seen != "" else said)


@dataclass(frozen=True)
class Process:
    """A process of a place, as `/proc` has it."""

    pid: int
    parent: int
    line: str

    def __str__(self) -> str:
        return f"{self.pid} {self.line[-120:]}"


class Place:
    """Leaving the block ends every process whose command line or environment names the folder. Needs `/proc`."""

    program: Sequence[str] = (sys.executable, "-m", "mcp_hub")
    """How a command line of `command` begins."""

    def __init__(
        self, root: Path, *, servers: Iterable[str] = ("a", "b"), hub: Mapping[str, Any] | None = None, **more: object
    ) -> None:
        """`servers` are the names of fixture servers; `hub` and `more` are further settings."""
        self.root = root
        self.config = root / "servers.yaml"
        self.clients: set[int] = set()
        self._numbers = itertools.count()
        for name in ("run", "state", "home"):
            (root / name).mkdir(mode=0o700)
        self.env = {
            **{"HOME": str(root / "home"), "XDG_RUNTIME_DIR": str(root / "run"), "PYTHONPATH": str(ROOT), **VARIABLES},
            **{f"XDG_{kind}_HOME": str(root / "home" / kind.lower()) for kind in ("CONFIG", "CACHE", "DATA", "STATE")},
            "MCP_HUB_STATE_DIR": str(root / "state"),
        }
        entries = {name: entry(argv(name=name, journal=self.journal(name))) for name in servers}
        self.write(patient({"hub": {"attach": "always", **(hub or {})}, "servers": entries, **more}))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for sent in (signal.SIGCONT, signal.SIGKILL):
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, sent)
        with anyio.move_on_after(GONE, shield=True):
            while self.processes():  # noqa: ASYNC110 - nobody tells of the end of another's child
                await anyio.sleep(0.01)

    def write(self, settings: Mapping[str, Any]) -> None:
        """A new configuration, in the place of the one that is there."""
        self.settings = sandboxed(settings, self.root / "journals")
        draft = self.config.with_suffix(".new")
        draft.write_text(json.dumps(self.settings, indent=1))
        draft.chmod(0o600)
        draft.rename(self.config)

    def change(self, server: str, **keys: object) -> None:
        """Sets keys of one server."""
        servers = self.settings["servers"]
        self.write({**self.settings, "servers": {**servers, server: {**servers[server], **keys}}})

    def journal(self, server: str) -> Path:
        return self.root / "journals" / f"{server}.journal"

    def starts(self, server: str) -> int:
        """How often a process of the server began to serve."""
        return len(events(self.journal(server), "start"))

    # clients

    @asynccontextmanager
    async def client(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        code: Path = ROOT,
        wrap: Callable[[list[str]], list[str]] | None = None,
    ) -> AsyncIterator[StdioClient]:
        """`mcp-hub serve` over stdio, its handshake not done.

        `code` is the folder of the package that runs; `wrap` makes another command line of the usual one.
        """
        line = [sys.executable, "-m", "mcp_hub", "serve", "--client", "mcp-hub", "--config", str(self.config), *args]
        if "auto" in (args or [self.settings["hub"]["attach"]]):
            line = on_desktop(line, self.root / f"root-{next(self._numbers)}")
        line = wrap(line) if wrap is not None else line
        given = {**self.env, "PYTHONPATH": str(code), **(env or {})}
        async with StdioClient(line, given, cwd=cwd or self.root) as client:
            self.clients.add(client.pid)
            yield client

    @asynccontextmanager
    async def joined(self, *args: str, **options: Any) -> AsyncIterator[StdioClient]:
        """A client after its handshake, for whom server `a` has answered. Raises `Fault`."""
        async with self.client(*args, **options) as client:
            await greeted(client)
            await echoed(client, f"hello from {client.pid}")
            yield client

    async def command(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A run of `mcp-hub` with these arguments, to its end, for this configuration."""
        line = [*self.program, *args]
        given = {**os.environ, **self.env, "MCP_HUB_CONFIG": str(self.config), **(env or {})}
        with anyio.fail_after(240):
            done = await anyio.run_process(line, env=given, cwd=self.root, check=False)
        return subprocess.CompletedProcess(line, done.returncode, done.stdout.decode(), done.stderr.decode())

    # what is there

    def processes(self) -> dict[int, Process]:
        """Everything that runs in this place; zombies do not."""
        return processes_of(self.root)

    def servers(self, *names: str) -> list[Process]:
        """The processes of these servers, or of all."""
        wanted = [f"--journal {self.journal(name)}" for name in names] or [str(SERVER)]
        return [one for one in self.processes().values() if any(part in one.line for part in wanted)]

    def owners(self, *names: str) -> set[int]:
        """The hubs that run these servers, or any: the parents of their processes."""
        return {server.parent for server in self.servers(*names)}

    def hubs(self) -> set[int]:
        """Every process that is neither a client, nor a server, nor a watchdog: attached hubs, by what is left."""
        own = {pid: one for pid, one in self.processes().items() if pid not in self.clients}
        strangers = (str(SERVER), "watchdog_program")
        return {pid for pid, one in own.items() if not any(part in one.line for part in strangers)}

    def scopes(self) -> list[Path]:
        """The folders of attached hubs."""
        return sorted(path.parent for path in (self.root / "run").glob("mcp-hub/*/lock"))

    def record(self) -> Message:
        """What the one attached hub says of itself. Raises `Fault` unless there is one."""
        found = [path / "hub.json" for path in self.scopes() if (path / "hub.json").exists()]
        expect(len(found) == 1, "there is not one record", found)
        record: Message = json.loads(found[0].read_text())
        return record

    def hub(self) -> int:
        """The pid of the one attached hub. Raises `Fault` if there is another, or none."""
        found, pid = self.hubs(), self.record()["pid"]
        expect(found == {pid}, f"the record names {pid}, and these run", [str(self.processes().get(p)) for p in found])
        return int(pid)

    async def gone(self, pids: Iterable[int] = (), seconds: float = GONE) -> None:
        """Waits until these processes, or all of this place, have ended. Raises `Fault` if one does not."""
        wanted = set(pids)

        def left() -> list[Process]:
            return [one for pid, one in self.processes().items() if not wanted or pid in wanted]

        try:
            await until(lambda: not left(), seconds)
        except TimeoutError:
            raise Fault(f"still there after {seconds:g} s: {'; '.join(map(str, left()))}") from None


def processes_of(folder: Path) -> dict[int, Process]:
    """The processes with this folder in their command line or environment, without this one and zombies."""
    mark = os.fsencode(folder)
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            line = (place / "cmdline").read_bytes()
            if mark not in line and mark not in (place / "environ").read_bytes():
                continue
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and int(place.name) != os.getpid():
                text = line.replace(b"\0", b" ").decode("utf-8", "replace").strip()
                found[int(place.name)] = Process(int(place.name), int(parent), text)
    return found


def entry(line: list[str], **keys: object) -> dict[str, object]:
    """The entry of a server that is started by this command line."""
    return {"command": line[0], "args": line[1:], **keys}


async def greeted(client: StdioClient, seconds: float = WAIT) -> Message:
    """The result of the handshake. Raises `Fault`."""
    try:
        params = hello(client.version, None, client.answers, "rig")
        answer = await client.request("initialize", params, seconds=seconds)
    except (TimeoutError, PeerClosed) as problem:
        said = f"{type(problem).__name__} before initialize was answered"
        raise Fault(f"{said}; stderr: {client.stderr[-700:]}") from None
    expect("result" in answer, "initialize failed", answer)
    await client.notify("notifications/initialized")
    result: Message = answer["result"]
    return result


async def echoed(client: StdioClient, text: str, server: str = "a") -> None:
    """Calls `echo`, whose answer must be this client's. Raises `Fault`."""
    answer = await client.call(f"{server}_echo", {"text": text})
    got = answer.get("result", {}).get("structuredContent")
    expect(got == {"text": text}, f"echo of {text!r} was answered with", str(answer)[:300])


def typed(answer: Message) -> bool:
    """Whether it is a result, or an error that names a stable code."""
    return "result" in answer or bool((answer["error"].get("data") or {}).get("code"))


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    items = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)
