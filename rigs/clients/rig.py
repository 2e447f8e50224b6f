"""What a client is pointed at: a hub on either front with a server of each era behind it, or one server itself."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup, TaskStatus

from rigs.clients.clients import MODERN_VERSION, Client
from rigs.clients.install import ROOT
from rigs.report import sandboxed
from tests.e2e.client import Hub
from tests.e2e.cutting_proxy import Cutter, cutter
from tests.interaction.fronts import http_hub
from tests.upstreams.child import ENDS
from tests.upstreams.launch import argv, patient

NAMES = {"handshake": "h", "modern": "m"}
BOTH = "both"
"""In place of an era: the reference server, alone, with the settings that every hub has."""
REFERENCE = "r"
NO_KEYS: Mapping[str, str] = {}
MARKER = "cut-here"
_JOURNALS = "journals"
# seconds between the notifications: a client that is asked to wait 5 s comes back when a few are still to come
RESUME_DELAY = 0.15
CUT_AFTER = 10


@dataclass
class Rig:
    """Where the client finds its server: the members of a driver's task, and the hub over HTTP if there is one."""

    task: dict[str, Any]
    hub: "HttpHub | None" = None
    cutter: Cutter | None = None


class HttpHub:
    """A hub on a port that it keeps when it is started again; its life is a task of its own."""

    def __init__(self, root: Path, tasks: TaskGroup, era: str) -> None:
        self.url = ""
        self._root, self._tasks, self._era = root, tasks, era

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def start(self) -> None:
        self._stopping, self._stopped = anyio.Event(), anyio.Event()
        await self._tasks.start(self._live)

    async def stop(self) -> None:
        self._stopping.set()
        await self._stopped.wait()

    async def _live(self, *, task_status: TaskStatus[None]) -> None:
        port = ["--port", str(self.port)]
        async with http_hub(config(self._root, era=self._era), self._root, *port) as hub:
            self.url = hub.url
            task_status.started()
            await self._stopping.wait()
        self._stopped.set()


def server(root: Path, era: str) -> list[str]:
    if era == BOTH:
        return [*reference(REFERENCE, journal_of(REFERENCE, root)), "--stdio"]
    name = NAMES[era]
    return argv(name=name, era=era, journal=journal_of(name, root))


def journal_of(name: str, root: Path) -> Path:
    """The file in which a server notes what arrives; its folder is made. A server in a sandbox may write there."""
    (root / _JOURNALS).mkdir(exist_ok=True)
    return root / _JOURNALS / f"{name}.journal"


def reference(name: str, journal: Path) -> list[str]:
    """The command line of the reference server, over HTTP."""
    return [sys.executable, "-m", "rigs.clients.reference", "--name", name, "--journal", str(journal)]


def config(root: Path, attach: str = "never", era: str = "", reference_keys: Mapping[str, str] = NO_KEYS) -> str:
    """With the gap that the hub's rules for clients of the TypeScript SDKs have (docs/clients.md).

    For the era `BOTH` there is the reference server alone, as a process unless the keys of its entry have a `url`;
    results are not cut, and a busy machine may take its time. The servers are in the sandbox of this run.
    """
    if era == BOTH:
        process = {} if "url" in reference_keys else {"cwd": str(ROOT), **entry(server(root, BOTH))}
        servers = {REFERENCE: {**process, **reference_keys}}
        hub: dict[str, Any] = {"attach": attach, "max_result_tokens": 0}
        return json.dumps(sandboxed(patient({"hub": hub, "servers": servers}), root / _JOURNALS), indent=2)
    hub = {"clients": {"mcp-hub": {"result_gap": "5ms"}}, "attach": attach}
    servers = {name: entry(server(root, era)) for era, name in NAMES.items()}
    return json.dumps(sandboxed(patient({"hub": hub, "servers": servers}), root / _JOURNALS), indent=2)


def entry(line: list[str]) -> dict[str, Any]:
    """The entry of a server that is started by this command line."""
    return {"command": line[0], "args": line[1:]}


def state(root: Path) -> dict[str, str]:
    """What a client has to give its hub, so that it touches no file of the user's."""
    return {"MCP_HUB_STATE_DIR": str(root / "state"), "XDG_RUNTIME_DIR": str(root), "MCP_HUB_ATTACH": ""}


async def stop_attached(root: Path) -> None:
    """Ends the hub that the clients attached to. Raises: `AssertionError` if that is not done."""
    line = [sys.executable, "-m", "mcp_hub", "stop", "--config", str(root / "servers.yaml")]
    done = await anyio.run_process(line, env={**os.environ, **state(root)}, cwd=ROOT, check=False)
    assert done.returncode == 0, f"mcp-hub stop: {done.stderr.decode()}"


@asynccontextmanager
async def arranged(client: Client, front: str, era: str, root: Path) -> AsyncIterator[Rig]:
    """For a client on `stdio` or `http` of a hub; or `attached`, over stdio to a hub that goes on without it; or
    `remote`, over stdio to a hub that reaches the reference server over HTTP; or `bridged`, over stdio to a hub that
    speaks the other era with the reference server; or `recorded`, over stdio as `recorded_hub` says; or `direct`,
    over stdio to the server of this era itself; or `direct-http`, to a server over HTTP that has nothing to do with
    the hub.
    """
    name = NAMES.get(era, REFERENCE)
    task = {"name": name, "prefix": f"{name}_", "journal": str(journal_of(name, root))}
    if front == "direct":
        command, *args = server(root, era)
        yield Rig({**task, "prefix": "", "target": {"command": command, "args": args, "env": {}}})
    elif front in ("stdio", "attached"):
        (root / "servers.yaml").write_text(config(root, "always" if front == "attached" else "never", era))
        yield Rig({**task, "target": piped_hub(root, [] if era == BOTH else ["--client", "mcp-hub"])})
    elif front == "recorded":
        (root / "servers.yaml").write_text(config(root, era=era))
        yield Rig({**task, "target": recorded_hub(root)})
    elif front == "bridged":
        other_era = "handshake" if client.version == MODERN_VERSION else "modern"
        (root / "servers.yaml").write_text(config(root, era=era, reference_keys={"era": other_era}))
        yield Rig({**task, "target": piped_hub(root)})
    elif front == "remote":
        async with listening(name, task) as url:
            (root / "servers.yaml").write_text(config(root, era=era, reference_keys={"url": url}))
            yield Rig({**task, "target": piped_hub(root)})
    elif front == "http":
        async with anyio.create_task_group() as tasks:
            hub = HttpHub(root, tasks, era)
            await hub.start()
            async with over_http(client, hub.url) as rig:
                yield replace(rig, task={**rig.task, **task}, hub=hub)
            await hub.stop()
    else:
        async with listening(name, task) as url, over_http(client, url) as rig:
            yield replace(rig, task={**rig.task, **task, "prefix": ""})


def piped_hub(root: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    """How a client starts the hub with the configuration in this folder."""
    args = ["-m", "mcp_hub", "serve", *options, "--config", str(root / "servers.yaml")]
    return {"command": sys.executable, "args": args, "env": state(root)}


def recorded_hub(root: Path) -> dict[str, Any]:
    """As `piped_hub`; what both sides send is recorded in `root/sent.jsonl`."""
    hub = piped_hub(root)
    line = ["-m", "rigs.clients.tee", str(root / "sent.jsonl"), hub["command"], *hub["args"]]
    return {**hub, "args": line, "env": {**hub["env"], "PYTHONPATH": str(ROOT)}}


@asynccontextmanager
async def listening(name: str, task: dict[str, Any]) -> AsyncIterator[str]:
    """The URL of the reference server."""
    async with Hub(reference(name, Path(task["journal"])), cwd=ROOT) as process:
        yield (await process.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()


@asynccontextmanager
async def over_http(client: Client, url: str) -> AsyncIterator[Rig]:
    """The way to a URL, and one for `resume` on which the connection breaks."""
    reach = client.bridge or (lambda url: {"url": url})
    async with cutter(url, marker=MARKER.encode(), sign=b"notifications/progress", count=CUT_AFTER) as around:
        resume = {"target": reach(around.url), "marker": MARKER, "delay": RESUME_DELAY}
        yield Rig({"target": reach(url), "resume": resume}, cutter=around)


async def left_running(root: Path, grace: float = ENDS) -> list[str]:
    """Command lines of processes of this rig that have not ended in `grace` seconds; they are killed. Needs `/proc`."""
    with anyio.move_on_after(grace):
        while _running(root):  # noqa: ASYNC110 - nobody tells of the end of another's child
            await anyio.sleep(0.02)
    left = _running(root)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return list(left.values())


def _running(root: Path) -> dict[int, str]:
    """Processes that have this folder in their command line: hubs and servers have it."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if str(root) in line:
                found[int(entry.name)] = line.strip()
    return found
